//! Command line arguments. Every option is also `QUEEN_<NAME>` in the environment and a key of
//! `queen.toml`; what they mean is explained here, what is valid is decided in `config.rs`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Transactional event broker with one ordered lane per entity.
///
/// Kafka clients on port 9092, HTTP on port 6632, one binary, no configuration needed.
#[derive(Debug, Parser)]
#[command(name = "queen", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the broker (what `queen` alone does).
    Serve(ServeArgs),
}

/// Options of `queen serve`.
#[derive(Clone, Debug, Default, Args)]
pub struct ServeArgs {
    /// Configuration file; `queen.toml` in the working directory is read when it exists.
    #[arg(long, env = "QUEEN_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory that holds everything the broker keeps [default: ./queen-data]
    #[arg(long, env = "QUEEN_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Address for Kafka clients [default: 127.0.0.1:9092]
    #[arg(long, env = "QUEEN_KAFKA_LISTEN", value_name = "HOST:PORT")]
    pub kafka_listen: Option<String>,
    /// Address that Kafka clients are told to connect to [default: the listen address]
    #[arg(long, env = "QUEEN_KAFKA_ADVERTISE", value_name = "HOST:PORT")]
    pub kafka_advertise: Option<String>,
    /// Address for HTTP clients [default: 127.0.0.1:6632]
    #[arg(long, env = "QUEEN_HTTP_LISTEN", value_name = "HOST:PORT")]
    pub http_listen: Option<String>,
    /// Number of this node, also its Kafka broker id [default: 1]
    #[arg(long, env = "QUEEN_NODE_ID", value_name = "N")]
    pub node_id: Option<i32>,
    /// Whether an acknowledged write is on disk: always or never [default: always]
    #[arg(long, env = "QUEEN_FSYNC", value_name = "WHEN")]
    pub fsync: Option<String>,
    /// Kafka partitions of a topic made without a width [default: 16]
    #[arg(long, env = "QUEEN_DEFAULT_PARTITIONS", value_name = "N")]
    pub default_partitions: Option<u32>,
    /// Size of a log segment; a number of bytes, 1 MiB to 1 GiB [default: 268435456]
    #[arg(long, env = "QUEEN_SEGMENT_BYTES", value_name = "BYTES")]
    pub segment_bytes: Option<u64>,
    /// Log lines for people or for machines: text or json [default: text]
    #[arg(long, env = "QUEEN_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// What is logged, as a tracing filter [default: info,openraft=error]
    #[arg(long, env = "QUEEN_LOG", value_name = "FILTER")]
    pub log: Option<String>,
}

/// Parses the arguments; a mistake ends the process with status 2 and a line that names it.
pub fn parse() -> ServeArgs {
    let cli = Cli::parse();
    match cli.command {
        Some(Command::Serve(arguments)) => arguments,
        None => cli.serve,
    }
}
