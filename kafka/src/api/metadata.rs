//! Metadata, key 3, versions 0-13.
//!
//! * v0: an empty topic list means all; later, null means all and empty means none.
//! * v10+: topics may be asked for by id; an unknown id is UNKNOWN_TOPIC_ID.
//! * A missing topic is created if the broker allows it, the client does (v4+; before it always
//!   does) and the name is legal; an illegal name is INVALID_TOPIC_EXCEPTION.
//! * Every partition is led by the Raft leader, which is also the controller; the leader epoch is
//!   the term. Without a leader partitions say LEADER_NOT_AVAILABLE.
//! * Queues made over HTTP under names that Kafka does not allow are not listed, but found by
//!   their exact name.

use std::collections::BTreeSet;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, MetadataRequest, MetadataResponse, TopicName};
use queen_engine::command::Command;
use queen_engine::config::Origin;
use queen_engine::outcome::{Outcome, Reject};
use queen_engine::port::NodeView;
use queen_engine::topic::Topic;
use tracing::info;
use uuid::Uuid;

use crate::api::operations;
use crate::context::{Context, broker_ids, leader_epoch, told_leader};
use crate::dispatch::{Call, Handler};
use crate::names::{is_legal_topic, text, topic_name};
use crate::wire::error_code::{self, NONE, Surface};

pub(crate) struct Metadata;

impl Handler for Metadata {
    type Request = MetadataRequest;
    type Response = MetadataResponse;

    async fn answer(
        context: Arc<Context>,
        call: Call,
        request: MetadataRequest,
    ) -> MetadataResponse {
        let wanted = match request.topics {
            Some(topics) if topics.is_empty() && call.version == 0 => None,
            topics => topics,
        };
        let may_create = context.config.auto_create_topics
            && (call.version < 4 || request.allow_auto_topic_creation);
        let mut created = Vec::new();
        if may_create && let Some(wanted) = &wanted {
            created = create_missing(&context, wanted).await;
        }
        let node = context.node();
        let mut topics: Vec<MetadataResponseTopic> = match &wanted {
            None => all_topics(&context, &node),
            Some(wanted) => wanted
                .iter()
                .map(|w| one_topic(&context, &node, w, &created))
                .collect(),
        };
        let asked = request.include_topic_authorized_operations;
        for topic in &mut topics {
            topic.topic_authorized_operations = operations::field(asked, operations::TOPIC);
        }
        let asked = request.include_cluster_authorized_operations;
        MetadataResponse::default()
            .with_cluster_authorized_operations(operations::field(asked, operations::CLUSTER))
            .with_brokers(brokers(&node))
            .with_cluster_id(Some(text(&node.cluster_id)))
            .with_controller_id(BrokerId(told_leader(&node).unwrap_or(-1)))
            .with_topics(topics)
    }
}

fn brokers(node: &NodeView) -> Vec<MetadataResponseBroker> {
    let row = |broker: &queen_engine::port::BrokerAddress| {
        MetadataResponseBroker::default()
            .with_node_id(BrokerId(broker.id))
            .with_host(text(&broker.kafka_host))
            .with_port(i32::from(broker.kafka_port))
            .with_rack(broker.rack.as_deref().map(text))
    };
    node.brokers.iter().map(row).collect()
}

fn all_topics(context: &Context, node: &NodeView) -> Vec<MetadataResponseTopic> {
    context.look(|view| {
        let listed = view
            .engine
            .topics
            .iter()
            .filter(|topic| is_legal_topic(&topic.name));
        listed.map(|topic| describe(topic, node)).collect()
    })
}

fn one_topic(
    context: &Context,
    node: &NodeView,
    wanted: &MetadataRequestTopic,
    created: &[(TopicName, ResponseError)],
) -> MetadataResponseTopic {
    let missing = |error: ResponseError| {
        MetadataResponseTopic::default()
            .with_error_code(error.code())
            .with_name(wanted.name.clone())
            .with_topic_id(wanted.topic_id)
    };
    let Some(name) = &wanted.name else {
        return context.look(|view| match context.topic_with_id(view, wanted.topic_id) {
            Some(topic) => describe(topic, node),
            None => missing(ResponseError::UnknownTopicId),
        });
    };
    let found = context.look(|view| {
        view.engine
            .topics
            .named(name)
            .map(|topic| describe(topic, node))
    });
    if let Some(found) = found {
        return found;
    }
    if !is_legal_topic(name) {
        return missing(ResponseError::InvalidTopicException);
    }
    let error = created
        .iter()
        .find(|(of, _)| of == name)
        .map(|(_, error)| *error);
    missing(error.unwrap_or(ResponseError::UnknownTopicOrPartition))
}

/// A topic that exists, as v0-13 describe it.
fn describe(topic: &Topic, node: &NodeView) -> MetadataResponseTopic {
    let leader = told_leader(node);
    let error = if leader.is_some() {
        NONE
    } else {
        ResponseError::LeaderNotAvailable.code()
    };
    let (replicas, in_sync) = (broker_ids(&node.replicas), broker_ids(&node.in_sync));
    let partition = |index: u32| {
        MetadataResponsePartition::default()
            .with_error_code(error)
            .with_partition_index(i32::try_from(index).unwrap_or(i32::MAX))
            .with_leader_id(BrokerId(leader.unwrap_or(-1)))
            .with_leader_epoch(leader_epoch(node))
            .with_replica_nodes(replicas.clone())
            .with_isr_nodes(in_sync.clone())
    };
    MetadataResponseTopic::default()
        .with_name(Some(topic_name(&topic.name)))
        .with_topic_id(Uuid::from_u128(topic.uuid))
        .with_partitions((0..topic.width()).map(partition).collect())
}

/// Creates the wanted topics that do not exist; what is reported for those it could not create.
async fn create_missing(
    context: &Context,
    wanted: &[MetadataRequestTopic],
) -> Vec<(TopicName, ResponseError)> {
    let missing: BTreeSet<TopicName> = context.look(|view| {
        let names = wanted.iter().filter_map(|wanted| wanted.name.as_ref());
        names
            .filter(|name| is_legal_topic(name) && view.engine.topics.named(name).is_none())
            .cloned()
            .collect()
    });
    let mut failed = Vec::new();
    for name in missing {
        let create = Command::CreateTopic {
            name: name.to_string(),
            uuid: Uuid::new_v4().as_u128(),
            partitions: context.node().default_partitions,
            kafka: Default::default(),
            origin: Origin::Kafka,
        };
        match context.broker.submit(create).await {
            Ok(Outcome::Rejected(Reject::TopicExists)) => {}
            Ok(Outcome::Rejected(reject)) => failed.push((name, error_code::of_reject(&reject))),
            Ok(_) => info!(topic = name.as_str(), "topic created on demand"),
            Err(failure) => {
                let error = error_code::of_failure(&failure, Surface::Admin);
                tracing::debug!(topic = name.as_str(), %failure, ?error, "topic not created");
                // Clients expect one of the retriable topic errors here, not a controller's.
                failed.push((name, ResponseError::LeaderNotAvailable));
            }
        }
    }
    failed
}
