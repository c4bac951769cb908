//! Dialogues of a client with the listener over TCP, against the real engine in memory.

mod world;

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;
use queen_engine::batch::{BatchBuilder, BatchHeader, Codec};
use queen_engine::port::Failure;
use queen_kafka::KafkaConfig;
use uuid::Uuid;
use world::{Client, World};

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

fn name(value: &str) -> TopicName {
    TopicName(text(value))
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

fn batch(keys: &[Option<&str>]) -> Bytes {
    let mut builder = BatchBuilder::new(now_ms());
    for key in keys {
        builder.push(now_ms(), key.map(str::as_bytes), Some(b"value"), &[]);
    }
    builder.finish()
}

async fn create(client: &mut Client, topic: &str, configs: &[(&str, &str)]) -> Uuid {
    let config = |(name, value): &(&str, &str)| {
        CreatableTopicConfig::default()
            .with_name(text(name))
            .with_value(Some(text(value)))
    };
    let wanted = CreatableTopic::default()
        .with_name(name(topic))
        .with_num_partitions(2)
        .with_replication_factor(-1)
        .with_configs(configs.iter().map(config).collect());
    let request = CreateTopicsRequest::default().with_topics(vec![wanted]);
    let response = client.call(7, &request).await;
    assert_eq!(
        response.topics[0].error_code, 0,
        "{:?}",
        response.topics[0].error_message
    );
    response.topics[0].topic_id
}

fn produce(version: i16, topic: &str, id: Uuid, records: Bytes) -> ProduceRequest {
    let data = PartitionProduceData::default()
        .with_index(0)
        .with_records(Some(records));
    let mut topic_data = TopicProduceData::default().with_partition_data(vec![data]);
    if version >= 13 {
        topic_data.topic_id = id;
    } else {
        topic_data.name = name(topic);
    }
    ProduceRequest::default()
        .with_acks(-1)
        .with_topic_data(vec![topic_data])
}

/// Produces with v9 and gives error and base offset.
async fn put(client: &mut Client, topic: &str, records: Bytes) -> (i16, i64) {
    let response = client
        .call(9, &produce(9, topic, Uuid::nil(), records))
        .await;
    let row = &response.responses[0].partition_responses[0];
    (row.error_code, row.base_offset)
}

fn fetch(version: i16, topic: &str, id: Uuid, offset: i64) -> FetchRequest {
    let partition = FetchPartition::default()
        .with_partition(0)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(1 << 20);
    let mut wanted = FetchTopic::default().with_partitions(vec![partition]);
    if version >= 13 {
        wanted.topic_id = id;
    } else {
        wanted.topic = name(topic);
    }
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(0)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_session_epoch(-1)
        .with_topics(vec![wanted])
}

#[tokio::test]
async fn records_go_in_and_out_in_every_version() {
    let world = World::start().await;
    let mut client = world.client().await;
    let id = create(&mut client, "t", &[]).await;
    let mut next = 0;
    for version in 3..=13 {
        let records = batch(&[Some("a"), None]);
        let response = client
            .call(version, &produce(version, "t", id, records))
            .await;
        let row = &response.responses[0].partition_responses[0];
        assert_eq!(
            (row.error_code, row.base_offset),
            (0, next),
            "produce v{version}"
        );
        assert_eq!(row.log_append_time_ms, -1);
        next += 2;
    }
    for version in 4..=18 {
        // Inside the second batch: the whole batch comes, with its offset and leader epoch.
        let response = client.call(version, &fetch(version, "t", id, 3)).await;
        let row = &response.responses[0].partitions[0];
        assert_eq!(
            (row.error_code, row.high_watermark),
            (0, next),
            "fetch v{version}"
        );
        assert_eq!(row.last_stable_offset, next);
        let mut records = row.records.clone().unwrap();
        let mut base = 2;
        while !records.is_empty() {
            let header = BatchHeader::parse(&records).unwrap();
            assert_eq!((header.base_offset, header.leader_epoch), (base, 1));
            base += 2;
            let _ = records.split_to(header.total_len());
        }
        assert_eq!(base, next);
    }
    for (offset, error) in [(next, 0), (next + 1, 1), (-1, 1)] {
        let response = client.call(12, &fetch(12, "t", id, offset)).await;
        let row = &response.responses[0].partitions[0];
        assert_eq!(row.error_code, error, "offset {offset}");
        assert_eq!(row.records.as_ref().map(Bytes::len), Some(0), "never null");
    }
    for (version, error) in [(12, 3), (13, 100)] {
        let response = client
            .call(version, &fetch(version, "gone", Uuid::max(), 0))
            .await;
        assert_eq!(response.responses[0].partitions[0].error_code, error);
    }
}

#[tokio::test]
async fn bad_batches_are_refused_and_nothing_is_stored() {
    let world = World::start().await;
    let mut client = world.client().await;
    create(&mut client, "t", &[("max.message.bytes", "1000")]).await;
    create(&mut client, "c", &[("cleanup.policy", "compact")]).await;
    let good = batch(&[Some("a")]);
    let mut flipped = BytesMut::from(&good[..]);
    flipped[70] ^= 1;
    let mut old = BytesMut::from(&good[..]);
    old[16] = 1;
    let twice = [&good[..], &good[..]].concat();
    let big: Vec<Option<&str>> = vec![Some("a-long-enough-key"); 100];
    for (records, error) in [
        (flipped.freeze(), 2),
        (old.freeze(), 87),
        (Bytes::from(twice), 87),
        (Bytes::new(), 87),
        (good.slice(..40), 87),
        (batch(&big), 10),
    ] {
        assert_eq!(put(&mut client, "t", records).await.0, error);
    }
    assert_eq!(put(&mut client, "c", batch(&[None])).await.0, 87);
    assert_eq!(put(&mut client, "gone", good.clone()).await.0, 3);
    let mut future = BatchBuilder::new(now_ms() + 7_200_000);
    future.push(now_ms() + 7_200_000, None, None, &[]);
    assert_eq!(put(&mut client, "t", future.finish()).await.0, 32);
    assert_eq!(
        put(&mut client, "t", good).await,
        (0, 0),
        "nothing was stored before"
    );
    *world.broker.failing.lock() = Some(Failure::StorageFull);
    assert_eq!(put(&mut client, "t", batch(&[None])).await.0, 56);
    *world.broker.failing.lock() = Some(Failure::NotLeader { leader: None });
    assert_eq!(put(&mut client, "t", batch(&[None])).await.0, 6);
}

#[tokio::test]
async fn every_codec_comes_back_as_it_was_sent() {
    let world = World::start().await;
    let mut client = world.client().await;
    create(&mut client, "t", &[]).await;
    for codec in [
        Codec::None,
        Codec::Gzip,
        Codec::Snappy,
        Codec::Lz4,
        Codec::Zstd,
    ] {
        let mut builder = BatchBuilder::new(now_ms());
        builder.push(now_ms(), Some(b"k"), Some(&[b'x'; 500]), &[]);
        let sent = builder.finish_compressed(codec).unwrap();
        let (error, offset) = put(&mut client, "t", sent.clone()).await;
        assert_eq!(error, 0, "{codec:?}");
        let response = client.call(12, &fetch(12, "t", Uuid::nil(), offset)).await;
        let records = response.responses[0].partitions[0].records.clone().unwrap();
        assert_eq!(records[16..], sent[16..], "{codec:?}");
    }
}

#[tokio::test]
async fn an_idempotent_repeat_gets_its_first_offset() {
    let world = World::start().await;
    let mut client = world.client().await;
    create(&mut client, "t", &[]).await;
    let request = InitProducerIdRequest::default().with_transactional_id(None);
    let producer = client.call(4, &request).await;
    let stamped = |sequence| {
        let mut builder = BatchBuilder::new(now_ms()).with_producer(
            *producer.producer_id,
            producer.producer_epoch,
            sequence,
        );
        builder.push(now_ms(), Some(b"k"), None, &[]);
        builder.finish()
    };
    assert_eq!(put(&mut client, "t", stamped(0)).await, (0, 0));
    assert_eq!(put(&mut client, "t", stamped(1)).await, (0, 1));
    assert_eq!(put(&mut client, "t", stamped(0)).await, (0, 0));
    assert_eq!(put(&mut client, "t", stamped(5)).await.0, 45);
    let request =
        InitProducerIdRequest::default().with_transactional_id(Some(TransactionalId(text("x"))));
    assert_eq!(client.call(4, &request).await.error_code, 53);
}

#[tokio::test]
async fn the_broker_stamps_records_when_the_topic_says_so() {
    let world = World::start().await;
    let mut client = world.client().await;
    create(
        &mut client,
        "t",
        &[("message.timestamp.type", "LogAppendTime")],
    )
    .await;
    let mut builder = BatchBuilder::new(5);
    builder.push(5, Some(b"k"), None, &[]);
    let response = client
        .call(9, &produce(9, "t", Uuid::nil(), builder.finish()))
        .await;
    let stamp = response.responses[0].partition_responses[0].log_append_time_ms;
    assert!((now_ms() - stamp).abs() < 10_000);
    let response = client.call(12, &fetch(12, "t", Uuid::nil(), 0)).await;
    let records = response.responses[0].partitions[0].records.clone().unwrap();
    let header = BatchHeader::parse(&records).unwrap();
    assert!(header.log_append_time());
    assert_eq!(header.max_timestamp, stamp);
}

#[tokio::test]
async fn pipelined_answers_keep_their_order_and_acks_0_has_none() {
    let world = World::start().await;
    let mut client = world.client().await;
    create(&mut client, "t", &[]).await;
    let mut silent = produce(9, "t", Uuid::nil(), batch(&[Some("first")]));
    silent.acks = 0;
    client.send(9, &silent).await;
    // A long poll in front must not let later answers overtake it.
    let mut waiting = fetch(12, "t", Uuid::nil(), 7);
    waiting.max_wait_ms = 300;
    let waiting_id = {
        waiting.topics[0].partitions[0].fetch_offset = 1;
        client.send(12, &waiting).await
    };
    let mut ids = Vec::new();
    for _ in 0..100 {
        let request = produce(9, "t", Uuid::nil(), batch(&[Some("k")]));
        ids.push(client.send(9, &request).await);
    }
    let woken = client.receive::<FetchRequest>(12, waiting_id).await;
    assert!(
        !woken.responses[0].partitions[0]
            .records
            .as_ref()
            .unwrap()
            .is_empty()
    );
    for (offset, id) in (1i64..).zip(ids) {
        let response = client.receive::<ProduceRequest>(9, id).await;
        assert_eq!(
            response.responses[0].partition_responses[0].base_offset,
            offset
        );
    }
    silent.topic_data[0].name = name("gone");
    client.send(9, &silent).await;
    assert_eq!(
        client.receive_raw().await,
        None,
        "an error without acks closes"
    );
}

#[tokio::test]
async fn a_fetch_waits_for_data_or_its_time() {
    let world = World::start().await;
    let mut client = world.client().await;
    create(&mut client, "t", &[]).await;
    let mut request = fetch(12, "t", Uuid::nil(), 0);
    request.max_wait_ms = 200;
    let begun = Instant::now();
    let response = client.call(12, &request).await;
    assert!(begun.elapsed() >= Duration::from_millis(190));
    assert_eq!(
        response.responses.len(),
        1,
        "a full answer lists what was asked for"
    );
    request.max_wait_ms = 20_000;
    let id = client.send(12, &request).await;
    let mut other = world.client().await;
    assert_eq!(put(&mut other, "t", batch(&[Some("k")])).await.0, 0);
    let begun = Instant::now();
    let response = client.receive::<FetchRequest>(12, id).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(
        !response.responses[0].partitions[0]
            .records
            .as_ref()
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn fetch_sessions_tell_only_news() {
    let world = World::start().await;
    let mut client = world.client().await;
    let id = create(&mut client, "t", &[]).await;
    let mut request = fetch(17, "t", id, 0);
    let second = request.topics[0].partitions[0].clone().with_partition(1);
    request.topics[0].partitions.push(second);
    request.session_epoch = 0;
    let full = client.call(17, &request).await;
    assert_ne!(full.session_id, 0);
    assert_eq!(full.responses[0].partitions.len(), 2);
    let incremental = |epoch| {
        FetchRequest::default()
            .with_max_wait_ms(0)
            .with_min_bytes(1)
            .with_max_bytes(1 << 20)
            .with_session_id(full.session_id)
            .with_session_epoch(epoch)
    };
    let quiet = client.call(17, &incremental(1)).await;
    assert_eq!(
        (quiet.session_id, quiet.responses.len()),
        (full.session_id, 0)
    );
    let records = batch(&[Some("k")]);
    let response = client.call(13, &produce(13, "t", id, records)).await;
    assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
    let news = client.call(17, &incremental(2)).await;
    assert_eq!(news.responses[0].partitions.len(), 1);
    assert_eq!(news.responses[0].partitions[0].partition_index, 0);
    assert_eq!(
        client.call(17, &incremental(2)).await.error_code,
        71,
        "epoch used up"
    );
    let forget = ForgottenTopic::default()
        .with_topic_id(id)
        .with_partitions(vec![0]);
    let request = incremental(3).with_forgotten_topics_data(vec![forget]);
    assert_eq!(client.call(17, &request).await.responses.len(), 0);
    let unknown = incremental(1).with_session_id(12345);
    assert_eq!(client.call(17, &unknown).await.error_code, 70);
}

#[tokio::test]
async fn offsets_are_listed_by_specials_and_by_time() {
    let world = World::start().await;
    let mut client = world.client().await;
    create(&mut client, "t", &[]).await;
    let list = |timestamp| {
        let partition = ListOffsetsPartition::default()
            .with_partition_index(0)
            .with_timestamp(timestamp);
        let topic = ListOffsetsTopic::default()
            .with_name(name("t"))
            .with_partitions(vec![partition]);
        ListOffsetsRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_topics(vec![topic])
    };
    for (timestamp, offset) in [(-2, 0), (-1, 0), (5, -1), (-3, -1)] {
        let row = &client.call(9, &list(timestamp)).await.topics[0].partitions[0];
        assert_eq!(
            (row.error_code, row.offset),
            (0, offset),
            "empty, {timestamp}"
        );
    }
    let mut builder = BatchBuilder::new(100);
    for time in [100, 300, 200] {
        builder.push(time, Some(b"k"), None, &[]);
    }
    assert_eq!(put(&mut client, "t", builder.finish()).await, (0, 0));
    let cases = [
        (-1, 3, -1),
        (-2, 0, -1),
        (-3, 1, 300),
        (-4, 0, -1),
        (-5, -1, -1),
        (0, 0, 100),
        (150, 1, 300),
        (300, 1, 300),
        (301, -1, -1),
    ];
    for (timestamp, offset, time) in cases {
        for version in 1..=10 {
            let row = &client.call(version, &list(timestamp)).await.topics[0].partitions[0];
            // A special time is unsupported below the version that brought it.
            let since = match timestamp {
                -3 => 7,
                -4 => 8,
                -5 => 9,
                _ => 1,
            };
            let due = if version >= since {
                (0, offset, time)
            } else {
                (35, -1, -1)
            };
            assert_eq!(
                (row.error_code, row.offset, row.timestamp),
                due,
                "{timestamp} in version {version}"
            );
        }
    }
}

#[tokio::test]
async fn commits_come_back_and_stay_within_bounds() {
    let world = World::start().await;
    let mut client = world.client().await;
    create(&mut client, "t", &[]).await;
    assert_eq!(put(&mut client, "t", batch(&[Some("a"); 60])).await.0, 0);
    let commit = |offset, metadata: &str| {
        let partition = OffsetCommitRequestPartition::default()
            .with_partition_index(0)
            .with_committed_offset(offset)
            .with_committed_metadata(Some(text(metadata)));
        let topic = OffsetCommitRequestTopic::default()
            .with_name(name("t"))
            .with_partitions(vec![partition]);
        OffsetCommitRequest::default()
            .with_group_id(GroupId(text("g")))
            .with_generation_id_or_member_epoch(-1)
            .with_topics(vec![topic])
    };
    let big = "x".repeat(4096);
    for (offset, metadata, error) in [
        (50, "a\0b", 0),
        (20, big.as_str(), 0),
        (21, &"x".repeat(4097), 12),
    ] {
        let response = client.call(8, &commit(offset, metadata)).await;
        assert_eq!(response.topics[0].partitions[0].error_code, error);
    }
    let all = OffsetFetchRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_topics(None);
    for version in 2..=7 {
        let response = client.call(version, &all).await;
        let row = &response.topics[0].partitions[0];
        assert_eq!(
            (row.committed_offset, row.metadata.as_deref()),
            (20, Some(big.as_str()))
        );
    }
    let mut stray = commit(3, "");
    stray.generation_id_or_member_epoch = 4;
    stray.member_id = text("ghost");
    assert_eq!(
        client.call(8, &stray).await.topics[0].partitions[0].error_code,
        22
    );
    let listed = client.call(5, &ListGroupsRequest::default()).await;
    assert_eq!(listed.groups[0].group_state.as_str(), "Empty");
}

#[tokio::test]
async fn metadata_creates_topics_only_when_it_may() {
    let world = World::start().await;
    let mut client = world.client().await;
    let ask = |topic: &str, may| {
        let wanted = MetadataRequestTopic::default().with_name(Some(name(topic)));
        MetadataRequest::default()
            .with_topics(Some(vec![wanted]))
            .with_allow_auto_topic_creation(may)
    };
    assert_eq!(
        client.call(12, &ask("new", false)).await.topics[0].error_code,
        3
    );
    let made = client.call(12, &ask("new", true)).await;
    assert_eq!(
        (made.topics[0].error_code, made.topics[0].partitions.len()),
        (0, 3)
    );
    assert_eq!(*made.controller_id, 1);
    assert_eq!(
        client.call(12, &ask("bad name", true)).await.topics[0].error_code,
        17
    );
    let by_id = MetadataRequestTopic::default()
        .with_name(None)
        .with_topic_id(made.topics[0].topic_id);
    let request = MetadataRequest::default().with_topics(Some(vec![by_id]));
    let found = client.call(12, &request).await;
    assert_eq!(
        found.topics[0].name.as_ref().map(|n| n.as_str()),
        Some("new")
    );
    for (version, topics, count) in [(0, Some(vec![]), 1), (1, Some(vec![]), 0), (1, None, 1)] {
        let request = MetadataRequest::default().with_topics(topics);
        assert_eq!(client.call(version, &request).await.topics.len(), count);
    }
}

#[tokio::test]
async fn shutdown_answers_what_is_under_way_and_ends_in_time() {
    let mut world = World::start().await;
    let mut client = world.client().await;
    let mut idle = world.client().await;
    create(&mut client, "t", &[]).await;
    let mut request = fetch(12, "t", Uuid::nil(), 0);
    request.max_wait_ms = 60_000;
    let id = client.send(12, &request).await;
    // The answer to a second request shows that the first was taken in.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let begun = Instant::now();
    world.stop.take().unwrap().send(()).unwrap();
    client.receive::<FetchRequest>(12, id).await;
    assert_eq!(client.receive_raw().await, None);
    assert_eq!(idle.receive_raw().await, None);
    world.served.await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn idle_connections_are_closed_but_not_waiting_ones() {
    let config = KafkaConfig {
        idle_close: Duration::from_millis(100),
        ..KafkaConfig::default()
    };
    let world = World::start_with(config, 0).await;
    let mut idle = world.client().await;
    let mut client = world.client().await;
    create(&mut client, "t", &[]).await;
    let mut request = fetch(12, "t", Uuid::nil(), 0);
    request.max_wait_ms = 400;
    client.call(12, &request).await;
    assert_eq!(idle.receive_raw().await, None);
    assert_eq!(client.receive_raw().await, None);
}

#[tokio::test]
async fn a_new_leader_sends_nobody_back_before_it_is_ready() {
    let world = World::start().await;
    let mut client = world.client().await;
    create(&mut client, "t", &[]).await;
    world
        .broker
        .ready
        .store(false, std::sync::atomic::Ordering::Relaxed);
    let response = client.call(12, &fetch(12, "t", Uuid::nil(), 7)).await;
    assert_eq!(response.responses[0].partitions[0].error_code, 78);
    let partition = ListOffsetsPartition::default()
        .with_partition_index(0)
        .with_timestamp(-1);
    let topic = ListOffsetsTopic::default()
        .with_name(name("t"))
        .with_partitions(vec![partition]);
    let request = ListOffsetsRequest::default().with_topics(vec![topic]);
    assert_eq!(
        client.call(7, &request).await.topics[0].partitions[0].error_code,
        78
    );
    let heartbeat = HeartbeatRequest::default().with_group_id(GroupId(text("g")));
    assert_eq!(client.call(4, &heartbeat).await.error_code, 14);
}
