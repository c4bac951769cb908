//! The fuzz target `segment` over a segment the log wrote, and its neighbours.

#[path = "../../fuzz/mutate.rs"]
mod mutate;

use bytes::Bytes;
use queen_log::{FrameIn, Log, LogConfig};

#[test]
fn a_written_segment_and_its_neighbours() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = Log::open(LogConfig::new(dir.path(), 1)).unwrap();
    let frames = (1..=20)
        .map(|index| FrameIn {
            kind: 1,
            term: 1 + index / 7,
            index,
            payload: vec![Bytes::from(vec![index as u8; index as usize * 37])],
        })
        .collect();
    let (told, durable) = std::sync::mpsc::channel();
    log.append(frames, Box::new(move |result| told.send(result).unwrap()))
        .unwrap();
    durable.recv().unwrap().unwrap();
    let segment = log.segments().remove(0);
    let mut bytes = std::fs::read(&segment.path).unwrap();
    bytes.truncate(usize::try_from(segment.bytes).unwrap() + 256);
    mutate::run("segment", &[bytes], |bytes| {
        let _ = queen_log::recover_bytes(bytes);
    });
}
