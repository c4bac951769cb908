//! How much of a queue is finished, leased and waiting, counted lane by lane in short looks at
//! the state; beyond a bound the totals come from offsets instead.

use queen_engine::config::QueueOptions;
use queen_engine::group::{GroupTopic, first_pending};
use queen_engine::ids::{LaneId, TimeUs, TopicId};
use queen_engine::message::format_uuid;
use queen_engine::port::View;
use queen_engine::topic::Topic;

use crate::app::App;
use crate::limits;
use crate::resolve::lane_start;

/// One lane's figures.
#[derive(Clone, Debug)]
pub struct LaneCount {
    pub lane: LaneId,
    pub name: String,
    /// Messages retained.
    pub total: u64,
    /// Messages not finished.
    pub pending: u64,
    /// Those of them under a live lease.
    pub processing: u64,
    /// Append time of the oldest unfinished message.
    pub oldest_pending: Option<TimeUs>,
    pub oldest: Option<TimeUs>,
    pub newest: TimeUs,
    /// The lease over it, in a count for one group.
    pub lease: Option<String>,
    /// Messages finished so far, in a count for one group.
    pub cursor: u64,
}

/// One queue's figures.
#[derive(Clone, Debug)]
pub struct QueueCount {
    pub id: String,
    pub name: String,
    pub options: QueueOptions,
    pub created: TimeUs,
    pub lanes: usize,
    pub bytes: u64,
    pub dead_letters: u64,
    pub conflation: bool,
    /// Lane by lane, as far as lanes are counted one by one.
    pub rows: Vec<LaneCount>,
    pub total: u64,
    pub pending: u64,
    pub processing: u64,
}

impl QueueCount {
    /// Messages finished by every group.
    pub fn completed(&self) -> u64 {
        self.total.saturating_sub(self.pending)
    }
}

/// The queues that exist.
pub fn queue_ids(app: &App) -> Vec<TopicId> {
    app.view(|view| view.engine.topics.iter().map(|topic| topic.id).collect())
}

/// Counts a queue for one group, or for the slowest of all; `None` when it does not exist.
pub fn count(app: &App, topic: TopicId, group: Option<&str>) -> Option<QueueCount> {
    let now = app.broker.now();
    let mut count = app.view(|view| head(view, view.engine.topics.get(topic)?, group))?;
    let mut at = 0;
    while at < count.lanes.min(limits::LANES_COUNTED_MAX) {
        let rows = app.view(|view| {
            let lanes = view.engine.topics.get(topic)?.lanes.get(at..)?;
            let lanes = lanes.iter().take(limits::LANES_PER_LOOK);
            Some(
                lanes
                    .filter_map(|lane| lane_count(view, *lane, group, now))
                    .collect::<Vec<_>>(),
            )
        });
        count.rows.extend(rows.unwrap_or_default());
        at += limits::LANES_PER_LOOK;
    }
    if count.lanes <= limits::LANES_COUNTED_MAX {
        count.total = count.rows.iter().map(|row| row.total).sum();
        count.pending = count.rows.iter().map(|row| row.pending).sum();
    }
    count.processing = count.rows.iter().map(|row| row.processing).sum();
    Some(count)
}

fn head(view: View<'_>, topic: &Topic, group: Option<&str>) -> Option<QueueCount> {
    let retained: u64 = topic
        .partitions
        .iter()
        .map(|p| p.next_offset.saturating_sub(p.log_start))
        .sum();
    let appended: u64 = topic.partitions.iter().map(|p| p.next_offset).sum();
    let bytes: u64 = topic.partitions.iter().map(|p| p.bytes_appended).sum();
    let kept = if appended == 0 {
        0.0
    } else {
        retained as f64 / appended as f64
    };
    let state = group.and_then(|group| view.engine.groups.on(group, topic.id));
    let pending = match group {
        Some(_) => state.map_or(retained, |state| by_offsets(topic, state)),
        None => states(view, topic.id)
            .map(|state| by_offsets(topic, state))
            .max()
            .unwrap_or(retained),
    };
    let registration = state.and_then(|state| state.registration.as_ref());
    let letters = view.engine.dead_letters.values();
    Some(QueueCount {
        id: format_uuid(topic.uuid),
        name: topic.name.clone(),
        options: topic.options.clone(),
        created: topic.created,
        lanes: topic.lanes.len(),
        bytes: (bytes as f64 * kept) as u64,
        dead_letters: letters.filter(|letter| letter.topic == topic.id).count() as u64,
        conflation: registration.is_some_and(|registration| registration.conflation),
        rows: Vec::new(),
        total: retained,
        pending,
        processing: 0,
    })
}

