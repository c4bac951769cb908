//! Groups: for each topic a base offset per Kafka partition plus the exceptions, the lanes that
//! are leased, retrying, or behind or ahead of the base (DESIGN section 5). Owns positions, leases
//! and retry counters; which lane is served next is the scheduler's business.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::Engine;
use crate::ids::{LaneId, LeaseId, TimeUs, TopicId};
use crate::index::RecordIndex;
use crate::limits;
use crate::outcome::AckResult;
use crate::topic::Topic;

/// The exclusive right of one worker to a run of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub id: LeaseId,
    /// First number leased.
    pub from: u64,
    /// One past the last.
    pub to: u64,
    pub granted: TimeUs,
    pub expires: TimeUs,
}

/// A lane whose state in a group is not told by the base alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exception {
    /// Number of the first unfinished message; all below are finished.
    pub cursor: u64,
    /// One past the highest number the base has passed.
    pub passed: u64,
    pub lease: Option<Lease>,
    /// Deliveries of the message at `head` so far.
    pub attempt: u32,
    pub head: u64,
    /// Explicit failures of the message at `charged` so far.
    pub retries: u32,
    pub charged: u64,
    /// Not claimable before this time.
    pub not_before: TimeUs,
}

impl Exception {
    /// The lease, if it is live at `now`.
    pub fn live_lease(&self, now: TimeUs) -> Option<&Lease> {
        self.lease.as_ref().filter(|lease| now < lease.expires)
    }
}

/// How a group was first told to read a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// `new`, `all`, or the client's own word.
    pub mode: String,
    pub timestamp: Option<TimeUs>,
    pub created: TimeUs,
    pub conflation: bool,
}

/// What a Kafka commit left beside the offset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitNote {
    pub leader_epoch: i32,
    pub metadata: String,
    pub time: TimeUs,
}

/// A lease that ended by an ack, remembered so that its repeat is answered alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Released {
    pub(crate) lane: LaneId,
    pub(crate) lease: LeaseId,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) result: AckResult,
}

/// A group's state on one topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupTopic {
    /// `None` while only Kafka commits have touched it.
    pub registration: Option<Registration>,
    /// Per Kafka partition: everything below is finished but for the exceptions. `None`: never
    /// committed and not registered.
    pub bases: Vec<Option<u64>>,
    pub commits: BTreeMap<u32, CommitNote>,
    pub exceptions: BTreeMap<LaneId, Exception>,
    /// Rises when bases or exceptions change other than by claims and acks: a plan made before is
    /// stale.
    pub epoch: u64,
    pub(crate) released: VecDeque<Released>,
}

impl GroupTopic {
    /// The base of a partition; partitions born after registration begin at 0.
    pub fn base(&self, partition: u32) -> Option<u64> {
        match self.bases.get(partition as usize) {
            Some(base) => *base,
            None => self.registration.as_ref().map(|_| 0),
        }
    }

    /// The topic this state is about, told by any of its exceptions.
    fn topic_of<'a>(&self, engine: &'a Engine) -> Option<&'a Topic> {
        let lane = self
            .exceptions
            .keys()
            .find_map(|lane| engine.lanes.get(*lane))?;
        engine.topics.get(lane.topic)
    }

    pub(crate) fn set_base(&mut self, partition: u32, base: Option<u64>) {
        let index = partition as usize;
        if self.bases.len() <= index {
            let unseen = self.registration.as_ref().map(|_| 0);
            self.bases.resize(index + 1, unseen);
        }
        self.bases[index] = base;
    }

    pub(crate) fn released(&self, lane: LaneId, lease: LeaseId, number: u64) -> Option<AckResult> {
        self.released
            .iter()
            .rev()
            .find(|r| r.lane == lane && r.lease == lease && (r.from..r.to).contains(&number))
            .map(|r| r.result)
    }

    pub(crate) fn remember_release(&mut self, released: Released) {
        self.released.push_back(released);
        while self.released.len() > limits::RELEASED_MAX {
            self.released.pop_front();
        }
    }
}

/// A group over all topics. One namespace for Kafka and Queen groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub topics: BTreeMap<TopicId, GroupTopic>,
    /// Kafka's protocol type of its last commit with members (`consumer`, `connect`, ...).
    pub protocol_type: String,
    pub created: TimeUs,
}

/// Which lanes a lease covers, so that it can be extended by id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaseLanes {
    pub(crate) topic: TopicId,
    pub(crate) group: String,
    pub(crate) lanes: Vec<LaneId>,
    pub(crate) expires: TimeUs,
}

