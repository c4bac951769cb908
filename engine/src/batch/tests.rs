//! Round trips, bombs and hostile bytes.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::header::{CONTROL_BIT, CRC_AT, TRANSACTIONAL_BIT, crc_of};
use super::*;

const CODECS: [Codec; 5] = [
    Codec::None,
    Codec::Gzip,
    Codec::Snappy,
    Codec::Lz4,
    Codec::Zstd,
];
const PACKING: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
const CAP: usize = 1 << 20;

type OwnedHeader = (Vec<u8>, Option<Vec<u8>>);

/// A record as a test wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sample {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<OwnedHeader>,
}

impl Sample {
    fn push_to(&self, builder: &mut BatchBuilder) {
        let headers: Vec<_> = self
            .headers
            .iter()
            .map(|(n, v)| (&n[..], v.as_deref()))
            .collect();
        builder.push(
            self.timestamp,
            self.key.as_deref(),
            self.value.as_deref(),
            &headers,
        );
    }

    fn of(record: Record<'_>) -> Sample {
        Sample {
            timestamp: record.timestamp,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record
                .headers
                .map(|(n, v)| (n.to_vec(), v.map(<[u8]>::to_vec)))
                .collect(),
        }
    }
}

fn build(base_timestamp: i64, samples: &[Sample], codec: Codec) -> Bytes {
    let mut builder = BatchBuilder::new(base_timestamp);
    for sample in samples {
        sample.push_to(&mut builder);
    }
    builder.finish_compressed(codec).expect("compresses")
}

fn small(count: i64, codec: Codec) -> Bytes {
    let mut builder = BatchBuilder::new(1_000).with_producer(7, 1, 40);
    for index in 0..count {
        let key = format!("k{}", index % 3);
        builder.push(
            1_000 + index,
            Some(key.as_bytes()),
            Some(b"value"),
            &[(b"h", None)],
        );
    }
    builder.finish_compressed(codec).expect("compresses")
}

/// `batch` changed by `edit`, with a CRC that fits again.
fn resealed(batch: &Bytes, edit: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut bytes = batch.to_vec();
    edit(&mut bytes);
    let crc = crc_of(&bytes);
    bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
    Bytes::from(bytes)
}

fn decoded(batch: &Bytes) -> DecodedBatch {
    DecodedBatch::decode(batch.clone(), CAP).expect("decodes")
}

fn field() -> impl Strategy<Value = Option<Vec<u8>>> {
    option::of(vec(any::<u8>(), 0..80))
}

fn sample() -> impl Strategy<Value = Sample> {
    let header = (vec(prop::sample::select(b"ab".to_vec()), 0..2), field());
    (any::<i64>(), field(), field(), vec(header, 0..4)).prop_map(
        |(timestamp, key, value, headers)| Sample {
            timestamp,
            key,
            value,
            headers,
        },
    )
}

fn codec() -> impl Strategy<Value = Codec> {
    prop::sample::select(CODECS.to_vec())
}

