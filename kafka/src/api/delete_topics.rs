//! DeleteTopics, key 20, versions 1-6 (v6 by name or by id).
//!
//! * An id that is gone is UNKNOWN_TOPIC_ID, a name that is gone UNKNOWN_TOPIC_OR_PARTITION.
//! * A topic named twice in one request, by name, id or both, is INVALID_REQUEST and stays.

use std::collections::HashMap;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse};
use kafka_protocol::protocol::StrBytes;
use queen_engine::command::Command;
use queen_engine::outcome::Outcome;
use uuid::Uuid;

use crate::api::Problem;
use crate::context::Context;
use crate::dispatch::{Call, Handler};
use crate::names::{text, topic_name};
use crate::wire::error_code::{self, Surface};

pub(crate) struct DeleteTopics;

impl Handler for DeleteTopics {
    type Request = DeleteTopicsRequest;
    type Response = DeleteTopicsResponse;

    async fn answer(
        context: Arc<Context>,
        call: Call,
        request: DeleteTopicsRequest,
    ) -> DeleteTopicsResponse {
        let named = |name| DeleteTopicState::default().with_name(Some(name));
        let wanted = if call.version >= 6 {
            request.topics
        } else {
            request.topic_names.into_iter().map(named).collect()
        };
        let mut rows = Vec::with_capacity(wanted.len());
        for (wanted, twice) in without_repeats(&context, wanted) {
            let mut row = DeletableTopicResult::default()
                .with_name(wanted.name.clone())
                .with_topic_id(wanted.topic_id);
            let done = match twice {
                false => delete(&context, &wanted).await,
                true => Err(Problem::new(
                    ResponseError::InvalidRequest,
                    &format!("{} is asked for twice", asked_for(&wanted)),
                )),
            };
            match done {
                Ok((name, id)) => {
                    row = row.with_name(Some(topic_name(&name))).with_topic_id(id);
                }
                Err(problem) => {
                    row.error_code = problem.error.code();
                    if call.version >= 5 {
                        row.error_message = Some(text(&problem.message));
                    }
                }
            }
            rows.push(row);
        }
        DeleteTopicsResponse::default().with_responses(rows)
    }

    fn failed(response: &DeleteTopicsResponse) -> bool {
        response.responses.iter().any(|row| row.error_code != 0)
    }
}

/// Each topic once, in order, and whether it was asked for more than once. A name and the id it
/// belongs to are the same topic, and the row that stays is the one by name.
fn without_repeats(
    context: &Context,
    wanted: Vec<DeleteTopicState>,
) -> Vec<(DeleteTopicState, bool)> {
    let mut rows: Vec<(DeleteTopicState, bool)> = Vec::with_capacity(wanted.len());
    let mut by_name: HashMap<StrBytes, usize> = HashMap::new();
    let mut by_id: HashMap<Uuid, usize> = HashMap::new();
    let (named, unnamed): (Vec<_>, Vec<_>) =
        wanted.into_iter().partition(|state| state.name.is_some());
    for state in named.into_iter().chain(unnamed) {
        let known = state
            .name
            .as_ref()
            .and_then(|name| by_name.get(&name.0))
            .or_else(|| by_id.get(&state.topic_id))
            .copied();
        if let Some((_, twice)) = known.and_then(|at| rows.get_mut(at)) {
            *twice = true;
            continue;
        }
        if let Some(name) = &state.name {
            by_name.insert(name.0.clone(), rows.len());
            let id = context.look(|view| view.engine.topics.named(name).map(|topic| topic.uuid));
            if let Some(id) = id {
                by_id.insert(Uuid::from_u128(id), rows.len());
            }
        } else if !state.topic_id.is_nil() {
            by_id.insert(state.topic_id, rows.len());
        }
        rows.push((state, false));
    }
    rows
}

fn asked_for(wanted: &DeleteTopicState) -> String {
    match &wanted.name {
        Some(name) => format!("Topic '{}'", name.as_str()),
        None => format!("Topic id {}", wanted.topic_id),
    }
}

async fn delete(context: &Context, wanted: &DeleteTopicState) -> Result<(String, Uuid), Problem> {
    if wanted.name.is_some() != wanted.topic_id.is_nil() {
        return Err(Problem::new(
            ResponseError::InvalidRequest,
            "A topic is named or given by id, not both and not neither",
        ));
    }
    let found = context.look(|view| {
        let topic = match &wanted.name {
            Some(name) => view.engine.topics.named(name),
            None => context.topic_with_id(view, wanted.topic_id),
        };
        topic.map(|topic| (topic.name.clone(), Uuid::from_u128(topic.uuid)))
    });
    let (name, id) = found.ok_or(match wanted.name {
        Some(_) => ResponseError::UnknownTopicOrPartition,
        None => ResponseError::UnknownTopicId,
    })?;
    match context
        .broker
        .submit(Command::DeleteTopic { name: name.clone() })
        .await
    {
        Ok(Outcome::Rejected(reject)) => Err(error_code::of_reject(&reject).into()),
        Ok(Outcome::Deleted(0)) => Err(ResponseError::UnknownTopicOrPartition.into()),
        Ok(_) => Ok((name, id)),
        Err(failure) => Err(error_code::of_failure(&failure, Surface::Admin).into()),
    }
}
