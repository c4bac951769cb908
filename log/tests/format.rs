//! The pure scan of one segment accepts any bytes, and tells tears from damage.

mod kit;

use kit::{append_wait, config, open};
use proptest::prelude::*;
use queen_log::{SEGMENT_HEADER_BYTES, recover_bytes};

fn segment(frames: u64, len: usize) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open(&config(dir.path())).unwrap();
    append_wait(&log, 3, 5..5 + frames, len);
    let path = log.segments()[0].path.clone();
    log.close();
    std::fs::read(path).unwrap()
}

#[test]
fn an_intact_segment() {
    let bytes = segment(4, 100);
    let summary = recover_bytes(&bytes);
    assert_eq!((summary.frames, summary.indexes), (4, Some((5, 8))));
    assert_eq!(summary.end, SEGMENT_HEADER_BYTES + 4 * 152);
    assert_eq!(
        (summary.proof, summary.reason.as_str()),
        (None, "there is no frame")
    );
}

#[test]
fn hand_made_corruption() {
    let bytes = segment(4, 100);
    assert_eq!(recover_bytes(&[]).frames, 0);
    assert_eq!(
        recover_bytes(&vec![0; 100_000]).reason,
        "the segment was never used"
    );
    assert_eq!(recover_bytes(&vec![0xff; 100_000]).frames, 0);
    // Every length, every frame torn, every byte of the frames flipped, lengths at their extremes.
    for len in (0..bytes.len()).step_by(61) {
        recover_bytes(&bytes[..len]);
    }
    for at in SEGMENT_HEADER_BYTES as usize..SEGMENT_HEADER_BYTES as usize + 4 * 152 {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x80;
        let summary = recover_bytes(&flipped);
        let frame = (at as u64 - SEGMENT_HEADER_BYTES) / 152;
        let padding = (at as u64 - SEGMENT_HEADER_BYTES) % 152 >= 148;
        assert_eq!(
            summary.frames,
            if padding { 4 } else { frame },
            "flip at {at}"
        );
        assert_eq!(
            summary.proof.is_some(),
            !padding && frame < 3,
            "flip at {at}"
        );
    }
    for len in [u32::MAX, u32::MAX - 47, i32::MAX as u32, 1 << 30] {
        let mut huge = bytes.clone();
        huge[SEGMENT_HEADER_BYTES as usize..][..4].copy_from_slice(&len.to_le_bytes());
        let summary = recover_bytes(&huge);
        assert_eq!(summary.frames, 0);
        assert!(summary.proof.is_some());
    }
    // A payload that is a copy of a later frame does not pass for one at another place.
    let mut shifted = bytes.clone();
    shifted.copy_within(
        SEGMENT_HEADER_BYTES as usize + 152..,
        SEGMENT_HEADER_BYTES as usize,
    );
    assert_eq!(recover_bytes(&shifted).frames, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_survived(
        patches in prop::collection::vec((0_usize..16_384, prop::collection::vec(any::<u8>(), 1..60)), 0..20),
        keep in 0_usize..16_384,
        fix_header in any::<bool>(),
    ) {
        static BYTES: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| segment(6, 700));
        let mut bytes = BYTES.clone();
        for (at, patch) in patches {
            let end = (at + patch.len()).min(bytes.len());
            bytes[at..end].copy_from_slice(&patch[..end - at]);
        }
        if fix_header {
            bytes[..4096].copy_from_slice(&BYTES[..4096]);
        }
        recover_bytes(&bytes);
        recover_bytes(&bytes[..keep]);
    }
}
