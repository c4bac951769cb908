//! Who is in the group: forming it, changing it, handing leadership over, and letting go of old
//! entries. Changes follow engine.md 3.8: a node joins as one that only receives, votes when it has
//! caught up, and one change is made at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use openraft::ChangeMembers;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ClientWriteError, RaftError};
use queen_engine::cluster::{ClusterChange, ClusterRefusal};
use queen_engine::port::Failure;
use tokio::time::{Instant, sleep, timeout};

use super::OurRaft;
use super::types::Peer;
use crate::cluster::handshake::Purpose;
use crate::cluster::{Links, kind, link};
use crate::replicator::Member;

/// How long openraft may take to take a snapshot's place or to let go of entries.
const PURGE_WAIT: Duration = Duration::from_secs(10);
/// How long a change may wait for a majority.
const CHANGE_WAIT: Duration = Duration::from_secs(30);
/// How long a new member may make no progress.
const STALL_MAX: Duration = Duration::from_secs(60);
/// Entries a new member may lack when it becomes a voter.
const LAG_MAX: u64 = 64;
/// How long a new leader may take.
const TRANSFER_WAIT: Duration = Duration::from_secs(3);
/// How often something is looked at that is waited for.
const LOOK: Duration = Duration::from_millis(20);

type Change = ChangeMembers<u64, Peer>;

/// Makes these the members of a new group.
pub async fn form(raft: &OurRaft, members: Vec<Member>) -> Result<(), String> {
    let nodes: BTreeMap<u64, Peer> = members
        .into_iter()
        .map(|member| {
            let peer = Peer {
                address: member.address,
                generation: member.generation,
            };
            (u64::from(member.id.unsigned_abs()), peer)
        })
        .collect();
    raft.initialize(nodes)
        .await
        .map_err(|error| error.to_string())
}

/// How far each member's log is known to be the leader's; empty unless this node leads.
pub fn matched(raft: &OurRaft) -> BTreeMap<i32, u64> {
    let metrics = raft.data_metrics();
    let metrics = metrics.borrow_watched();
    let Some(replication) = &metrics.replication else {
        return BTreeMap::new();
    };
    let known = |(id, at): (&u64, &Option<super::types::LogId>)| {
        Some((
            i32::try_from(*id).ok()?,
            at.as_ref().map_or(0, |at| at.index),
        ))
    };
    replication.iter().filter_map(known).collect()
}

/// Lets go of entries up to `last`, the end of a sealed segment.
pub async fn purge(raft: &OurRaft, last: u64) -> Result<(), String> {
    let mut metrics = raft.data_metrics();
    let fail = |error: &dyn std::fmt::Display| error.to_string();
    // openraft lets go of nothing that its snapshot does not cover.
    raft.trigger().snapshot().await.map_err(|e| fail(&e))?;
    let mut asked = false;
    let work = async {
        loop {
            let (covered, gone) = {
                let now = metrics.borrow_watched();
                let index = |id: &Option<super::types::LogId>| id.as_ref().map_or(0, |id| id.index);
                (index(&now.snapshot), index(&now.purged))
            };
            if gone >= last {
                return Ok(());
            }
            if covered >= last && !asked {
                asked = true;
                raft.trigger().purge_log(last).await.map_err(|e| fail(&e))?;
            }
            metrics.changed().await.map_err(|e| fail(&e))?;
        }
    };
    match timeout(PURGE_WAIT, work).await {
        Ok(done) => done,
        // A follower that is being served may hold it back; the next image tries again.
        Err(_) => Err("openraft still needs it".to_string()),
    }
}

fn leads(raft: &OurRaft, id: u64) -> bool {
    raft.server_metrics().borrow_watched().current_leader == Some(id) && raft.is_leader()
}

fn not_leader(leader: Option<u64>) -> ClusterRefusal {
    let leader = leader.and_then(|id| i32::try_from(id).ok());
    ClusterRefusal::Failed(Failure::NotLeader { leader })
}

