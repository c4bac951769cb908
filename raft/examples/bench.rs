//! Round trips through log, consensus and apply on a directory: `bench [DIR] [SECONDS]`. Prints
//! requests per second and latencies for 1, 16, 64 and 256 callers, with and without fsync.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use queen_engine::command::Command;
use queen_engine::port::{Broker, PushItem};
use queen_raft::{Node, NodeConfig};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments
        .next()
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let seconds = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2.0);
    for fsync in [true, false] {
        let data_dir = dir.join(format!("queen-bench-{}-{fsync}", std::process::id()));
        let config = NodeConfig {
            fsync,
            ..NodeConfig::new(1, &data_dir)
        };
        let node = tokio::task::spawn_blocking(|| Node::start(config)).await;
        let node = node
            .expect("start does not panic")
            .expect("the node starts");
        node.ready().await.expect("the node serves");
        let cpu = cpu_seconds();
        tokio::time::sleep(Duration::from_secs(3)).await;
        println!(
            "fsync {fsync:5} idle: {:.2} % of a core",
            (cpu_seconds() - cpu) / 3.0 * 100.0
        );
        for callers in [1, 16, 64, 256] {
            for kind in [Kind::Submit, Kind::Push] {
                run(
                    &node,
                    callers,
                    kind,
                    Duration::from_secs_f64(seconds),
                    fsync,
                )
                .await;
            }
        }
        node.shutdown().await;
        if let Err(error) = std::fs::remove_dir_all(&data_dir) {
            eprintln!("{} stays: {error}", data_dir.display());
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// An empty command.
    Submit,
    /// One message of 256 bytes.
    Push,
}

async fn run(node: &Arc<Node>, callers: usize, kind: Kind, length: Duration, fsync: bool) {
    let fsyncs = node.figures()["log_fsyncs"];
    let started = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|caller| tokio::spawn(call(node.clone(), caller, kind, started + length)))
        .collect();
    let mut took: Vec<Duration> = Vec::new();
    for task in tasks {
        took.extend(task.await.expect("a caller does not panic"));
    }
    let elapsed = started.elapsed().as_secs_f64();
    took.sort();
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    let flushes = node.figures()["log_fsyncs"] - fsyncs;
    println!(
        "fsync {fsync:5} {kind:?} {callers:4} callers: {:8.0}/s  p50 {:6.3} ms  p99 {:6.3} ms  \
         {:6.1} requests per flush",
        took.len() as f64 / elapsed,
        at(0.5),
        at(0.99),
        took.len() as f64 / flushes.max(1.0),
    );
}

async fn call(node: Arc<Node>, caller: usize, kind: Kind, until: Instant) -> Vec<Duration> {
    let payload = Bytes::from(vec![b'7'; 256]);
    let mut took = Vec::new();
    while Instant::now() < until {
        let started = Instant::now();
        match kind {
            Kind::Submit => {
                node.submit(Command::Kv { ops: Vec::new() })
                    .await
                    .expect("it is submitted");
            }
            Kind::Push => {
                let item = PushItem {
                    queue: "bench".to_string(),
                    lane: format!("lane-{caller}"),
                    payload: payload.clone(),
                    ..PushItem::default()
                };
                node.push(vec![item]).await.expect("it is pushed");
            }
        }
        took.push(started.elapsed());
    }
    took
}

/// Processor time of this process so far, where the system tells.
fn cpu_seconds() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name in parentheses, user and system time are the 12th and 13th field.
    let fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let ticks: f64 = fields
        .skip(11)
        .take(2)
        .filter_map(|text| text.parse::<f64>().ok())
        .sum();
    ticks / TICKS_PER_SECOND
}
