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
    Serve(Box<ServeArgs>),
    /// Look at a cluster and change who is in it.
    Cluster(ClusterArgs),
}

/// Options of `queen cluster`.
#[derive(Clone, Debug, Args)]
pub struct ClusterArgs {
    /// HTTP address of any node of the cluster
    #[arg(
        long,
        env = "QUEEN_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:6632",
        global = true
    )]
    pub url: String,
    #[command(subcommand)]
    pub action: ClusterAction,
}

/// What to do with a cluster.
#[derive(Clone, Debug, Subcommand)]
pub enum ClusterAction {
    /// Show every member: role, lag, disk, addresses. Exit status 1 without a quorum.
    Status,
    /// Take in a node that runs with an empty data directory; returns when it votes.
    Add {
        /// Its --node-id
        id: i32,
        /// Where it listens for its peers (its --raft-listen)
        #[arg(value_name = "HOST:PORT")]
        address: String,
    },
    /// Take a node out, whether it runs or not.
    Remove {
        /// Its --node-id
        id: i32,
    },
    /// Hand leadership to a node, or to the one that is furthest.
    Transfer {
        /// The --node-id of the node that is to lead
        to: Option<i32>,
    },
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
    /// All nodes of a new cluster with the addresses where they listen for each other, this one
    /// included: 1=host1:7632,2=host2:7632,3=host3:7632. The same on every node.
    #[arg(long, env = "QUEEN_PEERS", value_name = "LIST")]
    pub peers: Option<String>,
    /// Address for the other nodes [default: this node's in --peers]
    #[arg(long, env = "QUEEN_RAFT_LISTEN", value_name = "HOST:PORT")]
    pub raft_listen: Option<String>,
    /// What the nodes of a cluster have in common and strangers do not know; required unless all of
    /// them are on this machine. Better given as QUEEN_CLUSTER_SECRET or in queen.toml: others can
    /// see a command line.
    #[arg(
        long,
        env = "QUEEN_CLUSTER_SECRET",
        value_name = "TEXT",
        hide_env_values = true
    )]
    pub cluster_secret: Option<String>,
    /// Address where the other nodes reach this node's HTTP listener [default: the listen address,
    /// with this node's host in --peers for a wildcard]
    #[arg(long, env = "QUEEN_HTTP_ADVERTISE", value_name = "HOST:PORT")]
    pub http_advertise: Option<String>,
    /// Rack or zone of this node, told to Kafka clients
    #[arg(long, env = "QUEEN_RACK", value_name = "NAME")]
    pub rack: Option<String>,
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

/// What to do.
#[derive(Clone, Debug)]
pub enum Task {
    Serve(Box<ServeArgs>),
    Cluster(ClusterArgs),
}

/// Parses the arguments; a mistake ends the process with status 2 and a line that names it.
pub fn parse() -> Task {
    let cli = Cli::parse();
    match cli.command {
        Some(Command::Serve(arguments)) => Task::Serve(arguments),
        Some(Command::Cluster(arguments)) => Task::Cluster(arguments),
        None => Task::Serve(Box::new(cli.serve)),
    }
}
