//! One file per request kind: its versions and rules at the head, then from the request to a
//! command or a look, and from what came of it to the answer. Here is what several of them need.

pub(crate) mod alter_configs;
pub(crate) mod api_versions;
pub(crate) mod create_partitions;
pub(crate) mod create_topics;
pub(crate) mod delete_groups;
pub(crate) mod delete_records;
pub(crate) mod delete_topics;
pub(crate) mod describe_cluster;
pub(crate) mod describe_configs;
pub(crate) mod describe_groups;
pub(crate) mod describe_log_dirs;
pub(crate) mod describe_producers;
pub(crate) mod describe_topic_partitions;
pub(crate) mod fetch;
pub(crate) mod find_coordinator;
pub(crate) mod heartbeat;
pub(crate) mod incremental_alter_configs;
pub(crate) mod init_producer_id;
pub(crate) mod join_group;
pub(crate) mod leave_group;
pub(crate) mod list_groups;
pub(crate) mod list_offsets;
pub(crate) mod list_partition_reassignments;
pub(crate) mod metadata;
pub(crate) mod offset_commit;
pub(crate) mod offset_delete;
pub(crate) mod offset_fetch;
pub(crate) mod offset_for_leader_epoch;
mod operations;
pub(crate) mod produce;
pub(crate) mod sync_group;

use kafka_protocol::ResponseError;

use crate::context::Context;

/// Resource types of the config calls.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const GROUP: i8 = 32;

/// An error with a text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Problem {
    error: ResponseError,
    message: String,
}

impl Problem {
    fn new(error: ResponseError, message: &str) -> Problem {
        Problem {
            error,
            message: message.to_owned(),
        }
    }
}

impl From<ResponseError> for Problem {
    fn from(error: ResponseError) -> Problem {
        Problem {
            error,
            message: error.to_string(),
        }
    }
}

/// The Raft term in which this node coordinates groups, if it does.
fn coordinator_term(context: &Context, group: &str) -> Result<u64, ResponseError> {
    if group.is_empty() {
        return Err(ResponseError::InvalidGroupId);
    }
    let node = context.node();
    if !node.is_leader {
        return Err(ResponseError::NotCoordinator);
    }
    if !node.ready {
        return Err(ResponseError::CoordinatorLoadInProgress);
    }
    Ok(node.term)
}
