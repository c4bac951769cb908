//! The HTTP listener: what the Queen clients talk to. Parses, asks the broker, renders the answer.
//!
//! Read in this order: `server.rs` (connections and shutdown), `forward.rs` (what another node must
//! answer), `router.rs` (every route on one page), `api/` (one file per resource), `problem.rs`
//! (every error body). The crate knows the
//! engine's words and its door [`queen_engine::port::Broker`]; it knows nothing of Raft, Kafka or
//! files.

#![forbid(unsafe_code)]

mod api;
mod app;
mod backlog;
pub mod client;
mod forward;
mod json;
mod limits;
mod metrics;
mod problem;
mod reply;
mod request;
mod resolve;
mod router;
mod server;
mod shown;
mod time;

pub use api::push::{PushEntry, parse_push_body};
pub use api::push_binary::{BinaryPush, parse_binary_push};
pub use app::HttpConfig;
pub use request::BodyError;
pub use server::serve;
