//! The leader's memory: what to propose next. Rebuilt from the state after a leader change;
//! nothing here is replicated, and a plan that lost a race is simply refused by apply.

pub mod build;
