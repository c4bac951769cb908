//! Appending, reading and reopening on a healthy disk.

mod kit;

use std::sync::Arc;
use std::sync::mpsc::channel;

use bytes::Bytes;
use kit::{append, append_wait, assert_holds, body, config, frame, open, outcome};
use queen_log::{FrameIn, LogError};

#[test]
fn frames_survive_a_reopen_over_many_segments() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let (log, recovered) = open(&config).unwrap();
    assert_eq!((recovered.last, recovered.cut_bytes), (None, 0));
    append_wait(&log, 1, 0..40, 1000);
    append_wait(&log, 2, 40..60, 3000);
    assert_holds_mixed(&log);
    assert_eq!(log.durable_index(), 59);
    assert!(log.segments().len() > 5);
    log.close();

    let (log, recovered) = open(&config).unwrap();
    assert_eq!(recovered.last, Some((2, 59)));
    assert_eq!(recovered.cut_at, None);
    assert_holds_mixed(&log);
    assert_eq!(
        (log.term_of(39), log.term_of(40), log.term_of(60)),
        (Some(1), Some(2), None)
    );
    append_wait(&log, 2, 60..70, 3000);
    assert_eq!(log.read_range(0, 100, u64::MAX).unwrap().len(), 70);
}

fn assert_holds_mixed(log: &queen_log::Log) {
    let frames = log.read_range(0, 1000, u64::MAX).unwrap();
    assert_eq!(frames.len(), 60);
    for read in frames {
        let len = if read.index < 40 { 1000 } else { 3000 };
        assert_eq!(read.payload, body(read.index, len));
    }
}

#[test]
fn frames_are_readable_when_append_returns() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open(&config(dir.path())).unwrap();
    let mut receivers = Vec::new();
    for index in 5..300 {
        receivers.push(append(&log, vec![frame(1, index, &body(index, 100))]).unwrap());
        let read = log.read(index).unwrap().expect("readable at once");
        assert_eq!(read.payload, body(index, 100));
        assert_eq!(log.slice(index, 10, 20).unwrap(), body(index, 100)[10..30]);
    }
    receivers
        .iter()
        .for_each(|receiver| outcome(receiver).unwrap());
    assert_holds(&log, 5..300, 100);
}

#[test]
fn callbacks_come_in_order_and_in_groups() {
    let dir = tempfile::tempdir().unwrap();
    let config = queen_log::LogConfig {
        segment_bytes: 1 << 20,
        ..config(dir.path())
    };
    let (log, _) = open(&config).unwrap();
    let (sender, receiver) = channel();
    for index in 1..=2000 {
        let sender = sender.clone();
        let done = Box::new(move |outcome: Result<(), LogError>| {
            outcome.unwrap();
            sender.send(index).unwrap();
        });
        log.append(vec![frame(1, index, &body(index, 50))], done)
            .unwrap();
    }
    drop(sender);
    assert_eq!(
        receiver.iter().collect::<Vec<_>>(),
        (1..=2000).collect::<Vec<_>>()
    );
    let stats = log.stats();
    assert_eq!(
        (stats.appends, stats.frames, stats.in_flight_bytes),
        (2000, 2000, 0)
    );
    assert!(stats.fsyncs < 2000, "no group commit: {stats:?}");
}

#[test]
fn scatter_lists_are_concatenated() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open(&config(dir.path())).unwrap();
    let parts = [
        body(1, 5),
        body(2, 2000),
        Vec::new(),
        body(3, 1500),
        body(4, 3),
    ];
    let whole = parts.concat();
    let payload = parts
        .iter()
        .map(|part| Bytes::copy_from_slice(part))
        .collect();
    let receiver = append(
        &log,
        vec![FrameIn {
            kind: 9,
            term: 3,
            index: 1,
            payload,
        }],
    )
    .unwrap();
    assert_eq!(log.read(1).unwrap().unwrap().payload, whole);
    outcome(&receiver).unwrap();
    let read = log.read(1).unwrap().unwrap();
    assert_eq!(
        (read.kind, read.term, read.payload),
        (9, 3, Bytes::from(whole.clone()))
    );
    assert_eq!(log.slice(1, 3, 3000).unwrap(), whole[3..3003]);
    assert!(log.slice(1, 1, whole.len() as u32).is_err());
    assert!(log.slice(2, 0, 0).is_err());
}

