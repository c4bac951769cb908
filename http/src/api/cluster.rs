//! The cluster: who is in it and how each member is; to take a node in or out, and to hand
//! leadership over. `queen cluster` on the command line speaks these routes.

use hyper::StatusCode;
use queen_engine::cluster::{ClusterChange, ClusterRefusal, ClusterView, MemberView};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::reply::Reply;
use crate::request::Call;

/// `GET /api/v1/cluster`: as this node knows it.
pub fn status(app: &App) -> Answer {
    Ok(Reply::json(&shown(&app.broker.cluster())))
}

fn shown(cluster: &ClusterView) -> Value {
    let members: Vec<Value> = cluster
        .members
        .iter()
        .map(|member| member_shown(cluster, member))
        .collect();
    json!({
        "clusterId": cluster.cluster_id,
        "node": cluster.node_id,
        "leader": cluster.leader,
        "term": cluster.term,
        "committed": cluster.committed,
        "applied": cluster.applied,
        "quorum": cluster.quorum,
        "waitsFor": cluster.waits_for,
        "members": members,
    })
}

fn member_shown(cluster: &ClusterView, member: &MemberView) -> Value {
    let role = match (cluster.leader == Some(member.id), member.voter) {
        (true, _) => "leader",
        (false, true) => "follower",
        (false, false) => "learner",
    };
    let kafka = member.kafka.as_ref();
    let lag = member
        .last_index
        .map(|last| cluster.committed.saturating_sub(last));
    json!({
        "id": member.id,
        "role": role,
        "voter": member.voter,
        "inSync": member.in_sync,
        "heardMsAgo": member.heard_ms_ago,
        "lastIndex": member.last_index,
        "applied": member.applied,
        "lag": lag,
        "diskBytes": member.disk_bytes,
        "diskFree": member.disk_free,
        "raftAddress": member.raft_address,
        "kafkaAddress": kafka.map(|kafka| format!("{}:{}", kafka.kafka_host, kafka.kafka_port)),
        "rack": kafka.and_then(|kafka| kafka.rack.clone()),
        "httpAddress": member.http,
    })
}

#[derive(Deserialize)]
struct AddBody {
    id: Option<i32>,
    address: Option<String>,
}

/// `POST /api/v1/cluster/nodes` with `{"id", "address"}`: takes a node in; answers when it votes.
pub async fn add(app: &App, call: &Call) -> Answer {
    let body: AddBody = call.json()?;
    let Some(id) = body.id.filter(|id| *id > 0) else {
        return Err(Problem::bad_request("id must be a number from 1"));
    };
    let address = body.address.unwrap_or_default();
    let has_port = address
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if !has_port {
        return Err(Problem::bad_request(
            "address must be HOST:PORT, where the node listens for its peers (--raft-listen)",
        ));
    }
    let change = ClusterChange::Add {
        id,
        raft_address: address,
    };
    carry_out(app, change).await
}

/// `DELETE /api/v1/cluster/nodes/{id}`: takes a node out, whether it runs or not.
pub async fn remove(app: &App, id: &str) -> Answer {
    carry_out(app, ClusterChange::Remove { id: number(id)? }).await
}

#[derive(Deserialize)]
struct TransferBody {
    to: Option<i32>,
}

/// `POST /api/v1/cluster/transfer` with `{"to"?}`: hands leadership to a node.
pub async fn transfer(app: &App, call: &Call) -> Answer {
    let body: TransferBody = call.json()?;
    carry_out(app, ClusterChange::Transfer { to: body.to }).await
}

fn number(id: &str) -> Result<i32, Problem> {
    id.parse()
        .map_err(|_| Problem::bad_request("the id of a node is a number"))
}

async fn carry_out(app: &App, change: ClusterChange) -> Answer {
    match app.broker.change_cluster(change).await {
        Ok(()) => status(app),
        Err(ClusterRefusal::Failed(failure)) => Err(Problem::of(&failure)),
        Err(refusal) => {
            let (status, code) = match refusal {
                ClusterRefusal::Busy => (StatusCode::CONFLICT, "busy"),
                ClusterRefusal::Invalid(_) => (StatusCode::BAD_REQUEST, "bad_request"),
                ClusterRefusal::Unreachable(_) | ClusterRefusal::Failed(_) => {
                    (StatusCode::SERVICE_UNAVAILABLE, "unreachable")
                }
            };
            Err(Problem::new(status, code, refusal.to_string()))
        }
    }
}
