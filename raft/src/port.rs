//! The node as its listeners see it: [`Broker`], answered from the applied state, the log and the
//! queue in front of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use queen_engine::batch::DecodedBatch;
use queen_engine::cluster::{ClusterChange, ClusterRefusal, ClusterView};
use queen_engine::command::Command;
use queen_engine::ids::{BatchRef, TimeUs, TopicId};
use queen_engine::limits::BATCH_DECOMPRESSED_BYTES_MAX;
use queen_engine::names;
use queen_engine::outcome::{Appended, Outcome, Reject};
use queen_engine::port::{
    BoxFuture, Broker, Bundle, BundleDone, BundleRollback, Failure, NodeView, PopAnswer,
    PopRequest, ProduceBatch, PushItem, Pushed, View,
};

use crate::batcher::{PushJob, PushPart, Request};
use crate::node::{Inner, Node};
use crate::pop;
use crate::replicator::Refusal;

impl Inner {
    fn decoded(&self, at: BatchRef) -> Result<Arc<DecodedBatch>, Failure> {
        if let Some(batch) = self.decoded.find(at) {
            return Ok(batch);
        }
        let bytes = self.replicator.read(at)?;
        let batch = DecodedBatch::decode(bytes, BATCH_DECOMPRESSED_BYTES_MAX).map_err(|error| {
            Failure::Storage(format!(
                "batch at entry {} offset {}: {error}",
                at.index, at.offset
            ))
        })?;
        let batch = Arc::new(batch);
        self.decoded.hold(at, &batch);
        Ok(batch)
    }

    /// Gives duplicates the message id that was promised to their original, if one was.
    fn with_promised_id(&self, mut pushed: Pushed) -> Result<Pushed, Failure> {
        if !pushed.duplicate {
            return Ok(pushed);
        }
        let place = self.look(|view| view.index.locate(pushed.lane, pushed.number));
        let Some(place) = place else {
            return Ok(pushed);
        };
        let batch = self.decoded(place.row.at)?;
        let promised = batch
            .record(place.record as usize)
            .and_then(|record| record.headers.get(names::HEADER_MESSAGE_ID.as_bytes()))
            .flatten()
            .and_then(|id| std::str::from_utf8(id).ok());
        if let Some(id) = promised {
            pushed.message_id = id.to_string();
        }
        Ok(pushed)
    }

    async fn push(&self, items: Vec<PushItem>) -> Result<Vec<Result<Pushed, Reject>>, Failure> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let all = (0..items.len()).collect();
        let results = self
            .ask(|reply| {
                let job = Arc::new(PushJob::new(items, reply));
                Request::Push(PushPart {
                    job,
                    items: all,
                    attempts: 0,
                })
            })
            .await?;
        let finish = |result: Result<Pushed, Reject>| match result {
            Ok(pushed) => self.with_promised_id(pushed).map(Ok),
            Err(reject) => Ok(Err(reject)),
        };
        results.into_iter().map(finish).collect()
    }

    async fn barrier(&self) -> Result<(), Failure> {
        let index = self
            .replicator
            .barrier()
            .await
            .map_err(|refusal| match refusal {
                Refusal::NotLeader(leader) => Failure::NotLeader { leader },
                Refusal::NotNow => Failure::NotLeader { leader: None },
                Refusal::Stopped => Failure::Stopping,
            })?;
        let mut applied = self.applier.applied();
        let reached = applied.wait_for(|at| at.is_some_and(|at| at.index >= index));
        match tokio::time::timeout(crate::limits::OUTCOME_WAIT, reached).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(Failure::Stopping),
            Err(_) => Err(Failure::Timeout),
        }
    }
}

