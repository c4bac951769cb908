//! AlterConfigs, key 33, versions 0-2: replaces all configs of a topic; those not named fall back
//! to their defaults (case OP-3). A null value, or a config given twice, is INVALID_REQUEST. Only topics can be altered.

use std::collections::HashSet;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_configs_request::AlterConfigsResource;
use kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{AlterConfigsRequest, AlterConfigsResponse};
use queen_engine::command::Command;
use queen_engine::ids::TopicId;
use queen_engine::outcome::Outcome;

use crate::api::{Problem, TOPIC};
use crate::context::Context;
use crate::dispatch::{Call, Handler};
use crate::names::{check_topic, text};
use crate::topic_config;
use crate::wire::error_code::{self, Surface};

pub(crate) struct AlterConfigs;

impl Handler for AlterConfigs {
    type Request = AlterConfigsRequest;
    type Response = AlterConfigsResponse;

    async fn answer(
        context: Arc<Context>,
        _call: Call,
        request: AlterConfigsRequest,
    ) -> AlterConfigsResponse {
        let mut rows = Vec::with_capacity(request.resources.len());
        for resource in &request.resources {
            let row = AlterConfigsResourceResponse::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name.clone())
                .with_error_message(None);
            rows.push(
                match alter(&context, resource, request.validate_only).await {
                    Ok(()) => row,
                    Err(problem) => row
                        .with_error_code(problem.error.code())
                        .with_error_message(Some(text(&problem.message))),
                },
            );
        }
        AlterConfigsResponse::default().with_responses(rows)
    }

    fn failed(response: &AlterConfigsResponse) -> bool {
        response.responses.iter().any(|row| row.error_code != 0)
    }
}

async fn alter(
    context: &Context,
    resource: &AlterConfigsResource,
    validate_only: bool,
) -> Result<(), Problem> {
    let invalid = |message: &str| Problem::new(ResponseError::InvalidRequest, message);
    let null: Vec<&str> = resource
        .configs
        .iter()
        .filter(|config| config.value.is_none())
        .map(|config| config.name.as_str())
        .collect();
    if !null.is_empty() {
        let message = format!("A null value is not supported for: {}", null.join(", "));
        return Err(invalid(&message));
    }
    let mut seen = HashSet::new();
    if let Some(twice) = resource
        .configs
        .iter()
        .find(|config| !seen.insert(config.name.as_str()))
    {
        let message = format!("Config {} is given twice", twice.name.as_str());
        return Err(invalid(&message));
    }
    let topic = topic_of(context, resource.resource_type, &resource.resource_name)?;
    let mut set = Vec::with_capacity(resource.configs.len());
    for config in &resource.configs {
        topic_config::check(&config.name, config.value.as_deref())
            .map_err(|message| Problem::new(ResponseError::InvalidConfig, &message))?;
        set.push((
            config.name.to_string(),
            config.value.as_ref().map(ToString::to_string),
        ));
    }
    if validate_only {
        return Ok(());
    }
    submit(context, topic, set, true).await
}

/// The topic a resource names.
pub(super) fn topic_of(context: &Context, kind: i8, name: &str) -> Result<TopicId, Problem> {
    if kind != TOPIC {
        return Err(Problem::new(
            ResponseError::InvalidRequest,
            "only the configs of topics can be altered",
        ));
    }
    let found = context.look(|view| view.engine.topics.named(name).map(|topic| topic.id));
    if let Some(topic) = found {
        return Ok(topic);
    }
    check_topic(name)
        .map_err(|message| Problem::new(ResponseError::InvalidTopicException, &message))?;
    Err(Problem::new(
        ResponseError::UnknownTopicOrPartition,
        &format!("Topic '{name}' does not exist"),
    ))
}

/// Logs the change.
pub(super) async fn submit(
    context: &Context,
    topic: TopicId,
    set: Vec<(String, Option<String>)>,
    replace: bool,
) -> Result<(), Problem> {
    match context
        .broker
        .submit(Command::AlterConfig {
            topic,
            set,
            replace,
        })
        .await
    {
        Ok(Outcome::Rejected(reject)) => Err(error_code::of_reject(&reject).into()),
        Ok(_) => Ok(()),
        Err(failure) => Err(error_code::of_failure(&failure, Surface::Admin).into()),
    }
}
