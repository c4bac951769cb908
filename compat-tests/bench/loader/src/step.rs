//! The worker's step over HTTP: ack one message, push ten, put a key, schedule a timer, all as one transaction.

use std::io::Write;
use std::sync::Barrier;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::{Connection, Load};
use crate::payload::{self, Lanes, Pace, Payloads};
use crate::report::Latency;

pub const PUSHES: u64 = 10;

#[derive(Deserialize)]
struct Popped {
    messages: Vec<Held>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Held {
    transaction_id: String,
    partition_id: String,
    lease_id: String,
    partition: String,
    data: Value,
}

/// Leases this connection's share before the clock runs.
fn take(load: &Load, connection: &mut Connection, share: u64, started: Instant) -> Result<Vec<Held>> {
    let path = format!(
        "/api/v1/pop/queue/{}?partitions=64&batch={}&wait=true&timeout=500&consumerGroup={}&subscriptionMode=all&leaseSeconds=300",
        load.topic, share.min(1000), load.group
    );
    let mut held = Vec::new();
    while (held.len() as u64) < share {
        if payload::past(started, load.limit_s) {
            bail!("only {} of {share} popped", held.len());
        }
        match connection.ask("GET", &path, b"")? {
            200 => held.extend(serde_json::from_slice::<Popped>(&connection.body)?.messages),
            204 => break,
            status => bail!("pop: {status}"),
        }
    }
    Ok(held)
}

fn body(out: &mut Vec<u8>, load: &Load, payloads: &Payloads, lanes: Lanes, one: &Held, n: u64, due: u64) -> Result<()> {
    out.clear();
    write!(
        out,
        "{{\"requiredLeases\":[\"{lease}\"],\"operations\":[{{\"type\":\"ack\",\"transactionId\":\"{}\",\"partitionId\":\"{}\",\
         \"leaseId\":\"{lease}\",\"consumerGroup\":\"{}\"}},{{\"type\":\"push\",\"items\":[",
        one.transaction_id, one.partition_id, load.group, lease = one.lease_id
    )?;
    let mut name = Vec::new();
    for index in 0..PUSHES {
        if index > 0 {
            out.push(b',');
        }
        let m = n * PUSHES + index;
        payload::lane_name(&mut name, lanes.of(m));
        write!(out, "{{\"queue\":\"{}-out\",\"partition\":\"", load.topic)?;
        out.extend_from_slice(&name);
        out.extend_from_slice(b"\",\"payload\":");
        payloads.write(out, m, due);
        out.push(b'}');
    }
    write!(
        out,
        "]}}],\"kv\":[{{\"op\":\"put\",\"ns\":\"bench\",\"key\":\"{lane}\",\"value\":{{\"last\":{n}}},\"forever\":true}}],\
         \"timers\":[{{\"op\":\"schedule\",\"queue\":\"{}-later\",\"timerKey\":\"t-{n}\",\"delayMs\":3600000,\
         \"partition\":\"{lane}\",\"payload\":\"eyJ0IjoxfQ==\"}}]}}",
        load.topic, lane = one.partition
    )?;
    Ok(())
}

fn work(load: &Load, worker: u64, workers: u64, ready: &Barrier) -> Result<(u64, Latency, f64)> {
    let started = Instant::now();
    let mut connection = Connection::open(&load.http)?;
    let taken = take(load, &mut connection, load.messages / workers, started);
    ready.wait();
    let held = taken?;
    let pace = Pace::new(load.rate);
    let payloads = Payloads::new(load.size);
    let lanes = Lanes { lanes: load.lanes, writers: 1 };
    let (mut out, mut latency, mut done) = (Vec::new(), Latency::new(), 0);
    let began = Instant::now();
    for (index, one) in held.iter().enumerate() {
        let text = one.data["n"].as_u64().context("a message without a number")?;
        let n = text - 1_000_000_000_000;
        let due = pace.due(index as u64 * workers + worker);
        if pace.open() {
            Pace::wait(due);
        }
        body(&mut out, load, &payloads, lanes, one, n, due)?;
        let status = connection.ask("POST", "/api/v1/transaction", &out)?;
        if status != 200 || !connection.body.windows(14).any(|w| w == b"\"success\":true") {
            bail!("transaction: {status} {}", String::from_utf8_lossy(&connection.body));
        }
        latency.note(due);
        done += 1;
    }
    Ok((done, latency, began.elapsed().as_secs_f64()))
}

/// `readers` workers, each one transaction at a time; at most `messages` of them.
pub fn steps(load: &Load) -> Result<Value> {
    let ready = Barrier::new(load.readers as usize);
    let (mut done, mut latency, mut seconds) = (0, Latency::new(), 0.0f64);
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> =
            (0..load.readers).map(|worker| { let ready = &ready; scope.spawn(move || work(load, worker, load.readers, ready)) }).collect();
        for worker in workers {
            let (count, more, took) = worker.join().ok().context("a worker panicked")??;
            done += count;
            latency.add(&more);
            seconds = seconds.max(took);
        }
        Ok(())
    })?;
    Ok(json!({"steps": done, "seconds": seconds, "per_second": done as f64 / seconds, "step": latency.json(),
        "ok": done > 0}))
}
