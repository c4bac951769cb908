//! Fetch sessions (KIP-227): what each consumer is known to want, so that its next request and
//! our next answer only name what changed. In memory, bounded; a session that is gone makes its
//! client start a new one.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::FetchRequest;
use kafka_protocol::protocol::StrBytes;
use parking_lot::Mutex;
use uuid::Uuid;

use crate::limits;

/// A topic as the request's version names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TopicKey {
    Name(StrBytes),
    Id(Uuid),
}

/// One partition a consumer wants.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) topic: TopicKey,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) bytes_max: i32,
    pub(crate) leader_epoch: i32,
    /// What the client was last told; -1 before the first answer and after an error.
    told_high_watermark: i64,
    told_log_start: i64,
}

/// What was answered for a partition, as far as sessions care.
pub(crate) struct Told {
    pub(crate) high_watermark: i64,
    pub(crate) log_start: i64,
    pub(crate) error: bool,
    pub(crate) has_records: bool,
}

struct Session {
    /// Epoch of the next request.
    epoch: i32,
    by_id: bool,
    /// In answer order; partitions that got records move to the end.
    partitions: Vec<Wanted>,
    last_used: Instant,
}

/// How a request is to be answered.
pub(crate) struct Plan {
    /// 0 outside of sessions.
    pub(crate) session: i32,
    /// Only partitions with news are answered.
    pub(crate) incremental: bool,
    pub(crate) wanted: Vec<Wanted>,
}

/// All sessions.
pub(crate) struct FetchSessions {
    sessions: Mutex<HashMap<i32, Session>>,
    sessions_max: usize,
}

/// A session unused for this long gives way to a new one
/// (`min.incremental.fetch.session.eviction.ms`).
const EVICTABLE_AFTER: Duration = Duration::from_secs(120);

/// Epoch of a request outside of sessions, which closes the one it names.
const FINAL_EPOCH: i32 = -1;
/// Epoch of a request that opens a session.
const INITIAL_EPOCH: i32 = 0;

impl FetchSessions {
    pub(crate) fn new(sessions_max: usize) -> FetchSessions {
        FetchSessions {
            sessions: Mutex::default(),
            sessions_max,
        }
    }

    /// Sessions open.
    pub(crate) fn len(&self) -> usize {
        self.sessions.lock().len()
    }

    /// Takes a request in; an error is the answer as a whole.
    pub(crate) fn begin(
        &self,
        request: &FetchRequest,
        version: i16,
    ) -> Result<Plan, ResponseError> {
        let by_id = version >= 13;
        let asked = || asked_for(request, by_id);
        if version < 7 || request.session_epoch == FINAL_EPOCH {
            if request.session_id != 0 {
                self.sessions.lock().remove(&request.session_id);
            }
            return Ok(Plan {
                session: 0,
                incremental: false,
                wanted: asked().collect(),
            });
        }
        let mut sessions = self.sessions.lock();
        if request.session_epoch == INITIAL_EPOCH {
            sessions.remove(&request.session_id);
            let wanted: Vec<Wanted> = asked().collect();
            let session = self.open(&mut sessions, by_id, &wanted);
            return Ok(Plan {
                session,
                incremental: false,
                wanted,
            });
        }
        let session = sessions
            .get_mut(&request.session_id)
            .ok_or(ResponseError::FetchSessionIdNotFound)?;
        if session.by_id != by_id {
            return Err(ResponseError::FetchSessionTopicIdError);
        }
        if session.epoch != request.session_epoch {
            return Err(ResponseError::InvalidFetchSessionEpoch);
        }
        session.epoch = next_epoch(session.epoch);
        session.last_used = Instant::now();
        session.update(asked(), request, by_id);
        Ok(Plan {
            session: request.session_id,
            incremental: true,
            wanted: session.partitions.clone(),
        })
    }

    /// Makes a session if there is room; 0 if there is none.
    fn open(&self, sessions: &mut HashMap<i32, Session>, by_id: bool, wanted: &[Wanted]) -> i32 {
        if wanted.is_empty() || wanted.len() > limits::SESSION_PARTITIONS_MAX {
            return 0;
        }
        let now = Instant::now();
        if sessions.len() >= self.sessions_max {
            let oldest = sessions.iter().min_by_key(|(_, session)| session.last_used);
            match oldest.map(|(id, session)| (*id, session.last_used)) {
                Some((id, used)) if now.duration_since(used) > EVICTABLE_AFTER => {
                    sessions.remove(&id);
                }
                _ => return 0,
            }
        }
        let id = loop {
            let random = uuid::Uuid::new_v4().as_u128() as u32 & 0x7fff_ffff;
            let id = random.cast_signed();
            if id != 0 && !sessions.contains_key(&id) {
                break id;
            }
        };
        let partitions = wanted.to_vec();
        sessions.insert(
            id,
            Session {
                epoch: 1,
                by_id,
                partitions,
                last_used: now,
            },
        );
        id
    }

