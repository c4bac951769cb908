//! Measures appends: `cargo run --release --example throughput -- DIR [FRAME_BYTES] [fsync|never]`.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use bytes::Bytes;
use queen_log::{FrameIn, Log, LogConfig};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("a directory is needed")?;
    let frame_bytes: usize = arguments.next().as_deref().unwrap_or("65536").parse()?;
    let fsync = arguments.next().is_none_or(|mode| mode != "never");
    let (log, _) = Log::open(LogConfig {
        fsync,
        ..LogConfig::new(dir, 1)
    })?;
    let payload = Bytes::from(vec![7; frame_bytes]);
    let mut index = log.last().map_or(1, |(_, last)| last + 1);
    let (sender, receiver) = channel();
    let append = |index: u64| {
        let sender = sender.clone();
        let started = Instant::now();
        log.append(
            vec![FrameIn {
                kind: 1,
                term: 1,
                index,
                payload: vec![payload.clone()],
            }],
            Box::new(move |outcome| drop(sender.send(outcome.map(|()| started.elapsed())))),
        )
    };
    // One at a time.
    let mut waits = Vec::new();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(2) {
        append(index)?;
        index += 1;
        waits.push(receiver.recv()??);
    }
    waits.sort_unstable();
    let median = waits[waits.len() / 2];
    let high = waits[waits.len() * 99 / 100];
    println!(
        "alone: {} appends, p50 {median:?}, p99 {high:?}",
        waits.len()
    );
    // As many as the log takes.
    let (first, before, start) = (index, log.stats(), Instant::now());
    while start.elapsed() < Duration::from_secs(5) {
        append(index)?;
        index += 1;
    }
    let mut waits = Vec::new();
    for _ in first..index {
        waits.push(receiver.recv()??);
    }
    let (seconds, after) = (start.elapsed().as_secs_f64(), log.stats());
    waits.sort_unstable();
    let count = (index - first) as f64;
    println!(
        "flood: {:.0} frames/s, {:.1} MB/s, {} fsyncs, {:.2} ms each, p50 {:?}, p99 {:?}",
        count / seconds,
        (after.bytes_written - before.bytes_written) as f64 / seconds / 1e6,
        after.fsyncs - before.fsyncs,
        (after.fsync_nanos_total - before.fsync_nanos_total) as f64
            / 1e6
            / (after.fsyncs - before.fsyncs).max(1) as f64,
        waits[waits.len() / 2],
        waits[waits.len() * 99 / 100],
    );
    let (slices, start) = (2_000_000_u64, Instant::now());
    for at in 0..slices {
        let bytes = log.slice(
            first + at * 7919 % (index - first),
            0,
            frame_bytes.min(61) as u32,
        )?;
        std::hint::black_box(bytes);
    }
    println!(
        "slice: {:.0} ns",
        start.elapsed().as_nanos() as f64 / slices as f64
    );
    Ok(())
}
