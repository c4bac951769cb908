//! One group's desk on one topic: ready lanes in the order they became claimable, leased and
//! delayed lanes by time, and how far the walk along the log has come.

use std::collections::{BTreeSet, VecDeque};

use hashbrown::{HashMap, HashSet};

use super::sooner;
use crate::command::{Advance, Claim, ClaimItem, Passed};
use crate::group::{Exception, GroupTopic, first_pending};
use crate::ids::{LaneId, TimeUs};
use crate::index::WalkPosition;
use crate::port::{PopRequest, View};
use crate::topic::Topic;

/// Most records one plan walks over.
const WALK_RECORDS_MAX: usize = 20_000;
/// Most ready lanes one plan looks at.
const LOOK_LANES_MAX: usize = 10_000;

/// What a plan found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) lanes: Vec<ClaimItem>,
    pub(super) advance: Vec<Advance>,
    pub(super) wake_at: Option<TimeUs>,
}

/// A run that could be claimed now, or when it could.
enum Run {
    Now(ClaimItem),
    Later(TimeUs),
    /// Leased, reserved, or nothing pending.
    No,
}

#[derive(Debug, Default)]
pub(super) struct Desk {
    /// Rebuild from the state before the next plan.
    pub(super) stale: bool,
    pub(super) last_served: TimeUs,
    built: bool,
    epoch: u64,
    ready: VecDeque<LaneId>,
    queued: HashSet<LaneId>,
    /// Lanes by the time their lease or delay ends.
    waiting: BTreeSet<(TimeUs, LaneId)>,
    waits: HashMap<LaneId, TimeUs>,
    reserved: HashSet<LaneId>,
    /// Claims proposed and not settled.
    in_flight: usize,
    /// Bases as they will be when everything in flight is applied.
    bases: Vec<u64>,
    walk: WalkPosition,
    /// The group takes only the newest message of each lane.
    conflates: bool,
}

impl Desk {
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Rebuilds what is stale and moves lanes whose time has come to the ready ones.
    pub(super) fn refresh(
        &mut self,
        view: View<'_>,
        topic: &Topic,
        state: &GroupTopic,
        now: TimeUs,
    ) {
        if self.stale || !self.built || self.epoch != state.epoch {
            self.rebuild(view, topic, state, now);
        }
        for p in self.bases.len()..topic.partitions.len() {
            let p = u32::try_from(p).unwrap_or(u32::MAX);
            self.bases.push(state.base(p).unwrap_or(0));
            self.walk = self.walk.min(view.index.walk_position(topic.id, p, 0));
        }
        while let Some((time, lane)) = self.waiting.first().copied()
            && time <= now
        {
            self.waiting.pop_first();
            self.waits.remove(&lane);
            self.classify(view, state, now, lane);
        }
    }

    fn rebuild(&mut self, view: View<'_>, topic: &Topic, state: &GroupTopic, now: TimeUs) {
        let reserved = std::mem::take(&mut self.reserved);
        *self = Desk {
            built: true,
            epoch: state.epoch,
            last_served: self.last_served,
            reserved,
            in_flight: self.in_flight,
            ..Desk::default()
        };
        self.conflates = state.registration.as_ref().is_some_and(|r| r.conflation);
        self.bases = (0u32..)
            .zip(&topic.partitions)
            .map(|(p, _)| state.base(p).unwrap_or(0))
            .collect();
        // The walk begins at the batch that holds the lowest base in log order.
        self.walk = (0u32..)
            .zip(&self.bases)
            .map(|(p, base)| view.index.walk_position(topic.id, p, *base))
            .min()
            .unwrap_or_default();
        if self.walk.index == u64::MAX {
            self.walk = WalkPosition {
                index: view.engine.applied() + 1,
                offset: 0,
            };
        }
        for lane in state.exceptions.keys() {
            self.classify(view, state, now, *lane);
        }
    }

