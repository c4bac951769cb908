//! IncrementalAlterConfigs, key 44, versions 0-1 (KIP-339): set, delete, append, subtract; the
//! last two on list configs only. A null value is INVALID_REQUEST except for delete. A resource twice in one request, or a config twice in one
//! resource, is INVALID_REQUEST. Only topics can be altered.

use std::collections::HashSet;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};

use crate::api::Problem;
use crate::api::alter_configs::{submit, topic_of};
use crate::context::Context;
use crate::dispatch::{Call, Handler};
use crate::names::text;
use crate::topic_config::{self, Kind};

pub(crate) struct IncrementalAlterConfigs;

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

impl Handler for IncrementalAlterConfigs {
    type Request = IncrementalAlterConfigsRequest;
    type Response = IncrementalAlterConfigsResponse;

    async fn answer(
        context: Arc<Context>,
        _call: Call,
        request: IncrementalAlterConfigsRequest,
    ) -> IncrementalAlterConfigsResponse {
        let resources = &request.resources;
        let mut rows = Vec::with_capacity(resources.len());
        for resource in resources {
            let same = |other: &&AlterConfigsResource| {
                other.resource_type == resource.resource_type
                    && other.resource_name == resource.resource_name
            };
            let row = AlterConfigsResourceResponse::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name.clone())
                .with_error_message(None);
            let result = if resources.iter().filter(same).count() > 1 {
                Err(Problem::new(
                    ResponseError::InvalidRequest,
                    "the resource is named twice",
                ))
            } else {
                alter(&context, resource, request.validate_only).await
            };
            rows.push(match result {
                Ok(()) => row,
                Err(problem) => row
                    .with_error_code(problem.error.code())
                    .with_error_message(Some(text(&problem.message))),
            });
        }
        IncrementalAlterConfigsResponse::default().with_responses(rows)
    }

    fn failed(response: &IncrementalAlterConfigsResponse) -> bool {
        response.responses.iter().any(|row| row.error_code != 0)
    }
}

async fn alter(
    context: &Context,
    resource: &AlterConfigsResource,
    validate_only: bool,
) -> Result<(), Problem> {
    let null: Vec<&str> = resource
        .configs
        .iter()
        .filter(|config| config.config_operation != DELETE && config.value.is_none())
        .map(|config| config.name.as_str())
        .collect();
    if !null.is_empty() {
        let message = format!("A null value is not supported for: {}", null.join(", "));
        return Err(Problem::new(ResponseError::InvalidRequest, &message));
    }
    let topic = topic_of(context, resource.resource_type, &resource.resource_name)?;
    let mut seen = HashSet::new();
    let mut set = Vec::with_capacity(resource.configs.len());
    for config in &resource.configs {
        if !seen.insert(config.name.as_str()) {
            return Err(Problem::new(
                ResponseError::InvalidRequest,
                "a config is named twice",
            ));
        }
        let present = || {
            context.look(|view| {
                let topic = view.engine.topics.get(topic)?;
                topic.kafka.get(&config.name).map(str::to_owned)
            })
        };
        set.push((config.name.to_string(), changed(config, present)?));
    }
    if validate_only {
        return Ok(());
    }
    submit(context, topic, set, false).await
}

/// The value after the change; `None` unsets it.
fn changed(
    config: &AlterableConfig,
    present: impl FnOnce() -> Option<String>,
) -> Result<Option<String>, Problem> {
    let invalid = |message: String| Problem::new(ResponseError::InvalidConfig, &message);
    let given = config.value.as_deref();
    let value = match config.config_operation {
        SET => given.map(str::to_owned),
        // Of any name, known or not: what is not set stays unset.
        DELETE => return Ok(None),
        APPEND | SUBTRACT => {
            if topic_config::kind(&config.name) != Kind::List {
                let message = format!("{} is not a list", &*config.name);
                return Err(Problem::new(ResponseError::InvalidConfig, &message));
            }
            let present = present().unwrap_or_default();
            Some(merged(
                &present,
                given.unwrap_or_default(),
                config.config_operation == APPEND,
            ))
        }
        other => {
            let message = format!("unknown operation {other}");
            return Err(Problem::new(ResponseError::InvalidRequest, &message));
        }
    };
    topic_config::check(&config.name, value.as_deref()).map_err(invalid)?;
    Ok(value)
}

fn merged(present: &str, given: &str, append: bool) -> String {
    let words = |list: &str| -> Vec<String> {
        let words = list
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    };
    let (mut list, given) = (words(present), words(given));
    if append {
        for word in given {
            if !list.contains(&word) {
                list.push(word);
            }
        }
    } else {
        list.retain(|word| !given.contains(word));
    }
    list.join(",")
}
