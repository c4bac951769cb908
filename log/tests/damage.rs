//! Torn tails are cut, damage is refused with file and position, and cut or truncated frames never
//! come back.

mod kit;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use kit::{append, append_wait, assert_holds, body, config, frame, open, outcome};
use queen_log::{FRAME_HEADER_BYTES, Log, LogConfig, LogError, SEGMENT_HEADER_BYTES};

/// Bytes of a frame with this payload.
fn framed(len: usize) -> usize {
    (FRAME_HEADER_BYTES + len).next_multiple_of(8)
}

fn overwrite(path: &Path, position: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, position).unwrap();
}

fn flip(path: &Path, position: u64) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, position).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], position).unwrap();
}

fn newest(log: &Log) -> PathBuf {
    log.segments().last().unwrap().path.clone()
}

fn assert_damaged(config: &LogConfig, file: &Path, position: u64) {
    match open(config).map(|_| ()) {
        Err(error @ LogError::Damaged { .. }) => {
            let LogError::Damaged {
                file: named,
                position: at,
                ..
            } = &error
            else {
                unreachable!()
            };
            assert_eq!((named.as_path(), *at), (file, position), "{error}");
            let text = error.to_string();
            assert!(text.contains(&format!("position {position}")), "{text}");
            assert!(
                text.contains("backup"),
                "the message says what to do: {text}"
            );
        }
        other => panic!(
            "expected damage at {position} of {}, got {other:?}",
            file.display()
        ),
    }
}

#[test]
fn a_tail_torn_at_any_byte_is_cut_at_the_last_whole_frame() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let (log, _) = open(&config).unwrap();
    append_wait(&log, 1, 0..2, 20);
    let start = log.segments()[0].bytes;
    // One group of three frames: one append is one write and one sync.
    let group = (2..5)
        .map(|index| frame(1, index, &body(index, 20)))
        .collect();
    outcome(&append(&log, group).unwrap()).unwrap();
    let (path, end) = (newest(&log), log.segments()[0].bytes);
    log.close();
    let whole = std::fs::read(&path).unwrap();
    let step = framed(20) as u64;
    assert_eq!(end - start, 3 * step);
    for cut in start..=end {
        let mut torn = whole.clone();
        torn[cut as usize..].fill(0);
        overwrite(&path, 0, &torn);
        let (log, recovered) = open(&config).unwrap();
        // The padding of a frame is zero and not missed.
        let kept = 2 + (cut + 4 - start) / step;
        assert_holds(&log, 0..kept, 20);
        let clean = (cut - start) % step == 0 || (cut + 4 - start) % step < 4;
        let expected_end = start + (kept - 2) * step;
        match recovered.cut_at {
            None => assert_eq!(recovered.cut_bytes, 0),
            Some((file, position)) => {
                assert!(!clean, "nothing to cut at {cut}");
                assert_eq!((file, position), (path.clone(), expected_end));
                assert!(recovered.cut_bytes > 0 && recovered.cut_bytes <= cut - expected_end);
            }
        }
        append_wait(&log, 2, kept..kept + 2, 33);
        log.close();
        let (log, recovered) = open(&config).unwrap();
        assert_eq!(
            (recovered.last, recovered.cut_at),
            (Some((2, kept + 1)), None)
        );
        log.close();
    }
}

#[test]
fn a_group_whose_later_part_alone_survived_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let (log, _) = open(&config).unwrap();
    append_wait(&log, 1, 0..2, 20);
    let start = log.segments()[0].bytes;
    let group = (2..5)
        .map(|index| frame(1, index, &body(index, 20)))
        .collect();
    outcome(&append(&log, group).unwrap()).unwrap();
    let path = newest(&log);
    log.close();
    let lost = std::fs::read(&path).unwrap()[start as usize..][..framed(20)].to_vec();
    overwrite(&path, start, &vec![0; framed(20)]);
    let (log, recovered) = open(&config).unwrap();
    assert_holds(&log, 0..2, 20);
    assert_eq!(recovered.cut_at, Some((path.clone(), start)));
    assert_eq!(
        recovered.cut_bytes,
        3 * framed(20) as u64 - 4,
        "the last padding is zero"
    );
    log.close();
    // Even the very bytes that were lost do not bring the rest back.
    overwrite(&path, start, &lost);
    let (log, _) = open(&config).unwrap();
    assert_holds(&log, 0..3, 20);
}

