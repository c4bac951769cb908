//! Open-loop loaders for the benchmark. Each subcommand does one bounded thing and prints one line of JSON; it ends with 1
//! when something that was acknowledged did not come back, came back twice, or out of its lane's order.

mod http;
mod idle;
mod kafka;
mod payload;
mod raw;
mod report;
mod step;

use clap::{Parser, Subcommand};

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Kafka: send and wait for every acknowledgement.
    Produce(kafka::Load),
    /// Kafka: read everything and check it.
    Consume(kafka::Load),
    /// Kafka: send at a rate and read at the same time.
    Both(kafka::Load),
    /// HTTP: push in batches.
    Push(http::Load),
    /// HTTP: pop and ack until everything is there.
    Drain(http::Load),
    /// HTTP: push, pop and ack at the same time.
    Flow(http::Load),
    /// HTTP: transactions of an ack, ten pushes, a key and a timer.
    Steps(http::Load),
    /// Kafka: fetch over a plain socket, counting only.
    Fetch(raw::Raw),
    /// Holds idle connections and parked pops.
    Idle(idle::Idle),
}

fn main() -> anyhow::Result<()> {
    let value = match Cli::parse().what {
        What::Produce(load) => kafka::produce(&load),
        What::Consume(load) => kafka::consume(&load),
        What::Both(load) => kafka::both(&load),
        What::Push(load) => http::push(&load),
        What::Drain(load) => http::drain(&load),
        What::Flow(load) => http::flow(&load),
        What::Steps(load) => step::steps(&load),
        What::Fetch(raw) => raw::fetch(&raw),
        What::Idle(idle) => idle::hold(&idle),
    }?;
    println!("{value}");
    if value["ok"] != serde_json::json!(true) {
        std::process::exit(1);
    }
    Ok(())
}
