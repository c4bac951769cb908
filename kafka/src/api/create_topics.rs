//! CreateTopics, key 19, versions 2-7.
//!
//! * A name twice in one request is INVALID_REQUEST for it, and it is not created. Validate-only
//!   checks all and creates nothing. -1 partitions or replicas mean the broker's default.
//! * A name that differs from an existing one only in dots and underscores collides with it:
//!   INVALID_TOPIC_EXCEPTION. Illegal names have the same code; the text names the rule.
//! * An assignment by hand must name partitions 0, 1, 2, ... and brokers that exist, none twice;
//!   every topic is on every node all the same.
//! * A replication factor above the number of nodes is accepted and means all nodes (Kafka
//!   refuses it): every topic is on every node here anyway.
//! * v5+ the configs in force; v7 the topic id.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use kafka_protocol::messages::{BrokerId, CreateTopicsRequest, CreateTopicsResponse};
use queen_engine::command::Command;
use queen_engine::config::Origin;
use queen_engine::limits::PARTITIONS_MAX;
use queen_engine::outcome::Outcome;
use uuid::Uuid;

use crate::api::Problem;
use crate::context::Context;
use crate::dispatch::{Call, Handler};
use crate::names::{check_topic, collision_form, text};
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
        let taken = taken_forms(&context, &request.topics);
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
            let row = match create(&context, topic, request.validate_only, &taken).await {
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
    taken: &HashMap<String, String>,
) -> Result<Made, Problem> {
    let partitions = check(context, topic, taken)?;
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
fn check(
    context: &Context,
    topic: &CreatableTopic,
    taken: &HashMap<String, String>,
) -> Result<u32, Problem> {
    check_topic(&topic.name)
        .map_err(|message| Problem::new(ResponseError::InvalidTopicException, &message))?;
    if context.look(|view| view.engine.topics.named(&topic.name).is_some()) {
        let message = format!("Topic '{}' already exists.", topic.name.as_str());
        return Err(Problem::new(ResponseError::TopicAlreadyExists, &message));
    }
    if let Some(other) = taken.get(&collision_form(&topic.name)) {
        let name = topic.name.as_str();
        let message = format!("Topic '{name}' collides with the existing topic '{other}'");
        return Err(Problem::new(ResponseError::InvalidTopicException, &message));
    }
    if !topic.assignments.is_empty() {
        return assigned(context, topic);
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

/// Checks an assignment by hand; the number of partitions it makes.
fn assigned(context: &Context, topic: &CreatableTopic) -> Result<u32, Problem> {
    if topic.num_partitions != -1 || topic.replication_factor != -1 {
        return Err(Problem::new(
            ResponseError::InvalidRequest,
            "Partitions or replicas are given beside an assignment: both must be -1",
        ));
    }
    let invalid = |message: &str| Problem::new(ResponseError::InvalidReplicaAssignment, message);
    let mut indexes = BTreeSet::new();
    for assignment in &topic.assignments {
        let index = assignment.partition_index;
        if !indexes.insert(index) {
            let message = format!("Partition {index} is assigned twice");
            return Err(invalid(&message));
        }
    }
    let replicas = topic.assignments.iter().map(|row| &row.broker_ids[..]);
    check_replicas(context, replicas, None)?;
    let consecutive = (0..).zip(&indexes).all(|(at, index)| at == *index);
    if !consecutive {
        return Err(invalid(
            "The assigned partitions are not numbered 0, 1, 2 and so on",
        ));
    }
    let count = u32::try_from(topic.assignments.len()).unwrap_or(u32::MAX);
    if count > PARTITIONS_MAX {
        let message = format!("More than {PARTITIONS_MAX} partitions are assigned");
        return Err(Problem::new(ResponseError::InvalidPartitions, &message));
    }
    Ok(count)
}

/// Checks the replicas given for each partition: brokers that exist, none twice, and as many for
/// each (`count`, or as many as for the first).
pub(super) fn check_replicas<'a>(
    context: &Context,
    partitions: impl Iterator<Item = &'a [BrokerId]>,
    count: Option<usize>,
) -> Result<(), Problem> {
    let invalid = |message: String| {
        Err(Problem::new(
            ResponseError::InvalidReplicaAssignment,
            &message,
        ))
    };
    let node = context.node();
    let mut wanted = count;
    for replicas in partitions {
        if replicas.is_empty() {
            return invalid("The assignment has a partition without a replica".to_owned());
        }
        let mut seen = BTreeSet::new();
        for id in replicas {
            if !node.replicas.contains(&id.0) {
                return invalid(format!(
                    "The assignment names broker {}, which is unknown",
                    id.0
                ));
            }
            if !seen.insert(id.0) {
                return invalid(format!("The assignment names broker {} twice", id.0));
            }
        }
        let wanted = *wanted.get_or_insert(replicas.len());
        if replicas.len() != wanted {
            let len = replicas.len();
            return invalid(format!(
                "The assignment has a partition with {len} replicas where {wanted} are due"
            ));
        }
    }
    Ok(())
}

/// The existing topics that a wanted one could collide with, by the form of the name in which
/// dots and underscores are alike. Those of the same request do not count, as in Kafka.
fn taken_forms(context: &Context, wanted: &[CreatableTopic]) -> HashMap<String, String> {
    let can_collide = |name: &str| name.contains(['.', '_']);
    if !wanted.iter().any(|topic| can_collide(&topic.name)) {
        return HashMap::new();
    }
    let forms: HashSet<String> = wanted.iter().map(|t| collision_form(&t.name)).collect();
    context.look(|view| {
        let existing = view.engine.topics.iter().map(|topic| &topic.name);
        existing
            .filter(|name| can_collide(name))
            .map(|name| (collision_form(name), name.clone()))
            .filter(|(form, _)| forms.contains(form))
            .collect()
    })
}

fn describe(
    context: &Context,
    version: i16,
    topic: &CreatableTopic,
    made: &Made,
) -> CreatableTopicResult {
    let replicas = i16::try_from(context.node().replicas.len()).unwrap_or(i16::MAX);
    let row = CreatableTopicResult::default()
        .with_name(topic.name.clone())
        .with_error_message(None);
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
