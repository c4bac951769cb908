//! A full disk, a failing sync, held syncs: what callers see, and what never happens.

mod kit;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kit::{append, append_wait, assert_holds, body, config, evil, frame, open, open_on, outcome};
use queen_log::LogError;

#[test]
fn a_full_disk_refuses_and_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, config) = evil(dir.path());
    let (log, _) = open_on(&config, &disk).unwrap();
    append_wait(&log, 1, 0..1, 1000);
    disk.set_space(Some(0));
    let mut next = 1;
    let refused = loop {
        match append(&log, vec![frame(1, next, &body(next, 1000))]) {
            Ok(receiver) => outcome(&receiver).unwrap(),
            Err(error) => break error,
        }
        next += 1;
        assert!(next < 100, "the disk never filled up");
    };
    assert!(
        matches!(refused, LogError::Full { needed: 16_384, .. }),
        "{refused}"
    );
    assert!(matches!(log.reserve(1000), Err(LogError::Full { .. })));
    // Smaller frames still fit, reads and votes go on.
    log.reserve(10).unwrap();
    log.save_vote(b"vote").unwrap();
    assert_holds(&log, 0..next, 1000);
    assert_eq!(
        count_files(dir.path(), ".seg"),
        log.segments().len(),
        "a half-made segment"
    );

    disk.set_space(None);
    log.reserve(1000).unwrap();
    append_wait(&log, 1, next..next + 30, 1000);
    assert_holds(&log, 0..next + 30, 1000);
    log.close();
    let (log, _) = open_on(&config, &disk).unwrap();
    assert_holds(&log, 0..next + 30, 1000);
}

fn count_files(dir: &std::path::Path, suffix: &str) -> usize {
    let entries = std::fs::read_dir(dir.join("log/segments")).unwrap();
    entries
        .filter(|entry| {
            entry
                .as_ref()
                .unwrap()
                .path()
                .to_str()
                .unwrap()
                .ends_with(suffix)
        })
        .count()
}

#[test]
fn a_reservation_is_kept_when_the_disk_fills_up() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, config) = evil(dir.path());
    let (log, _) = open_on(&config, &disk).unwrap();
    append_wait(&log, 1, 0..1, 10_000);
    for (index, len) in [(1, 11_000), (2, 60_000), (3, 5_000)] {
        disk.set_space(None);
        log.reserve(len as u64).unwrap();
        disk.set_space(Some(0));
        append_wait(&log, 1, index..index + 1, len);
    }
}

#[test]
fn truncation_works_while_no_segment_can_be_created() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, config) = evil(dir.path());
    let (log, _) = open_on(&config, &disk).unwrap();
    // Below three quarters of the segment, so that no other is being prepared meanwhile.
    append_wait(&log, 1, 0..7, 1000);
    // Only the small seal record fits, no further segment.
    disk.set_space(Some(4000));
    log.truncate_after(4).unwrap();
    assert_holds(&log, 0..5, 1000);
    assert!(matches!(
        append(&log, vec![frame(2, 5, b"x")]),
        Err(LogError::Full { .. })
    ));
    log.close();
    let (log, _) = open_on(&config, &disk).unwrap();
    assert_holds(&log, 0..5, 1000);
    disk.set_space(None);
    append_wait(&log, 2, 5..10, 1000);
    assert_holds(&log, 0..10, 1000);
    log.close();
    let (log, _) = open_on(&config, &disk).unwrap();
    assert_holds(&log, 0..10, 1000);
}

#[test]
fn a_failed_sync_is_fatal_and_never_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, config) = evil(dir.path());
    let (log, _) = open_on(&config, &disk).unwrap();
    let calls = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&calls);
    log.on_fatal(Box::new(move |error| {
        assert!(error.to_string().contains(".seg"), "{error}");
        counter.fetch_add(1, Ordering::SeqCst);
    }));
    append_wait(&log, 1, 0..3, 100);
    disk.fail_sync_after(0);
    let receiver = append(&log, vec![frame(1, 3, &body(3, 100))]).unwrap();
    let failed = outcome(&receiver).unwrap_err();
    assert!(matches!(failed, LogError::Failed { .. }), "{failed}");
    assert!(failed.to_string().contains("cannot sync"), "{failed}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(log.durable_index(), 2);
    // The disk is well again, but the log must not trust it.
    assert!(matches!(
        append(&log, vec![frame(1, 4, b"")]),
        Err(LogError::Failed { .. })
    ));
    assert!(matches!(log.save_vote(b"v"), Err(LogError::Failed { .. })));
    assert!(matches!(log.reserve(1), Err(LogError::Failed { .. })));
    assert!(matches!(
        log.truncate_after(0),
        Err(LogError::Failed { .. })
    ));
    assert_eq!(calls.load(Ordering::SeqCst), 1, "the hook is called once");
    log.close();
    for seed in 0..4 {
        disk.lose_unsynced(seed).unwrap();
        let (log, _) = open_on(&config, &disk).unwrap();
        let last = log.last().unwrap().1;
        assert!(last == 2 || last == 3, "{last}");
        log.close();
    }
}

#[test]
fn a_failed_sync_of_the_vote_is_fatal() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, config) = evil(dir.path());
    let (log, _) = open_on(&config, &disk).unwrap();
    log.on_fatal(Box::new(|_| {}));
    log.save_vote(b"one").unwrap();
    disk.fail_sync_after(0);
    log.save_vote(b"two").unwrap_err();
    assert!(matches!(
        log.save_vote(b"two"),
        Err(LogError::Failed { .. })
    ));
}

#[test]
fn appends_do_not_wait_for_a_sync_and_share_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, config) = evil(dir.path());
    let (log, _) = open_on(&config, &disk).unwrap();
    append_wait(&log, 1, 0..1, 100);
    let before = log.stats();
    disk.hold_syncs();
    let first = append(&log, vec![frame(1, 1, &body(1, 100))]).unwrap();
    disk.wait_for_held_sync();
    let rest: Vec<_> = (2..50)
        .map(|index| append(&log, vec![frame(1, index, &body(index, 100))]).unwrap())
        .collect();
    assert_holds(&log, 0..50, 100);
    assert!(first.try_recv().is_err(), "acknowledged before its sync");
    assert_eq!(log.durable_index(), 0);
    disk.free_syncs();
    outcome(&first).unwrap();
    rest.iter().for_each(|receiver| outcome(receiver).unwrap());
    let after = log.stats();
    assert_eq!(
        after.fsyncs - before.fsyncs,
        2,
        "one for the first, one for all that waited"
    );
    assert_eq!(after.writes - before.writes, 2);
}

#[test]
fn the_real_disk_reports_a_locked_directory_only_while_locked() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let first = open(&config).unwrap();
    assert!(matches!(open(&config), Err(LogError::Locked { .. })));
    drop(first);
    assert!(open(&config).is_ok());
}
