//! One configuration out of flags, environment and file: flags win over the environment, the
//! environment over the file, the file over defaults. Owns every validity rule and its sentence.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use queen_raft::ClusterConfig;
use serde::Deserialize;

use crate::cli::ServeArgs;
use crate::peers;

/// Everything the broker needs to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub data_dir: PathBuf,
    pub kafka_listen: SocketAddr,
    /// `None`: the address the listener is bound to.
    pub kafka_advertise: Option<(String, u16)>,
    pub http_listen: SocketAddr,
    pub http_advertise: Option<(String, u16)>,
    pub node_id: i32,
    /// Who the peers are and where; nothing for a node that is alone.
    pub cluster: ClusterConfig,
    pub rack: Option<String>,
    pub fsync: bool,
    pub default_partitions: u32,
    pub segment_bytes: u64,
    pub json_logs: bool,
    pub log_filter: String,
}

/// The keys of `queen.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    data_dir: Option<PathBuf>,
    kafka_listen: Option<String>,
    kafka_advertise: Option<String>,
    http_listen: Option<String>,
    http_advertise: Option<String>,
    node_id: Option<i32>,
    peers: Option<String>,
    raft_listen: Option<String>,
    cluster_secret: Option<String>,
    rack: Option<String>,
    fsync: Option<String>,
    default_partitions: Option<u32>,
    segment_bytes: Option<u64>,
    log_format: Option<String>,
    log: Option<String>,
}

/// A configuration that cannot be used: one sentence that names the option and what to do.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigError(pub(crate) String);

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

pub(crate) fn error<T>(text: String) -> Result<T, ConfigError> {
    Err(ConfigError(text))
}

/// Resolves arguments and file to a configuration.
pub fn resolve(arguments: ServeArgs) -> Result<Config, ConfigError> {
    let file = read_file(arguments.config.as_deref())?;
    let text = |flag: Option<String>, key: Option<String>, default: &str| {
        flag.or(key).unwrap_or_else(|| default.to_string())
    };
    let kafka_listen = text(arguments.kafka_listen, file.kafka_listen, "127.0.0.1:9092");
    let http_listen = text(arguments.http_listen, file.http_listen, "127.0.0.1:6632");
    let kafka_listen = address("--kafka-listen", &kafka_listen)?;
    let advertise = arguments.kafka_advertise.or(file.kafka_advertise);
    let kafka_advertise = match advertise {
        Some(advertise) => Some(host_port("--kafka-advertise", &advertise)?),
        None if kafka_listen.ip().is_unspecified() => {
            return error(format!(
                "--kafka-listen {kafka_listen} is a wildcard, which clients cannot connect to; \
                 say with --kafka-advertise HOST:PORT how they reach this node"
            ));
        }
        None => None,
    };
    let fsync = match text(arguments.fsync, file.fsync, "always").as_str() {
        "always" => true,
        "never" => false,
        other => return error(format!("--fsync takes always or never, not {other:?}")),
    };
    let json_logs = match text(arguments.log_format, file.log_format, "text").as_str() {
        "text" => false,
        "json" => true,
        other => return error(format!("--log-format takes text or json, not {other:?}")),
    };
    let node_id = arguments.node_id.or(file.node_id).unwrap_or(1);
    if node_id < 1 {
        return error(format!("--node-id takes a number from 1, not {node_id}"));
    }
    let cluster = peers::resolve(
        node_id,
        peers::Wishes {
            peers: arguments.peers.or(file.peers),
            raft_listen: arguments.raft_listen.or(file.raft_listen),
            secret: arguments.cluster_secret.or(file.cluster_secret),
        },
    )?;
    let http_listen = address("--http-listen", &http_listen)?;
    let http_advertise = match arguments.http_advertise.or(file.http_advertise) {
        Some(advertise) => Some(host_port("--http-advertise", &advertise)?),
        None => None,
    };
    if peers::are_elsewhere(&cluster) {
        for (listen, option, advertise, is_told) in [
            (
                kafka_listen,
                "--kafka-listen",
                "--kafka-advertise",
                kafka_advertise.is_some(),
            ),
            (
                http_listen,
                "--http-listen",
                "--http-advertise",
                http_advertise.is_some(),
            ),
        ] {
            if listen.ip().is_loopback() && !is_told {
                return error(format!(
                    "{option} {listen} is reached from this machine only, but this node has peers on \
                     others; listen on an address of the network, or say with {advertise} HOST:PORT \
                     how it is reached"
                ));
            }
        }
    }
    let default_partitions = arguments
        .default_partitions
        .or(file.default_partitions)
        .unwrap_or(16);
    if !(1..=10_000).contains(&default_partitions) {
        return error(format!(
            "--default-partitions takes a number from 1 to 10000, not {default_partitions}"
        ));
    }
    let segment_bytes = arguments
        .segment_bytes
        .or(file.segment_bytes)
        .unwrap_or(256 << 20);
    if !(1 << 20..=1 << 30).contains(&segment_bytes) {
        return error(format!(
            "--segment-bytes takes a number from 1048576 to 1073741824, not {segment_bytes}"
        ));
    }
    Ok(Config {
        data_dir: arguments
            .data_dir
            .or(file.data_dir)
            .unwrap_or_else(|| "queen-data".into()),
        kafka_listen,
        kafka_advertise,
        http_listen,
        http_advertise,
        node_id,
        cluster,
        rack: arguments.rack.or(file.rack).filter(|rack| !rack.is_empty()),
        fsync,
        default_partitions,
        segment_bytes,
        json_logs,
        log_filter: text(arguments.log, file.log, "info,openraft=error"),
    })
}

