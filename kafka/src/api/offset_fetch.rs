//! OffsetFetch, key 9, versions 1-9.
//!
//! * What is answered is the lowest offset some lane of the partition has not finished: always a
//!   safe place to go on from. Without a commit: -1, no error, empty metadata (row 112).
//! * v2+ null topics mean all of the group's; v8+ several groups, errors per group. Require-stable
//!   (v7+) never has to wait while there are no transactions.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{OffsetFetchRequest, OffsetFetchResponse};
use queen_engine::group::committed_offset;
use queen_engine::port::View;

use crate::api::coordinator_term;
use crate::context::{Context, wire_offset};
use crate::dispatch::{Call, Handler};
use crate::names::{text, topic_name};

pub(crate) struct OffsetFetch;

impl Handler for OffsetFetch {
    type Request = OffsetFetchRequest;
    type Response = OffsetFetchResponse;

    async fn answer(
        context: Arc<Context>,
        call: Call,
        request: OffsetFetchRequest,
    ) -> OffsetFetchResponse {
        if call.version >= 8 {
            let groups = request.groups.into_iter().map(|group| {
                let wanted = group.topics.map(|topics| {
                    let pair = |t: kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopics| {
                        (t.name.to_string(), t.partition_indexes)
                    };
                    topics.into_iter().map(pair).collect()
                });
                let row = OffsetFetchResponseGroup::default().with_group_id(group.group_id.clone());
                match fetch(&context, &group.group_id, wanted) {
                    Ok(topics) => row.with_topics(topics.into_iter().map(grouped).collect()),
                    Err(error) => row.with_error_code(error.code()),
                }
            });
            return OffsetFetchResponse::default().with_groups(groups.collect());
        }
        let wanted = request.topics.map(|topics| {
            topics
                .into_iter()
                .map(|t| (t.name.to_string(), t.partition_indexes))
                .collect()
        });
        // v1 has no way to ask for all.
        let wanted = if call.version < 2 {
            Some(wanted.unwrap_or_default())
        } else {
            wanted
        };
        match fetch(&context, &request.group_id, wanted) {
            Ok(topics) => {
                OffsetFetchResponse::default().with_topics(topics.into_iter().map(single).collect())
            }
            Err(error) => OffsetFetchResponse::default().with_error_code(error.code()),
        }
    }

    fn failed(response: &OffsetFetchResponse) -> bool {
        response.error_code != 0
    }
}

/// What a group has committed in one partition.
struct Committed {
    partition: i32,
    offset: i64,
    leader_epoch: i32,
    metadata: String,
}

type Wanted = Vec<(String, Vec<i32>)>;

fn fetch(
    context: &Context,
    group: &str,
    wanted: Option<Wanted>,
) -> Result<Vec<(String, Vec<Committed>)>, ResponseError> {
    coordinator_term(context, group)?;
    Ok(context.look(|view| {
        let wanted = wanted.unwrap_or_else(|| all_of(view, group));
        let topics = wanted.into_iter().map(|(name, partitions)| {
            let rows = partitions
                .into_iter()
                .map(|p| committed(view, group, &name, p))
                .collect();
            (name, rows)
        });
        topics.collect()
    }))
}

/// Every partition the group has a place in.
fn all_of(view: View<'_>, group: &str) -> Wanted {
    let Some(group) = view.engine.groups.get(group) else {
        return Vec::new();
    };
    let topics = group.topics.iter().filter_map(|(id, state)| {
        let topic = view.engine.topics.get(*id)?;
        let known = (0..topic.width()).filter(|p| state.base(*p).is_some());
        let partitions: Vec<i32> = known.filter_map(|p| i32::try_from(p).ok()).collect();
        (!partitions.is_empty()).then(|| (topic.name.clone(), partitions))
    });
    topics.collect()
}

fn committed(view: View<'_>, group: &str, topic: &str, partition: i32) -> Committed {
    let nothing = Committed {
        partition,
        offset: -1,
        leader_epoch: -1,
        metadata: String::new(),
    };
    let Ok(index) = u32::try_from(partition) else {
        return nothing;
    };
    let Some(topic) = view.engine.topics.named(topic) else {
        return nothing;
    };
    let Some(state) = view.engine.groups.on(group, topic.id) else {
        return nothing;
    };
    let Some(offset) = committed_offset(view.engine, view.index, state, index) else {
        return nothing;
    };
    let note = state.commits.get(&index);
    Committed {
        partition,
        offset: wire_offset(offset),
        leader_epoch: note.map_or(-1, |note| note.leader_epoch),
        metadata: note.map(|note| note.metadata.clone()).unwrap_or_default(),
    }
}

fn single((name, rows): (String, Vec<Committed>)) -> OffsetFetchResponseTopic {
    let row = |c: Committed| {
        OffsetFetchResponsePartition::default()
            .with_partition_index(c.partition)
            .with_committed_offset(c.offset)
            .with_committed_leader_epoch(c.leader_epoch)
            .with_metadata(Some(text(&c.metadata)))
    };
    OffsetFetchResponseTopic::default()
        .with_name(topic_name(&name))
        .with_partitions(rows.into_iter().map(row).collect())
}

fn grouped((name, rows): (String, Vec<Committed>)) -> OffsetFetchResponseTopics {
    let row = |c: Committed| {
        OffsetFetchResponsePartitions::default()
            .with_partition_index(c.partition)
            .with_committed_offset(c.offset)
            .with_committed_leader_epoch(c.leader_epoch)
            .with_metadata(Some(text(&c.metadata)))
    };
    OffsetFetchResponseTopics::default()
        .with_name(topic_name(&name))
        .with_partitions(rows.into_iter().map(row).collect())
}