/// Everything a broker does with bytes from a peer; must return, never panic.
fn exercise(bytes: &Bytes) {
    let _ = check(bytes);
    let _ = patched_header(bytes, 1, 1);
    let _ = with_append_time(bytes, 1);
    let _ = without(bytes, &[0, 2], CAP);
    if let Ok(batch) = DecodedBatch::decode(bytes.clone(), CAP) {
        assert_eq!(batch.iter().count(), batch.len());
        for record in batch.iter() {
            let headers = record.headers.len();
            assert_eq!(record.headers.count(), headers);
        }
        assert_eq!(lane_keys(&batch, 0).lane_of.len(), batch.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn round_trip(base in any::<i64>(), samples in vec(sample(), 1..20), codec in codec()) {
        let batch = build(base, &samples, codec);
        let header = check(&batch).unwrap();
        prop_assert_eq!(header.total_len(), batch.len());
        prop_assert_eq!(header.max_timestamp, samples.iter().map(|s| s.timestamp).max().unwrap());
        let decoded = decoded(&batch);
        let deltas: Vec<_> = decoded.iter().map(|record| record.offset_delta).collect();
        prop_assert_eq!(deltas, (0..header.records).collect::<Vec<_>>());
        let found: Vec<_> = decoded.iter().map(Sample::of).collect();
        prop_assert_eq!(found, samples);
    }

    #[test]
    fn codec_round_trip(codec in codec(), input in vec(0u8..4, 0..70_000)) {
        let packed = compress(codec, &input).unwrap();
        prop_assert_eq!(&decompress(codec, &packed, input.len()).unwrap()[..], &input[..]);
        if !input.is_empty() {
            let bytes_max = input.len() - 1;
            let refused = decompress(codec, &packed, bytes_max);
            prop_assert_eq!(refused, Err(BatchError::TooLarge { bytes_max }));
        }
    }

    #[test]
    fn without_agrees_with_a_filter(
        samples in vec(sample(), 1..12),
        codec in codec(),
        dropped in vec(0u32..14, 0..12),
    ) {
        let batch = build(0, &samples, codec);
        let rest = without(&batch, &dropped, CAP).unwrap();
        let (old, new) = (BatchHeader::parse(&batch).unwrap(), BatchHeader::parse(&rest).unwrap());
        prop_assert_eq!(new.crc, crc_of(&rest));
        prop_assert_eq!(new.last_offset_delta, old.last_offset_delta);
        let expected: Vec<_> = (0i32..)
            .zip(samples)
            .filter(|(index, _)| !dropped.contains(&index.cast_unsigned()))
            .collect();
        let found: Vec<_> =
            decoded(&rest).iter().map(|r| (r.offset_delta, Sample::of(r))).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..300)) {
        exercise(&Bytes::from(bytes.clone()));
        for codec in PACKING {
            let _ = decompress(codec, &bytes, 10_000);
        }
    }

    /// Random records behind a header that makes a decoder look at them.
    #[test]
    fn arbitrary_records_do_not_panic(
        records in vec(prop_oneof![0u8..24, any::<u8>()], 0..200),
        count in 0i32..6,
        codec in 0u8..8,
    ) {
        let mut bytes = BatchBuilder::new(0).finish().to_vec();
        bytes[22] = codec;
        bytes[23..27].copy_from_slice(&(count + 2).to_be_bytes());
        bytes[57..61].copy_from_slice(&count.to_be_bytes());
        bytes.extend(records);
        let length = i32::try_from(bytes.len() - 12).unwrap();
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        exercise(&Bytes::from(bytes));
    }

    #[test]
    fn mutated_batches_do_not_panic(
        samples in vec(sample(), 1..8),
        codec in codec(),
        edits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        cut in option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = build(0, &samples, codec).to_vec();
        for (index, value) in &edits {
            let at = index.index(bytes.len());
            bytes[at] = *value;
        }
        exercise(&Bytes::from(bytes.clone()));
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()).max(HEADER_LEN));
            let length = i32::try_from(bytes.len() - 12).unwrap();
            bytes[8..12].copy_from_slice(&length.to_be_bytes());
        }
        exercise(&Bytes::from(bytes));
    }

    #[test]
    fn mutated_compressed_bytes_do_not_panic(
        input in vec(0u8..8, 0..3_000),
        edits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        for codec in PACKING {
            let mut packed = compress(codec, &input).unwrap();
            for (index, value) in &edits {
                let at = index.index(packed.len());
                packed[at] = *value;
            }
            if let Ok(out) = decompress(codec, &packed, 10_000) {
                prop_assert!(out.len() <= 10_000);
            }
        }
    }

    #[test]
    fn varlongs_round_trip(value in any::<i64>(), narrow in any::<i32>()) {
        let mut out = Vec::new();
        varint::put_varlong(&mut out, value);
        prop_assert_eq!(out.len(), varint::varlong_len(value));
        varint::put_varint(&mut out, narrow);
        prop_assert_eq!(out.len(), varint::varlong_len(value) + varint::varint_len(narrow));
        let mut cursor = varint::Cursor::new(&out);
        prop_assert_eq!(cursor.varlong(), Ok(value));
        prop_assert_eq!(cursor.varint(), Ok(narrow));
        prop_assert!(cursor.rest().is_empty());
    }
}