    /// Records what an answer told, and which of its partitions are news for the client: those
    /// are the ones an incremental answer carries. `told` is parallel to the plan's partitions.
    pub(crate) fn finish(&self, plan: &Plan, told: &[Told]) -> Vec<bool> {
        let mut news = Vec::with_capacity(told.len());
        let mut fed = HashMap::new();
        let mut updates = HashMap::new();
        for (wanted, told) in plan.wanted.iter().zip(told) {
            let changed = told.high_watermark != wanted.told_high_watermark
                || told.log_start != wanted.told_log_start;
            news.push(!plan.incremental || told.has_records || told.error || changed);
            let key = (&wanted.topic, wanted.partition);
            // After an error the client must hear of the partition again.
            let high_watermark = if told.error { -1 } else { told.high_watermark };
            updates.insert(key, (high_watermark, told.log_start));
            if told.has_records {
                fed.insert(key, ());
            }
        }
        let mut sessions = self.sessions.lock();
        if plan.session != 0
            && let Some(session) = sessions.get_mut(&plan.session)
        {
            for wanted in &mut session.partitions {
                let key = (&wanted.topic, wanted.partition);
                if let Some((high_watermark, log_start)) = updates.get(&key) {
                    wanted.told_high_watermark = *high_watermark;
                    wanted.told_log_start = *log_start;
                }
            }
            // Those that waited go first next time.
            session
                .partitions
                .sort_by_key(|w| fed.contains_key(&(&w.topic, w.partition)));
        }
        news
    }
}

impl Session {
    fn update(&mut self, asked: impl Iterator<Item = Wanted>, request: &FetchRequest, by_id: bool) {
        if !request.topics.is_empty() {
            let at: HashMap<(TopicKey, i32), usize> = (0..)
                .zip(&self.partitions)
                .map(|(at, wanted)| ((wanted.topic.clone(), wanted.partition), at))
                .collect();
            for wanted in asked {
                match at.get(&(wanted.topic.clone(), wanted.partition)) {
                    Some(&at) => {
                        let known = &mut self.partitions[at];
                        known.offset = wanted.offset;
                        known.bytes_max = wanted.bytes_max;
                        known.leader_epoch = wanted.leader_epoch;
                    }
                    None if self.partitions.len() < limits::SESSION_PARTITIONS_MAX => {
                        self.partitions.push(wanted);
                    }
                    None => {}
                }
            }
        }
        for topic in &request.forgotten_topics_data {
            let key = topic_key(&topic.topic, topic.topic_id, by_id);
            self.partitions.retain(|wanted| {
                wanted.topic != key || !topic.partitions.contains(&wanted.partition)
            });
        }
    }
}

fn topic_key(name: &StrBytes, id: Uuid, by_id: bool) -> TopicKey {
    // Kept beyond the request: an own copy, so that the frame's buffer can go.
    if by_id {
        TopicKey::Id(id)
    } else {
        TopicKey::Name(crate::names::text(name))
    }
}

fn asked_for(request: &FetchRequest, by_id: bool) -> impl Iterator<Item = Wanted> + '_ {
    request.topics.iter().flat_map(move |topic| {
        let key = topic_key(&topic.topic, topic.topic_id, by_id);
        topic.partitions.iter().map(move |partition| Wanted {
            topic: key.clone(),
            partition: partition.partition,
            offset: partition.fetch_offset,
            bytes_max: partition.partition_max_bytes,
            leader_epoch: partition.current_leader_epoch,
            told_high_watermark: -1,
            told_log_start: -1,
        })
    })
}

/// Epochs run 1, 2, ... and begin again at 1.
fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};

    use super::*;
    use crate::names::topic_name;

    fn open(partitions: i32) -> FetchRequest {
        let wanted = (0..partitions).map(|p| FetchPartition::default().with_partition(p));
        let topic = FetchTopic::default()
            .with_topic(topic_name("t"))
            .with_partitions(wanted.collect());
        FetchRequest::default()
            .with_session_epoch(0)
            .with_topics(vec![topic])
    }

    fn told(has_records: bool) -> Told {
        Told {
            high_watermark: 5,
            log_start: 0,
            error: false,
            has_records,
        }
    }

    #[test]
    fn who_was_fed_goes_last() {
        let sessions = FetchSessions::new(10);
        let plan = sessions.begin(&open(3), 12).unwrap();
        let news = sessions.finish(&plan, &[told(true), told(false), told(false)]);
        assert_eq!(news, [true, true, true], "a full answer lists all");
        let next = FetchRequest::default()
            .with_session_id(plan.session)
            .with_session_epoch(1);
        let plan = sessions.begin(&next, 12).unwrap();
        let order: Vec<i32> = plan.wanted.iter().map(|wanted| wanted.partition).collect();
        assert_eq!(order, [1, 2, 0]);
        let news = sessions.finish(&plan, &[told(true), told(false), told(false)]);
        assert_eq!(news, [true, false, false], "only what changed");
    }

    #[test]
    fn sessions_are_bounded_and_a_name_session_takes_no_ids() {
        let sessions = FetchSessions::new(1);
        let first = sessions.begin(&open(1), 12).unwrap();
        assert_ne!(first.session, 0);
        assert_eq!(
            sessions.begin(&open(1), 12).unwrap().session,
            0,
            "none to spare"
        );
        let next = FetchRequest::default()
            .with_session_id(first.session)
            .with_session_epoch(1);
        let refused = sessions.begin(&next, 13).err();
        assert_eq!(refused, Some(ResponseError::FetchSessionTopicIdError));
        let close = next.with_session_epoch(-1);
        assert_eq!(sessions.begin(&close, 12).unwrap().session, 0);
        assert_eq!(sessions.len(), 0);
    }
}
