//! The HTTP loaders: plain sockets that stay open, one request at a time on each.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::payload::{self, Book, Lanes, Pace, Payloads};
use crate::report::{self, Latency};

#[derive(Args, Clone)]
pub struct Load {
    #[arg(long)]
    pub http: String,
    #[arg(long)]
    pub topic: String,
    #[arg(long)]
    pub messages: u64,
    #[arg(long, default_value_t = 256)]
    pub size: usize,
    #[arg(long, default_value_t = 10_000)]
    pub lanes: u64,
    /// Connections that push; each owns its lanes.
    #[arg(long, default_value_t = 10)]
    pub writers: u64,
    /// Connections that pop and ack.
    #[arg(long, default_value_t = 4)]
    pub readers: u64,
    #[arg(long, default_value_t = 100)]
    pub batch: u64,
    #[arg(long, default_value_t = 64)]
    pub pop_partitions: u64,
    #[arg(long, default_value_t = 100)]
    pub pop_batch: u64,
    /// Messages per second over all connections; 0 is as fast as possible.
    #[arg(long, default_value_t = 0.0)]
    pub rate: f64,
    #[arg(long, default_value = "bench")]
    pub group: String,
    /// Every lane whose number this divides is leased and never acked; 0 is none.
    #[arg(long, default_value_t = 0)]
    pub stuck_every: u64,
    /// Several connections may have written one lane: check that everything is there once, not in which order.
    #[arg(long)]
    pub unordered: bool,
    #[arg(long, default_value_t = 120)]
    pub limit_s: u64,
}

impl Load {
    fn lane_map(&self) -> Lanes {
        Lanes { lanes: self.lanes, writers: self.writers }
    }

    fn stuck(&self, lane: u64) -> bool {
        self.stuck_every > 0 && lane % self.stuck_every == 0
    }

    /// Messages in lanes that are not stuck.
    fn expected(&self) -> u64 {
        if self.stuck_every == 0 {
            return self.messages;
        }
        (0..self.messages).filter(|n| !self.stuck(self.lane_map().of(*n))).count() as u64
    }
}

/// One keep-alive connection.
pub struct Connection {
    stream: BufReader<TcpStream>,
    head: Vec<u8>,
    host: String,
    pub body: Vec<u8>,
}

impl Connection {
    pub fn open(to: &str) -> Result<Connection> {
        let stream = TcpStream::connect(to).with_context(|| format!("connect {to}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Connection {
            stream: BufReader::with_capacity(64 * 1024, stream),
            head: Vec::new(),
            host: to.to_owned(),
            body: Vec::new(),
        })
    }

    /// Sends a request; the answer's body is in `self.body`.
    pub fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> Result<u16> {
        self.head.clear();
        write!(self.head, "{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.host)?;
        if method == "POST" {
            write!(self.head, "Content-Type: application/json\r\nContent-Length: {}\r\n", body.len())?;
        }
        self.head.extend_from_slice(b"\r\n");
        self.head.extend_from_slice(body);
        self.stream.get_mut().write_all(&self.head)?;
        self.answer()
    }

    fn answer(&mut self) -> Result<u16> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status: u16 = line.split(' ').nth(1).and_then(|s| s.parse().ok()).with_context(|| format!("answer {line:?}"))?;
        let (mut length, mut chunked) = (0usize, false);
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            let text = line.trim_end();
            if text.is_empty() {
                break;
            }
            let (name, value) = text.split_once(':').unwrap_or((text, ""));
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse()?;
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                chunked = value.trim().eq_ignore_ascii_case("chunked");
            }
        }
        self.body.clear();
        if !chunked {
            self.body.resize(length, 0);
            self.stream.read_exact(&mut self.body)?;
            return Ok(status);
        }
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            let size = usize::from_str_radix(line.trim(), 16)?;
            let at = self.body.len();
            self.body.resize(at + size, 0);
            self.stream.read_exact(&mut self.body[at..])?;
            line.clear();
            self.stream.read_line(&mut line)?;
            if size == 0 {
                return Ok(status);
            }
        }
    }
}

