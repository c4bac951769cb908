//! The `queen` binary: twenty lines that hand over. Read `cli.rs` (arguments), `config.rs` (one
//! struct out of flags, environment and file), `boot.rs` (what starts in which order and stops in
//! reverse), `peers.rs` (who is in the cluster), `cluster.rs` (`queen cluster`).

mod boot;
mod cli;
mod cluster;
mod config;
mod peers;
mod signals;
mod telemetry;

/// Always on: a hostile array length in a Kafka frame makes the codec reserve address space, which
/// this allocator grants without touching memory, so decoding fails instead of the process.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    let arguments = match cli::parse() {
        cli::Task::Serve(arguments) => *arguments,
        cli::Task::Cluster(arguments) => return cluster::run(&arguments),
    };
    match config::resolve(arguments) {
        Ok(config) => boot::serve(config),
        Err(error) => {
            eprintln!("queen: {error}");
            std::process::ExitCode::from(2)
        }
    }
}
