//! Time passes: what has expired is forgotten, a bounded amount per tick.

use super::Applying;
use crate::limits;
use crate::outcome::Outcome;

impl Applying<'_> {
    pub(super) fn tick(&mut self) -> Outcome {
        let now = self.now;
        let mut left = limits::TICK_ROWS_MAX;
        let mut forgotten = self.engine.kv.sweep(now, left);
        left -= forgotten.min(left);
        let engine = &mut *self.engine;
        for topic in engine.topics.iter() {
            let kept = topic
                .options
                .dedup_window_seconds
                .max(limits::DEDUP_SECONDS_MIN);
            let gone = engine.dedup.forget(topic.id, now.plus_seconds(-kept), left);
            left -= gone.min(left);
            forgotten += gone;
        }
        let idle = now.plus_seconds(-limits::PRODUCER_IDLE_SECONDS);
        for topic in engine.topics.iter_mut() {
            for partition in &mut topic.partitions {
                partition
                    .producers
                    .retain(|_, window| window.last_time >= idle);
            }
        }
        engine.groups.leases.retain(|_, lease| lease.expires > now);
        Outcome::Deleted(forgotten as u64)
    }
}
