//! How the first cluster comes to be: when all nodes of `--peers` have been heard, none of them has
//! a past and all were started with the same list, the one with the lowest id gives the cluster its
//! name, tells the others, and makes them its voters. Everything before the last step can be
//! repeated. Afterwards: says what a node without a leader waits for, and, on the leader, takes note
//! in the group of members that are reached elsewhere now.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::card::Card;
use super::handshake::Purpose;
use super::{Cluster, Links, kind};
use crate::node::Inner;
use crate::replicator::Member;

const BETWEEN: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(3);
const CATCHING_UP: &str = "the leader to send what was written";

/// Runs until the task is aborted.
pub(crate) async fn run(inner: Arc<Inner>, links: Arc<Links>) {
    let cluster = links.cluster.clone();
    loop {
        let members = inner.replicator.members();
        let waits_for = match members.is_empty() {
            true => match look(&inner.card(&cluster), &cluster) {
                Look::Wait(what) => Some(what),
                Look::Form => form(&inner, &links).await.err(),
            },
            false => leaderless(&inner, &cluster, &members),
        };
        cluster.set_waits_for(waits_for);
        if inner.leader.is_leading() {
            follow_moves(&inner, &cluster, members).await;
        }
        tokio::time::sleep(BETWEEN).await;
    }
}

enum Look {
    Wait(String),
    /// This node is the one to do it, and now.
    Form,
}

fn list(ids: impl IntoIterator<Item = i32>) -> String {
    let ids: Vec<String> = ids.into_iter().map(|id| id.to_string()).collect();
    ids.join(", ")
}

/// What a node without a past makes of what it has heard.
fn look(ours: &Card, cluster: &Cluster) -> Look {
    let cards = cluster.cards_lately();
    let past = |card: &&Card| card.cluster != 0 && !card.pristine;
    if let Some(there) = cards.iter().find(past) {
        return Look::Wait(match ours.cluster == there.cluster {
            true => CATCHING_UP.to_string(),
            false => format!(
                "`queen cluster add {} {}` on one of its nodes: the peers have formed their \
                 cluster without this node",
                ours.id, ours.raft_address
            ),
        });
    }
    let missing: Vec<String> = ours
        .peers
        .iter()
        .filter(|id| **id != ours.id && !cards.iter().any(|card| card.id == **id))
        .map(|id| {
            let address = cluster.address_of(*id).unwrap_or_default();
            match cluster.failure(*id) {
                Some(why) => format!("{id} at {address} ({why})"),
                None => format!("{id} at {address}"),
            }
        })
        .collect();
    if !missing.is_empty() {
        return Look::Wait(format!("peer {}", missing.join(", peer ")));
    }
    if let Some(other) = cards.iter().find(|card| card.peers != ours.peers) {
        return Look::Wait(format!(
            "the same --peers everywhere: this node has {}, node {} has {}",
            list(ours.peers.iter().copied()),
            other.id,
            list(other.peers.iter().copied())
        ));
    }
    let lowest = ours.peers.iter().min().copied().unwrap_or(ours.id);
    if lowest != ours.id {
        return Look::Wait(format!("node {lowest} to form the cluster"));
    }
    Look::Form
}

async fn form(inner: &Arc<Inner>, links: &Arc<Links>) -> Result<(), String> {
    let cluster = &links.cluster;
    if cluster.identity().cluster == 0 {
        // 0 stands for none.
        let name = rand::random::<u128>().max(1);
        cluster.adopt(name).map_err(|error| error.to_string())?;
    }
    let identity = cluster.identity();
    let mut members = vec![Member {
        id: identity.node_id,
        address: cluster.config.address.clone(),
        generation: identity.generation,
        voter: true,
    }];
    for peer in cluster.others() {
        let body = vec![Bytes::copy_from_slice(&identity.cluster.to_le_bytes())];
        let link = links.get(peer, Purpose::Fast);
        link.ask(kind::FORM, body, PATIENCE)
            .await
            .map_err(|error| format!("node {peer}: {error}"))?;
        let Some((card, _)) = cluster.card(peer) else {
            return Err(format!("node {peer} to say who it is"));
        };
        members.push(Member {
            id: peer,
            address: card.raft_address,
            generation: card.generation,
            voter: true,
        });
    }
    let ids = list(members.iter().map(|member| member.id));
    inner.replicator.form(members).await?;
    tracing::info!(members = ids, "cluster formed");
    Ok(())
}

/// Members that were started with another address than the group knows.
async fn follow_moves(inner: &Inner, cluster: &Cluster, members: Vec<Member>) {
    let mut moved = Vec::new();
    for member in members {
        let address = match member.id == inner.node_id {
            true => Some(cluster.config.address.clone()),
            false => cluster.card(member.id).map(|(card, _)| card.raft_address),
        };
        let Some(address) = address.filter(|now| !now.is_empty() && *now != member.address) else {
            continue;
        };
        moved.push(Member { address, ..member });
    }
    if moved.is_empty() {
        return;
    }
    let ids = list(moved.iter().map(|member| member.id));
    match inner.replicator.move_to(moved).await {
        Ok(()) => tracing::info!(members = ids, "members are reached elsewhere now"),
        Err(error) => tracing::debug!(members = ids, %error, "new addresses not noted yet"),
    }
}

/// What a member that does not serve waits for.
fn leaderless(inner: &Inner, cluster: &Cluster, members: &[Member]) -> Option<String> {
    let role = inner.replicator.role();
    let lately: Vec<i32> = cluster.cards_lately().iter().map(|card| card.id).collect();
    let there = |id: &i32| *id == inner.node_id || lately.contains(id);
    // A leader that is silent is remembered for a while, and is none.
    if role.leader.is_some_and(|leader| there(&leader)) {
        return match role.is_leader || inner.replicator.in_touch() {
            true => None,
            false => Some(CATCHING_UP.to_string()),
        };
    }
    let voters: Vec<i32> = members
        .iter()
        .filter(|member| member.voter)
        .map(|member| member.id)
        .collect();
    let silent: Vec<i32> = voters.iter().copied().filter(|id| !there(id)).collect();
    Some(match voters.len() - silent.len() > voters.len() / 2 {
        true => "an election".to_string(),
        false => format!(
            "a majority of the {} voters; not heard: {}",
            voters.len(),
            list(silent)
        ),
    })
}
