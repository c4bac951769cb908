//! Kafka's default partitioner, so that every producer of a key meets the same Kafka partition.

const SEED: u32 = 0x9747_b28c;
const MULTIPLIER: u32 = 0x5bd1_e995;
const SHIFT: u32 = 24;

/// MurmurHash2 as the Java client computes it; Java shows the same bits as a signed number.
pub fn murmur2(bytes: &[u8]) -> u32 {
    // Only lengths below 2^31 exist in Java, so the low half is the whole length.
    let mut hash = SEED ^ (bytes.len() as u32);
    let (words, tail) = bytes.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        k ^= k >> SHIFT;
        hash = hash.wrapping_mul(MULTIPLIER) ^ k.wrapping_mul(MULTIPLIER);
    }
    if !tail.is_empty() {
        for (index, &byte) in tail.iter().enumerate() {
            hash ^= u32::from(byte) << (8 * index);
        }
        hash = hash.wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ (hash >> 15)
}

/// The Kafka partition of `key` among `partitions`; 0 when there are none.
pub fn kafka_partition(key: &[u8], partitions: u32) -> u32 {
    (murmur2(key) & 0x7fff_ffff)
        .checked_rem(partitions)
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from the test of the Java client's `Utils.murmur2`.
    #[test]
    fn murmur2_agrees_with_java() {
        let cases: [(&str, i32); 6] = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            ("abc", 479_470_107),
        ];
        for (text, expected) in cases {
            assert_eq!(murmur2(text.as_bytes()).cast_signed(), expected, "{text}");
        }
    }

    #[test]
    fn partition_is_positive_modulo() {
        assert_eq!(
            kafka_partition(b"21", 7),
            (-973_932_308_i32 & 0x7fff_ffff).cast_unsigned() % 7
        );
        assert_eq!(kafka_partition(b"abc", 1), 0);
        assert_eq!(kafka_partition(b"abc", 0), 0);
    }
}
