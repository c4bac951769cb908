//! The fuzz targets `records` and `entry` over batches, entries and images that were really built,
//! and their neighbours.

#[path = "../../fuzz/mutate.rs"]
mod mutate;
mod world;

use bytes::Bytes;
use queen_engine::batch::{BatchBuilder, Codec, DecodedBatch, check, lane_keys, without};
use queen_engine::entry::Entry;
use queen_engine::index::{RecordIndex, SealedPart};
use queen_engine::{Effects, Engine};
use world::{World, item, pop};

fn builder() -> BatchBuilder {
    let mut builder = BatchBuilder::new(1_700_000_000_000);
    for n in 0..12u8 {
        let key = [b'k', n % 3];
        let header = (&b"queen.transaction-id"[..], Some(&key[..]));
        let key = (n % 4 != 0).then_some(&key[..]);
        builder.push(
            1_700_000_000_000 + i64::from(n),
            key,
            Some(&[n; 40]),
            &[header],
        );
    }
    builder
}

#[test]
fn batches_of_every_codec_and_their_neighbours() {
    let codecs = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
    let mut seeds = vec![builder().finish().to_vec()];
    seeds.extend(codecs.map(|codec| builder().finish_compressed(codec).unwrap().to_vec()));
    mutate::run("records", &seeds, |data| {
        let _ = check(data);
        let batch = Bytes::copy_from_slice(data);
        if let Ok(decoded) = DecodedBatch::decode(batch.clone(), 1 << 20) {
            assert_eq!(lane_keys(&decoded, 0).lane_of.len(), decoded.len());
            let _ = without(&batch, &[0], 1 << 20);
        }
    });
}

#[test]
fn entries_images_and_index_parts_and_their_neighbours() {
    let mut world = World::new();
    for n in 0..5 {
        let id = format!("t{n}");
        world.push(&[item("q", "a", "{}", Some(&id)), item("q", "b", "1", None)]);
        world.pop(&pop("q", "g", 1, 1));
    }
    let mut seeds: Vec<Vec<u8>> = world.log.iter().map(|entry| entry.to_vec()).collect();
    seeds.push(world.engine.image().concat());
    seeds.push(world.index.active_bytes());
    mutate::run("entry", &seeds, |data| {
        let _ = Engine::from_image(data);
        let _ = SealedPart::open(Bytes::copy_from_slice(data));
        if let Ok(entry) = Entry::decode(Bytes::copy_from_slice(data)) {
            let (mut engine, mut index) = (Engine::new(), RecordIndex::new());
            engine.apply(1, 1, &entry, &mut index, &mut Effects::default());
        }
    });
}
