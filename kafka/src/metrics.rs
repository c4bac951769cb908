//! The listener's metric names and handles. Labels are API names only: never topics, groups or
//! clients, whose number is the users' to choose.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::dispatch::{APIS, Api};

/// Handles of one API.
struct ApiHandles {
    requests: Counter,
    errors: Counter,
    seconds: Histogram,
}

/// Handles of one listener.
pub(crate) struct Metrics {
    apis: Vec<(i16, ApiHandles)>,
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
    pub(crate) connections: Gauge,
    pub(crate) connections_refused: Counter,
    /// Connections closed for malformed or unserved requests.
    pub(crate) protocol_errors: Counter,
    pub(crate) fetch_sessions: Gauge,
    /// Bytes of record batches in Fetch answers.
    pub(crate) fetched_bytes: Counter,
    pub(crate) group_members: Gauge,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let handles = |api: &Api| ApiHandles {
            requests: counter!("queen_kafka_requests_total", "api" => api.name),
            errors: counter!("queen_kafka_errors_total", "api" => api.name),
            seconds: histogram!("queen_kafka_request_seconds", "api" => api.name),
        };
        Metrics {
            apis: APIS.iter().map(|api| (api.key, handles(api))).collect(),
            bytes_in: counter!("queen_kafka_bytes_in_total"),
            bytes_out: counter!("queen_kafka_bytes_out_total"),
            connections: gauge!("queen_kafka_connections"),
            connections_refused: counter!("queen_kafka_connections_refused_total"),
            protocol_errors: counter!("queen_kafka_protocol_errors_total"),
            fetch_sessions: gauge!("queen_kafka_fetch_sessions"),
            fetched_bytes: counter!("queen_kafka_fetched_bytes_total"),
            group_members: gauge!("queen_kafka_group_members"),
        }
    }

    /// Counts one answered request.
    pub(crate) fn answered(&self, api: &Api, seconds: f64, failed: bool) {
        if let Some((_, handles)) = self.apis.iter().find(|(key, _)| *key == api.key) {
            handles.requests.increment(1);
            handles.seconds.record(seconds);
            if failed {
                handles.errors.increment(1);
            }
        }
    }
}
