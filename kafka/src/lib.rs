//! The Kafka listener: framing, versions, every request, group membership. It knows the node only
//! through [`queen_engine::port::Broker`]; nothing here knows Raft, HTTP or files.
//!
//! Read in this order: `server.rs` (accept), `connection.rs` (one connection, answers in order),
//! `dispatch.rs` (which keys and versions are served, and by what), `api/` (one file per request),
//! then `group/` (classic group membership) and `fetch_session.rs`. `wire/` turns bytes into
//! messages and back.

#![forbid(unsafe_code)]

mod api;
mod config;
mod connection;
mod context;
mod dispatch;
mod fetch_encode;
mod fetch_session;
mod group;
mod limits;
mod metrics;
mod names;
mod server;
mod topic_config;
mod wire;

pub use config::KafkaConfig;
pub use dispatch::{ServedApi, served_apis};
pub use server::serve;

/// Decodes one frame (without its length prefix) as a request of any served API, and throws the
/// result away. For fuzzing: it must neither panic nor allocate out of proportion.
pub fn fuzz_frame(frame: &[u8]) {
    let frame = bytes::Bytes::copy_from_slice(frame);
    if let Ok((call, body)) = dispatch::parse(frame) {
        let _ = call.api.decodes(body, call.version);
    }
}
