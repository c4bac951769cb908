//! Producers: sequences, offsets, and entries that say nonsense.

mod world;

use bytes::Bytes;
use proptest::prelude::*;
use queen_engine::command::{AppendBatch, Command, LaneHints, ProducerStamp, Span, TopicRef};
use queen_engine::config::Origin;
use queen_engine::entry::{Entry, EntryBuilder};
use queen_engine::ids::TopicId;
use queen_engine::index::RecordIndex;
use queen_engine::outcome::{Outcome, Reject};
use queen_engine::{Effects, Engine};
use world::World;

fn create(world: &mut World, partitions: u32) -> TopicId {
    let outcome = world.submit(Command::CreateTopic {
        name: "t".into(),
        uuid: 1,
        partitions,
        kafka: Default::default(),
        origin: Origin::Kafka,
    });
    let Outcome::Topic(topic) = outcome else {
        panic!("{outcome:?}")
    };
    topic
}

fn produce(
    world: &mut World,
    topic: TopicId,
    partition: u32,
    stamp: Option<ProducerStamp>,
    records: u32,
) -> Outcome {
    let mut entry = EntryBuilder::new();
    let span = entry.batch(Bytes::from(vec![0u8; 61 + records as usize]));
    let names = ["a", "b"];
    let lane_of: Vec<u32> = (0..records).map(|r| r % 2).collect();
    entry.command(Command::Append(AppendBatch {
        topic: TopicRef::Id(topic),
        partition,
        span,
        records,
        max_timestamp: 0,
        producer: stamp,
        lanes: LaneHints::from_names(&names, &lane_of),
        dedup: Vec::new(),
        verdicts: false,
    }));
    world.commit(entry).remove(0)
}

fn stamp(epoch: i16, base_sequence: i32) -> Option<ProducerStamp> {
    Some(ProducerStamp {
        id: 7,
        epoch,
        base_sequence,
    })
}

fn appended(outcome: Outcome) -> (u64, bool) {
    match outcome {
        Outcome::Appended(appended) => (appended.base_offset, appended.repeat),
        other => panic!("{other:?}"),
    }
}

/// kafka.md 4.3 rows 39 to 43.
#[test]
fn repeats_of_the_last_five_batches_are_recognised_and_gaps_refused() {
    let mut world = World::new();
    let topic = create(&mut world, 1);
    for n in 0..7i32 {
        let told = produce(&mut world, topic, 0, stamp(0, n * 10), 10);
        assert_eq!(appended(told), (u64::try_from(n).unwrap() * 10, false));
    }
    world.restart();
    for n in 2..7i32 {
        let told = produce(&mut world, topic, 0, stamp(0, n * 10), 10);
        assert_eq!(appended(told), (u64::try_from(n).unwrap() * 10, true));
    }
    let old = produce(&mut world, topic, 0, stamp(0, 10), 10);
    assert_eq!(old, Outcome::Rejected(Reject::OutOfOrderSequence));
    let gap = produce(&mut world, topic, 0, stamp(0, 80), 10);
    assert_eq!(gap, Outcome::Rejected(Reject::OutOfOrderSequence));
    // A new epoch starts at 0, the old one is fenced.
    let late = produce(&mut world, topic, 0, stamp(1, 5), 1);
    assert_eq!(late, Outcome::Rejected(Reject::OutOfOrderSequence));
    assert_eq!(
        appended(produce(&mut world, topic, 0, stamp(1, 0), 1)),
        (70, false)
    );
    let fenced = produce(&mut world, topic, 0, stamp(0, 70), 1);
    assert_eq!(fenced, Outcome::Rejected(Reject::InvalidProducerEpoch));
}

