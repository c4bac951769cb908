//! Fetch over a plain socket: what the broker can deliver when the client does nothing but count.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Value, json};

#[derive(Args, Clone)]
pub struct Raw {
    #[arg(long)]
    pub brokers: String,
    #[arg(long)]
    pub topic: String,
    #[arg(long, default_value_t = 16)]
    pub partitions: i32,
    #[arg(long)]
    pub messages: u64,
    /// Connections; each reads its share of the partitions.
    #[arg(long, default_value_t = 2)]
    pub readers: i32,
    #[arg(long, default_value_t = 60)]
    pub limit_s: u64,
}

/// Fetch v4, which both brokers speak and which is easy to write by hand.
fn request(out: &mut Vec<u8>, raw: &Raw, wanted: &[(i32, i64)]) {
    out.clear();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&1i16.to_be_bytes());
    out.extend_from_slice(&4i16.to_be_bytes());
    out.extend_from_slice(&7i32.to_be_bytes());
    out.extend_from_slice(&(-1i16).to_be_bytes());
    out.extend_from_slice(&(-1i32).to_be_bytes());
    out.extend_from_slice(&100i32.to_be_bytes());
    out.extend_from_slice(&1i32.to_be_bytes());
    out.extend_from_slice(&(50i32 << 20).to_be_bytes());
    out.push(0);
    out.extend_from_slice(&1i32.to_be_bytes());
    out.extend_from_slice(&(raw.topic.len() as i16).to_be_bytes());
    out.extend_from_slice(raw.topic.as_bytes());
    out.extend_from_slice(&(wanted.len() as i32).to_be_bytes());
    for (partition, offset) in wanted {
        out.extend_from_slice(&partition.to_be_bytes());
        out.extend_from_slice(&offset.to_be_bytes());
        out.extend_from_slice(&(1i32 << 20).to_be_bytes());
    }
    let length = out.len() as i32 - 4;
    out[..4].copy_from_slice(&length.to_be_bytes());
}

struct Cursor<'a>(&'a [u8]);
impl Cursor<'_> {
    fn take(&mut self, count: usize) -> &[u8] {
        let (head, tail) = self.0.split_at(count);
        self.0 = tail;
        head
    }
    fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.take(2).try_into().unwrap())
    }
    fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap())
    }
    fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.take(8).try_into().unwrap())
    }
}

/// Whole batches only: the next offset and the records seen.
fn walk(mut records: &[u8], from: i64) -> (i64, u64) {
    let (mut next, mut count) = (from, 0);
    while records.len() >= 61 {
        let base = i64::from_be_bytes(records[..8].try_into().unwrap());
        let length = i32::from_be_bytes(records[8..12].try_into().unwrap()) as usize + 12;
        if length > records.len() {
            break;
        }
        next = base + i64::from(i32::from_be_bytes(records[23..27].try_into().unwrap())) + 1;
        count += u64::from(u32::from_be_bytes(records[57..61].try_into().unwrap()));
        records = &records[length..];
    }
    (next, count)
}

fn read(raw: &Raw, mine: Vec<i32>, started: Instant) -> Result<(u64, u64)> {
    let mut stream = TcpStream::connect(&raw.brokers)?;
    stream.set_nodelay(true)?;
    let mut at: Vec<(i32, i64)> = mine.into_iter().map(|partition| (partition, 0)).collect();
    let (mut out, mut answer, mut bytes, mut records, mut empty) = (Vec::new(), Vec::new(), 0u64, 0u64, 0);
    while empty < 3 {
        let mut loading = false;
        if started.elapsed().as_secs() > raw.limit_s {
            bail!("gave up after {records} records");
        }
        request(&mut out, raw, &at);
        stream.write_all(&out)?;
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if answer.len() < length {
            answer.resize(length, 0);
        }
        stream.read_exact(&mut answer[..length])?;
        let mut c = Cursor(&answer[..length]);
        c.take(8);
        let before = records;
        for _ in 0..c.i32() {
            let name = c.i16() as usize;
            c.take(name);
            for _ in 0..c.i32() {
                let (partition, error) = (c.i32(), c.i16());
                // A broker that has just started may not have the partition yet: no such one, no leader, not the leader.
                if !matches!(error, 0 | 3 | 5 | 6) {
                    bail!("fetch error {error}");
                }
                loading |= error != 0;
                c.i64();
                c.i64();
                let aborted = c.i32().max(0) as usize;
                c.take(aborted * 16);
                let size = c.i32().max(0) as usize;
                let Some(slot) = at.iter_mut().find(|(p, _)| *p == partition) else { bail!("partition {partition}") };
                let (next, count) = walk(c.take(size), slot.1);
                slot.1 = next;
                records += count;
                bytes += size as u64;
            }
        }
        if loading {
            std::thread::sleep(std::time::Duration::from_millis(20));
            continue;
        }
        // The last, empty rounds only prove that there is no more; a partition at its end answers at once while others go on.
        empty = if records == before { empty + 1 } else { 0 };
        if records == raw.messages {
            break;
        }
        // Rounds that find everything read do not wait again for each reader.
        at.rotate_left(1);
    }
    Ok((records, bytes))
}

pub fn fetch(raw: &Raw) -> Result<Value> {
    let started = Instant::now();
    let (records, bytes, seconds) = std::thread::scope(|scope| -> Result<_> {
        let threads: Vec<_> = (0..raw.readers)
            .map(|reader| {
                let mine = (0..raw.partitions).filter(|p| p % raw.readers == reader).collect();
                scope.spawn(move || read(raw, mine, started).map(|done| (done, started.elapsed())))
            })
            .collect();
        let (mut records, mut bytes, mut slowest) = (0, 0, 0.0f64);
        for thread in threads {
            let ((more, more_bytes), took) = thread.join().expect("a reader panicked")?;
            records += more;
            bytes += more_bytes;
            // Three empty rounds of 100 ms end a reader that cannot know its total.
            slowest = slowest.max(took.as_secs_f64() - if raw.readers > 1 { 0.3 } else { 0.0 });
        }
        Ok((records, bytes, slowest))
    })?;
    Ok(json!({"records": records, "bytes": bytes, "seconds": seconds, "per_second": records as f64 / seconds,
        "gb_per_second": bytes as f64 / seconds / 1e9, "ok": records == raw.messages}))
}
