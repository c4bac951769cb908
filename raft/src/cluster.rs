//! A node among its peers: who it is, whom it knows, where they are and what they said last. The
//! files under it carry the conversation; consensus itself is in `consensus.rs`.
//!
//! `wire.rs` frames, `handshake.rs` trust, `link.rs` the calling end, `listener.rs` the answering
//! end, `card.rs` what nodes tell of themselves, `gossip.rs` when, `forming.rs` how the first
//! cluster comes to be.

pub mod card;
pub mod forming;
pub mod gossip;
pub mod handshake;
pub mod link;
pub mod listener;
pub mod wire;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use crate::error::StartError;
use crate::identity::Identity;
use crate::replicator::Member;
use card::Card;
use handshake::{Hello, Purpose};
use link::Link;

/// Kinds of frames. An answer has the kind of its question, or [`kind::ERROR`] and a sentence.
pub mod kind {
    /// One append, answered by itself.
    pub const APPEND: u8 = 1;
    pub const VOTE: u8 = 2;
    pub const PRE_VOTE: u8 = 3;
    pub const TRANSFER: u8 = 4;
    /// An append of a session (u64 in front), answered in order.
    pub const STREAM: u8 = 5;
    /// A card; answered with the card of the other.
    pub const CARD: u8 = 10;
    /// A cluster id (u128) to belong to from now on; answered empty.
    pub const FORM: u8 = 11;
    /// A command for the leader; see `forward.rs`.
    pub const SUBMIT: u8 = 12;
    /// Files of the log for a node that lacks too much: manifest, piece, end.
    pub const MANIFEST: u8 = 20;
    pub const PIECE: u8 = 21;
    pub const INSTALL: u8 = 22;
    pub const ERROR: u8 = 255;
}

/// Within this a peer counts as there.
pub const HEARD_LATELY: Duration = Duration::from_millis(2400);

/// How a node finds its peers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterConfig {
    /// All nodes of the first cluster with their addresses, this one included; empty for a node
    /// that is alone.
    pub peers: BTreeMap<i32, String>,
    /// Where this node listens for its peers; `None` for a node that is alone.
    pub listen: Option<std::net::SocketAddr>,
    /// Where its peers reach it, `HOST:PORT`; empty: the address it listens on.
    pub address: String,
    /// What nodes of a cluster have in common. Empty only where every peer is on this machine.
    pub secret: String,
}

struct Heard {
    card: Card,
    at: Instant,
}

/// A node among its peers.
pub struct Cluster {
    pub config: ClusterConfig,
    /// Where the identity lies; absent for a node in memory.
    dir: Option<PathBuf>,
    identity: RwLock<Identity>,
    /// The members as consensus knows them, by id.
    members: RwLock<BTreeMap<i32, Member>>,
    /// Addresses of nodes that are about to be members.
    invited: RwLock<BTreeMap<i32, String>>,
    cards: Mutex<HashMap<i32, Heard>>,
    /// Why a peer could not be reached; told once per reason.
    failures: Mutex<HashMap<i32, String>>,
    waits_for: Mutex<Option<String>>,
}

impl Cluster {
    /// A node that has heard of nobody yet.
    pub fn new(config: ClusterConfig, dir: Option<PathBuf>, identity: Identity) -> Arc<Cluster> {
        Arc::new(Cluster {
            config,
            dir,
            identity: RwLock::new(identity),
            members: RwLock::default(),
            invited: RwLock::default(),
            cards: Mutex::default(),
            failures: Mutex::default(),
            waits_for: Mutex::default(),
        })
    }

    /// Who this node is.
    pub fn identity(&self) -> Identity {
        *self.identity.read()
    }

    /// Belongs to a cluster from now on; durable on return. Refused when it belongs to another.
    pub fn adopt(&self, cluster: u128) -> Result<(), StartError> {
        let mut identity = self.identity.write();
        if identity.cluster == cluster {
            return Ok(());
        }
        if identity.cluster != 0 {
            return Err(StartError::Consensus(
                "this node belongs to another cluster".to_string(),
            ));
        }
        let adopted = Identity {
            cluster,
            ..*identity
        };
        if let Some(dir) = &self.dir {
            adopted.write(dir).map_err(|source| StartError::File {
                what: "cannot write the identity in",
                path: dir.clone(),
                source,
            })?;
        }
        *identity = adopted;
        Ok(())
    }

    /// What this node says of itself when a connection begins.
    pub fn hello(&self, purpose: Purpose) -> Hello {
        let identity = self.identity();
        Hello {
            node_id: identity.node_id,
            group: identity.group,
            cluster: identity.cluster,
            generation: identity.generation,
            purpose,
        }
    }

    /// The key of handshakes.
    pub fn secret(&self) -> &[u8] {
        self.config.secret.as_bytes()
    }