    /// Puts a lane where its state says it belongs.
    pub(super) fn classify(
        &mut self,
        view: View<'_>,
        state: &GroupTopic,
        now: TimeUs,
        lane: LaneId,
    ) {
        if let Some(time) = self.waits.remove(&lane) {
            self.waiting.remove(&(time, lane));
        }
        let Some(exception) = state.exceptions.get(&lane) else {
            return;
        };
        let Some(row) = view.engine.lanes.get(lane) else {
            return;
        };
        if let Some(lease) = exception.live_lease(now) {
            self.wait(lane, lease.expires);
        } else if exception.not_before > now {
            self.wait(lane, exception.not_before);
        } else if exception.cursor < row.next && self.queued.insert(lane) {
            self.ready.push_back(lane);
        }
    }

    fn wait(&mut self, lane: LaneId, until: TimeUs) {
        self.waits.insert(lane, until);
        self.waiting.insert((until, lane));
    }

    pub(super) fn settled(
        &mut self,
        view: View<'_>,
        state: Option<&GroupTopic>,
        now: TimeUs,
        claim: &Claim,
        applied: bool,
    ) {
        self.in_flight = self.in_flight.saturating_sub(1);
        for item in &claim.lanes {
            self.reserved.remove(&item.lane);
            if let Some(state) = state {
                self.classify(view, state, now, item.lane);
            }
        }
        if !applied {
            self.stale = true;
        }
    }

    /// Claims from the ready lanes first, then walks on.
    pub(super) fn find(
        &mut self,
        view: View<'_>,
        topic: &Topic,
        state: &GroupTopic,
        now: TimeUs,
        pop: &PopRequest,
    ) -> Found {
        let mut found = Found::default();
        let mut left = pop.batch.max(1);
        let most = pop.lanes.max(1) as usize;
        for _ in 0..self.ready.len().min(LOOK_LANES_MAX) {
            if left == 0 || found.lanes.len() == most {
                break;
            }
            let Some(lane) = self.ready.pop_front() else {
                break;
            };
            self.queued.remove(&lane);
            let Some(exception) = state.exceptions.get(&lane) else {
                continue;
            };
            match self.run(view, topic, now, lane, exception, left) {
                Run::Now(item) => self.take(&mut found, &mut left, item, pop),
                Run::Later(time) => self.wait(lane, time),
                Run::No => {}
            }
        }
        if left > 0 && found.lanes.len() < most {
            self.walk_on(view, topic, state, now, pop, &mut found, &mut left);
        }
        if found.lanes.is_empty() {
            let next = self.waiting.first().map(|(time, _)| *time);
            found.wake_at = sooner(found.wake_at, next);
        }
        self.in_flight += usize::from(!found.lanes.is_empty() || !found.advance.is_empty());
        found
    }

    /// Claims from one lane only; the base stays where it is.
    pub(super) fn find_one(
        &mut self,
        view: View<'_>,
        topic: &Topic,
        state: &GroupTopic,
        now: TimeUs,
        pop: &PopRequest,
        lane: LaneId,
    ) -> Found {
        let mut found = Found::default();
        let mut left = pop.batch.max(1);
        let first = first_pending(view.engine, view.index, state, lane);
        let known = state.exceptions.get(&lane).copied();
        let exception = known.unwrap_or(Exception {
            cursor: first,
            passed: first,
            ..Exception::default()
        });
        match self.run(view, topic, now, lane, &exception, left) {
            Run::Now(item) => self.take(&mut found, &mut left, item, pop),
            Run::Later(time) => found.wake_at = Some(time),
            Run::No => {
                let lease = exception.live_lease(now).map(|lease| lease.expires);
                let delay = Some(exception.not_before).filter(|time| *time > now);
                found.wake_at = sooner(lease, delay);
            }
        }
        self.in_flight += usize::from(!found.lanes.is_empty());
        found
    }

    fn take(&mut self, found: &mut Found, left: &mut u32, item: ClaimItem, pop: &PopRequest) {
        self.reserved.insert(item.lane);
        let messages = item.to - item.from;
        let counted = if pop.conflation {
            1
        } else {
            u32::try_from(messages).unwrap_or(u32::MAX)
        };
        *left = left.saturating_sub(counted);
        found.lanes.push(item);
    }