#[test]
fn varints_that_do_not_fit_are_refused() {
    let read = |bytes: &[u8]| varint::Cursor::new(bytes).varint();
    assert_eq!(read(&[0xfe, 0xff, 0xff, 0xff, 0x0f]), Ok(i32::MAX));
    assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Ok(i32::MIN));
    assert_eq!(
        read(&[0xff, 0xff, 0xff, 0xff, 0x1f]),
        Err(RecordError::Varint)
    );
    assert_eq!(
        read(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]),
        Err(RecordError::Varint)
    );
    assert_eq!(read(&[0x80]), Err(RecordError::Truncated));
    let long = |bytes: &[u8]| varint::Cursor::new(bytes).varlong();
    assert_eq!(long(&[0xff; 10]), Err(RecordError::Varint));
}

/// The bytes of a one-record batch, written out by hand from the protocol guide.
#[test]
fn builder_writes_the_documented_layout() {
    let mut builder = BatchBuilder::new(1_000);
    builder.push(1_001, Some(b"k"), None, &[(b"h", Some(b""))]);
    let batch = builder.finish();
    let record = [0x14, 0, 2, 0, 2, b'k', 1, 2, 2, b'h', 0];
    assert_eq!(&batch[HEADER_LEN..], record);
    assert_eq!(&batch[..8], [0; 8]);
    assert_eq!(&batch[8..12], 60u32.to_be_bytes());
    assert_eq!(&batch[12..17], [255, 255, 255, 255, 2]);
    assert_eq!(&batch[21..27], [0; 6]);
    assert_eq!(&batch[27..35], 1_000u64.to_be_bytes());
    assert_eq!(&batch[35..43], 1_001u64.to_be_bytes());
    assert_eq!(&batch[43..57], [255; 14]);
    assert_eq!(&batch[57..61], [0, 0, 0, 1]);
}

#[test]
fn crc_is_castagnoli() {
    let mut bytes = vec![0; 21];
    bytes.extend_from_slice(b"123456789");
    assert_eq!(crc_of(&bytes), 0xe306_9283);
}

#[test]
fn check_tells_faults_apart() {
    let good = small(3, Codec::None);
    assert_eq!(check(&good).unwrap().records, 3);
    let at = |place: usize, bytes: &'static [u8]| {
        let edited = resealed(&good, |b| {
            b[place..place + bytes.len()].copy_from_slice(bytes)
        });
        check(&edited).unwrap_err()
    };
    assert_eq!(check(&good[..60]), Err(BatchError::TooShort));
    assert_eq!(check(&[]), Err(BatchError::TooShort));
    assert_eq!(at(16, &[1]), BatchError::Magic(1));
    assert_eq!(check(&[0; 20]), Err(BatchError::Magic(0)));
    assert_eq!(check(&good[..good.len() - 1]), Err(BatchError::Length));
    assert_eq!(
        check(&[&good[..], &good[..]].concat()),
        Err(BatchError::Length)
    );
    assert_eq!(at(8, &[0, 0, 0, 48]), BatchError::Length);
    assert_eq!(at(8, &[255, 255, 255, 255]), BatchError::Length);
    assert_eq!(at(8, &[127, 255, 255, 255]), BatchError::Length);
    assert_eq!(at(0, &[0, 0, 0, 0, 0, 0, 0, 9]), BatchError::BaseOffset(9));
    assert_eq!(at(57, &[0, 0, 0, 4]), BatchError::Count);
    assert_eq!(at(57, &[0, 0, 0, 0]), BatchError::Count);
    assert_eq!(at(57, &[128, 0, 0, 0]), BatchError::Count);
    assert_eq!(at(23, &[0, 0, 0, 3]), BatchError::Count);
    assert_eq!(at(22, &[0x20]), BatchError::Control);
    assert_eq!(at(22, &[5]), BatchError::Codec(5));
    assert_eq!(at(53, &[255, 255, 255, 255]), BatchError::Sequence(-1));
    let mut flipped = good.to_vec();
    *flipped.last_mut().unwrap() ^= 1;
    assert_eq!(check(&flipped), Err(BatchError::Crc));
}