async fn apply(raft: &OurRaft, change: Change, retain: bool) -> Result<(), ClusterRefusal> {
    match timeout(CHANGE_WAIT, raft.change_membership(change, retain)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward)))) => {
            Err(not_leader(forward.leader_id))
        }
        Ok(Err(RaftError::APIError(ClientWriteError::ChangeMembershipError(error)))) => {
            Err(ClusterRefusal::Invalid(error.to_string()))
        }
        Ok(Err(RaftError::APIError(_))) => Err(ClusterRefusal::Failed(Failure::Timeout)),
        Ok(Err(RaftError::Fatal(_))) => Err(ClusterRefusal::Failed(Failure::Stopping)),
        Err(_) => Err(ClusterRefusal::Unreachable(
            "no majority of the cluster has confirmed the change; it may still come about"
                .to_string(),
        )),
    }
}

/// Carries out a change.
pub async fn change(
    raft: &OurRaft,
    links: &Links,
    id: u64,
    change: ClusterChange,
) -> Result<(), ClusterRefusal> {
    if !leads(raft, id) {
        return Err(not_leader(
            raft.server_metrics().borrow_watched().current_leader,
        ));
    }
    match change {
        ClusterChange::Add { id, raft_address } => add(raft, links, id, raft_address).await,
        ClusterChange::Remove { id: gone } => remove(raft, gone).await,
        ClusterChange::Transfer { to } => transfer(raft, links, id, to).await,
    }
}

fn invalid<T>(text: String) -> Result<T, ClusterRefusal> {
    Err(ClusterRefusal::Invalid(text))
}

async fn add(
    raft: &OurRaft,
    links: &Links,
    new: i32,
    address: String,
) -> Result<(), ClusterRefusal> {
    let unreachable = |error: io::Error| {
        ClusterRefusal::Unreachable(format!(
            "node {new} is not reached at {address}: {error}; it must run there with \
             --node-id {new} and --raft-listen"
        ))
    };
    let Ok(key) = u64::try_from(new) else {
        return invalid(format!("{new} cannot be the id of a node; ids begin at 1"));
    };
    let cluster = &links.cluster;
    let known = cluster.member(new);
    if known.as_ref().is_some_and(|known| known.voter) {
        return invalid(format!("node {new} is a member already"));
    }
    let dialled = link::dial(cluster, &address, Purpose::Fast).await;
    let (_, theirs) = dialled.map_err(unreachable)?;
    if theirs.node_id != new {
        return invalid(format!("{address} is node {}, not {new}", theirs.node_id));
    }
    cluster.invite(new, &address);
    let whose = cluster.identity().cluster.to_le_bytes();
    let body = vec![bytes::Bytes::copy_from_slice(&whose)];
    let fast = links.get(new, Purpose::Fast);
    let asked = fast.ask(kind::FORM, body, Duration::from_secs(3)).await;
    asked.map_err(unreachable)?;
    if known.is_none() {
        let peer = Peer {
            address: address.clone(),
            generation: theirs.generation,
        };
        apply(raft, Change::AddNodes(BTreeMap::from([(key, peer)])), true).await?;
    }
    catch_up(raft, new).await?;
    apply(raft, Change::AddVoterIds(BTreeSet::from([key])), true).await
}

/// Waits until a new member holds nearly everything.
async fn catch_up(raft: &OurRaft, new: i32) -> Result<(), ClusterRefusal> {
    let mut best = None;
    let mut since = Instant::now();
    loop {
        let committed = raft.data_metrics().borrow_watched().local_committed;
        let committed = committed.map_or(0, |id| id.index);
        let Some(at) = matched(raft).get(&new).copied() else {
            return Err(not_leader(None));
        };
        if at > 0 && at + LAG_MAX >= committed {
            return Ok(());
        }
        if best.is_none_or(|best| best < at) {
            (best, since) = (Some(at), Instant::now());
        }
        if since.elapsed() > STALL_MAX {
            return Err(ClusterRefusal::Unreachable(format!(
                "node {new} makes no progress at entry {at} of {committed}; it receives, but does \
                 not vote yet. Repeat the command when it runs again"
            )));
        }
        sleep(LOOK).await;
    }
}

