//! Placeholder until the crate is written.
pub mod batch;