#[derive(Deserialize)]
struct Popped<'a> {
    #[serde(borrow)]
    messages: Vec<One<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct One<'a> {
    transaction_id: &'a str,
    partition_id: &'a str,
    lease_id: &'a str,
    partition: &'a str,
    #[serde(borrow)]
    data: &'a RawValue,
}

/// One writer: its share of the batches, each due at its own time.
fn write(load: &Load, writer: u64, pace: &Pace, started: Instant, stop: &AtomicBool) -> Result<(u64, Latency)> {
    let mut connection = Connection::open(&load.http)?;
    let payloads = Payloads::new(load.size);
    let lanes = load.lane_map();
    let (mut body, mut name, mut latency, mut acked) = (Vec::new(), Vec::new(), Latency::new(), 0);
    // Numbers of this writer: writer, writer + writers, ...
    let own = load.messages / load.writers + u64::from(writer < load.messages % load.writers);
    let mut at = 0;
    while at < own {
        let count = load.batch.min(own - at);
        // The batch is due with its first message.
        let due = pace.due(at * load.writers + writer * load.batch);
        if pace.open() {
            Pace::wait(due);
        }
        body.clear();
        body.extend_from_slice(b"{\"items\":[");
        for index in at..at + count {
            let n = index * load.writers + writer;
            if index > at {
                body.push(b',');
            }
            payload::lane_name(&mut name, lanes.of(n));
            write!(body, "{{\"queue\":\"{}\",\"partition\":\"", load.topic)?;
            body.extend_from_slice(&name);
            body.extend_from_slice(b"\",\"payload\":");
            payloads.write(&mut body, n, due);
            body.push(b'}');
        }
        body.extend_from_slice(b"]}");
        loop {
            let status = connection.ask("POST", "/api/v1/push", &body)?;
            match status {
                201 => break,
                429 | 503 if !payload::past(started, load.limit_s) => std::thread::sleep(Duration::from_millis(5)),
                _ => bail!("push: {status} {}", String::from_utf8_lossy(&connection.body[..connection.body.len().min(300)])),
            }
        }
        let queued = connection.body.windows(9).filter(|w| w == b"\"queued\",").count() as u64;
        if queued != count {
            bail!("{queued} of {count} queued");
        }
        latency.note(due);
        acked += count;
        at += count;
        if stop.load(Relaxed) || payload::past(started, load.limit_s) {
            bail!("gave up");
        }
    }
    Ok((acked, latency))
}

/// One reader: pops and acks until all readers together have everything.
fn read(
    load: &Load, book: &Mutex<Book>, expected: u64, started: Instant, calls: &AtomicU64,
) -> Result<(Latency, Latency)> {
    let mut connection = Connection::open(&load.http)?;
    let path = format!(
        "/api/v1/pop/queue/{}?partitions={}&batch={}&wait=true&timeout=500&consumerGroup={}&subscriptionMode=all&leaseSeconds=60",
        load.topic, load.pop_partitions, load.pop_batch, load.group
    );
    let (mut e2e, mut step, mut acks, mut popped) = (Latency::new(), Latency::new(), Vec::new(), Vec::new());
    while book.lock().unwrap().count < expected {
        if payload::past(started, load.limit_s) {
            bail!("{} of {} delivered within {} s", book.lock().unwrap().count, expected, load.limit_s);
        }
        let asked = payload::now_ns();
        calls.fetch_add(1, Relaxed);
        match connection.ask("GET", &path, b"")? {
            204 => continue,
            200 => {}
            status => bail!("pop: {status} {}", String::from_utf8_lossy(&connection.body)),
        }
        std::mem::swap(&mut popped, &mut connection.body);
        let answer: Popped<'_> = serde_json::from_slice(&popped)?;
        acks.clear();
        let mut acked = 0;
        write!(acks, "{{\"consumerGroup\":\"{}\",\"acknowledgments\":[", load.group)?;
        {
            let mut book = book.lock().unwrap();
            for one in &answer.messages {
                if load.stuck_every > 0 && load.stuck(payload::lane_number(one.partition.as_bytes())) {
                    continue;
                }
                if let Some(due) = book.note(one.partition.as_bytes(), one.data.get().as_bytes()) {
                    e2e.note(due);
                }
                write!(
                    acks,
                    "{}{{\"transactionId\":\"{}\",\"partitionId\":\"{}\",\"leaseId\":\"{}\",\"status\":\"completed\"}}",
                    if acked > 0 { "," } else { "" },
                    one.transaction_id, one.partition_id, one.lease_id
                )?;
                acked += 1;
            }
        }
        if acked == 0 {
            continue;
        }
        acks.extend_from_slice(b"]}");
        let status = connection.ask("POST", "/api/v1/ack/batch", &acks)?;
        if status != 200 {
            bail!("ack: {status} {}", String::from_utf8_lossy(&connection.body));
        }
        let done = connection.body.windows(14).filter(|w| w == b"\"success\":true").count();
        if done < acked {
            bail!("{done} of {acked} acks taken: {}", String::from_utf8_lossy(&connection.body[..connection.body.len().min(300)]));
        }
        step.note(asked);
    }
    Ok((e2e, step))
}

