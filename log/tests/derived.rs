//! Purging under readers, seals, sidecars and images.

mod kit;

use std::sync::mpsc::channel;
use std::time::Duration;

use kit::{append_wait, assert_holds, body, config, open};

#[test]
fn purge_drops_whole_sealed_segments_and_readers_keep_theirs() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let (log, _) = open(&config).unwrap();
    append_wait(&log, 1, 0..60, 1000);
    let held: Vec<_> = (0..60)
        .map(|index| log.read(index).unwrap().unwrap())
        .collect();
    let segments = log.segments();
    let second = &segments[1];
    // Not yet complete: the segment stays.
    let first = log.purge_through(second.last_index.unwrap() - 1).unwrap();
    assert_eq!(first, second.first_index);
    let first = log.purge_through(second.last_index.unwrap()).unwrap();
    assert_eq!(first, segments[2].first_index);
    assert_holds(&log, first..60, 1000);
    assert!(log.read(0).unwrap().is_none());
    assert_eq!(
        (log.term_of(first - 1), log.term_of(first)),
        (None, Some(1))
    );
    assert!(!second.path.exists() && !second.path.with_extension("seal").exists());
    // The newest segment is never purged.
    let first = log.purge_through(u64::MAX).unwrap();
    assert_eq!(log.segments().len(), 1);
    assert_holds(&log, first..60, 1000);
    for read in &held {
        assert_eq!(read.payload, body(read.index, 1000));
    }
    log.close();
    let (log, recovered) = open(&config).unwrap();
    assert_eq!(recovered.first_index, first);
    append_wait(&log, 1, 60..80, 1000);
    assert_holds(&log, first..80, 1000);
}

#[test]
fn the_hook_hears_of_each_seal_and_may_write_sidecars() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let (log, _) = open(&config).unwrap();
    let log = std::sync::Arc::new(log);
    let (sender, receiver) = channel();
    let weak = std::sync::Arc::downgrade(&log);
    log.on_seal(Box::new(move |segment| {
        let Some(log) = weak.upgrade() else { return };
        let count = segment.last_index.unwrap() + 1 - segment.first_index;
        log.write_sidecar(segment.no, "lanes", &[b"count ", &count.to_le_bytes()])
            .unwrap();
        sender.send(segment).unwrap();
        // The log must not be dropped on its own thread.
        drop(log);
    }));
    append_wait(&log, 1, 0..40, 1000);
    let sealed: Vec<_> = log
        .segments()
        .into_iter()
        .filter(|segment| segment.sealed)
        .collect();
    for expected in &sealed {
        let segment = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(&segment, expected);
        let sidecar = log.map_sidecar(segment.no, "lanes").unwrap().unwrap();
        assert_eq!(sidecar[..6], *b"count ");
        assert!(log.map_sidecar(segment.no, "other").unwrap().is_none());
    }
}

#[test]
fn damaged_or_stale_sidecars_read_as_absent() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let (log, _) = open(&config).unwrap();
    append_wait(&log, 1, 0..40, 1000);
    let segments = log.segments();
    let (one, two) = (&segments[0], &segments[1]);
    log.write_sidecar(one.no, "lanes", &[b"first"]).unwrap();
    log.write_sidecar(one.no, "lanes", &[b"second"]).unwrap();
    assert_eq!(log.map_sidecar(one.no, "lanes").unwrap().unwrap(), "second");
    assert!(
        log.write_sidecar(segments.last().unwrap().no, "lanes", &[])
            .is_err(),
        "not sealed"
    );
    for name in ["", "seal", "seg", "tmp", "../x", "A", "a.tmp"] {
        assert!(log.write_sidecar(one.no, name, &[]).is_err(), "{name}");
    }
    log.close();

    let path = one.path.with_extension("lanes");
    let intact = std::fs::read(&path).unwrap();
    for at in 0..intact.len() {
        let mut flipped = intact.clone();
        flipped[at] ^= 1;
        std::fs::write(&path, &flipped).unwrap();
        let (log, _) = open(&config).unwrap();
        assert!(
            log.map_sidecar(one.no, "lanes").unwrap().is_none(),
            "flip at {at}"
        );
    }
    std::fs::write(&path, &intact[..30]).unwrap();
    // A sidecar of another segment does not pass.
    std::fs::write(two.path.with_extension("lanes"), &intact).unwrap();
    let (log, _) = open(&config).unwrap();
    assert!(log.map_sidecar(one.no, "lanes").unwrap().is_none());
    assert!(log.map_sidecar(two.no, "lanes").unwrap().is_none());
    // Nor does one from before a truncation.
    log.write_sidecar(two.no, "lanes", &[b"x"]).unwrap();
    log.truncate_after(two.last_index.unwrap() - 1).unwrap();
    assert!(log.map_sidecar(two.no, "lanes").unwrap().is_none());
}

#[test]
fn images_keep_the_newest_two_and_skip_damage() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let (log, _) = open(&config).unwrap();
    assert!(log.images().unwrap().is_empty());
    for index in [5, 10, 20] {
        log.write_image(index, &[b"state ", &[index as u8; 5000]])
            .unwrap();
    }
    let indexes = |log: &queen_log::Log| -> Vec<u64> {
        log.images()
            .unwrap()
            .iter()
            .map(|image| image.index)
            .collect()
    };
    assert_eq!(indexes(&log), [20, 10]);
    assert_eq!(
        log.images().unwrap()[0].bytes[..],
        [&b"state "[..], &[20; 5000]].concat()
    );
    log.close();
    let path = dir.path().join("images").join(format!("{:020}.img", 20));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[3000] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let (log, _) = open(&config).unwrap();
    assert_eq!(indexes(&log), [10]);
}