#[test]
fn decode_refuses_malformed_records() {
    let good = small(2, Codec::None);
    let refused = |edit: &dyn Fn(&mut Vec<u8>)| {
        DecodedBatch::decode(resealed(&good, |b| edit(b)), CAP).unwrap_err()
    };
    let record = |error| BatchError::Record(error);
    // Record layout: length, attributes, timestamp, offset, key length, "k0", value length, ...
    let offset_at = HEADER_LEN + 3;
    assert_eq!(refused(&|b| b[offset_at] = 2), record(RecordError::Offset));
    assert_eq!(refused(&|b| b[offset_at] = 1), record(RecordError::Offset));
    assert_eq!(refused(&|b| b[HEADER_LEN] = 1), record(RecordError::Length));
    assert_eq!(
        refused(&|b| b[HEADER_LEN + 4] = 3),
        record(RecordError::Length)
    );
    assert_eq!(
        refused(&|b| b[HEADER_LEN + 4] = 120),
        record(RecordError::Truncated)
    );
    assert_eq!(refused(&|b| b[60] = 1), record(RecordError::Count));
    assert_eq!(refused(&|b| b[57] = 127), record(RecordError::Count));
    assert_eq!(refused(&|b| b[57] = 128), BatchError::Count);
    // Header count 1 -> 0 leaves bytes over; a header name of length -1 is none.
    assert_eq!(
        refused(&|b| b[HEADER_LEN + 13] = 0),
        record(RecordError::Length)
    );
    assert_eq!(
        refused(&|b| b[HEADER_LEN + 14] = 1),
        record(RecordError::HeaderName)
    );
}

/// A stored batch may have lost records in the middle; what is left keeps its deltas.
#[test]
fn stored_batches_may_have_gaps() {
    let mut builder = BatchBuilder::new(0);
    builder.push_at(2, 5, None, None, &[]);
    builder.push_at(9, 6, None, None, &[]);
    let batch = builder.finish();
    assert_eq!(check(&batch), Err(BatchError::Count));
    let batch = decoded(&batch);
    assert_eq!(
        batch.iter().map(|r| r.offset_delta).collect::<Vec<_>>(),
        [2, 9]
    );
    assert_eq!(batch.header().last_offset_delta, 9);
    assert!(batch.record(2).is_none());
}

#[test]
fn bombs_stop_at_the_cap() {
    let zeros = vec![0; 32 << 20];
    for codec in PACKING {
        let packed = compress(codec, &zeros).unwrap();
        let refused = decompress(codec, &packed, CAP);
        assert_eq!(
            refused,
            Err(BatchError::TooLarge { bytes_max: CAP }),
            "{codec:?}"
        );
        assert_eq!(
            decompress(codec, &packed, zeros.len()).unwrap().len(),
            zeros.len()
        );
    }
    // zstd without a content size, so that only decoding shows the size.
    let packed = zstd::stream::encode_all(&zeros[..], 3).unwrap();
    let refused = decompress(Codec::Zstd, &packed, CAP);
    assert_eq!(refused, Err(BatchError::TooLarge { bytes_max: CAP }));
    assert_eq!(
        decompress(Codec::Zstd, &packed, zeros.len()).unwrap().len(),
        zeros.len()
    );
    // Raw snappy that claims 4 GiB in five bytes.
    let claim = [0xff, 0xff, 0xff, 0xff, 0x0f];
    let refused = decompress(Codec::Snappy, &claim, usize::MAX);
    assert_eq!(refused, Err(BatchError::Decompress("snappy")));
    // LZ4 in 4 MiB blocks, as Go clients write it.
    let info = lz4_flex::frame::FrameInfo::new()
        .block_mode(lz4_flex::frame::BlockMode::Independent)
        .block_size(lz4_flex::frame::BlockSize::Max4MB)
        .block_checksums(true)
        .content_checksum(true)
        .content_size(Some(32 << 20));
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    std::io::Write::write_all(&mut encoder, &zeros).unwrap();
    let packed = encoder.finish().unwrap();
    let refused = decompress(Codec::Lz4, &packed, CAP);
    assert_eq!(refused, Err(BatchError::TooLarge { bytes_max: CAP }));
    assert_eq!(
        decompress(Codec::Lz4, &packed, zeros.len()).unwrap().len(),
        zeros.len()
    );
}