    /// The lane's next run of at most `most` messages.
    fn run(
        &self,
        view: View<'_>,
        topic: &Topic,
        now: TimeUs,
        lane: LaneId,
        exception: &Exception,
        most: u32,
    ) -> Run {
        let Some(row) = view.engine.lanes.get(lane) else {
            return Run::No;
        };
        let free = !self.reserved.contains(&lane) && exception.live_lease(now).is_none();
        if !free || exception.cursor >= row.next {
            return Run::No;
        }
        if exception.not_before > now {
            return Run::Later(exception.not_before);
        }
        let retained = |number: u64| {
            view.index.locate(lane, number).filter(|place| {
                let start = topic
                    .partition(place.row.partition)
                    .map_or(0, |p| p.log_start);
                place.offset() >= start
            })
        };
        // Numbers below the oldest retained one are skipped silently (semantics CLM-1).
        let oldest = view.index.first_number(lane).unwrap_or(row.next);
        let mut from = exception.cursor.max(oldest);
        let mut first = retained(from);
        while first.is_none() && from < row.next {
            from += 1;
            first = retained(from);
        }
        let Some(first) = first else { return Run::No };
        let options = &topic.options;
        let delay = options.delayed_processing.max(0);
        if delay > 0 && first.row.time.plus_seconds(delay) > now {
            return Run::Later(first.row.time.plus_seconds(delay));
        }
        let window = options.window_buffer.max(0);
        if window > 0 {
            // The hold is bounded by the window after the first undelivered message (OPT-4), so a
            // lane that is written all the time does not starve.
            let quiet = first.row.time.plus_seconds(window);
            if quiet > now {
                return Run::Later(quiet);
            }
        }
        let mut to = if self.conflates {
            row.next
        } else {
            row.next.min(from + u64::from(most))
        };
        while delay > 0
            && to > from + 1
            && retained(to - 1).is_none_or(|last| last.row.time.plus_seconds(delay) > now)
        {
            to -= 1;
        }
        Run::Now(ClaimItem {
            lane,
            from,
            to,
            first_pending: exception.cursor,
        })
    }

