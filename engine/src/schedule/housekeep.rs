//! What the leader does when nobody asks: bases that may advance, retention, letting time pass.

use super::{Scheduler, sooner};
use crate::command::{Claim, Command};
use crate::group::committed_offset;
use crate::ids::{LeaseId, TimeUs};
use crate::limits;
use crate::port::View;
use crate::topic::Topic;

/// Chores that are due.
#[derive(Debug, Default)]
pub struct Chores {
    pub commands: Vec<Command>,
    /// Steps of bases that lease nothing; each must be settled like a pop's claim.
    pub claims: Vec<Claim>,
    /// When to ask again at the latest, if nothing happens before.
    pub next: Option<TimeUs>,
}

/// Seconds between looks while something may be due.
const LOOK_SECONDS: i64 = 1;
/// Seconds between ticks while something is remembered that will expire.
const TICK_SECONDS: i64 = 30;

impl Scheduler {
    /// Collects what is due at `now`.
    pub fn housekeep(&mut self, view: View<'_>, now: TimeUs) -> Chores {
        let mut chores = Chores::default();
        self.pass_settled(view, now, &mut chores);
        for topic in view.engine.topics.iter() {
            retain(view, topic, now, &mut chores);
        }
        tick(view, now, &mut chores);
        chores
    }

    fn pass_settled(&mut self, view: View<'_>, now: TimeUs, chores: &mut Chores) {
        for (id, groups) in &mut self.desks {
            let Some(topic) = view.engine.topics.get(*id) else {
                continue;
            };
            for (group, desk) in groups {
                let Some(state) = view.engine.groups.on(group, *id) else {
                    continue;
                };
                if state.exceptions.is_empty() {
                    continue;
                }
                let advance = desk.pass_settled(view, topic, state);
                if advance.is_empty() {
                    continue;
                }
                chores.claims.push(Claim {
                    topic: *id,
                    group: group.clone(),
                    epoch: state.epoch,
                    advance,
                    lanes: Vec::new(),
                    lease: LeaseId(0),
                    lease_ms: 1,
                    commit: false,
                    deadline: now.plus_seconds(60),
                });
                chores.next = sooner(chores.next, Some(now.plus_seconds(LOOK_SECONDS)));
            }
        }
    }
}

/// Proposes a trim of what retention no longer keeps (semantics 17; `retention.ms`).
fn retain(view: View<'_>, topic: &Topic, now: TimeUs, chores: &mut Chores) {
    let options = &topic.options;
    let mut ages: Vec<(TimeUs, bool)> = Vec::new();
    let mut age = |micros: i64, finished_only: bool| {
        if micros > 0 {
            ages.push((TimeUs(micros), finished_only));
        }
    };
    let micros = |seconds: i64| seconds.saturating_mul(1_000_000);
    if options.retention_enabled {
        age(micros(options.retention_seconds), false);
        age(micros(options.completed_retention_seconds), true);
    }
    age(micros(options.max_wait_time_seconds), false);
    age(micros(options.ttl.unwrap_or(0)), false);
    if topic.kafka.deletes()
        && let Some(ms) = topic.kafka.retention_ms(topic.origin)
    {
        age(ms.saturating_mul(1000), false);
    }
    let mut before = Vec::new();
    for (p, partition) in (0u32..).zip(&topic.partitions) {
        if partition.log_start == partition.next_offset {
            continue;
        }
        let mut cut = partition.log_start;
        for (age, finished_only) in &ages {
            let expired = TimeUs(now.0.saturating_sub(age.0) + 1);
            let live = view
                .index
                .find_append_time(topic.id, p, partition.log_start, expired);
            let mut end = live.map_or(partition.next_offset, |row| row.base_offset);
            if *finished_only {
                end = end.min(finished(view, topic, p));
            }
            cut = cut.max(end);
            let next = live.map(|row| TimeUs(row.time.0.saturating_add(age.0)));
            chores.next = sooner(
                chores.next,
                next.map(|at| at.max(now.plus_seconds(LOOK_SECONDS))),
            );
            if *finished_only {
                chores.next = sooner(chores.next, Some(now.plus_seconds(LOOK_SECONDS)));
            }
        }
        if cut > partition.log_start {
            before.push((p, cut));
        }
    }
    if !before.is_empty() {
        chores.commands.push(Command::Trim {
            topic: topic.id,
            before,
        });
    }
}

/// Offset below which every group has finished; 0 when there is no group (semantics RET-3).
fn finished(view: View<'_>, topic: &Topic, partition: u32) -> u64 {
    view.engine
        .groups
        .iter()
        .filter_map(|(_, group)| group.topics.get(&topic.id))
        .map(|state| committed_offset(view.engine, view.index, state, partition).unwrap_or(0))
        .min()
        .unwrap_or(0)
}

fn tick(view: View<'_>, now: TimeUs, chores: &mut Chores) {
    let engine = view.engine;
    let mut due = engine.kv.next_expiry();
    for topic in engine.topics.iter() {
        let kept = topic
            .options
            .dedup_window_seconds
            .max(limits::DEDUP_SECONDS_MIN);
        let oldest = engine
            .dedup
            .oldest(topic.id)
            .map(|time| time.plus_seconds(kept));
        due = sooner(due, oldest);
    }
    due = sooner(
        due,
        engine
            .groups
            .leases
            .values()
            .map(|lease| lease.expires)
            .min(),
    );
    let Some(due) = due else { return };
    // Expiry is decided by each entry's time; the tick only frees memory, so it may be late.
    if due.plus_seconds(TICK_SECONDS) <= now {
        chores.commands.push(Command::Tick);
    }
    let next = due
        .plus_seconds(TICK_SECONDS)
        .max(now.plus_seconds(LOOK_SECONDS));
    chores.next = sooner(chores.next, Some(next));
}
