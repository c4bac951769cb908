//! Who the nodes of a cluster are, out of `--peers`, `--raft-listen` and `--cluster-secret`: reads the
//! list, decides where this node listens and how others reach it, and insists on a secret where
//! strangers could come.

use std::collections::BTreeMap;
use std::net::IpAddr;

use queen_raft::ClusterConfig;

use crate::config::{ConfigError, address, error, host_port};

/// The three options as they were given.
#[derive(Debug, Default)]
pub struct Wishes {
    pub peers: Option<String>,
    pub raft_listen: Option<String>,
    pub secret: Option<String>,
}

/// Resolves the options of one node; a node without any of them is alone.
pub fn resolve(node_id: i32, wishes: Wishes) -> Result<ClusterConfig, ConfigError> {
    let peers = match &wishes.peers {
        Some(list) => read(list)?,
        None => BTreeMap::new(),
    };
    let own = peers.get(&node_id).cloned();
    if !peers.is_empty() && own.is_none() {
        return error(format!(
            "--peers does not name this node: add {node_id}=HOST:PORT, or start it with the --node-id \
             it has there"
        ));
    }
    let Some(listen_text) = wishes.raft_listen.clone().or_else(|| own.clone()) else {
        return Ok(ClusterConfig::default());
    };
    let listen = address("--raft-listen", &listen_text)?;
    let reached = match own {
        Some(own) => own,
        None if listen.ip().is_unspecified() => {
            return error(format!(
                "--raft-listen {listen_text} is a wildcard, which peers cannot connect to; say with \
                 --raft-listen HOST:PORT or with --peers how they reach this node"
            ));
        }
        None => listen_text,
    };
    let secret = wishes.secret.unwrap_or_default();
    if secret.is_empty() {
        let mut all = peers.values().chain([&reached]);
        if let Some(stranger) = all.find(|peer| !is_of_this_machine(peer)) {
            return error(format!(
                "--cluster-secret is needed, because {stranger} is not on this machine and whoever \
                 reaches that port could take part; give all nodes the same long random text in \
                 QUEEN_CLUSTER_SECRET"
            ));
        }
        if !listen.ip().is_loopback() {
            return error(format!(
                "--cluster-secret is needed, because {listen} is reached from other machines; give all \
                 nodes the same long random text in QUEEN_CLUSTER_SECRET"
            ));
        }
    }
    Ok(ClusterConfig {
        peers,
        listen: Some(listen),
        address: reached,
        secret,
    })
}

/// Whether some peer is on another machine.
pub fn are_elsewhere(cluster: &ClusterConfig) -> bool {
    cluster.peers.values().any(|peer| !is_of_this_machine(peer))
}

fn read(list: &str) -> Result<BTreeMap<i32, String>, ConfigError> {
    let mut peers = BTreeMap::new();
    for part in list
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let parts = part.split_once('=');
        let id = parts.and_then(|(id, _)| id.trim().parse::<i32>().ok());
        let (Some((_, at)), Some(id @ 1..)) = (parts, id) else {
            return error(format!(
                "--peers takes NUMBER=HOST:PORT,..., and {part:?} is not of this form"
            ));
        };
        let at = at.trim();
        host_port("--peers", at)?;
        if peers.insert(id, at.to_string()).is_some() {
            return error(format!("--peers names node {id} twice"));
        }
        if peers
            .iter()
            .any(|(other, known)| *other != id && known == at)
        {
            return error(format!("--peers has {at} for two nodes"));
        }
    }
    if peers.is_empty() {
        return error("--peers names no node".to_string());
    }
    Ok(peers)
}

fn is_of_this_machine(peer: &str) -> bool {
    let Ok((host, _)) = host_port("--peers", peer) else {
        return false;
    };
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(peers: &str, listen: Option<&str>, secret: &str) -> Result<ClusterConfig, String> {
        let wishes = Wishes {
            peers: (!peers.is_empty()).then(|| peers.to_string()),
            raft_listen: listen.map(str::to_string),
            secret: (!secret.is_empty()).then(|| secret.to_string()),
        };
        resolve(1, wishes).map_err(|error| error.to_string())
    }

    #[test]
    fn a_node_without_peers_is_alone() {
        assert_eq!(resolved("", None, "").unwrap(), ClusterConfig::default());
    }

    #[test]
    fn a_node_listens_where_its_peers_reach_it_unless_told() {
        let list = "1=127.0.0.1:71, 2=localhost:72,3=[::1]:73";
        let cluster = resolved(list, None, "").unwrap();
        assert_eq!(cluster.listen.unwrap().to_string(), "127.0.0.1:71");
        assert_eq!(cluster.address, "127.0.0.1:71");
        assert_eq!(cluster.peers.len(), 3);
        let cluster = resolved("1=q1.example:7632", Some("0.0.0.0:7632"), "s").unwrap();
        assert_eq!(cluster.listen.unwrap().to_string(), "0.0.0.0:7632");
        assert_eq!(cluster.address, "q1.example:7632");
        let joining = resolved("", Some("127.0.0.1:7632"), "").unwrap();
        assert!(joining.peers.is_empty());
        assert_eq!(joining.address, "127.0.0.1:7632");
    }

    #[test]
    fn strangers_need_a_secret() {
        for (peers, listen) in [
            ("1=127.0.0.1:71,2=10.1.2.3:72", None),
            ("1=127.0.0.1:71", Some("0.0.0.0:71")),
            ("", Some("192.0.2.1:71")),
        ] {
            let told = resolved(peers, listen, "").unwrap_err();
            assert!(told.contains("--cluster-secret"), "{told}");
            assert!(resolved(peers, listen, "s").is_ok());
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (peers, listen, named) in [
            ("2=127.0.0.1:72", None, "does not name this node"),
            ("1=127.0.0.1:71,1=127.0.0.1:72", None, "twice"),
            ("1=127.0.0.1:71,2=127.0.0.1:71", None, "two nodes"),
            ("1=127.0.0.1", None, "HOST:PORT"),
            ("one=127.0.0.1:71", None, "NUMBER=HOST:PORT"),
            ("127.0.0.1:71", None, "NUMBER=HOST:PORT"),
            (",", None, "no node"),
            ("", Some("0.0.0.0:71"), "wildcard"),
        ] {
            let told = resolved(peers, listen, "s").unwrap_err();
            assert!(told.contains(named), "{peers}: {told}");
        }
    }
}