    /// Walks the log from the base, hands out lanes as it meets them (DESIGN section 5).
    #[allow(clippy::too_many_arguments)] // one plan's working set; a struct would only rename it
    fn walk_on(
        &mut self,
        view: View<'_>,
        topic: &Topic,
        state: &GroupTopic,
        now: TimeUs,
        pop: &PopRequest,
        found: &mut Found,
        left: &mut u32,
    ) {
        let most = pop.lanes.max(1) as usize;
        let delay = topic.options.delayed_processing.max(0);
        let mut steps: Vec<Step> = Vec::new();
        let mut met: HashMap<LaneId, u64> = HashMap::new();
        let mut walked = 0;
        'walk: while walked < WALK_RECORDS_MAX {
            let Some(batch) = view.index.walk(topic.id, self.walk) else {
                break;
            };
            let deliverable = batch.row.time.plus_seconds(delay);
            if deliverable > now {
                found.wake_at = sooner(found.wake_at, Some(deliverable));
                break;
            }
            let p = batch.row.partition as usize;
            let start = topic
                .partitions
                .get(p)
                .map_or(0, |partition| partition.log_start);
            let Some(base) = self.bases.get(p).copied() else {
                break;
            };
            if batch.row.last_offset < base.max(start) {
                self.walk = batch.next;
                walked += 1;
                continue;
            }
            let step = Step::of(&mut steps, batch.row.partition, base);
            for (offset, lane) in (batch.row.base_offset..).zip(&batch.lanes) {
                if offset < self.bases[p] {
                    continue;
                }
                if offset < start {
                    self.bases[p] = offset + 1;
                    step.to = offset + 1;
                    continue;
                }
                if *left == 0 || found.lanes.len() >= most {
                    break 'walk;
                }
                walked += 1;
                self.bases[p] = offset + 1;
                step.to = offset + 1;
                let Some((lane, number)) = *lane else {
                    continue;
                };
                step.pass(lane, number);
                if state.exceptions.contains_key(&lane) || self.reserved.contains(&lane) {
                    continue;
                }
                if met.insert(lane, number).is_some() {
                    continue;
                }
                let first = Exception {
                    cursor: number,
                    passed: number,
                    ..Exception::default()
                };
                match self.run(view, topic, now, lane, &first, *left) {
                    Run::Now(item) => self.take(found, left, item, pop),
                    Run::Later(time) => {
                        self.wait(lane, time);
                        found.wake_at = sooner(found.wake_at, Some(time));
                    }
                    Run::No => {}
                }
            }
            self.bases[p] = self.bases[p].max(batch.row.last_offset + 1);
            step.to = batch.row.last_offset + 1;
            self.walk = batch.next;
        }
        found.advance = steps.into_iter().filter_map(Step::finish).collect();
    }

    /// A step of the base over records that need no lease: lanes that are exceptions already.
    pub(super) fn pass_settled(
        &mut self,
        view: View<'_>,
        topic: &Topic,
        state: &GroupTopic,
    ) -> Vec<Advance> {
        if self.stale || !self.built || self.epoch != state.epoch || self.in_flight > 0 {
            return Vec::new();
        }
        let mut steps: Vec<Step> = Vec::new();
        let mut walked = 0;
        'walk: while walked < WALK_RECORDS_MAX {
            let Some(batch) = view.index.walk(topic.id, self.walk) else {
                break;
            };
            let p = batch.row.partition as usize;
            let start = topic
                .partitions
                .get(p)
                .map_or(0, |partition| partition.log_start);
            let Some(base) = self.bases.get(p).copied() else {
                break;
            };
            if batch.row.last_offset >= base.max(start) {
                let step = Step::of(&mut steps, batch.row.partition, base);
                for (offset, lane) in (batch.row.base_offset..).zip(&batch.lanes) {
                    if offset < self.bases[p].max(start) {
                        self.bases[p] = self.bases[p].max(offset + 1);
                        step.to = step.to.max(self.bases[p]);
                        continue;
                    }
                    if let Some((lane, number)) = *lane {
                        if !state.exceptions.contains_key(&lane) {
                            break 'walk;
                        }
                        step.pass(lane, number);
                    }
                    walked += 1;
                    self.bases[p] = offset + 1;
                    step.to = offset + 1;
                }
                self.bases[p] = self.bases[p].max(batch.row.last_offset + 1);
                step.to = batch.row.last_offset + 1;
            }
            walked += 1;
            self.walk = batch.next;
        }
        let steps: Vec<Advance> = steps.into_iter().filter_map(Step::finish).collect();
        self.in_flight += usize::from(!steps.is_empty());
        steps
    }
}

/// One partition's step while it is being collected.
struct Step {
    partition: u32,
    from: u64,
    to: u64,
    place: HashMap<LaneId, usize>,
    lanes: Vec<Passed>,
}

impl Step {
    fn of(steps: &mut Vec<Step>, partition: u32, from: u64) -> &mut Step {
        let at = steps.iter().position(|step| step.partition == partition);
        let at = at.unwrap_or_else(|| {
            let place = HashMap::new();
            steps.push(Step {
                partition,
                from,
                to: from,
                place,
                lanes: Vec::new(),
            });
            steps.len() - 1
        });
        &mut steps[at]
    }

    fn pass(&mut self, lane: LaneId, number: u64) {
        let at = *self.place.entry(lane).or_insert_with(|| {
            self.lanes.push(Passed {
                lane,
                first: number,
                end: number,
            });
            self.lanes.len() - 1
        });
        let passed = &mut self.lanes[at];
        passed.first = passed.first.min(number);
        passed.end = passed.end.max(number + 1);
    }

    fn finish(self) -> Option<Advance> {
        let Step {
            partition,
            from,
            to,
            lanes,
            ..
        } = self;
        (to > from).then_some(Advance {
            partition,
            from,
            to,
            lanes,
        })
    }
}
