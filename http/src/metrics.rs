//! The names of the listener's metrics.

use std::time::Duration;

use crate::app::Counted;

/// One answered request.
pub fn request(
    route: &'static str,
    status: u16,
    took: Duration,
    bytes_in: usize,
    bytes_out: usize,
) {
    let class = match status {
        200..=299 => "2xx",
        400..=499 => "4xx",
        500..=599 => "5xx",
        _ => "other",
    };
    metrics::counter!("queen_http_requests_total", "route" => route, "status" => class)
        .increment(1);
    metrics::histogram!("queen_http_request_seconds", "route" => route).record(took.as_secs_f64());
    metrics::counter!("queen_http_received_bytes_total").increment(bytes_in as u64);
    metrics::counter!("queen_http_sent_bytes_total").increment(bytes_out as u64);
}

/// Messages that went through.
pub fn messages(what: Counted, count: u64) {
    let name = match what {
        Counted::Pushed => "queen_http_messages_pushed_total",
        Counted::Popped => "queen_http_messages_popped_total",
        Counted::Acked => "queen_http_messages_acked_total",
    };
    metrics::counter!(name).increment(count);
}

/// Connections that are open now.
pub fn connections(change: f64) {
    metrics::gauge!("queen_http_connections").increment(change);
}