async fn remove(raft: &OurRaft, gone: i32) -> Result<(), ClusterRefusal> {
    let key = u64::from(gone.unsigned_abs());
    let membership = raft
        .server_metrics()
        .borrow_watched()
        .membership_config
        .clone();
    let membership = membership.membership();
    let voters: Vec<u64> = membership.voter_ids().collect();
    if membership.get_node(&key).is_none() {
        return invalid(format!("node {gone} is no member"));
    }
    if voters == [key] {
        return invalid(format!(
            "node {gone} is the last one; a cluster has at least one"
        ));
    }
    let ids = BTreeSet::from([key]);
    match voters.contains(&key) {
        true => apply(raft, Change::RemoveVoters(ids), false).await,
        false => apply(raft, Change::RemoveNodes(ids), false).await,
    }
}

/// The other voter whose log is furthest, among those that are there.
fn furthest(raft: &OurRaft, id: u64, alive: &[u64]) -> Option<u64> {
    let matched = matched(raft);
    let reach = |voter: &u64| {
        i32::try_from(*voter)
            .ok()
            .and_then(|voter| matched.get(&voter).copied())
    };
    raft.voter_ids()
        .filter(|voter| *voter != id && alive.contains(voter))
        .max_by_key(reach)
}

async fn transfer(
    raft: &OurRaft,
    links: &Links,
    id: u64,
    to: Option<i32>,
) -> Result<(), ClusterRefusal> {
    let alive = links.cluster.others_lately();
    let target = match to {
        None => match furthest(raft, id, &alive) {
            Some(target) => target,
            None => {
                return Err(ClusterRefusal::Unreachable(
                    "no other voter is there to lead".to_string(),
                ));
            }
        },
        Some(to) => {
            let target = u64::from(to.unsigned_abs());
            if !raft.voter_ids().any(|voter| voter == target) {
                return invalid(format!("node {to} is no voter"));
            }
            target
        }
    };
    if target == id {
        return Ok(());
    }
    if !alive.contains(&target) {
        return Err(ClusterRefusal::Unreachable(format!(
            "node {target} was not heard of lately"
        )));
    }
    if hand_to(raft, id, target, TRANSFER_WAIT).await {
        return Ok(());
    }
    Err(ClusterRefusal::Unreachable(format!(
        "node {target} has not taken over"
    )))
}

/// Whether the target (or somebody) took over in time.
async fn hand_to(raft: &OurRaft, id: u64, target: u64, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    let leader = || raft.server_metrics().borrow_watched().current_leader;
    let mut asked_at: Option<Instant> = None;
    while Instant::now() < deadline {
        if leader().is_some_and(|now| now != id) {
            return true;
        }
        // The wish is dropped when the target lacks entries for the moment; ask again.
        if asked_at.is_none_or(|at| at.elapsed() > Duration::from_millis(500)) {
            asked_at = Some(Instant::now());
            if raft.trigger().transfer_leader(target).await.is_err() {
                return false;
            }
        }
        sleep(LOOK).await;
    }
    false
}

/// Hands leadership to the furthest voter, if this node leads.
pub async fn hand_over(raft: &OurRaft, id: u64, alive: &[u64]) {
    if !leads(raft, id) {
        return;
    }
    let Some(target) = furthest(raft, id, alive) else {
        return;
    };
    match hand_to(raft, id, target, TRANSFER_WAIT / 2).await {
        true => tracing::info!(to = target, "leadership handed over"),
        false => tracing::warn!(to = target, "leadership not handed over in time"),
    }
}

/// Tells the group where members are reached now; for the leader.
pub async fn move_to(raft: &OurRaft, moved: Vec<Member>) -> Result<(), ClusterRefusal> {
    let nodes = moved.into_iter().map(|member| {
        let peer = Peer {
            address: member.address,
            generation: member.generation,
        };
        (u64::from(member.id.unsigned_abs()), peer)
    });
    apply(raft, Change::SetNodes(nodes.collect()), true).await
}
