//! Gives disk space back: log segments whose records are all expired, as far as the older state
//! image no longer needs them for a replay.

use std::sync::Arc;

use queen_engine::port::View;

use crate::node::Inner;

/// Runs until the task is aborted; looks whenever a state image was written.
pub async fn run(inner: Arc<Inner>) {
    let Some(images) = inner.images.clone() else {
        return;
    };
    loop {
        images.written.notified().await;
        let mut through = inner.look(reclaimable_through).min(images.previous());
        // Whoever is there still needs what it has not got; whoever is not gets files when it is
        // back, and must not fill this disk until then.
        if let Some(cluster) = &inner.cluster {
            let cards = cluster.cards_lately();
            through = cards
                .iter()
                .map(|card| card.last_index)
                .fold(through, u64::min);
        }
        let first = inner.replicator.first_index();
        if through < first {
            continue;
        }
        inner.replicator.purge(through).await;
        let now_first = inner.replicator.first_index();
        if now_first > first {
            tracing::info!(first, now_first, "log reclaimed");
            inner.state.write().index.purge_through(now_first - 1);
        }
    }
}

/// Index of the newest entry at and below which no record is readable any more.
fn reclaimable_through(view: View<'_>) -> u64 {
    let mut oldest_live = view.engine.applied() + 1;
    for topic in view.engine.topics.iter() {
        for (number, partition) in (0u32..).zip(&topic.partitions) {
            if partition.log_start == partition.next_offset {
                continue;
            }
            if let Some(row) = view.index.find(topic.id, number, partition.log_start) {
                oldest_live = oldest_live.min(row.at.index);
            }
        }
    }
    oldest_live.saturating_sub(1)
}
