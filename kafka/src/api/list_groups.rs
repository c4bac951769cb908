//! ListGroups, key 16, versions 0-5 (v4+ filter by state, v5+ by type).
//!
//! * Lists what this node coordinates: groups in memory, and those only the engine knows (Queen's
//!   own groups and Kafka groups without members) as Empty. All are of type classic.

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{GroupId, ListGroupsRequest, ListGroupsResponse};
use kafka_protocol::protocol::StrBytes;

use crate::context::Context;
use crate::dispatch::{Call, Handler};
use crate::group::state::Phase;
use crate::names::text;

pub(crate) struct ListGroups;

const TYPE: &str = "classic";

impl Handler for ListGroups {
    type Request = ListGroupsRequest;
    type Response = ListGroupsResponse;

    async fn answer(
        context: Arc<Context>,
        call: Call,
        request: ListGroupsRequest,
    ) -> ListGroupsResponse {
        let node = context.node();
        if !node.is_leader {
            return ListGroupsResponse::default();
        }
        let stored = context.look(|view| {
            let groups = view.engine.groups.iter();
            groups
                .map(|(name, group)| (name.to_owned(), group.protocol_type.clone()))
                .collect()
        });
        let mut rows: BTreeMap<String, (String, Phase)> = BTreeMap::new();
        let stored: Vec<(String, String)> = stored;
        for (name, protocol_type) in stored {
            rows.insert(name, (protocol_type, Phase::Empty));
        }
        for view in context.groups.views(node.term) {
            if view.phase != Phase::Empty {
                rows.insert(view.name, (view.protocol_type, view.phase));
            }
        }
        let wanted = |phase: Phase| {
            passes(&request.states_filter, phase.name()) && passes(&request.types_filter, TYPE)
        };
        let listed = rows.into_iter().filter(|(_, (_, phase))| wanted(*phase));
        let listed = listed.map(|(name, (protocol_type, phase))| {
            let row = ListedGroup::default()
                .with_group_id(GroupId(text(&name)))
                .with_protocol_type(text(&protocol_type));
            let row = if call.version >= 4 {
                row.with_group_state(text(phase.name()))
            } else {
                row
            };
            if call.version >= 5 {
                row.with_group_type(text(TYPE))
            } else {
                row
            }
        });
        ListGroupsResponse::default().with_groups(listed.collect())
    }
}

fn passes(filter: &[StrBytes], value: &str) -> bool {
    filter.is_empty()
        || filter
            .iter()
            .any(|wanted| wanted.eq_ignore_ascii_case(value))
}