impl Broker for Node {
    fn node(&self) -> NodeView {
        let inner = &self.inner;
        let role = inner.replicator.role();
        NodeView {
            id: inner.node_id,
            cluster_id: inner.cluster_text(),
            default_partitions: inner.default_partitions,
            brokers: inner.brokers(),
            replicas: inner.voters(),
            in_sync: inner.in_sync(),
            leader_http: inner.leader_http(&role),
            leader: role.leader,
            is_leader: role.is_leader,
            term: role.term,
            applied: inner.applied_index(),
            committed: role.committed,
            ready: inner.serves(),
            storage_full: inner.batcher.storage_full(),
        }
    }

    fn is_leading(&self) -> bool {
        self.inner.leader.is_leading()
    }

    fn leader_changed(&self) -> BoxFuture<()> {
        let mut roles = self.inner.replicator.roles();
        roles.mark_unchanged();
        Box::pin(async move {
            // A sender that is gone has nothing more to say.
            let _ = roles.changed().await;
        })
    }

    fn cluster(&self) -> ClusterView {
        self.inner.cluster_view()
    }

    fn change_cluster(&self, change: ClusterChange) -> BoxFuture<Result<(), ClusterRefusal>> {
        self.inner.replicator.change(change)
    }

    fn now(&self) -> TimeUs {
        self.inner.clock.now()
    }

    fn view(&self, look: &mut dyn FnMut(View<'_>)) {
        self.inner.look(look);
    }

    fn read(&self, at: BatchRef) -> Result<Bytes, Failure> {
        self.inner.replicator.read(at)
    }

    fn decoded(&self, at: BatchRef) -> Result<Arc<DecodedBatch>, Failure> {
        self.inner.decoded(at)
    }

    fn appended(&self, topics: &[TopicId]) -> BoxFuture<()> {
        self.inner.leader.waiters.poll(topics)
    }

    fn barrier(&self) -> BoxFuture<Result<(), Failure>> {
        let inner = self.inner.clone();
        Box::pin(async move { inner.barrier().await })
    }

    fn submit(&self, command: Command) -> BoxFuture<Result<Outcome, Failure>> {
        let inner = self.inner.clone();
        Box::pin(async move { inner.submit(command).await })
    }

    fn produce(
        &self,
        batches: Vec<ProduceBatch>,
    ) -> BoxFuture<Result<Vec<Result<Appended, Reject>>, Failure>> {
        let inner = self.inner.clone();
        Box::pin(async move {
            if batches.is_empty() {
                return Ok(Vec::new());
            }
            inner.ask(|reply| Request::Produce { batches, reply }).await
        })
    }

    fn push(
        &self,
        items: Vec<PushItem>,
    ) -> BoxFuture<Result<Vec<Result<Pushed, Reject>>, Failure>> {
        let inner = self.inner.clone();
        Box::pin(async move { inner.push(items).await })
    }

    fn transact(
        &self,
        bundle: Bundle,
    ) -> BoxFuture<Result<Result<BundleDone, BundleRollback>, Failure>> {
        let inner = self.inner.clone();
        let bundle = Box::new(bundle);
        Box::pin(async move { inner.ask(|reply| Request::Transact { bundle, reply }).await })
    }

    fn replay(
        &self,
        id: u64,
        copy: PushItem,
    ) -> BoxFuture<Result<Result<Pushed, Reject>, Failure>> {
        let inner = self.inner.clone();
        let copy = Box::new(copy);
        Box::pin(async move { inner.ask(|reply| Request::Replay { id, copy, reply }).await })
    }

    fn pop(&self, pop: PopRequest) -> BoxFuture<Result<PopAnswer, Failure>> {
        Box::pin(pop::pop(self.inner.clone(), pop))
    }

    fn unclaim(&self, group: String, answer: PopAnswer) {
        let Some(lease) = answer.lease else { return };
        let topics: BTreeSet<TopicId> = answer.claims.iter().map(|claim| claim.topic).collect();
        for topic in topics {
            let group = group.clone();
            self.inner.give_back(Command::Unclaim {
                topic,
                group,
                lease,
            });
        }
    }

    fn figures(&self) -> BTreeMap<String, f64> {
        self.collect()
    }
}