#[test]
fn a_flip_below_the_durable_mark_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let (log, _) = open(&config).unwrap();
    append_wait(&log, 1, 0..6, 24);
    let path = newest(&log);
    log.close();
    let step = framed(24) as u64;
    for index in 0..5 {
        let start = SEGMENT_HEADER_BYTES + index * step;
        // Every field of the header, and the payload.
        for at in [0, 4, 8, 12, 16, 20, 24, 32, 40, 48, 71] {
            flip(&path, start + at);
            assert_damaged(&config, &path, start);
            flip(&path, start + at);
        }
    }
    // The segment header, too.
    for at in [0, 8, 12, 16, 24, 32, 40, 44, 52, 4000] {
        flip(&path, at);
        assert_damaged(&config, &path, 0);
        flip(&path, at);
    }
    // The last group cannot be told from a tear by one node.
    flip(&path, SEGMENT_HEADER_BYTES + 5 * step + 50);
    let (log, recovered) = open(&config).unwrap();
    assert_holds(&log, 0..5, 24);
    assert!(recovered.cut_at.is_some());
}

#[test]
fn a_flip_in_a_sealed_segment_is_refused_at_open_and_on_read() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let (log, _) = open(&config).unwrap();
    append_wait(&log, 1, 0..60, 1000);
    let sealed: Vec<_> = log
        .segments()
        .into_iter()
        .filter(|segment| segment.sealed)
        .collect();
    assert!(sealed.len() >= 3);
    log.close();
    let step = framed(1000) as u64;
    for segment in [&sealed[0], &sealed[1], sealed.last().unwrap()] {
        for frame in [0, 1, segment.last_index.unwrap() - segment.first_index] {
            let start = SEGMENT_HEADER_BYTES + frame * step;
            flip(&segment.path, start + 700);
            assert_damaged(&config, &segment.path, start);
            flip(&segment.path, start + 700);
        }
        flip(&segment.path, 33);
        assert_damaged(&config, &segment.path, 0);
        flip(&segment.path, 33);
    }
    // Without the full check at open, the read and the scrubber find it.
    let lazy = LogConfig {
        scrub_at_open_bytes_max: 0,
        ..config
    };
    let start = SEGMENT_HEADER_BYTES + 2 * step;
    flip(&sealed[1].path, start + 700);
    let (log, recovered) = open(&lazy).unwrap();
    assert!(recovered.scanned_bytes < 16 << 10);
    let index = sealed[1].first_index + 2;
    let damaged = log.read(index).unwrap_err();
    assert!(matches!(&damaged, LogError::Damaged { position, .. } if *position == start));
    assert!(log.read_range(index - 1, index + 2, u64::MAX).is_err());
    assert!(log.read(index + 1).unwrap().is_some());
    log.scrub(sealed[0].no).unwrap();
    let damaged = log.scrub(sealed[1].no).unwrap_err();
    assert!(matches!(&damaged, LogError::Damaged { position, .. } if *position == start));
    assert!(
        log.scrub(log.segments().last().unwrap().no).is_err(),
        "not sealed"
    );
}

#[test]
fn a_missing_or_shortened_segment_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let (log, _) = open(&config).unwrap();
    append_wait(&log, 1, 0..60, 1000);
    let segments = log.segments();
    log.close();
    for victim in &segments[1..segments.len() - 1] {
        let bytes = std::fs::read(&victim.path).unwrap();
        std::fs::remove_file(&victim.path).unwrap();
        // The records of the missing segment are kept for the repair.
        let seal = victim.path.with_extension("seal");
        let record = std::fs::read(&seal).unwrap();
        assert!(matches!(
            open(&config),
            Err(LogError::Damaged { position: 0, .. })
        ));
        std::fs::write(&seal, record).unwrap();
        std::fs::write(&victim.path, &bytes[..5000]).unwrap();
        assert_damaged(&config, &victim.path, 5000);
        std::fs::write(&victim.path, &bytes[..100]).unwrap();
        assert_damaged(&config, &victim.path, 100);
        std::fs::write(&victim.path, &bytes).unwrap();
    }
    let (log, _) = open(&config).unwrap();
    assert_holds(&log, 0..60, 1000);
}

