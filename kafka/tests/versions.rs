//! Every served key in every served version: the answer decodes to the last byte.

mod world;

use std::collections::BTreeSet;

use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Request, StrBytes};
use queen_engine::batch::BatchBuilder;
use uuid::Uuid;
use world::{Client, World};

fn group(name: &'static str) -> GroupId {
    GroupId(StrBytes::from_static_str(name))
}

fn topic(name: &'static str) -> TopicName {
    TopicName(StrBytes::from_static_str(name))
}

/// A client and what it was told.
struct Talk {
    client: Client,
    keys: BTreeSet<i16>,
    answers: Vec<String>,
}

/// Sends a request in every served version of its key.
async fn all<R: Request<Response: std::fmt::Debug>>(talk: &mut Talk, make: impl Fn(i16) -> R) {
    let api = queen_kafka::served_apis()
        .into_iter()
        .find(|api| api.key == R::KEY)
        .unwrap();
    talk.keys.insert(api.key);
    for version in api.min..=api.max {
        let answer = talk.client.call(version, &make(version)).await;
        let said = format!("{} v{version}: {answer:?}", api.name);
        talk.answers.push(said);
    }
}

/// Hides what differs from one broker to the next: its port, and the UUIDs it made.
fn comparable(answer: &str, port: u16) -> String {
    let mut words = Vec::new();
    for word in answer
        .replace(&format!("port: {port}"), "port: ours")
        .split(' ')
    {
        let hidden = word.char_indices().find_map(|(at, _)| {
            let id = Uuid::try_parse(word.get(at..at + 36)?).ok()?;
            (!id.is_nil()).then(|| word.replace(&word[at..at + 36], "made"))
        });
        words.push(hidden.unwrap_or_else(|| word.to_owned()));
    }
    words.join(" ")
}

/// The answers of a fresh broker to every served key in every served version, each request with
/// so many bytes behind its body. Each answer is decoded to its last byte on the way.
async fn conversation(behind: usize) -> Vec<String> {
    let world = World::start().await;
    let mut client = world.client().await;
    client.behind = behind;
    let mut talk = Talk {
        client,
        keys: BTreeSet::new(),
        answers: Vec::new(),
    };
    let c = &mut talk;
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
    with_records(c).await;
    let served = queen_kafka::served_apis();
    let keys: BTreeSet<i16> = served.iter().map(|api| api.key).collect();
    assert_eq!(talk.keys, keys, "a new key needs a line above");
    let answers = talk.answers.iter();
    answers
        .map(|answer| comparable(answer, world.port))
        .collect()
}

/// The requests about records, on a topic that has some.
async fn with_records(c: &mut Talk) {
    let wanted = CreatableTopic::default()
        .with_name(topic("full"))
        .with_num_partitions(1)
        .with_replication_factor(-1);
    let request = CreateTopicsRequest::default().with_topics(vec![wanted]);
    let id = c.client.call(7, &request).await.topics[0].topic_id;
    all(c, |v| {
        let mut records = BatchBuilder::new(1_700_000_000_000);
        records.push(1_700_000_000_000, Some(b"key"), Some(b"value"), &[]);
        let data = PartitionProduceData::default().with_records(Some(records.finish()));
        let mut data = TopicProduceData::default().with_partition_data(vec![data]);
        if v >= 13 {
            data.topic_id = id;
        } else {
            data.name = topic("full");
        }
        ProduceRequest::default()
            .with_acks(-1)
            .with_topic_data(vec![data])
    })
    .await;
    all(c, |v| {
        let partition = FetchPartition::default().with_partition_max_bytes(1 << 20);
        let mut wanted = FetchTopic::default().with_partitions(vec![partition]);
        if v >= 13 {
            wanted.topic_id = id;
        } else {
            wanted.topic = topic("full");
        }
        FetchRequest::default()
            .with_max_bytes(1 << 20)
            .with_topics(vec![wanted])
    })
    .await;
    all(c, |_| {
        let latest = ListOffsetsPartition::default().with_timestamp(-1);
        let wanted = ListOffsetsTopic::default()
            .with_name(topic("full"))
            .with_partitions(vec![latest]);
        ListOffsetsRequest::default().with_topics(vec![wanted])
    })
    .await;
    all(c, |_| {
        let commit = OffsetCommitRequestPartition::default().with_committed_offset(3);
        let wanted = OffsetCommitRequestTopic::default()
            .with_name(topic("full"))
            .with_partitions(vec![commit]);
        OffsetCommitRequest::default()
            .with_group_id(group("reader"))
            .with_generation_id_or_member_epoch(-1)
            .with_topics(vec![wanted])
    })
    .await;
    all(c, |v| {
        let request = OffsetFetchRequest::default();
        if v >= 8 {
            let wanted = OffsetFetchRequestGroup::default()
                .with_group_id(group("reader"))
                .with_topics(None);
            request.with_groups(vec![wanted])
        } else {
            let wanted = OffsetFetchRequestTopic::default()
                .with_name(topic("full"))
                .with_partition_indexes(vec![0]);
            request
                .with_group_id(group("reader"))
                .with_topics(Some(vec![wanted]))
        }
    })
    .await;
}

#[tokio::test]
async fn every_version_is_answered_in_its_own_format() {
    let answers = conversation(0).await;
    let told = |what: &str| answers.iter().any(|answer| answer.contains(what));
    assert!(told("base_offset: 10"), "the records were stored");
    assert!(told("committed_offset: 3"), "the offset was committed");
}

/// Apache Kafka does not look behind a body, and librdkafka sends bytes there.
#[tokio::test]
async fn bytes_behind_a_request_change_no_answer() {
    let (plain, one, three, hundred) = tokio::join!(
        conversation(0),
        conversation(1),
        conversation(3),
        conversation(100)
    );
    for (behind, answers) in [(1, one), (3, three), (100, hundred)] {
        assert_eq!(answers.len(), plain.len());
        for (answer, plain) in answers.iter().zip(&plain) {
            assert_eq!(answer, plain, "{behind} bytes behind");
        }
    }
}

/// A varint that does not end is no body, whatever stands behind it: one such request, one
/// connection less, and the next client is served.
#[tokio::test]
async fn a_varint_without_end_closes_the_connection() {
    let world = World::start().await;
    for behind in [0, 1, 3, 100] {
        let mut client = world.client().await;
        // Metadata v9 for an array of topics whose length goes on for a sixth byte.
        let mut frame = vec![0, 3, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0];
        frame.extend_from_slice(&[0x80, 0x80, 0x80, 0x80, 0x80, 0, 0, 0, 0, 0]);
        frame.resize(frame.len() + behind, 0);
        client.send_raw(&frame).await;
        assert_eq!(client.receive_raw().await, None, "{behind} bytes behind");
        let mut next = world.client().await;
        next.call(9, &MetadataRequest::default()).await;
    }
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
