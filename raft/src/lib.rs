//! Replication, and nothing about queues beyond calling the engine: openraft over the log, the
//! apply thread, the batcher that turns many requests into one entry, the leader's chores,
//! checkpoints, and the cluster around it. Offers the whole as a [`queen_engine::port::Broker`].
//!
//! Read in this order: `node.rs` (what runs), `port.rs` and `pop.rs` (what listeners ask),
//! `batcher.rs` (the way into the log), `replicator.rs` (the seam to Raft), `apply.rs` (the way out
//! of it), `leader.rs`, `driver.rs` and `waiters.rs` (what the leader remembers, does and wakes),
//! `checkpoint.rs` (restart), `cluster.rs` (peers), `catch_up.rs` (files for one that lacks
//! too much), `forward.rs` (commands for the leader). `consensus.rs` and the files under it are the
//! only ones that know openraft; `local.rs` does without.

#![forbid(unsafe_code)]

pub mod apply;
mod batcher;
mod cache;
mod catch_up;
pub mod checkpoint;
pub mod clock;
pub mod cluster;
pub mod consensus;
mod driver;
mod error;
mod forward;
pub mod identity;
mod leader;
mod limits;
pub mod local;
mod metrics;
mod node;
mod peers;
mod pop;
mod port;
mod reclaim;
pub mod replicator;
mod waiters;

pub use cluster::ClusterConfig;
pub use error::{Fatal, StartError};
pub use node::{Node, NodeConfig};
