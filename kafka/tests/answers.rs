//! Answers that are to be Apache Kafka 4.3.1's, code by code: each test takes the whole kind of a
//! difference that was found by sending both the same requests (issue 12.2).

mod world;

use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::alter_configs_request::{
    AlterConfigsResource as Replaced, AlterableConfig as Replacing,
};
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;
use queen_engine::batch::BatchBuilder;
use uuid::Uuid;
use world::{Client, World};

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

fn name(value: &str) -> TopicName {
    TopicName(text(value))
}

fn topic(title: &str) -> CreatableTopic {
    CreatableTopic::default()
        .with_name(name(title))
        .with_num_partitions(2)
        .with_replication_factor(-1)
}

async fn create(client: &mut Client, topics: Vec<CreatableTopic>) -> Vec<CreatableTopicResult> {
    let request = CreateTopicsRequest::default().with_topics(topics);
    client.call(7, &request).await.topics
}

async fn made(client: &mut Client, title: &str) -> Uuid {
    let rows = create(client, vec![topic(title)]).await;
    assert_eq!((rows[0].error_code, &rows[0].error_message), (0, &None));
    rows[0].topic_id
}

/// Partitions and the brokers of each.
type Assignment<'a> = &'a [(i32, &'a [i32])];

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

#[tokio::test]
async fn producer_ids_need_a_whole_identity() {
    let world = World::start().await;
    let mut client = world.client().await;
    let plain = InitProducerIdRequest::default().with_transactional_id(None);
    for version in 0..=5 {
        let empty = plain
            .clone()
            .with_transactional_id(Some(TransactionalId(text(""))));
        let answer = client.call(version, &empty).await;
        assert_eq!(
            (
                answer.error_code,
                *answer.producer_id,
                answer.producer_epoch
            ),
            (42, -1, -1)
        );
        if version >= 3 {
            for (id, epoch) in [(5, -1), (-1, 5), (-7, -1)] {
                let half = plain
                    .clone()
                    .with_producer_id(ProducerId(id))
                    .with_producer_epoch(epoch);
                assert_eq!(client.call(version, &half).await.error_code, 42);
            }
        }
        assert_eq!(client.call(version, &plain).await.error_code, 0);
    }
}

#[tokio::test]
async fn names_that_differ_in_dots_and_underscores_collide() {
    let world = World::start().await;
    let mut client = world.client().await;
    for (first, second) in [("a.b", "a_b"), ("c_d", "c.d"), ("e.f_g", "e_f.g")] {
        made(&mut client, first).await;
        let row = create(&mut client, vec![topic(second)]).await.remove(0);
        let message = row.error_message.unwrap();
        assert_eq!(row.error_code, 17);
        assert!(
            message.contains(first) && message.contains(second),
            "{message:?}"
        );
    }
    made(&mut client, "ab").await;
    // Of one request both are made, as in Kafka.
    let rows = create(&mut client, vec![topic("x.y"), topic("x_y")]).await;
    assert_eq!([rows[0].error_code, rows[1].error_code], [0, 0]);
}

#[tokio::test]
async fn the_text_about_a_bad_name_tells_the_rule_and_the_name() {
    let world = World::start().await;
    let mut client = world.client().await;
    let long = "x".repeat(250);
    let mut texts = BTreeSet::new();
    for bad in ["", "..", "a b", &long] {
        let row = create(&mut client, vec![topic(bad)]).await.remove(0);
        let message = row.error_message.unwrap();
        assert_eq!(row.error_code, 17);
        assert!(message.contains(bad));
        texts.insert(message.to_string());
    }
    assert_eq!(texts.len(), 4, "one text per rule");
}

#[tokio::test]
async fn assignments_are_judged_as_in_kafka() {
    let world = World::start().await;
    let mut client = world.client().await;
    let assigned = |title: &str, rows: &[(i32, &[i32])]| {
        let row = |(index, brokers): &(i32, &[i32])| {
            CreatableReplicaAssignment::default()
                .with_partition_index(*index)
                .with_broker_ids(brokers.iter().map(|id| BrokerId(*id)).collect())
        };
        topic(title)
            .with_num_partitions(-1)
            .with_assignments(rows.iter().map(row).collect())
    };
    let cases: &[(&str, Assignment<'_>, i16)] = &[
        ("unknown broker", &[(0, &[7])], 39),
        ("negative broker", &[(0, &[-1])], 39),
        ("broker twice", &[(0, &[1, 1])], 39),
        ("no broker", &[(0, &[])], 39),
        ("one without a broker", &[(0, &[1]), (1, &[])], 39),
        ("from one", &[(1, &[1]), (2, &[1])], 39),
        ("a gap", &[(0, &[1]), (2, &[1])], 39),
        ("a partition twice", &[(0, &[1]), (0, &[1])], 39),
        ("a negative partition", &[(-1, &[1])], 39),
        ("any order", &[(1, &[1]), (0, &[1])], 0),
    ];
    for (title, rows, error) in cases {
        let row = create(&mut client, vec![assigned("t", rows)])
            .await
            .remove(0);
        assert_eq!(row.error_code, *error, "{title}");
    }
    for (partitions, replicas) in [(1, -1), (-1, 1), (1, 1)] {
        let both = assigned("u", &[(0, &[1])])
            .with_num_partitions(partitions)
            .with_replication_factor(replicas);
        assert_eq!(create(&mut client, vec![both]).await[0].error_code, 42);
    }
}

#[tokio::test]
async fn a_topic_named_twice_is_not_deleted() {
    let world = World::start().await;
    let mut client = world.client().await;
    let id = made(&mut client, "t").await;
    for version in 1..=5 {
        let twice = DeleteTopicsRequest::default().with_topic_names(vec![name("t"), name("t")]);
        let rows = client.call(version, &twice).await.responses;
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].error_code, 42);
    }
    let by_name = || DeleteTopicState::default().with_name(Some(name("t")));
    let by_id = || DeleteTopicState::default().with_topic_id(id);
    for pair in [
        [by_name(), by_name()],
        [by_id(), by_id()],
        [by_name(), by_id()],
        [by_id(), by_name()],
    ] {
        let twice = DeleteTopicsRequest::default().with_topics(pair.to_vec());
        let rows = client.call(6, &twice).await.responses;
        assert_eq!((rows.len(), rows[0].error_code), (1, 42));
    }
    for odd in [DeleteTopicState::default(), by_name().with_topic_id(id)] {
        let request = DeleteTopicsRequest::default().with_topics(vec![odd]);
        assert_eq!(client.call(6, &request).await.responses[0].error_code, 42);
    }
    let once = DeleteTopicsRequest::default().with_topics(vec![by_name()]);
    assert_eq!(client.call(6, &once).await.responses[0].error_code, 0);
}

#[tokio::test]
async fn a_null_config_is_an_invalid_request() {
    let world = World::start().await;
    let mut client = world.client().await;
    made(&mut client, "t").await;
    for (operation, config, error) in [
        (0, "retention.ms", 42),
        (2, "cleanup.policy", 42),
        (3, "cleanup.policy", 42),
        (0, "no.such", 42),
        (1, "retention.ms", 0),
        (1, "no.such", 0),
    ] {
        let change = AlterableConfig::default()
            .with_name(text(config))
            .with_config_operation(operation)
            .with_value(None);
        let resource = AlterConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(text("t"))
            .with_configs(vec![change]);
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
        let row = client.call(1, &request).await.responses.remove(0);
        assert_eq!(row.error_code, error, "operation {operation} on {config}");
        let message = row.error_message.unwrap_or_default();
        assert!(error == 0 || message.contains(config));
    }
    let one = |config: &str, value: Option<&str>| {
        Replacing::default()
            .with_name(text(config))
            .with_value(value.map(text))
    };
    for (title, configs, error) in [
        ("t", vec![one("retention.ms", None)], 42),
        (
            "t",
            vec![one("segment.ms", Some("1")), one("segment.ms", Some("2"))],
            42,
        ),
        ("no topic", vec![one("retention.ms", Some("1"))], 17),
        ("missing", vec![one("retention.ms", Some("1"))], 3),
    ] {
        let resource = Replaced::default()
            .with_resource_type(2)
            .with_resource_name(text(title))
            .with_configs(configs);
        let request = AlterConfigsRequest::default().with_resources(vec![resource]);
        let row = client.call(2, &request).await.responses.remove(0);
        assert_eq!(row.error_code, error, "{title}");
    }
}

/// A topic of three records whose log begins at the third.
async fn shortened(client: &mut Client) {
    made(client, "t").await;
    let mut builder = BatchBuilder::new(now_ms());
    for _ in 0..3 {
        builder.push(now_ms(), Some(b"k"), Some(b"v"), &[]);
    }
    assert_eq!(put(client, builder.finish()).await.error_code, 0);
    let partition = delete_records_request::DeleteRecordsPartition::default().with_offset(2);
    let topic = delete_records_request::DeleteRecordsTopic::default()
        .with_name(name("t"))
        .with_partitions(vec![partition]);
    let request = DeleteRecordsRequest::default().with_topics(vec![topic]);
    let answer = client.call(2, &request).await;
    assert_eq!(answer.topics[0].partitions[0].error_code, 0);
}

async fn put(client: &mut Client, records: Bytes) -> PartitionProduceResponse {
    let data = PartitionProduceData::default().with_records(Some(records));
    let topic = TopicProduceData::default()
        .with_name(name("t"))
        .with_partition_data(vec![data]);
    let request = ProduceRequest::default()
        .with_acks(-1)
        .with_topic_data(vec![topic]);
    let mut answer = client.call(9, &request).await;
    answer.responses.remove(0).partition_responses.remove(0)
}

#[tokio::test]
async fn what_is_no_batch_and_what_is_a_bad_one_have_their_codes_and_log_start() {
    let world = World::start().await;
    let mut client = world.client().await;
    shortened(&mut client).await;
    let batch = |time: i64, producer: Option<(i64, i16, i32)>| {
        let mut builder = BatchBuilder::new(time);
        if let Some((id, epoch, sequence)) = producer {
            builder = builder.with_producer(id, epoch, sequence);
        }
        builder.push(time, Some(b"k"), Some(b"v"), &[]);
        builder.finish()
    };
    let good = batch(now_ms(), None);
    let with = |at: usize, bytes: &[u8]| {
        let mut bent = BytesMut::from(&good[..]);
        bent[at..at + bytes.len()].copy_from_slice(bytes);
        bent.freeze()
    };
    for cut in [1, 10, 12, 16, 17, 40, 61, good.len() - 1] {
        let row = put(&mut client, good.slice(..cut)).await;
        assert_eq!(
            (row.error_code, row.log_start_offset),
            (87, -1),
            "cut at {cut}"
        );
        assert!(row.error_message.is_some());
    }
    for (magic, error) in [(0u8, 87), (1, 87), (3, 2), (127, 2), (255, 2)] {
        let row = put(&mut client, with(16, &[magic])).await;
        assert_eq!(
            (row.error_code, row.log_start_offset),
            (error, -1),
            "magic {magic}"
        );
    }
    let row = put(&mut client, with(17, &[0, 0, 0, 0])).await;
    assert_eq!((row.error_code, row.log_start_offset), (2, -1), "checksum");
    let base_offset = put(&mut client, with(0, &[0, 0, 0, 0, 0, 0, 0, 5])).await;
    assert_eq!(
        (base_offset.error_code, base_offset.log_start_offset),
        (87, 2)
    );
    let future = put(&mut client, batch(now_ms() + 7_200_000, None)).await;
    assert_eq!((future.error_code, future.log_start_offset), (32, 2));
    let nameless = put(&mut client, batch(now_ms(), Some((5, 0, -1)))).await;
    assert_eq!((nameless.error_code, nameless.log_start_offset), (87, 2));
    let init = InitProducerIdRequest::default().with_transactional_id(None);
    let id = *client.call(4, &init).await.producer_id;
    assert_eq!(
        put(&mut client, batch(now_ms(), Some((id, 1, 0))))
            .await
            .error_code,
        0
    );
    let gap = put(&mut client, batch(now_ms(), Some((id, 1, 9)))).await;
    assert_eq!((gap.error_code, gap.log_start_offset), (45, 2));
    let fenced = put(&mut client, batch(now_ms(), Some((id, 0, 0)))).await;
    assert_eq!((fenced.error_code, fenced.log_start_offset), (47, 2));
}

#[tokio::test]
async fn special_times_are_unsupported_below_their_version() {
    let world = World::start().await;
    let mut client = world.client().await;
    made(&mut client, "t").await;
    for (timestamp, since) in [
        (-1, 1),
        (-2, 1),
        (-3, 7),
        (-4, 8),
        (-5, 9),
        (-6, 99),
        (-100, 99),
    ] {
        for version in 1..=10 {
            let partition = ListOffsetsPartition::default().with_timestamp(timestamp);
            let topic = ListOffsetsTopic::default()
                .with_name(name("t"))
                .with_partitions(vec![partition]);
            let request = ListOffsetsRequest::default()
                .with_replica_id(BrokerId(-1))
                .with_topics(vec![topic]);
            let row = client.call(version, &request).await.topics[0].partitions[0].clone();
            let due = if version >= since { 0 } else { 35 };
            assert_eq!(row.error_code, due, "{timestamp} in version {version}");
        }
    }
}

#[tokio::test]
async fn a_failed_fetch_has_empty_lists_and_no_offsets() {
    let world = World::start().await;
    let mut client = world.client().await;
    let id = made(&mut client, "t").await;
    for version in 4..=18 {
        for (topic, uuid, partition, offset, error) in [
            ("t", id, 0, 7, 1),
            ("t", id, 0, -1, 1),
            ("t", id, 99, 0, 3),
            (
                "gone",
                Uuid::max(),
                0,
                0,
                if version >= 13 { 100 } else { 3 },
            ),
        ] {
            let wanted = FetchPartition::default()
                .with_partition(partition)
                .with_fetch_offset(offset)
                .with_partition_max_bytes(1000);
            let mut row = FetchTopic::default().with_partitions(vec![wanted]);
            if version >= 13 {
                row.topic_id = uuid;
            } else {
                row.topic = name(topic);
            }
            let request = FetchRequest::default()
                .with_replica_id(BrokerId(-1))
                .with_max_bytes(1000)
                .with_session_epoch(-1)
                .with_topics(vec![row]);
            let answer = client.call(version, &request).await;
            let row = &answer.responses[0].partitions[0];
            assert_eq!(row.error_code, error, "version {version}");
            assert_eq!(row.records.as_deref(), Some(&b""[..]));
            let aborted = row.aborted_transactions.as_deref();
            assert_eq!(aborted.is_some(), error != 1, "null where it was read");
            assert_eq!(
                (
                    row.high_watermark,
                    row.last_stable_offset,
                    row.log_start_offset
                ),
                (-1, -1, -1)
            );
        }
    }
}

#[tokio::test]
async fn a_negative_commit_forgets_the_position() {
    let world = World::start().await;
    let mut client = world.client().await;
    made(&mut client, "t").await;
    let commit = |offset| {
        let partition = OffsetCommitRequestPartition::default().with_committed_offset(offset);
        let topic = OffsetCommitRequestTopic::default()
            .with_name(name("t"))
            .with_partitions(vec![partition]);
        OffsetCommitRequest::default()
            .with_group_id(GroupId(text("g")))
            .with_generation_id_or_member_epoch(-1)
            .with_topics(vec![topic])
    };
    for (offset, read) in [(-1, -1), (3, 3), (-5, -1), (0, 0), (i64::MIN, -1)] {
        for version in 2..=9 {
            let answer = client.call(version, &commit(offset)).await;
            assert_eq!(answer.topics[0].partitions[0].error_code, 0);
        }
        let topic = offset_fetch_request::OffsetFetchRequestTopic::default()
            .with_name(name("t"))
            .with_partition_indexes(vec![0]);
        let request = OffsetFetchRequest::default()
            .with_group_id(GroupId(text("g")))
            .with_topics(Some(vec![topic]));
        let row = client.call(7, &request).await.topics[0].partitions[0].clone();
        assert_eq!((row.error_code, row.committed_offset), (0, read));
    }
}

#[tokio::test]
async fn every_topic_config_of_kafka_is_described_and_can_be_set_to_its_default() {
    let world = World::start().await;
    let mut client = world.client().await;
    made(&mut client, "t").await;
    let resource = DescribeConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("t"))
        .with_configuration_keys(None);
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let configs = client.call(4, &request).await.results.remove(0).configs;
    let names: BTreeSet<&str> = configs.iter().map(|row| row.name.as_str()).collect();
    for due in [
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "cleanup.policy",
        "unclean.leader.election.enable",
    ] {
        assert!(names.contains(due), "{due}");
    }
    let set = configs.iter().map(|row| {
        CreatableTopicConfig::default()
            .with_name(row.name.clone())
            .with_value(row.value.clone())
    });
    let all = topic("u").with_configs(set.collect());
    let row = create(&mut client, vec![all]).await.remove(0);
    assert_eq!(row.error_code, 0, "{:?}", row.error_message);
}
