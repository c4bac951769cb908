//! Authorized operations (KIP-430): all that a resource supports, for those who ask. The numbers are
//! those of Apache Kafka 4.3.1 without an authorizer.

mod world;

use kafka_protocol::messages::describe_topic_partitions_request::TopicRequest;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;
use world::World;

const CLUSTER: i32 = 8096;
const TOPIC: i32 = 3576;
const GROUP: i32 = 3400;

fn told(is_asked: bool, operations: i32) -> i32 {
    if is_asked { operations } else { i32::MIN }
}

#[tokio::test]
async fn operations_are_told_to_those_who_ask() {
    let world = World::start().await;
    let mut client = world.client().await;
    let name = |name| TopicName(StrBytes::from_static_str(name));
    for asked in [true, false] {
        for version in 8..=13 {
            // One that is there or made, and one that cannot be.
            let topics = ["orders", "bad name"]
                .map(|topic| MetadataRequestTopic::default().with_name(Some(name(topic))));
            let request = MetadataRequest::default()
                .with_topics(Some(topics.into()))
                .with_include_cluster_authorized_operations(asked && version <= 10)
                .with_include_topic_authorized_operations(asked);
            let answer = client.call(version, &request).await;
            let cluster = told(asked && version <= 10, CLUSTER);
            assert_eq!(answer.cluster_authorized_operations, cluster, "{version}");
            for topic in answer.topics {
                let operations = topic.topic_authorized_operations;
                assert_eq!(operations, told(asked, TOPIC), "{version}");
            }
        }
        for version in 0..=2 {
            let request = DescribeClusterRequest::default()
                .with_endpoint_type(1)
                .with_include_cluster_authorized_operations(asked);
            let answer = client.call(version, &request).await;
            let operations = answer.cluster_authorized_operations;
            assert_eq!(operations, told(asked, CLUSTER), "{version}");
        }
        for version in 3..=6 {
            let request = DescribeGroupsRequest::default()
                .with_groups(vec![GroupId(StrBytes::from_static_str("nobody"))])
                .with_include_authorized_operations(asked);
            let answer = client.call(version, &request).await;
            // From v6 on a group that is not there is an error, and errors have no operations.
            let operations = answer.groups[0].authorized_operations;
            assert_eq!(operations, told(asked && version < 6, GROUP), "{version}");
        }
    }
    let topics = ["orders", "gone"].map(|topic| TopicRequest::default().with_name(name(topic)));
    let request = DescribeTopicPartitionsRequest::default()
        .with_topics(topics.into())
        .with_response_partition_limit(10);
    let answer = client.call(0, &request).await;
    assert_eq!(answer.topics.len(), 2);
    for topic in answer.topics {
        assert_eq!(topic.topic_authorized_operations, TOPIC);
    }
}
