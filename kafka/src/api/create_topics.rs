//! CreateTopics, key 19, versions 2-7.
//!
//! * A name twice in one request is INVALID_REQUEST for it, and it is not created. Validate-only
//!   checks all and creates nothing. -1 partitions or replicas mean the broker's default.
//! * A replication factor above the number of nodes is accepted and means all nodes (Kafka
//!   refuses it): every topic is on every node here anyway.
//! * v5+ the configs in force; v7 the topic id.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use kafka_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};
use queen_engine::command::Command;
use queen_engine::config::Origin;
use queen_engine::limits::PARTITIONS_MAX;
use queen_engine::outcome::Outcome;
use uuid::Uuid;

use crate::api::Problem;
use crate::context::Context;
use crate::dispatch::{Call, Handler};
use crate::names::{is_legal_topic, text};
use crate::topic_config;
use crate::wire::error_code::{self, Surface};

pub(crate) struct CreateTopics;

impl Handler for CreateTopics {
    type Request = CreateTopicsRequest;
    type Response = CreateTopicsResponse;

    async fn answer(
        context: Arc<Context>,
        call: Call,
        request: CreateTopicsRequest,
    ) -> CreateTopicsResponse {
        let mut named: HashMap<&str, usize> = HashMap::new();
        for topic in &request.topics {
            *named.entry(topic.name.as_str()).or_default() += 1;
        }
        let mut rows: Vec<CreatableTopicResult> = Vec::with_capacity(request.topics.len());
        for topic in &request.topics {
            if named
                .get(topic.name.as_str())
                .is_some_and(|count| *count > 1)
            {
                if !rows.iter().any(|row| row.name == topic.name) {
                    let problem = Problem::new(
                        ResponseError::InvalidRequest,
                        "Duplicate topic name in the request",
                    );
                    rows.push(refused(topic, &problem));
                }
                continue;
            }
            let row = match create(&context, topic, request.validate_only).await {
                Ok(made) => describe(&context, call.version, topic, &made),
                Err(problem) => refused(topic, &problem),
            };
            rows.push(row);
        }
        CreateTopicsResponse::default().with_topics(rows)
    }

    fn failed(response: &CreateTopicsResponse) -> bool {
        response.topics.iter().any(|topic| topic.error_code != 0)
    }
}

fn refused(topic: &CreatableTopic, problem: &Problem) -> CreatableTopicResult {
    CreatableTopicResult::default()
        .with_name(topic.name.clone())
        .with_error_code(problem.error.code())
        .with_error_message(Some(text(&problem.message)))
        .with_num_partitions(-1)
        .with_replication_factor(-1)
}

struct Made {
    partitions: u32,
    configs: BTreeMap<String, String>,
    uuid: Uuid,
}

async fn create(
    context: &Context,
    topic: &CreatableTopic,
    validate_only: bool,
) -> Result<Made, Problem> {
    let partitions = check(context, topic)?;
    let mut configs = BTreeMap::new();
    for config in &topic.configs {
        topic_config::check(&config.name, config.value.as_deref())
            .map_err(|message| Problem::new(ResponseError::InvalidConfig, &message))?;
        let value = config.value.as_deref().unwrap_or_default();
        configs.insert(config.name.to_string(), value.to_owned());
    }
    let uuid = if validate_only {
        Uuid::nil()
    } else {
        Uuid::new_v4()
    };
    if !validate_only {
        let command = Command::CreateTopic {
            name: topic.name.to_string(),
            uuid: uuid.as_u128(),
            partitions,
            kafka: configs.clone(),
            origin: Origin::Kafka,
        };
        match context.broker.submit(command).await {
            Ok(Outcome::Rejected(reject)) => return Err(error_code::of_reject(&reject).into()),
            Ok(_) => {}
            Err(failure) => return Err(error_code::of_failure(&failure, Surface::Admin).into()),
        }
    }
    Ok(Made {
        partitions,
        configs,
        uuid,
    })
}

/// Checks name, width and replicas; the width.
fn check(context: &Context, topic: &CreatableTopic) -> Result<u32, Problem> {
    if !is_legal_topic(&topic.name) {
        return Err(Problem::new(
            ResponseError::InvalidTopicException,
            "Topic name is illegal: use letters, digits, '.', '_' and '-', at most 249",
        ));
    }
    if context.look(|view| view.engine.topics.named(&topic.name).is_some()) {
        let message = format!("Topic '{}' already exists.", topic.name.as_str());
        return Err(Problem::new(ResponseError::TopicAlreadyExists, &message));
    }
    if !topic.assignments.is_empty() {
        if topic.num_partitions != -1 || topic.replication_factor != -1 {
            return Err(Problem::new(
                ResponseError::InvalidRequest,
                "Both partitions or replicas and an assignment are given",
            ));
        }
        return Ok(u32::try_from(topic.assignments.len()).unwrap_or(u32::MAX));
    }
    if topic.replication_factor == 0 || topic.replication_factor < -1 {
        return Err(Problem::new(
            ResponseError::InvalidReplicationFactor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ));
    }
    match topic.num_partitions {
        -1 => Ok(context.node().default_partitions),
        count => u32::try_from(count)
            .ok()
            .filter(|count| (1..=PARTITIONS_MAX).contains(count))
            .ok_or_else(|| {
                Problem::new(
                    ResponseError::InvalidPartitions,
                    "Number of partitions must be from 1 to 10000, or -1 to use the default value.",
                )
            }),
    }
}

fn describe(
    context: &Context,
    version: i16,
    topic: &CreatableTopic,
    made: &Made,
) -> CreatableTopicResult {
    let replicas = i16::try_from(context.node().replicas.len()).unwrap_or(i16::MAX);
    let row = CreatableTopicResult::default().with_name(topic.name.clone());
    if version < 5 {
        return row;
    }
    let config = |(name, default): &(&str, &str)| {
        let set = made.configs.get(*name);
        CreatableTopicConfigs::default()
            .with_name(text(name))
            .with_value(Some(text(set.map_or(default, String::as_str))))
            .with_config_source(if set.is_some() {
                topic_config::SOURCE_TOPIC
            } else {
                topic_config::SOURCE_DEFAULT
            })
    };
    let configs = queen_engine::config::KAFKA_TOPIC_CONFIGS
        .iter()
        .map(config)
        .collect();
    row.with_topic_id(made.uuid)
        .with_num_partitions(i32::try_from(made.partitions).unwrap_or(i32::MAX))
        .with_replication_factor(replicas)
        .with_configs(Some(configs))
}