struct Done {
    acked: u64,
    push: Latency,
    e2e: Latency,
    step: Latency,
    book: Book,
    pops: u64,
    push_seconds: f64,
    seconds: f64,
}

fn run(load: &Load, writers: bool, readers: bool) -> Result<Done> {
    let started = Instant::now();
    let stop = AtomicBool::new(false);
    let calls = AtomicU64::new(0);
    let pace = Pace::new(load.rate);
    let book = Mutex::new(Book::new(load.lane_map(), load.messages));
    let expected = load.expected();
    let (mut acked, mut push, mut e2e, mut step) = (0, Latency::new(), Latency::new(), Latency::new());
    let mut push_seconds = 0.0;
    std::thread::scope(|scope| -> Result<()> {
        let reading: Vec<_> = (0..if readers { load.readers } else { 0 })
            .map(|_| scope.spawn(|| read(load, &book, expected, started, &calls)))
            .collect();
        let (pace, stop) = (&pace, &stop);
        let writing: Vec<_> = (0..if writers { load.writers } else { 0 })
            .map(|writer| scope.spawn(move || write(load, writer, pace, started, stop)))
            .collect();
        let mut trouble = None;
        for one in writing {
            match one.join().ok().context("a writer panicked")? {
                Ok((count, latency)) => {
                    acked += count;
                    push.add(&latency);
                }
                Err(error) => {
                    stop.store(true, Relaxed);
                    trouble.get_or_insert(error);
                }
            }
        }
        push_seconds = started.elapsed().as_secs_f64();
        for one in reading {
            match one.join().ok().context("a reader panicked")? {
                Ok((more_e2e, more_step)) => {
                    e2e.add(&more_e2e);
                    step.add(&more_step);
                }
                Err(error) => {
                    trouble.get_or_insert(error);
                }
            }
        }
        trouble.map_or(Ok(()), Err)
    })?;
    let book = book.into_inner().unwrap();
    let seconds = started.elapsed().as_secs_f64();
    Ok(Done { acked, push, e2e, step, book, pops: calls.load(Relaxed), push_seconds, seconds })
}

pub fn push(load: &Load) -> Result<Value> {
    let done = run(load, true, false)?;
    Ok(json!({"acked": done.acked, "seconds": done.seconds, "per_second": done.acked as f64 / done.seconds,
        "push": done.push.json(), "ok": done.acked == load.messages}))
}

pub fn drain(load: &Load) -> Result<Value> {
    let done = run(load, false, true)?;
    let mut answer = report::of_book(&done.book, load.expected(), done.seconds);
    if load.unordered {
        answer["ok"] = json!(done.book.count == load.expected() && done.book.twice == 0);
    }
    answer["step"] = done.step.json();
    answer["pops"] = json!(done.pops);
    Ok(answer)
}

pub fn flow(load: &Load) -> Result<Value> {
    let done = run(load, true, true)?;
    let mut answer = report::of_book(&done.book, load.expected(), done.seconds);
    answer["acked"] = json!(done.acked);
    answer["push"] = done.push.json();
    answer["push_seconds"] = json!(done.push_seconds);
    answer["e2e"] = done.e2e.json();
    answer["step"] = done.step.json();
    answer["pops"] = json!(done.pops);
    answer["ok"] = json!(answer["ok"] == json!(true) && done.acked == load.messages);
    Ok(answer)
}
