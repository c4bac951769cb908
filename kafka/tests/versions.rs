//! Every served key in every served version: the answer decodes to the last byte.

mod world;

use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Request, StrBytes};
use world::{Client, World};

fn group(name: &'static str) -> GroupId {
    GroupId(StrBytes::from_static_str(name))
}

fn topic(name: &'static str) -> TopicName {
    TopicName(StrBytes::from_static_str(name))
}

async fn all<R: Request>(client: &mut Client, make: impl Fn(i16) -> R) {
    let api = queen_kafka::served_apis()
        .into_iter()
        .find(|api| api.key == R::KEY)
        .unwrap();
    for version in api.min..=api.max {
        client.call(version, &make(version)).await;
    }
}

#[tokio::test]
async fn every_version_is_answered_in_its_own_format() {
    let world = World::start().await;
    let mut client = world.client().await;
    let c = &mut client;
    let name = || Some(topic("orders"));
    all(c, |_| {
        ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("test"))
            .with_client_software_version(StrBytes::from_static_str("1"))
    })
    .await;
    all(c, |_| {
        let wanted = MetadataRequestTopic::default().with_name(name());
        MetadataRequest::default().with_topics(Some(vec![wanted]))
    })
    .await;
    all(c, |v| {
        MetadataRequest::default().with_topics((v > 0).then(Vec::new).or(Some(vec![])))
    })
    .await;
    all(c, |_| ListOffsetsRequest::default()).await;
    all(c, |_| FindCoordinatorRequest::default()).await;
    all(c, |_| {
        OffsetCommitRequest::default().with_group_id(group("g"))
    })
    .await;
    all(c, |_| {
        OffsetFetchRequest::default().with_topics(Some(vec![]))
    })
    .await;
    all(c, |_| JoinGroupRequest::default().with_group_id(group("g"))).await;
    all(c, |_| {
        JoinGroupRequest::default()
            .with_group_id(group("g"))
            .with_session_timeout_ms(10_000)
    })
    .await;
    all(c, |v| {
        let request = SyncGroupRequest::default().with_group_id(group("g"));
        if v >= 5 {
            request.with_protocol_type(Some(StrBytes::new()))
        } else {
            request
        }
    })
    .await;
    all(c, |_| HeartbeatRequest::default().with_group_id(group("g"))).await;
    all(c, |_| {
        LeaveGroupRequest::default().with_group_id(group("g"))
    })
    .await;
    all(c, |_| {
        DescribeGroupsRequest::default().with_groups(vec![group("g"), group("h")])
    })
    .await;
    all(c, |_| ListGroupsRequest::default()).await;
    all(c, |v| {
        let name: &'static str = Box::leak(format!("made-{v}").into_boxed_str());
        let made = CreatableTopic::default()
            .with_name(topic(name))
            .with_num_partitions(2)
            .with_replication_factor(3);
        let bad = CreatableTopic::default().with_name(topic("bad name"));
        CreateTopicsRequest::default().with_topics(vec![made, bad])
    })
    .await;
    all(c, |v| {
        if v >= 6 {
            let state =
                delete_topics_request::DeleteTopicState::default().with_name(Some(topic("made-2")));
            let gone = delete_topics_request::DeleteTopicState::default()
                .with_topic_id(uuid::Uuid::from_u128(7));
            DeleteTopicsRequest::default().with_topics(vec![state, gone])
        } else {
            DeleteTopicsRequest::default().with_topic_names(vec![topic("gone")])
        }
    })
    .await;
    all(c, |_| DeleteRecordsRequest::default()).await;
    all(c, |v| {
        let request = InitProducerIdRequest::default().with_transactional_id(None);
        if v >= 3 {
            request
                .with_producer_id(ProducerId(-1))
                .with_producer_epoch(-1)
        } else {
            request
        }
    })
    .await;
    all(c, |_| OffsetForLeaderEpochRequest::default()).await;
    all(c, |_| {
        let resource = |kind, name| {
            DescribeConfigsResource::default()
                .with_resource_type(kind)
                .with_resource_name(StrBytes::from_static_str(name))
                .with_configuration_keys(None)
        };
        let resources = vec![
            resource(2, "orders"),
            resource(2, "gone"),
            resource(4, "1"),
            resource(4, ""),
            resource(32, "g"),
            resource(77, "?"),
        ];
        DescribeConfigsRequest::default()
            .with_resources(resources)
            .with_include_synonyms(true)
    })
    .await;
    all(c, |_| AlterConfigsRequest::default()).await;
    all(c, |_| IncrementalAlterConfigsRequest::default()).await;
    all(c, |_| CreatePartitionsRequest::default()).await;
    all(c, |_| {
        DeleteGroupsRequest::default().with_groups_names(vec![group("nobody")])
    })
    .await;
    all(c, |_| {
        OffsetDeleteRequest::default().with_group_id(group("nobody"))
    })
    .await;
    all(c, |_| {
        DescribeClusterRequest::default().with_endpoint_type(1)
    })
    .await;
    all(c, |_| {
        DescribeTopicPartitionsRequest::default().with_response_partition_limit(2)
    })
    .await;
    all(c, |_| DescribeLogDirsRequest::default().with_topics(None)).await;
    all(c, |_| ListPartitionReassignmentsRequest::default()).await;
    all(c, |_| DescribeProducersRequest::default()).await;
    all(c, |_| FetchRequest::default().with_max_wait_ms(0)).await;
    all(c, |_| ProduceRequest::default().with_acks(1)).await;
    let keys = queen_kafka::served_apis().len();
    assert_eq!(keys, 30, "a new key needs a line above");
}