#[test]
fn a_frame_larger_than_a_segment_gets_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let (log, _) = open(&config).unwrap();
    append_wait(&log, 1, 0..3, 100);
    append_wait(&log, 1, 3..4, 100_000);
    append_wait(&log, 1, 4..6, 100);
    log.close();
    let (log, _) = open(&config).unwrap();
    assert_eq!(log.read(3).unwrap().unwrap().payload, body(3, 100_000));
    assert_eq!(log.read(5).unwrap().unwrap().payload, body(5, 100));
}

#[test]
fn indexes_must_follow_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open(&config(dir.path())).unwrap();
    append_wait(&log, 1, 10..12, 10);
    for wrong in [0, 11, 13] {
        let refused = append(&log, vec![frame(1, wrong, b"")]);
        assert!(matches!(
            refused,
            Err(LogError::OutOfOrder { expected: 12, .. })
        ));
    }
    let gap = append(&log, vec![frame(1, 12, b""), frame(1, 14, b"")]);
    assert!(matches!(
        gap,
        Err(LogError::OutOfOrder {
            expected: 13,
            got: 14
        })
    ));
    append_wait(&log, 1, 12..13, 10);
    assert_holds(&log, 10..13, 10);
}

#[test]
fn a_second_opener_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let (log, _) = open(&config).unwrap();
    let refused = open(&config).map(|_| ()).unwrap_err();
    assert!(matches!(refused, LogError::Locked { .. }));
    assert!(
        refused.to_string().contains("in use by another process"),
        "{refused}"
    );
    log.close();
    open(&config).unwrap();
}

#[test]
fn votes_survive_and_keep_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let (log, recovered) = open(&config).unwrap();
    assert_eq!(recovered.vote, None);
    let receiver = append(&log, vec![frame(1, 1, b"before")]).unwrap();
    log.save_vote(b"one").unwrap();
    assert!(
        receiver.try_recv().is_ok(),
        "a vote waits for the frames before it"
    );
    log.save_vote(b"two").unwrap();
    log.close();
    // Either copy may be lost.
    for position in [100, 4096 + 100] {
        let path = dir.path().join("vote");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[position] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let (log, recovered) = open(&config).unwrap();
        assert_eq!(recovered.vote, Some(Bytes::from_static(b"two")));
        log.close();
    }
    let path = dir.path().join("vote");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100] ^= 1;
    bytes[4196] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(matches!(open(&config), Err(LogError::Damaged { .. })));
}

#[test]
fn another_group_or_format_is_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let (log, _) = open(&config).unwrap();
    append_wait(&log, 1, 0..2, 10);
    log.close();
    std::fs::remove_file(dir.path().join("vote")).unwrap();
    let other = queen_log::LogConfig { group: 8, ..config };
    let refused = open(&other).map(|_| ()).unwrap_err();
    assert!(matches!(refused, LogError::Layout { .. }), "{refused}");
    assert!(
        refused.to_string().contains("belongs to group 7, not 8"),
        "{refused}"
    );
}

#[test]
fn without_fsync_frames_are_done_when_written() {
    let dir = tempfile::tempdir().unwrap();
    let config = queen_log::LogConfig {
        fsync: false,
        ..config(dir.path())
    };
    let (log, _) = open(&config).unwrap();
    append_wait(&log, 1, 0..5, 100);
    assert_eq!(log.stats().fsyncs, 0);
    append_wait(&log, 1, 5..400, 100);
    log.close();
    let (log, _) = open(&config).unwrap();
    assert_holds(&log, 0..400, 100);
}

#[test]
fn an_append_waits_while_too_much_is_in_flight() {
    let dir = tempfile::tempdir().unwrap();
    let config = queen_log::LogConfig {
        in_flight_bytes_max: 4000,
        ..config(dir.path())
    };
    let (log, _) = open(&config).unwrap();
    let log = Arc::new(log);
    for index in 0..200 {
        append(&log, vec![frame(1, index, &body(index, 1000))]).unwrap();
        assert!(log.stats().in_flight_bytes <= 4000);
    }
    // Larger than the bound by itself: goes alone.
    let receiver = append(&log, vec![frame(1, 200, &body(200, 9000))]).unwrap();
    outcome(&receiver).unwrap();
}
