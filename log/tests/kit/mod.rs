//! What the tests of the log share: small configurations, frames and waiting for completion.
#![allow(dead_code, reason = "every test binary uses a part of it")]

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bytes::Bytes;
use queen_log::storage::evil::EvilStorage;
use queen_log::{FrameIn, Log, LogConfig, LogError, Recovered};

/// A tiny log.
pub fn config(dir: &Path) -> LogConfig {
    LogConfig {
        segment_bytes: 16 << 10,
        ..LogConfig::new(dir, 7)
    }
}

/// Opens on the real disk with tiny segments.
pub fn open(config: &LogConfig) -> Result<(Log, Recovered), LogError> {
    Log::open_with(
        config.clone(),
        std::sync::Arc::new(queen_log::storage::FsStorage),
    )
}

pub fn frame(term: u64, index: u64, payload: &[u8]) -> FrameIn {
    FrameIn {
        kind: 1,
        term,
        index,
        payload: vec![Bytes::copy_from_slice(payload)],
    }
}

/// A payload that depends on the index and has the given length.
pub fn body(index: u64, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (index as usize * 31 + at) as u8)
        .collect()
}

/// Appends and returns where the outcome will arrive.
pub fn append(log: &Log, frames: Vec<FrameIn>) -> Result<Receiver<Result<(), LogError>>, LogError> {
    let (sender, receiver) = channel();
    log.append(
        frames,
        Box::new(move |outcome| {
            drop(sender.send(outcome));
        }),
    )?;
    Ok(receiver)
}

/// Waits for an outcome; a lost callback fails the test instead of hanging it.
pub fn outcome(receiver: &Receiver<Result<(), LogError>>) -> Result<(), LogError> {
    receiver
        .recv_timeout(Duration::from_secs(60))
        .expect("the callback was never called")
}

/// Appends frames of one term and waits until they are durable.
pub fn append_wait(log: &Log, term: u64, indexes: std::ops::Range<u64>, len: usize) {
    for index in indexes {
        let receiver = append(log, vec![frame(term, index, &body(index, len))]).unwrap();
        outcome(&receiver).unwrap();
    }
}

/// Asserts that exactly these indexes are held, with the payloads of `append_wait`.
pub fn assert_holds(log: &Log, indexes: std::ops::Range<u64>, len: usize) {
    assert_eq!(log.first_index(), indexes.start);
    assert_eq!(
        log.last().map(|(_, index)| index),
        indexes.end.checked_sub(1)
    );
    for index in indexes.clone() {
        let read = log.read(index).unwrap().expect("a frame");
        assert_eq!(read.index, index);
        assert_eq!(read.payload, body(index, len), "payload of {index}");
    }
    assert!(log.read(indexes.end).unwrap().is_none());
}

/// A hostile disk and a tiny log on it, both below `dir`.
pub fn evil(dir: &Path) -> (EvilStorage, LogConfig) {
    let graves = dir.join("graves");
    std::fs::create_dir_all(&graves).unwrap();
    (EvilStorage::new(graves), config(&dir.join("log")))
}

pub fn open_on(config: &LogConfig, disk: &EvilStorage) -> Result<(Log, Recovered), LogError> {
    Log::open_hooked(
        config.clone(),
        std::sync::Arc::new(disk.clone()),
        Box::new(|_| {}),
    )
}
