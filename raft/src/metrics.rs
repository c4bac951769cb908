//! The names of all metrics of this crate, and the only place that records them.

use std::collections::BTreeMap;
use std::time::Duration;

use metrics::{counter, gauge, histogram};
use queen_engine::cluster::MemberView;

/// An entry of so many commands was applied.
pub(crate) fn commands(count: usize) {
    histogram!("queen_entry_commands").record(f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
}

/// Applying an entry took this long.
pub(crate) fn applied(took: Duration) {
    counter!("queen_entries_applied_total").increment(1);
    histogram!("queen_apply_seconds").record(took.as_secs_f64());
}

/// An entry of so many bytes was proposed.
pub(crate) fn proposed(bytes: usize, requests: usize) {
    counter!("queen_entries_proposed_total").increment(1);
    counter!("queen_requests_total").increment(requests as u64);
    histogram!("queen_entry_bytes").record(bytes as f64);
}

/// A request was answered without an outcome.
pub(crate) fn failed(reason: &'static str) {
    counter!("queen_requests_failed_total", "reason" => reason).increment(1);
}

/// A message was recognised as a duplicate before it was logged.
pub(crate) fn duplicate_at_the_door() {
    counter!("queen_duplicates_at_the_door_total").increment(1);
}

/// A state image of so many bytes was written.
pub(crate) fn image(bytes: u64, took: Duration) {
    gauge!("queen_image_bytes").set(bytes as f64);
    histogram!("queen_image_seconds").record(took.as_secs_f64());
}

/// Sets a gauge for each figure; asked for when somebody looks, so an idle node sets none.
pub(crate) fn figures(figures: &BTreeMap<String, f64>) {
    for (name, value) in figures {
        gauge!(format!("queen_{name}")).set(*value);
    }
}

/// Sets what is known of another member; entries it lacks of what is committed, bytes of its disk.
pub(crate) fn peer(peer: &MemberView, committed: u64) {
    let id = peer.id.to_string();
    let set = |name: &'static str, value: Option<u64>| {
        if let Some(value) = value {
            gauge!(name, "peer" => id.clone()).set(value as f64);
        }
    };
    let lag = peer.last_index.map(|last| committed.saturating_sub(last));
    set("queen_peer_lag_entries", lag);
    set("queen_peer_applied_index", peer.applied);
    set("queen_peer_heard_ms_ago", peer.heard_ms_ago);
    set("queen_peer_disk_bytes", peer.disk_bytes);
    set("queen_peer_disk_free_bytes", peer.disk_free);
    set("queen_peer_in_sync", Some(u64::from(peer.in_sync)));
}
