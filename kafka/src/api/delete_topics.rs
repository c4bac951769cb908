//! DeleteTopics, key 20, versions 1-6 (v6 by name or by id). An id that is gone is
//! UNKNOWN_TOPIC_ID, a name that is gone UNKNOWN_TOPIC_OR_PARTITION.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse};
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
        for wanted in wanted {
            let mut row = DeletableTopicResult::default()
                .with_name(wanted.name.clone())
                .with_topic_id(wanted.topic_id);
            match delete(&context, &wanted).await {
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

async fn delete(context: &Context, wanted: &DeleteTopicState) -> Result<(String, Uuid), Problem> {
    if wanted.name.is_some() && !wanted.topic_id.is_nil() {
        return Err(Problem::new(
            ResponseError::InvalidRequest,
            "A topic is named or given by id, not both",
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