/// All groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Groups {
    pub(crate) by_name: BTreeMap<String, Group>,
    pub(crate) leases: BTreeMap<LeaseId, LeaseLanes>,
}

impl Groups {
    /// The group with this name.
    pub fn get(&self, name: &str) -> Option<&Group> {
        self.by_name.get(name)
    }

    /// A group's state on a topic.
    pub fn on(&self, name: &str, topic: TopicId) -> Option<&GroupTopic> {
        self.by_name.get(name)?.topics.get(&topic)
    }

    /// Lanes under a lease that has not been ended; expired ones count until the next tick.
    pub fn leased_lanes(&self) -> usize {
        self.leases.values().map(|lease| lease.lanes.len()).sum()
    }

    /// All groups by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Group)> {
        self.by_name
            .iter()
            .map(|(name, group)| (name.as_str(), group))
    }
}

/// Number of the lane's first message the group has not finished, for a lane that is no exception:
/// the first at or above the base of its partition, and retained. The lane's next number when
/// there is none.
pub fn first_pending(
    engine: &Engine,
    index: &RecordIndex,
    state: &GroupTopic,
    lane: LaneId,
) -> u64 {
    let Some(row) = engine.lanes.get(lane) else {
        return 0;
    };
    let Some(topic) = engine.topics.get(row.topic) else {
        return row.next;
    };
    let pending = |number: u64| match index.locate(lane, number) {
        None => false,
        Some(place) => {
            let offset = place.offset();
            let start = topic
                .partition(place.row.partition)
                .map_or(0, |p| p.log_start);
            let base = state.base(place.row.partition).unwrap_or(0);
            offset >= base.max(start)
        }
    };
    if row.several_partitions() {
        let first = index.first_number(lane).unwrap_or(row.next);
        return (first..row.next).find(|n| pending(*n)).unwrap_or(row.next);
    }
    // In one partition numbers and offsets rise together.
    let (mut low, mut high) = (index.first_number(lane).unwrap_or(row.next), row.next);
    while low < high {
        let middle = low + (high - low) / 2;
        if pending(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// Most records looked at behind the base to find a group's position in a partition.
const POSITION_RECORDS_MAX: u64 = 20_000;

/// The Kafka view of a group's position in a partition: the lowest offset that some lane has not
/// finished (DESIGN section 5). `None` when nothing was ever committed there.
pub fn committed_offset(
    engine: &Engine,
    index: &RecordIndex,
    state: &GroupTopic,
    partition: u32,
) -> Option<u64> {
    let base = state.base(partition)?;
    let mut lowest = base;
    // Lanes may be ahead of the base: what they have finished there does not hold it back.
    if !state.exceptions.is_empty()
        && let Some(topic) = state.topic_of(engine)
    {
        let from = topic
            .partition(partition)
            .map_or(base, |p| base.max(p.log_start));
        'batches: for row in index.batches(topic.id, partition, from) {
            for (offset, lane) in (row.base_offset..).zip(index.lanes_of(&row)) {
                let finished = match lane {
                    None => true,
                    Some((lane, number)) => state
                        .exceptions
                        .get(&lane)
                        .is_some_and(|e| number < e.cursor),
                };
                if offset >= lowest && (!finished || offset - base > POSITION_RECORDS_MAX) {
                    break 'batches;
                }
                lowest = lowest.max(offset + 1);
            }
        }
    }
    for (lane, exception) in &state.exceptions {
        let Some(row) = engine.lanes.get(*lane) else {
            continue;
        };
        if row.partition != partition && !row.several_partitions() {
            continue;
        }
        let end = if row.several_partitions() {
            exception.passed
        } else {
            exception.cursor + 1
        };
        for number in exception.cursor..end.min(exception.passed) {
            if let Some(place) = index.locate(*lane, number)
                && place.row.partition == partition
            {
                lowest = lowest.min(place.offset());
                break;
            }
        }
    }
    Some(lowest)
}

/// Messages of one lane the group has not finished, and how many of them are under a live lease.
pub fn lane_backlog(
    engine: &Engine,
    index: &RecordIndex,
    state: &GroupTopic,
    lane: LaneId,
    now: TimeUs,
) -> (u64, u64) {
    let Some(row) = engine.lanes.get(lane) else {
        return (0, 0);
    };
    match state.exceptions.get(&lane) {
        Some(exception) => {
            let leased = exception.live_lease(now).map_or(0, |lease| {
                lease.to.saturating_sub(exception.cursor.max(lease.from))
            });
            (row.next.saturating_sub(exception.cursor), leased)
        }
        None => (
            row.next
                .saturating_sub(first_pending(engine, index, state, lane)),
            0,
        ),
    }
}