    /// Whether to talk with a node that has proved that it knows the secret; else a sentence for
    /// its operator.
    pub fn judge(&self, theirs: &Hello) -> Result<(), String> {
        let ours = self.identity();
        if theirs.node_id == ours.node_id && theirs.generation != ours.generation {
            return Err(format!(
                "two nodes run with --node-id {}; each needs its own",
                ours.node_id
            ));
        }
        if theirs.group != ours.group {
            return Err(format!(
                "its group is {}, ours {}",
                theirs.group, ours.group
            ));
        }
        if theirs.cluster != ours.cluster && theirs.cluster != 0 && ours.cluster != 0 {
            return Err(format!(
                "node {} and node {} belong to different clusters; a node that is to change its \
                 cluster needs an empty data directory",
                theirs.node_id, ours.node_id
            ));
        }
        match self.members.read().get(&theirs.node_id) {
            Some(member) if member.generation != theirs.generation => Err(format!(
                "node {id} comes with another data directory than the one the cluster knows \
                 (wiped or replaced), and could vote twice; remove it with `queen cluster remove \
                 {id}`, then add it with `queen cluster add {id} HOST:PORT`",
                id = theirs.node_id
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Takes note of the members.
    pub fn set_members(&self, members: Vec<Member>) {
        let members = members.into_iter().map(|member| (member.id, member));
        *self.members.write() = members.collect();
    }

    /// The member of an id.
    pub fn member(&self, id: i32) -> Option<Member> {
        self.members.read().get(&id).cloned()
    }

    /// Takes note of where a node is that is about to be a member.
    pub fn invite(&self, id: i32, address: &str) {
        self.invited.write().insert(id, address.to_string());
    }

    /// Where a node is reached by its peers.
    pub fn address_of(&self, id: i32) -> Option<String> {
        let known = |address: &String| (!address.is_empty()).then(|| address.clone());
        self.members
            .read()
            .get(&id)
            .and_then(|member| known(&member.address))
            .or_else(|| self.invited.read().get(&id).and_then(known))
            .or_else(|| self.config.peers.get(&id).and_then(known))
    }

    /// Ids of all nodes to talk with, without this one.
    pub fn others(&self) -> Vec<i32> {
        let members = self.members.read();
        let mut ids: Vec<i32> = match members.is_empty() {
            true => self.config.peers.keys().copied().collect(),
            false => members.keys().copied().collect(),
        };
        ids.retain(|id| *id != self.identity.read().node_id);
        ids
    }

    /// Takes note of a card.
    pub fn note_card(&self, card: Card) {
        let at = Instant::now();
        self.cards.lock().insert(card.id, Heard { card, at });
    }

    /// The newest card of a node and when it came.
    pub fn card(&self, id: i32) -> Option<(Card, Instant)> {
        self.cards
            .lock()
            .get(&id)
            .map(|heard| (heard.card.clone(), heard.at))
    }

    /// The cards of nodes that were heard lately.
    pub fn cards_lately(&self) -> Vec<Card> {
        let cards = self.cards.lock();
        let lately = cards
            .values()
            .filter(|heard| heard.at.elapsed() < HEARD_LATELY);
        lately.map(|heard| heard.card.clone()).collect()
    }

    /// Ids of other nodes that were heard lately, as consensus has them.
    pub fn others_lately(&self) -> Vec<u64> {
        let ids = self.cards_lately().into_iter().map(|card| card.id);
        ids.map(|id| u64::from(id.unsigned_abs())).collect()
    }

    /// When a node was heard of.
    pub fn heard(&self, id: i32) -> Option<Instant> {
        self.cards.lock().get(&id).map(|heard| heard.at)
    }

    /// Takes note of why a peer cannot be reached; says it when the reason is new.
    pub fn note_failure(&self, peer: i32, error: &io::Error) {
        let text = error.to_string();
        let old = self.failures.lock().insert(peer, text.clone());
        if old.as_ref() != Some(&text) {
            let address = self.address_of(peer);
            tracing::info!(peer, address, error = text, "peer not reached");
        }
    }

    /// Takes note that a peer was reached.
    pub fn note_success(&self, peer: i32) {
        if self.failures.lock().remove(&peer).is_some() {
            tracing::info!(peer, "peer reached");
        }
    }

    /// Why a peer was not reached last time.
    pub fn failure(&self, peer: i32) -> Option<String> {
        self.failures.lock().get(&peer).cloned()
    }

    /// Takes note of what this node waits for; says it when it is new.
    pub fn set_waits_for(&self, what: Option<String>) {
        let mut waits = self.waits_for.lock();
        if *waits == what {
            return;
        }
        match &what {
            Some(what) => tracing::info!("waiting for {what}"),
            None => tracing::info!("waiting for nothing more"),
        }
        *waits = what;
    }

    /// What this node waits for.
    pub fn waits_for(&self) -> Option<String> {
        self.waits_for.lock().clone()
    }
}

/// The links to all peers.
pub struct Links {
    pub cluster: Arc<Cluster>,
    links: Mutex<HashMap<(i32, Purpose), Arc<Link>>>,
}

impl Links {
    /// Links that dial when they are used.
    pub fn new(cluster: Arc<Cluster>) -> Arc<Links> {
        Arc::new(Links {
            cluster,
            links: Mutex::default(),
        })
    }

    /// The link to a peer for a purpose.
    pub fn get(&self, peer: i32, purpose: Purpose) -> Arc<Link> {
        let mut links = self.links.lock();
        links
            .entry((peer, purpose))
            .or_insert_with(|| Arc::new(Link::new(self.cluster.clone(), peer, purpose)))
            .clone()
    }
}
