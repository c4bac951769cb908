//! CreatePartitions, key 37, versions 0-3: raises the width of topics to a total count. A count
//! that is not larger is INVALID_PARTITIONS, a topic named twice INVALID_REQUEST. Lanes keep their order when the width is raised.

use std::collections::HashMap;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};
use queen_engine::command::Command;
use queen_engine::limits::PARTITIONS_MAX;
use queen_engine::outcome::Outcome;

use crate::api::Problem;
use crate::api::create_topics::check_replicas;
use crate::context::Context;
use crate::dispatch::{Call, Handler};
use crate::names::text;
use crate::wire::error_code::{self, Surface};

pub(crate) struct CreatePartitions;

impl Handler for CreatePartitions {
    type Request = CreatePartitionsRequest;
    type Response = CreatePartitionsResponse;

    async fn answer(
        context: Arc<Context>,
        _call: Call,
        request: CreatePartitionsRequest,
    ) -> CreatePartitionsResponse {
        let mut rows: Vec<CreatePartitionsTopicResult> = Vec::with_capacity(request.topics.len());
        let mut named: HashMap<&str, usize> = HashMap::new();
        for topic in &request.topics {
            *named.entry(topic.name.as_str()).or_default() += 1;
        }
        for topic in &request.topics {
            let row = CreatePartitionsTopicResult::default()
                .with_name(topic.name.clone())
                .with_error_message(None);
            if named
                .get(topic.name.as_str())
                .is_some_and(|count| *count > 1)
            {
                if !rows.iter().any(|row| row.name == topic.name) {
                    let message = format!("Topic '{}' is named twice", topic.name.as_str());
                    rows.push(
                        row.with_error_code(ResponseError::InvalidRequest.code())
                            .with_error_message(Some(text(&message))),
                    );
                }
                continue;
            }
            rows.push(match widen(&context, topic, request.validate_only).await {
                Ok(()) => row,
                Err(problem) => row
                    .with_error_code(problem.error.code())
                    .with_error_message(Some(text(&problem.message))),
            });
        }
        CreatePartitionsResponse::default().with_results(rows)
    }

    fn failed(response: &CreatePartitionsResponse) -> bool {
        response.results.iter().any(|row| row.error_code != 0)
    }
}

async fn widen(
    context: &Context,
    topic: &CreatePartitionsTopic,
    validate_only: bool,
) -> Result<(), Problem> {
    let found = context.look(|view| {
        view.engine
            .topics
            .named(&topic.name)
            .map(|found| (found.id, found.width()))
    });
    let (id, width) = found.ok_or(ResponseError::UnknownTopicOrPartition)?;
    let count = u32::try_from(topic.count).unwrap_or(0);
    if count <= width || count > PARTITIONS_MAX {
        let name = topic.name.as_str();
        let message = format!(
            "Topic {name} has {width} partitions; the new count must be larger, up to {PARTITIONS_MAX}"
        );
        return Err(Problem::new(ResponseError::InvalidPartitions, &message));
    }
    let added = (count - width) as usize;
    if topic
        .assignments
        .as_ref()
        .is_some_and(|given| given.len() != added)
    {
        return Err(Problem::new(
            ResponseError::InvalidReplicaAssignment,
            "One assignment per added partition is needed",
        ));
    }
    if let Some(given) = &topic.assignments {
        check_replicas(context, given.iter().map(|row| &row.broker_ids[..]), None)?;
    }
    if validate_only {
        return Ok(());
    }
    match context
        .broker
        .submit(Command::Widen {
            topic: id,
            partitions: count,
        })
        .await
    {
        Ok(Outcome::Rejected(reject)) => Err(error_code::of_reject(&reject).into()),
        Ok(_) => Ok(()),
        Err(failure) => Err(error_code::of_failure(&failure, Surface::Admin).into()),
    }
}
