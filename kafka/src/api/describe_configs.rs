//! DescribeConfigs, key 32, versions 1-4.
//!
//! * Topics: every known config with type, source and, when asked for, synonyms. A value that was
//!   set is a topic config also when it equals the default (row 155).
//! * Brokers: a few settings of the listener, read-only. Groups: none.
//! * A null or empty key list means all.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};

use crate::api::{BROKER, GROUP, Problem, TOPIC};
use crate::context::Context;
use crate::dispatch::{Call, Handler};
use crate::names::{check_topic, text};
use crate::topic_config::{self, ConfigRow, Kind, SOURCE_DEFAULT, SOURCE_STATIC_BROKER};

pub(crate) struct DescribeConfigs;

impl Handler for DescribeConfigs {
    type Request = DescribeConfigsRequest;
    type Response = DescribeConfigsResponse;

    async fn answer(
        context: Arc<Context>,
        call: Call,
        request: DescribeConfigsRequest,
    ) -> DescribeConfigsResponse {
        let rows = request.resources.iter().map(|resource| {
            let row = DescribeConfigsResult::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name.clone());
            match describe(&context, resource, call.version, request.include_synonyms) {
                Ok(configs) => row.with_configs(configs),
                Err(problem) => row
                    .with_error_code(problem.error.code())
                    .with_error_message(Some(text(&problem.message))),
            }
        });
        DescribeConfigsResponse::default().with_results(rows.collect())
    }
}

fn describe(
    context: &Context,
    resource: &DescribeConfigsResource,
    version: i16,
    synonyms: bool,
) -> Result<Vec<DescribeConfigsResourceResult>, Problem> {
    let wanted = |name: &str| match &resource.configuration_keys {
        Some(keys) if !keys.is_empty() => keys.iter().any(|key| key.as_str() == name),
        _ => true,
    };
    match resource.resource_type {
        TOPIC => {
            let rows = context.look(|view| {
                view.engine
                    .topics
                    .named(&resource.resource_name)
                    .map(topic_config::rows)
            });
            let Some(rows) = rows else {
                check_topic(&resource.resource_name).map_err(|message| {
                    Problem::new(ResponseError::InvalidTopicException, &message)
                })?;
                return Err(ResponseError::UnknownTopicOrPartition.into());
            };
            let rows = rows.into_iter().filter(|row| wanted(row.name));
            Ok(rows.map(|row| of_topic(&row, version, synonyms)).collect())
        }
        BROKER => {
            let own = context.node().id.to_string();
            if !resource.resource_name.is_empty() && *resource.resource_name != *own {
                let message = format!("this is broker {own}, ask the other one itself");
                return Err(Problem::new(ResponseError::InvalidRequest, &message));
            }
            let rows = if resource.resource_name.is_empty() {
                Vec::new()
            } else {
                of_broker(context, version)
            };
            Ok(rows.into_iter().filter(|row| wanted(&row.name)).collect())
        }
        GROUP => Ok(Vec::new()),
        other => {
            let message = format!("resource type {other} has no configs here");
            Err(Problem::new(ResponseError::InvalidRequest, &message))
        }
    }
}

fn of_topic(row: &ConfigRow, version: i16, synonyms: bool) -> DescribeConfigsResourceResult {
    let synonym = |value: &str, source| {
        DescribeConfigsSynonym::default()
            .with_name(text(row.name))
            .with_value(Some(text(value)))
            .with_source(source)
    };
    let mut listed = Vec::new();
    if synonyms {
        if row.is_set {
            listed.push(synonym(&row.value, row.source()));
        }
        listed.push(synonym(&row.default, SOURCE_DEFAULT));
    }
    let result = DescribeConfigsResourceResult::default()
        .with_name(text(row.name))
        .with_value(Some(text(&row.value)))
        .with_config_source(row.source())
        .with_synonyms(listed)
        .with_documentation(None);
    typed(result, row.kind, version)
}

fn typed(
    row: DescribeConfigsResourceResult,
    kind: Kind,
    version: i16,
) -> DescribeConfigsResourceResult {
    if version >= 3 {
        row.with_config_type(kind as i8)
    } else {
        row
    }
}

fn of_broker(context: &Context, version: i16) -> Vec<DescribeConfigsResourceResult> {
    let node = context.node();
    let config = &context.config;
    let rows = [
        ("broker.id", node.id.to_string(), Kind::Int),
        (
            "auto.create.topics.enable",
            config.auto_create_topics.to_string(),
            Kind::Boolean,
        ),
        (
            "connections.max.idle.ms",
            config.idle_close.as_millis().to_string(),
            Kind::Long,
        ),
        (
            "default.replication.factor",
            node.replicas.len().to_string(),
            Kind::Int,
        ),
        (
            "group.initial.rebalance.delay.ms",
            config.group_initial_delay.as_millis().to_string(),
            Kind::Int,
        ),
        (
            "group.max.session.timeout.ms",
            config.group_session_max.as_millis().to_string(),
            Kind::Int,
        ),
        (
            "group.min.session.timeout.ms",
            config.group_session_min.as_millis().to_string(),
            Kind::Int,
        ),
        (
            "num.partitions",
            node.default_partitions.to_string(),
            Kind::Int,
        ),
        (
            "socket.request.max.bytes",
            config.request_bytes_max.to_string(),
            Kind::Int,
        ),
    ];
    let row = |(name, value, kind): (&str, String, Kind)| {
        let result = DescribeConfigsResourceResult::default()
            .with_name(text(name))
            .with_value(Some(text(&value)))
            .with_read_only(true)
            .with_documentation(None)
            .with_config_source(SOURCE_STATIC_BROKER);
        typed(result, kind, version)
    };
    rows.into_iter().map(row).collect()
}
