//! The network of a group of one: there is nobody to call. A group with several members needs the
//! framed transport, which comes with the cluster; until then a membership with other nodes cannot
//! be made ([`super::start`]), so none of these calls happens.

use std::future::Future;
use std::io;

use bytes::Bytes;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::{SnapshotOf, VoteOf};

use super::types::{Peer, TypeConfig};

/// Makes connections to nobody.
pub struct NoPeers;

/// A peer that cannot be reached.
pub struct NoPeer {
    target: u64,
}

impl NoPeer {
    fn unreachable(&self) -> Unreachable<TypeConfig> {
        let text = format!(
            "node {} cannot be reached: this node has no peers",
            self.target
        );
        Unreachable::new(&io::Error::new(io::ErrorKind::NotConnected, text))
    }
}

impl RaftNetworkFactory<TypeConfig> for NoPeers {
    type Network = NoPeer;

    async fn new_client(&mut self, target: u64, _node: &Peer) -> NoPeer {
        NoPeer { target }
    }
}

impl RaftNetworkV2<TypeConfig> for NoPeer {
    type SnapshotData = Bytes;

    async fn append_entries(
        &mut self,
        _rpc: AppendEntriesRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(RPCError::Unreachable(self.unreachable()))
    }

    async fn vote(
        &mut self,
        _rpc: VoteRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(RPCError::Unreachable(self.unreachable()))
    }

    async fn full_snapshot(
        &mut self,
        _vote: VoteOf<TypeConfig>,
        _snapshot: SnapshotOf<TypeConfig, Bytes>,
        _cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        Err(StreamingError::Unreachable(self.unreachable()))
    }
}
