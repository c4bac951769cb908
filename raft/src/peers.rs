//! What a node tells its peers and its listeners of the cluster, and what it answers when peers
//! ask. Consensus answers for itself (`consensus/serve.rs`); this file holds the rest together.

use std::io;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use queen_engine::cluster::{ClusterView, MemberView};
use queen_engine::ids::TimeUs;
use queen_engine::port::{BoxFuture, BrokerAddress};
use tokio::sync::mpsc;

use crate::catch_up::{fetch::Fetcher, source::Source};
use crate::cluster::card::Card;
use crate::cluster::listener::Peers;
use crate::cluster::{Cluster, kind};
use crate::consensus::Served;
use crate::node::Inner;
use crate::replicator::Role;

/// Entries a voter may lack and still be in sync: about what is on its way under load.
const IN_SYNC_LAG_MAX: u64 = 256;

impl Inner {
    /// This node's card as of now.
    pub(crate) fn card(&self, cluster: &Cluster) -> Card {
        let identity = cluster.identity();
        let role = self.replicator.role();
        let last = self.replicator.last();
        let kafka = self.kafka.read().clone();
        let leads = self.leader.is_leading();
        Card {
            id: identity.node_id,
            generation: identity.generation,
            cluster: identity.cluster,
            pristine: last.is_none() && role.term == 0,
            peers: cluster.config.peers.keys().copied().collect(),
            raft_address: cluster.config.address.clone(),
            kafka_host: kafka.kafka_host,
            kafka_port: kafka.kafka_port,
            http: self.http.read().clone(),
            rack: kafka.rack,
            term: role.term,
            leads,
            last_index: last.map_or(0, |at| at.index),
            applied: self.applied_index(),
            disk_bytes: self.replicator.disk_bytes(),
            disk_free: self.disk_free(),
            in_sync: match leads {
                true => self.in_sync(),
                false => Vec::new(),
            },
            clock: self.clock.now().0,
        }
    }

    /// Takes note of a peer's card.
    pub(crate) fn take_card(&self, cluster: &Cluster, card: Card) {
        let role = self.replicator.role();
        if card.leads && card.term >= role.term && !role.is_leader && !self.leader.is_leading() {
            self.clock.follow(TimeUs(card.clock));
        }
        cluster.note_card(card);
    }

    pub(crate) fn applied_index(&self) -> u64 {
        self.applier.applied().borrow().map_or(0, |at| at.index)
    }