fn read_file(named: Option<&Path>) -> Result<File, ConfigError> {
    let path = named.unwrap_or(Path::new("queen.toml"));
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if named.is_none() && e.kind() == std::io::ErrorKind::NotFound => {
            return Ok(File::default());
        }
        Err(e) => return error(format!("configuration file {} : {e}", path.display())),
    };
    toml::from_str(&text)
        .map_err(|e| ConfigError(format!("configuration file {}: {e}", path.display())))
}

/// A socket address; a name is looked up.
pub(crate) fn address(option: &str, text: &str) -> Result<SocketAddr, ConfigError> {
    let (host, port) = host_port(option, text)?;
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    match (host.as_str(), port).to_socket_addrs() {
        Ok(mut found) => match found.next() {
            Some(address) => Ok(address),
            None => error(format!("{option} {text:?}: the name has no address")),
        },
        Err(e) => error(format!("{option} {text:?}: {e}")),
    }
}

pub(crate) fn host_port(option: &str, text: &str) -> Result<(String, u16), ConfigError> {
    let parts = text.rsplit_once(':').map(|(host, port)| {
        let host = host
            .strip_prefix('[')
            .and_then(|h| h.strip_suffix(']'))
            .unwrap_or(host);
        (host.to_string(), port.parse::<u16>())
    });
    match parts {
        Some((host, Ok(port))) if !host.is_empty() => Ok((host, port)),
        _ => error(format!("{option} takes HOST:PORT, not {text:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(edit: impl FnOnce(&mut ServeArgs)) -> Result<Config, ConfigError> {
        let mut arguments = ServeArgs::default();
        edit(&mut arguments);
        resolve(arguments)
    }

    #[test]
    fn defaults_need_nothing() {
        let config = resolved(|_| {}).unwrap();
        assert_eq!(config.kafka_listen.to_string(), "127.0.0.1:9092");
        assert_eq!(config.http_listen.to_string(), "127.0.0.1:6632");
        assert!(config.fsync);
    }

    #[test]
    fn a_wildcard_needs_an_advertised_address() {
        let told = resolved(|a| a.kafka_listen = Some("0.0.0.0:9092".into())).unwrap_err();
        assert!(told.to_string().contains("--kafka-advertise"), "{told}");
        let config = resolved(|a| {
            a.kafka_listen = Some("[::]:0".into());
            a.kafka_advertise = Some("broker.example:9092".into());
        });
        assert_eq!(
            config.unwrap().kafka_advertise,
            Some(("broker.example".into(), 9092))
        );
    }

    #[test]
    fn a_node_with_peers_elsewhere_is_reached_by_them() {
        let peers = |a: &mut ServeArgs| {
            a.peers = Some("1=127.0.0.1:71,2=10.1.1.1:72".into());
            a.cluster_secret = Some("s".into());
        };
        let told = resolved(peers).unwrap_err().to_string();
        assert!(told.contains("--kafka-listen"), "{told}");
        let told = resolved(|a| {
            peers(a);
            a.kafka_listen = Some("10.1.1.2:9092".into());
        });
        let told = told.unwrap_err().to_string();
        assert!(told.contains("--http-advertise"), "{told}");
        let config = resolved(|a| {
            peers(a);
            a.kafka_listen = Some("10.1.1.2:9092".into());
            a.http_listen = Some("0.0.0.0:6632".into());
        });
        assert_eq!(config.unwrap().cluster.peers.len(), 2);
    }

    #[test]
    fn a_bad_value_is_named() {
        for (edit, named) in [
            (
                Box::new(|a: &mut ServeArgs| a.fsync = Some("often".into()))
                    as Box<dyn FnOnce(&mut ServeArgs)>,
                "--fsync",
            ),
            (
                Box::new(|a| a.http_listen = Some("nowhere".into())),
                "--http-listen",
            ),
            (Box::new(|a| a.node_id = Some(0)), "--node-id"),
            (Box::new(|a| a.segment_bytes = Some(5)), "--segment-bytes"),
        ] {
            let told = resolved(edit).unwrap_err().to_string();
            assert!(told.contains(named), "{told}");
        }
    }

    #[test]
    fn a_file_gives_what_flags_do_not_and_unknown_keys_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("queen.toml");
        std::fs::write(&path, "node_id = 7\nfsync = \"never\"\n").unwrap();
        let config = resolved(|a| {
            a.config = Some(path.clone());
            a.node_id = Some(9);
        });
        let config = config.unwrap();
        assert_eq!((config.node_id, config.fsync), (9, false));
        std::fs::write(&path, "nodeid = 7\n").unwrap();
        let told = resolved(|a| a.config = Some(path.clone()))
            .unwrap_err()
            .to_string();
        assert!(told.contains("nodeid"), "{told}");
    }
}
