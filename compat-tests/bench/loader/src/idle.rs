//! Connections that do nothing: Kafka clients after their first question, and pops that wait.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::http::Connection;

#[derive(Args, Clone)]
pub struct Idle {
    #[arg(long)]
    pub brokers: String,
    #[arg(long, default_value = "")]
    pub http: String,
    #[arg(long)]
    pub kafka_connections: usize,
    #[arg(long, default_value_t = 0)]
    pub pops: usize,
    /// Queues that the pops wait on (`idle-N`, made before).
    #[arg(long, default_value_t = 1)]
    pub topics: usize,
    /// Seconds to hold everything open after the line `holding`.
    #[arg(long, default_value_t = 15)]
    pub seconds: u64,
}

pub fn hold(idle: &Idle) -> Result<Value> {
    let ask = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff];
    let mut kafka = Vec::with_capacity(idle.kafka_connections);
    for _ in 0..idle.kafka_connections {
        let mut stream = TcpStream::connect(&idle.brokers).context("an idle Kafka connection")?;
        stream.write_all(&ask)?;
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut answer)?;
        kafka.push(stream);
    }
    if idle.pops > 0 {
        let mut maker = Connection::open(&idle.http)?;
        for topic in 0..idle.topics {
            let status = maker.ask("POST", "/api/v1/configure", format!("{{\"queue\":\"idle-{topic}\",\"options\":{{}}}}").as_bytes())?;
            if status >= 300 {
                bail!("configure: {status}");
            }
        }
    }
    let mut pops = Vec::with_capacity(idle.pops);
    for index in 0..idle.pops {
        let mut stream = TcpStream::connect(&idle.http).context("a parked pop")?;
        write!(
            stream,
            "GET /api/v1/pop/queue/idle-{}?wait=true&timeout=60000&consumerGroup=idle HTTP/1.1\r\nHost: x\r\n\r\n",
            index % idle.topics
        )?;
        pops.push(stream);
    }
    eprintln!("holding");
    std::thread::sleep(Duration::from_secs(idle.seconds));
    // None may have been answered or closed.
    let mut alive = 0;
    for stream in kafka.iter().chain(&pops) {
        stream.set_nonblocking(true)?;
        let mut byte = [0];
        if matches!(stream.peek(&mut byte), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock) {
            alive += 1;
        }
    }
    Ok(json!({"kafka_connections": kafka.len(), "pops": pops.len(), "alive": alive, "ok": alive == kafka.len() + pops.len()}))
}