/// The cap holds for whole batches too, compressed or not.
#[test]
fn decode_respects_the_cap() {
    for codec in CODECS {
        let batch = small(100, codec);
        let refused = DecodedBatch::decode(batch.clone(), 500).unwrap_err();
        assert_eq!(
            refused,
            BatchError::TooLarge { bytes_max: 500 },
            "{codec:?}"
        );
    }
}

#[test]
fn compressed_bytes_that_are_cut_are_refused() {
    let input: Vec<u8> = (0..50_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
    for codec in PACKING {
        let packed = compress(codec, &input).unwrap();
        let cut = decompress(codec, &packed[..packed.len() - 5], CAP);
        assert!(matches!(cut, Err(BatchError::Decompress(_))), "{codec:?}");
    }
}

#[test]
fn snappy_comes_framed_raw_and_concatenated() {
    let input = b"hello hello hello hello".repeat(5_000);
    let raw = snap::raw::Encoder::new().compress_vec(&input).unwrap();
    assert_eq!(
        &decompress(Codec::Snappy, &raw, CAP).unwrap()[..],
        &input[..]
    );
    let framed = compress(Codec::Snappy, &input).unwrap();
    assert!(framed.starts_with(b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"));
    let twice = [&framed[..], &framed[..]].concat();
    assert_eq!(
        decompress(Codec::Snappy, &twice, CAP).unwrap(),
        input.repeat(2)
    );
}

/// Java clients verify this checksum, so a frame that fails it must not be stored.
#[test]
fn lz4_header_checksum_is_verified() {
    let mut packed = compress(Codec::Lz4, b"abcabcabcabc").unwrap();
    packed[6] ^= 1;
    assert_eq!(
        decompress(Codec::Lz4, &packed, CAP),
        Err(BatchError::Decompress("lz4"))
    );
}

#[test]
fn patched_header_keeps_the_crc_valid() {
    let batch = small(4, Codec::Lz4);
    let head = patched_header(&batch, 1_234_567, 9).unwrap();
    let served = [&head[..], &batch[HEADER_LEN..]].concat();
    let header = BatchHeader::parse(&served).unwrap();
    assert_eq!((header.base_offset, header.leader_epoch), (1_234_567, 9));
    assert_eq!(header.crc, crc_of(&served));
    assert_eq!(
        patched_header(&batch[..60], 0, 0),
        Err(BatchError::TooShort)
    );
}

#[test]
fn append_time_replaces_all_timestamps() {
    for codec in CODECS {
        let batch = with_append_time(&small(3, codec), 99_000).unwrap();
        let header = check(&batch).unwrap();
        assert!(header.log_append_time());
        assert_eq!(header.max_timestamp, 99_000);
        assert_eq!(header.codec(), Ok(codec));
        assert!(
            decoded(&batch)
                .iter()
                .all(|record| record.timestamp == 99_000)
        );
        let rest = without(&batch, &[0], CAP).unwrap();
        assert_eq!(BatchHeader::parse(&rest).unwrap().max_timestamp, 99_000);
    }
}

#[test]
fn without_keeps_what_consumers_and_producers_count_on() {
    for codec in CODECS {
        let batch = Bytes::copy_from_slice(&small(5, codec));
        let rest = without(&batch, &[0, 4], CAP).unwrap();
        let header = BatchHeader::parse(&rest).unwrap();
        assert_eq!(header.crc, crc_of(&rest));
        assert_eq!((header.records, header.last_offset_delta), (3, 4));
        assert_eq!((header.producer_id, header.base_sequence), (7, 40));
        assert_eq!(header.max_timestamp, 1_003);
        assert_eq!(header.codec(), Ok(codec));
        let deltas: Vec<_> = decoded(&rest).iter().map(|r| r.offset_delta).collect();
        assert_eq!(deltas, [1, 2, 3]);
        // Again, now over gaps.
        let rest = without(&rest, &[1], CAP).unwrap();
        let deltas: Vec<_> = decoded(&rest).iter().map(|r| r.offset_delta).collect();
        assert_eq!(deltas, [1, 3]);
        // Down to nothing: the offsets stay covered.
        let rest = without(&rest, &[0, 1], CAP).unwrap();
        let header = BatchHeader::parse(&rest).unwrap();
        assert_eq!(
            (header.records, header.last_offset_delta, rest.len()),
            (0, 4, HEADER_LEN)
        );
        assert_eq!(header.crc, crc_of(&rest));
        assert!(decoded(&rest).is_empty());
    }
}

#[test]
fn attributes_are_read() {
    let mut builder = BatchBuilder::new(0).with_attributes(TRANSACTIONAL_BIT | CONTROL_BIT | 0b111);
    builder.push(0, Some(&[0, 0, 0, 1]), Some(&[0; 6]), &[]);
    let batch = builder.finish();
    let header = BatchHeader::parse(&batch).unwrap();
    assert!(header.is_transactional() && header.is_control() && !header.log_append_time());
    assert_eq!(header.codec(), Ok(Codec::None));
    assert_eq!(check(&batch), Err(BatchError::Control));
    assert_eq!(decoded(&batch).len(), 1);
}

#[test]
fn first_of_duplicate_headers_wins() {
    let mut builder = BatchBuilder::new(0);
    builder.push(
        0,
        None,
        None,
        &[(b"a", None), (b"b", Some(b"1")), (b"b", Some(b"2"))],
    );
    let batch = decoded(&builder.finish());
    let headers = batch.record(0).unwrap().headers;
    assert_eq!(headers.len(), 3);
    assert_eq!(headers.get(b"a"), Some(None));
    assert_eq!(headers.get(b"b"), Some(Some(&b"1"[..])));
    assert_eq!(headers.get(b"c"), None);
    assert_eq!(headers.count(), 3);
}

#[test]
fn slices_share_the_batch() {
    let bytes = small(3, Codec::None);
    let batch = decoded(&bytes);
    let key = batch.record(1).unwrap().key.unwrap();
    let owned = batch.slice_ref(key);
    assert_eq!(owned.as_ptr(), key.as_ptr());
    assert!(bytes.as_ptr_range().contains(&owned.as_ptr()));
    assert_eq!(batch.slice_ref(b"elsewhere"), "elsewhere");
    assert!(batch.memory_bytes() >= bytes.len());
}

#[test]
fn lanes_are_named_and_numbered_by_first_appearance() {
    let mut builder = BatchBuilder::new(0);
    let id = TRANSACTION_ID_HEADER;
    builder.push(0, Some(b"order-1"), None, &[(id, Some(b"tx-a"))]);
    builder.push(0, Some(b"order-1"), None, &[(id, None)]);
    builder.push(0, None, None, &[(id, Some(b""))]);
    builder.push(0, Some(b"\xff\x00"), None, &[]);
    builder.push(
        0,
        Some(b"order-1"),
        None,
        &[(b"other", None), (id, Some(b"tx-b"))],
    );
    builder.push(0, Some(b"partition-6"), None, &[]);
    builder.push(0, Some(b""), None, &[]);
    let batch = builder.finish_compressed(Codec::Zstd).unwrap();
    let lanes = lane_keys(&decoded(&batch), 6);
    let names: Vec<&[u8]> = lanes.names.iter().map(Bytes::as_ref).collect();
    assert_eq!(
        names,
        [&b"order-1"[..], b"partition-6", b"base64:/wA=", b""]
    );
    assert_eq!(lanes.lane_of, [0, 0, 1, 2, 0, 1, 3]);
    assert_eq!(
        lanes.dedup,
        [(0, Bytes::from("tx-a")), (4, Bytes::from("tx-b"))]
    );
}

#[test]
fn many_lanes_are_told_apart() {
    let mut builder = BatchBuilder::new(0);
    for index in 0..3_000u32 {
        builder.push(0, Some((index % 1_000).to_string().as_bytes()), None, &[]);
    }
    let lanes = lane_keys(&decoded(&builder.finish()), 0);
    assert_eq!(lanes.names.len(), 1_000);
    assert!(
        (0..3_000u32)
            .zip(&lanes.lane_of)
            .all(|(index, lane)| index % 1_000 == *lane)
    );
}