#[test]
fn a_lost_or_damaged_seal_record_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let (log, _) = open(&config).unwrap();
    append_wait(&log, 1, 0..60, 1000);
    let seal = log.segments()[1].path.with_extension("seal");
    log.close();
    let record = std::fs::read(&seal).unwrap();
    for at in (0..record.len()).step_by(7) {
        flip(&seal, at as u64);
        let (log, _) = open(&config).unwrap();
        assert_holds(&log, 0..60, 1000);
        log.close();
        assert_eq!(std::fs::read(&seal).unwrap(), record, "flip at {at}");
    }
    std::fs::remove_file(&seal).unwrap();
    let (log, _) = open(&config).unwrap();
    assert_holds(&log, 0..60, 1000);
    log.close();
    assert_eq!(std::fs::read(&seal).unwrap(), record);
}

#[test]
fn truncated_frames_never_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let (log, _) = open(&config).unwrap();
    append_wait(&log, 1, 0..10, 100);
    log.truncate_after(4).unwrap();
    assert_holds(&log, 0..5, 100);
    assert_eq!(
        (log.last(), log.durable_index(), log.term_of(5)),
        (Some((1, 4)), 4, None)
    );
    log.close();
    // Not after a restart,
    let (log, _) = open(&config).unwrap();
    assert_holds(&log, 0..5, 100);
    // nor when the same first frame is appended again and the log crashes right behind it,
    append_wait(&log, 1, 5..6, 100);
    let path = newest(&log);
    log.close();
    let (log, _) = open(&config).unwrap();
    assert_holds(&log, 0..6, 100);
    // nor when that frame is torn.
    log.close();
    flip(&path, SEGMENT_HEADER_BYTES + 60);
    let (log, _) = open(&config).unwrap();
    assert_holds(&log, 0..5, 100);
}

#[test]
fn truncation_over_segments_and_again() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let (log, _) = open(&config).unwrap();
    append_wait(&log, 1, 0..60, 1000);
    let held: Vec<_> = (0..60)
        .map(|index| log.slice(index, 0, 1000).unwrap())
        .collect();
    for (keep, term) in [(47, 2), (44, 3), (45, 4), (12, 5), (11, 6), (3, 7)] {
        log.truncate_after(keep).unwrap();
        assert_eq!(log.last().unwrap().1, keep.min(log.last().unwrap().1));
        let next = log.last().unwrap().1 + 1;
        append_wait(&log, term, next..next + 4, 1000);
    }
    let last = log.last().unwrap();
    assert_eq!(last, (7, 7));
    assert_holds(&log, 0..8, 1000);
    // Readers keep what they hold.
    for (index, bytes) in held.iter().enumerate() {
        assert_eq!(bytes, &body(index as u64, 1000));
    }
    log.close();
    let (log, recovered) = open(&config).unwrap();
    assert_eq!(recovered.last, Some(last));
    assert_holds(&log, 0..8, 1000);
    assert_eq!((log.term_of(3), log.term_of(4)), (Some(1), Some(7)));
    // Down to nothing.
    log.reset_to(100).unwrap();
    assert_eq!(
        (log.first_index(), log.last(), log.segments().len()),
        (100, None, 1)
    );
    assert!(append(&log, vec![frame(8, 8, b"")]).is_err());
    log.close();
    let (log, recovered) = open(&config).unwrap();
    assert_eq!((recovered.first_index, recovered.last), (100, None));
    append_wait(&log, 8, 100..110, 1000);
    assert_holds(&log, 100..110, 1000);
    assert!(log.truncate_after(50).is_err(), "those are gone");
    log.truncate_after(99).unwrap();
    assert_eq!((log.first_index(), log.last()), (100, None));
    append_wait(&log, 9, 100..103, 10);
    assert_holds(&log, 100..103, 10);
}

#[test]
fn a_damaged_record_of_a_cut_without_a_successor_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, config) = kit::evil(dir.path());
    let (log, _) = kit::open_on(&config, &disk).unwrap();
    append_wait(&log, 1, 0..8, 100);
    disk.set_space(Some(4000));
    log.truncate_after(4).unwrap();
    let seal = newest(&log).with_extension("seal");
    log.close();
    flip(&seal, 70);
    assert!(matches!(
        kit::open_on(&config, &disk),
        Err(LogError::Damaged { .. })
    ));
    flip(&seal, 70);
    let (log, _) = kit::open_on(&config, &disk).unwrap();
    assert_holds(&log, 0..5, 100);
}
