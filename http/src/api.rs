//! One file per resource.

pub mod ack;
pub mod changed;
pub mod cluster;
pub mod configure;
pub mod dead_letters;
pub mod fetch;
pub mod groups;
pub mod health;
pub mod kv;
pub mod kv_ops;
pub mod messages;
pub mod pop;
pub mod push;
pub mod push_binary;
pub mod resources;
pub mod status;
pub mod system;
pub mod timers;
pub mod transaction;