fn states(view: View<'_>, topic: TopicId) -> impl Iterator<Item = &GroupTopic> {
    view.engine
        .groups
        .iter()
        .filter_map(move |(_, group)| group.topics.get(&topic))
}

/// Unfinished messages told by offsets alone: what lies above the bases, plus what exceptions
/// hold below, less what they have finished above.
pub fn by_offsets(topic: &Topic, state: &GroupTopic) -> u64 {
    let above: u64 = (0u32..)
        .zip(&topic.partitions)
        .map(|(p, partition)| {
            let base = state.base(p).unwrap_or(0).max(partition.log_start);
            partition.next_offset.saturating_sub(base)
        })
        .sum();
    let (mut behind, mut ahead) = (0, 0);
    for exception in state.exceptions.values() {
        behind += exception.passed.saturating_sub(exception.cursor);
        ahead += exception.cursor.saturating_sub(exception.passed);
    }
    (above + behind).saturating_sub(ahead)
}

fn lane_count(view: View<'_>, lane: LaneId, group: Option<&str>, now: TimeUs) -> Option<LaneCount> {
    let row = view.engine.lanes.get(lane)?;
    let start = lane_start(view, lane);
    let time_of = |number: u64| view.index.locate(lane, number).map(|place| place.row.time);
    let (mut cursor, mut processing, mut lease) = (start, 0, None);
    match group {
        Some(group) => {
            if let Some(state) = view.engine.groups.on(group, row.topic) {
                cursor = lane_cursor(view, state, lane).max(start);
                let exception = state.exceptions.get(&lane);
                if let Some(live) = exception.and_then(|exception| exception.live_lease(now)) {
                    processing = live.to.saturating_sub(cursor.max(live.from));
                    lease = Some(format_uuid(live.id.0));
                }
            }
        }
        None => {
            let mut slowest = None;
            for state in states(view, row.topic) {
                let own = lane_cursor(view, state, lane).max(start);
                let live = state.exceptions.get(&lane).and_then(|e| e.live_lease(now));
                let leased = live.map_or(0, |live| live.to.saturating_sub(own.max(live.from)));
                processing = processing.max(leased);
                slowest = Some(slowest.map_or(own, |slowest: u64| slowest.min(own)));
            }
            cursor = slowest.unwrap_or(start);
        }
    }
    let pending = row.next.saturating_sub(cursor);
    Some(LaneCount {
        lane,
        name: String::from_utf8_lossy(view.engine.lanes.name(lane)?).into_owned(),
        total: row.next.saturating_sub(start),
        pending,
        processing: processing.min(pending),
        oldest_pending: time_of(cursor).filter(|_| pending > 0),
        oldest: time_of(start),
        newest: row.last_time,
        lease,
        cursor,
    })
}

/// The first number of a lane that the group has not finished.
pub fn lane_cursor(view: View<'_>, state: &GroupTopic, lane: LaneId) -> u64 {
    if let Some(exception) = state.exceptions.get(&lane) {
        return exception.cursor;
    }
    // Most lanes are finished: their newest record lies below the base.
    if let Some(row) = view.engine.lanes.get(lane)
        && !row.several_partitions()
        && let Some(last) = row.next.checked_sub(1)
        && let Some(place) = view.index.locate(lane, last)
        && place.offset() < state.base(row.partition).unwrap_or(0)
    {
        return row.next;
    }
    first_pending(view.engine, view.index, state, lane)
}

/// Whole seconds between two times, never negative.
pub fn seconds_since(then: TimeUs, now: TimeUs) -> i64 {
    now.0.saturating_sub(then.0).max(0) / 1_000_000
}