#[tokio::test]
async fn an_unknown_version_of_api_versions_is_answered_in_version_0() {
    let world = World::start().await;
    let mut client = world.client().await;
    client
        .send_raw(&[0, 18, 0, 99, 0, 0, 0, 5, 0xff, 0xff, 0])
        .await;
    let response = client.receive::<ApiVersionsRequest>(0, 5).await;
    assert_eq!(response.error_code, 35);
    assert_eq!(response.api_keys.len(), 1);
    assert_eq!(
        (
            response.api_keys[0].api_key,
            response.api_keys[0].max_version
        ),
        (18, 4)
    );
    // The connection lives, and Produce is listed from 0.
    let response = client.call(0, &ApiVersionsRequest::default()).await;
    assert_eq!(response.api_keys[0].api_key, 0);
    assert_eq!(response.api_keys[0].min_version, 0);
}

#[tokio::test]
async fn what_is_no_request_closes_the_connection() {
    let world = World::start().await;
    let frames: [&[u8]; 6] = [
        &[],
        &[0],
        &[0, 3, 0, 1, 0, 0, 0, 1],
        // Unknown key; Produce of a version that is listed but refused; a body that is no body.
        &[0x7f, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff],
        &[
            0, 0, 0, 2, 0, 0, 0, 1, 0xff, 0xff, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0,
        ],
        &[0, 3, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0, 0x20, 1],
    ];
    for frame in frames {
        let mut client = world.client().await;
        client.send_raw(frame).await;
        assert_eq!(client.receive_raw().await, None, "{frame:?}");
    }
    for length in [-1i32, i32::MAX] {
        use tokio::io::AsyncWriteExt;
        let mut client = world.client().await;
        client.socket.write_i32(length).await.unwrap();
        assert_eq!(client.receive_raw().await, None);
    }
}

#[test]
fn the_documented_table_is_the_served_one() {
    let page = include_str!("../../docs/protocol.md");
    for api in queen_kafka::served_apis() {
        let versions = match (api.min, api.max) {
            (min, max) if min == max => min.to_string(),
            (min, max) => format!("{min}-{max}"),
        };
        let listed = if api.listed_min == api.min {
            String::new()
        } else {
            format!(" (listed from {})", api.listed_min)
        };
        let row = format!("| {} | {} | {versions}{listed} |", api.key, api.name);
        assert!(page.contains(&row), "docs/protocol.md lacks: {row}");
    }
    let rows = page.lines().filter(|line| {
        line.strip_prefix("| ")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    });
    assert_eq!(rows.count(), queen_kafka::served_apis().len());
}

#[tokio::test]
async fn api_versions_carries_no_tagged_field() {
    let world = World::start().await;
    let mut client = world.client().await;
    let rows = queen_kafka::served_apis();
    for version in [3u8, 4] {
        // Header v2 with client id "kcat"; name and version as librdkafka 2.0.2 sends them.
        let mut request = vec![0, 18, 0, version, 0, 0, 0, 9, 0, 4];
        request.extend_from_slice(b"kcat\0\x0blibrdkafka\x062.0.2\0");
        client.send_raw(&request).await;
        let mut golden = vec![0, 0, 0, 9, 0, 0, u8::try_from(rows.len() + 1).unwrap()];
        for row in &rows {
            golden.extend_from_slice(&row.key.to_be_bytes());
            golden.extend_from_slice(&row.listed_min.to_be_bytes());
            golden.extend_from_slice(&row.max.to_be_bytes());
            golden.push(0);
        }
        // Throttle time, and no tags: librdkafka 2.0.2 misreads features (case PR-1).
        golden.extend_from_slice(&[0, 0, 0, 0, 0]);
        assert_eq!(client.receive_raw().await.unwrap(), golden);
    }
}