    fn disk_free(&self) -> u64 {
        let Some(dir) = &self.data_dir else { return 0 };
        rustix::fs::statvfs(dir).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Ids of all voters.
    pub(crate) fn voters(&self) -> Vec<i32> {
        let members = self.replicator.members().into_iter();
        let mut ids: Vec<i32> = members
            .filter(|member| member.voter)
            .map(|member| member.id)
            .collect();
        ids.sort_unstable();
        ids
    }

    /// Ids of the voters that keep up, as the leader knows or has told.
    pub(crate) fn in_sync(&self) -> Vec<i32> {
        let Some(cluster) = &self.cluster else {
            return vec![self.node_id];
        };
        let role = self.replicator.role();
        if !role.is_leader {
            let told = role.leader.and_then(|leader| cluster.card(leader));
            return match told {
                Some((card, _)) if !card.in_sync.is_empty() => card.in_sync,
                Some(_) | None => role.leader.into_iter().collect(),
            };
        }
        let matched = self.replicator.matched();
        let lately: Vec<i32> = cluster.cards_lately().iter().map(|card| card.id).collect();
        let keeps_up = |id: &i32| {
            *id == self.node_id
                || lately.contains(id)
                    && matched
                        .get(id)
                        .is_some_and(|at| at + IN_SYNC_LAG_MAX >= role.committed)
        };
        self.voters().into_iter().filter(keeps_up).collect()
    }

    /// Members that have told where Kafka clients reach them and were heard lately, by id.
    pub(crate) fn brokers(&self) -> Vec<BrokerAddress> {
        let mut brokers = vec![self.kafka.read().clone()];
        if let Some(cluster) = &self.cluster {
            let members = self.replicator.members();
            let cards = cluster.cards_lately().into_iter();
            let told = cards.filter(|card| card.kafka_port != 0);
            let told = told.filter(|card| members.iter().any(|member| member.id == card.id));
            brokers.extend(told.map(|card| kafka_of(&card)));
        }
        brokers.sort_by_key(|broker| broker.id);
        brokers
    }

    /// Where the leader's HTTP listener is, when that is another node.
    pub(crate) fn leader_http(&self, role: &Role) -> Option<String> {
        let leader = role.leader.filter(|id| *id != self.node_id)?;
        let (card, _) = self.cluster.as_ref()?.card(leader)?;
        (!card.http.is_empty()).then_some(card.http)
    }

    /// Whether this node serves: it leads with a majority behind it, or follows and keeps up.
    pub(crate) fn serves(&self) -> bool {
        let role = self.replicator.role();
        if role.stopped.is_some() || (role.is_leader && !self.leader.is_leading()) {
            return false;
        }
        match self.cluster {
            None => self.leader.is_leading(),
            Some(_) => self.replicator.in_touch(),
        }
    }

    /// The cluster as of now.
    pub(crate) fn cluster_view(&self) -> ClusterView {
        let role = self.replicator.role();
        let in_sync = self.in_sync();
        let members: Vec<MemberView> = self
            .replicator
            .members()
            .into_iter()
            .map(|member| {
                let mut view = MemberView {
                    id: member.id,
                    raft_address: member.address,
                    generation: member.generation,
                    voter: member.voter,
                    in_sync: in_sync.contains(&member.id),
                    ..MemberView::default()
                };
                self.fill(&mut view);
                view
            })
            .collect();
        ClusterView {
            node_id: self.node_id,
            cluster_id: self.cluster_text(),
            term: role.term,
            leader: role.leader,
            committed: role.committed,
            applied: self.applied_index(),
            quorum: role.leader.is_some() && self.replicator.in_touch(),
            waits_for: self
                .cluster
                .as_ref()
                .and_then(|cluster| cluster.waits_for()),
            members,
        }
    }

    /// Adds what a member has told of itself.
    fn fill(&self, view: &mut MemberView) {
        if view.id == self.node_id {
            view.kafka = Some(self.kafka.read().clone());
            let http = self.http.read().clone();
            view.http = (!http.is_empty()).then_some(http);
            view.heard_ms_ago = Some(0);
            view.last_index = Some(self.replicator.last().map_or(0, |at| at.index));
            view.applied = Some(self.applied_index());
            view.disk_bytes = Some(self.replicator.disk_bytes());
            view.disk_free = Some(self.disk_free());
            return;
        }
        let heard = self
            .cluster
            .as_ref()
            .and_then(|cluster| cluster.card(view.id));
        let Some((card, at)) = heard else { return };
        let ago = at.elapsed().as_millis();
        view.heard_ms_ago = Some(u64::try_from(ago).unwrap_or(u64::MAX));
        view.last_index = Some(card.last_index);
        view.applied = Some(card.applied);
        view.disk_bytes = Some(card.disk_bytes);
        view.disk_free = Some(card.disk_free);
        view.kafka = (card.kafka_port != 0).then(|| kafka_of(&card));
        view.http = (!card.http.is_empty()).then_some(card.http);
    }

    /// The cluster's id as Kafka clients see it.
    pub(crate) fn cluster_text(&self) -> String {
        match &self.cluster {
            Some(cluster) => cluster.identity().cluster_text(),
            None => self.cluster_id.clone(),
        }
    }
}

fn kafka_of(card: &Card) -> BrokerAddress {
    BrokerAddress {
        id: card.id,
        kafka_host: card.kafka_host.clone(),
        kafka_port: card.kafka_port,
        rack: card.rack.clone(),
    }
}

/// What this node answers to its peers.
pub(crate) struct Desk {
    pub inner: Arc<Inner>,
    pub cluster: Arc<Cluster>,
    pub served: Served,
    pub source: Arc<Source>,
    pub fetcher: Arc<Fetcher>,
}

impl Desk {
    fn take(&self, body: &Bytes, from: i32) -> io::Result<Vec<Bytes>> {
        let fault = || io::Error::new(io::ErrorKind::InvalidData, "a card cannot be read");
        let card = Card::decode(body)
            .filter(|card| card.id == from)
            .ok_or_else(fault)?;
        self.inner.take_card(&self.cluster, card);
        Ok(vec![self.inner.card(&self.cluster).encode().into()])
    }

    /// A leader no longer has what this node lacks before `wanted`.
    fn install(&self, from: i32, body: Bytes) -> io::Result<Vec<Bytes>> {
        let wanted = Served::wanted(body)?;
        // What is applied was committed: there is only one entry at its place.
        let has = wanted.is_none_or(|wanted| self.inner.applied_index() >= wanted.index);
        if !has {
            self.fetcher.clone().begin(from)?;
        }
        Ok(Served::has(has))
    }

    fn join(&self, mut body: Bytes) -> io::Result<Vec<Bytes>> {
        let whose = body.try_get_u128_le().map_err(io::Error::other)?;
        self.cluster.adopt(whose).map_err(io::Error::other)?;
        Ok(Vec::new())
    }
}

fn at_once(answer: io::Result<Vec<Bytes>>) -> BoxFuture<io::Result<Vec<Bytes>>> {
    Box::pin(std::future::ready(answer))
}

impl Peers for Desk {
    fn answer(&self, from: i32, kind: u8, body: Bytes) -> BoxFuture<io::Result<Vec<Bytes>>> {
        match kind {
            kind::CARD => at_once(self.take(&body, from)),
            kind::FORM => at_once(self.join(body)),
            kind::SUBMIT => Box::pin(self.inner.clone().submitted(body)),
            kind::INSTALL => at_once(self.install(from, body)),
            kind::MANIFEST => Box::pin(self.source.clone().manifest(body)),
            kind::PIECE => Box::pin(self.source.clone().piece(body)),
            _ => self.served.answer(kind, body).unwrap_or_else(|| {
                let text = format!("a question of kind {kind} is not known here");
                at_once(Err(io::Error::new(io::ErrorKind::Unsupported, text)))
            }),
        }
    }

    fn appends(
        &self,
        _from: i32,
        requests: mpsc::Receiver<Bytes>,
        answers: mpsc::Sender<Vec<Bytes>>,
    ) -> BoxFuture<()> {
        self.served.appends(requests, answers)
    }
}