#[test]
fn sequences_wrap_behind_the_largest() {
    let mut world = World::new();
    let topic = create(&mut world, 1);
    // A producer without state may begin anywhere.
    assert_eq!(
        appended(produce(&mut world, topic, 0, stamp(0, i32::MAX - 1), 4)),
        (0, false)
    );
    assert_eq!(
        appended(produce(&mut world, topic, 0, stamp(0, i32::MAX - 1), 4)),
        (0, true)
    );
    assert_eq!(
        appended(produce(&mut world, topic, 0, stamp(0, 2), 1)),
        (4, false)
    );
}

#[test]
fn the_lanes_of_a_topic_are_numbered_over_its_partitions() {
    let mut world = World::new();
    let topic = create(&mut world, 2);
    for partition in [0, 1, 0] {
        produce(&mut world, topic, partition, None, 4);
    }
    let lane = world.engine.lanes.find(topic, b"a").unwrap();
    assert!(world.engine.lanes.get(lane).unwrap().several_partitions());
    let places: Vec<_> = (0..6)
        .map(|n| world.index.locate(lane, n).unwrap())
        .map(|place| (place.row.partition, place.offset()))
        .collect();
    assert_eq!(places, [(0, 0), (0, 2), (1, 0), (1, 2), (0, 4), (0, 6)]);
}

#[test]
fn a_command_that_contradicts_itself_is_refused() {
    let mut world = World::new();
    let topic = create(&mut world, 1);
    let batch = AppendBatch {
        topic: TopicRef::Id(topic),
        partition: 0,
        span: Span { offset: 0, len: 10 },
        records: 2,
        max_timestamp: 0,
        producer: None,
        lanes: LaneHints::from_names(&["a"], &[0, 0]),
        dedup: vec![(0, 1), (9, 2)],
        verdicts: true,
    };
    let outside = AppendBatch {
        span: Span {
            offset: 5,
            len: u32::MAX,
        },
        ..batch.clone()
    };
    let short = AppendBatch {
        records: 3,
        ..batch.clone()
    };
    let unnamed = AppendBatch {
        lanes: LaneHints::from_names(&["a"], &[0, 4]),
        ..batch.clone()
    };
    let foreign = AppendBatch {
        lanes: LaneHints {
            lane_of: vec![77, 77],
            names: Bytes::new(),
        },
        ..batch.clone()
    };
    let narrow = AppendBatch {
        partition: 5,
        ..batch.clone()
    };
    for (batch, reject) in [
        (outside, Reject::Malformed),
        (short, Reject::Malformed),
        (unnamed, Reject::Malformed),
        (foreign, Reject::StaleLane),
        (narrow, Reject::UnknownPartition),
    ] {
        let mut entry = EntryBuilder::new();
        entry.batch(Bytes::from_static(&[0; 10]));
        entry.command(Command::Append(batch));
        assert_eq!(world.commit(entry), [Outcome::Rejected(reject)]);
    }
    assert_eq!(
        world
            .engine
            .topics
            .get(topic)
            .unwrap()
            .partition(0)
            .unwrap()
            .next_offset,
        0
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None,
        ..ProptestConfig::default() })]

    /// Arbitrary bytes are an error or an entry that applies; never a panic.
    #[test]
    fn hostile_entries(bytes in proptest::collection::vec(any::<u8>(), 0..200), framed: bool) {
        let mut payload = bytes.clone();
        if framed {
            let len = u32::try_from(bytes.len()).unwrap();
            payload = [&[1, 0, 0, 0][..], &len.to_le_bytes(), &[0; 8], &bytes].concat();
        }
        if let Ok(entry) = Entry::decode(Bytes::from(payload)) {
            let mut engine = Engine::new();
            let (mut index, mut effects) = (RecordIndex::new(), Effects::default());
            let outcomes = engine.apply(1, 1, &entry, &mut index, &mut effects);
            prop_assert_eq!(outcomes.len(), entry.commands.len());
        }
    }

    #[test]
    fn hostile_images(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Engine::from_image(&bytes);
        let _ = queen_engine::index::SealedPart::open(Bytes::from(bytes));
    }
}
