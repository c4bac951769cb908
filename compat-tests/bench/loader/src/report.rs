//! Figures as JSON.

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::payload::{Book, now_ns};

/// Latencies counted from when a message was due, not from when it could be sent: no coordinated omission.
pub struct Latency(Histogram<u64>);

impl Latency {
    pub fn new() -> Latency {
        Latency(Histogram::new_with_bounds(1, 600_000_000, 3).expect("constant bounds"))
    }

    pub fn note(&mut self, due_ns: u64) {
        self.0.saturating_record(now_ns().saturating_sub(due_ns) / 1000);
    }

    pub fn add(&mut self, other: &Latency) {
        let _ = self.0.add(&other.0);
    }

    /// Milliseconds.
    pub fn json(&self) -> Value {
        let at = |q: f64| self.0.value_at_quantile(q) as f64 / 1000.0;
        json!({"count": self.0.len(), "p50_ms": at(0.5), "p90_ms": at(0.9), "p99_ms": at(0.99), "p999_ms": at(0.999),
            "max_ms": self.0.max() as f64 / 1000.0})
    }
}

pub fn of_book(book: &Book, messages: u64, seconds: f64) -> Value {
    json!({"delivered": book.count, "twice": book.twice, "disorder": book.disorder, "strange": book.strange,
        "seconds": seconds, "per_second": book.count as f64 / seconds.max(1e-9),
        "ok": book.clean() && book.count == messages})
}
