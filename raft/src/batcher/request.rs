//! What waits for a place in the log: one request of a listener or of the node itself, and whom to
//! tell what came of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use queen_engine::command::{Claim, Command};
use queen_engine::outcome::{Appended, Outcome, Reject};
use queen_engine::port::{
    Bundle, BundleDone, BundleRollback, Failure, ProduceBatch, PushItem, Pushed,
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Where an answer goes.
pub type Reply<T> = oneshot::Sender<Result<T, Failure>>;

/// A request for a place in the log.
pub enum Request {
    Command {
        command: Box<Command>,
        reply: Reply<Outcome>,
    },
    Claim {
        claim: Box<Claim>,
        reserved: Reserved,
        reply: Reply<Outcome>,
    },
    Produce {
        batches: Vec<ProduceBatch>,
        reply: Reply<Vec<Result<Appended, Reject>>>,
    },
    Push(PushPart),
    Transact {
        bundle: Box<Bundle>,
        reply: Reply<Result<BundleDone, BundleRollback>>,
    },
    Replay {
        id: u64,
        copy: Box<PushItem>,
        reply: Reply<Result<Pushed, Reject>>,
    },
    Fire {
        queue: String,
        key: String,
        version: u64,
        message: Box<PushItem>,
        reply: Reply<Outcome>,
    },
}

/// Ends a claim's reservations in the scheduler when it is dropped, and knows whether the claim
/// has been offered to the log.
pub struct Reserved {
    pub proposed: Arc<AtomicBool>,
    release: Option<Box<dyn FnOnce(bool) + Send>>,
}

impl Reserved {
    /// A reservation that `release` ends; it is told whether the claim was applied.
    pub fn new(release: impl FnOnce(bool) + Send + 'static) -> Reserved {
        Reserved {
            proposed: Arc::default(),
            release: Some(Box::new(release)),
        }
    }

    /// Ends the reservation: the claim's outcome is known.
    pub fn settle(mut self, applied: bool) {
        if let Some(release) = self.release.take() {
            release(applied);
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release(false);
        }
    }
}

/// Items of one push that are to go into the next entry. Usually all of them; an item whose
/// transaction id is in flight comes later than the others.
pub struct PushPart {
    pub job: Arc<PushJob>,
    /// Indexes into the job's items.
    pub items: Vec<usize>,
    /// How often these items were built for a state that moved on.
    pub attempts: u32,
}

/// One push over HTTP, until all its items are answered.
pub struct PushJob {
    pub items: Vec<PushItem>,
    answers: Mutex<PushAnswers>,
}

struct PushAnswers {
    results: Vec<Option<Result<Pushed, Reject>>>,
    left: usize,
    reply: Option<Reply<Vec<Result<Pushed, Reject>>>>,
}

impl PushJob {
    /// A job none of whose items is answered.
    pub fn new(items: Vec<PushItem>, reply: Reply<Vec<Result<Pushed, Reject>>>) -> PushJob {
        let answers = PushAnswers {
            results: vec![None; items.len()],
            left: items.len(),
            reply: Some(reply),
        };
        PushJob {
            items,
            answers: Mutex::new(answers),
        }
    }

    /// Answers one item; the last one answers the push.
    pub fn answer(&self, item: usize, result: Result<Pushed, Reject>) {
        let mut answers = self.answers.lock();
        let PushAnswers {
            results,
            left,
            reply,
        } = &mut *answers;
        let Some(place) = results.get_mut(item) else {
            return;
        };
        if place.replace(result).is_none() {
            *left -= 1;
        }
        if *left == 0
            && let Some(reply) = reply.take()
        {
            send(
                reply,
                Ok(std::mem::take(results).into_iter().flatten().collect()),
            );
        }
    }

    /// Fails the whole push. Where some of it was carried out, all that can be said is that the
    /// outcome is unknown.
    pub fn fail(&self, failure: Failure) {
        let mut answers = self.answers.lock();
        let begun = answers.left < self.items.len();
        if let Some(reply) = answers.reply.take() {
            send(reply, Err(if begun { Failure::Timeout } else { failure }));
        }
    }

    fn is_abandoned(&self) -> bool {
        self.answers
            .lock()
            .reply
            .as_ref()
            .is_none_or(oneshot::Sender::is_closed)
    }
}

/// Sends an answer; whoever asked may have gone.
pub fn send<T>(reply: Reply<T>, answer: Result<T, Failure>) {
    let _ = reply.send(answer);
}

impl Request {
    /// Whether it goes before pushes: it frees work rather than adding any.
    pub fn is_urgent(&self) -> bool {
        match self {
            Request::Command { .. } | Request::Claim { .. } => true,
            Request::Transact { bundle, .. } => bundle.pushes.is_empty(),
            Request::Produce { .. } | Request::Push(_) | Request::Replay { .. } => false,
            Request::Fire { .. } => false,
        }
    }

    /// Bytes it may take in an entry, roughly and rather too many.
    pub fn bytes(&self) -> usize {
        match self {
            Request::Command { command, .. } => command_bytes(command),
            Request::Claim { claim, .. } => {
                64 + claim.group.len()
                    + claim.lanes.len() * 32
                    + claim
                        .advance
                        .iter()
                        .map(|a| 24 + a.lanes.len() * 24)
                        .sum::<usize>()
            }
            Request::Produce { batches, .. } => batches.iter().map(produce_bytes).sum(),
            Request::Push(part) => part
                .items
                .iter()
                .filter_map(|at| part.job.items.get(*at))
                .map(item_bytes)
                .sum(),
            Request::Transact { bundle, .. } => bundle_bytes(bundle),
            Request::Replay { copy, .. } => item_bytes(copy),
            Request::Fire { message, .. } => item_bytes(message),
        }
    }

    /// Commands it becomes, at most.
    pub fn commands(&self) -> usize {
        match self {
            Request::Produce { batches, .. } => batches.len(),
            Request::Push(part) => part.items.len(),
            _ => 1,
        }
    }

    /// Whether nobody waits for its outcome any more. Marks a claim as offered first, so that
    /// either the claim is left out here or its owner knows that it must give it back.
    pub fn is_abandoned(&self) -> bool {
        match self {
            // Nobody may be waiting from the start, and it is still wanted.
            Request::Command { .. } => false,
            Request::Claim {
                reserved, reply, ..
            } => {
                reserved.proposed.store(true, Ordering::SeqCst);
                reply.is_closed()
            }
            Request::Produce { reply, .. } => reply.is_closed(),
            Request::Push(part) => part.job.is_abandoned(),
            Request::Transact { reply, .. } => reply.is_closed(),
            Request::Replay { reply, .. } => reply.is_closed(),
            Request::Fire { reply, .. } => reply.is_closed(),
        }
    }

    /// Tells the requester that it was not, or may not have been, carried out.
    pub fn fail(self, failure: Failure) {
        match self {
            Request::Command { reply, .. } | Request::Fire { reply, .. } => {
                send(reply, Err(failure));
            }
            Request::Claim {
                reply, reserved, ..
            } => {
                drop(reserved);
                send(reply, Err(failure));
            }
            Request::Produce { reply, .. } => send(reply, Err(failure)),
            Request::Push(part) => part.job.fail(failure),
            Request::Transact { reply, .. } => send(reply, Err(failure)),
            Request::Replay { reply, .. } => send(reply, Err(failure)),
        }
    }
}

/// What a batch's hints and header cost beside its bytes.
fn produce_bytes(batch: &ProduceBatch) -> usize {
    batch.bytes.len()
        + 64
        + batch.lanes.lane_of.len() * 5
        + batch.lanes.names.len()
        + batch.dedup.len() * 24
}

fn item_bytes(item: &PushItem) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, |text| text.len() + 24);
    96 + item.queue.len()
        + item.lane.len() * 2
        + item.payload.len()
        + text(&item.transaction_id)
        + text(&item.trace_id)
        + text(&item.producer_sub)
        + text(&item.message_id)
}

fn ack_bytes(ack: &queen_engine::command::AckItem) -> usize {
    96 + ack.group.len()
        + ack.transaction_id.len()
        + ack.error.as_ref().map_or(0, String::len)
        + ack.payload.as_ref().map_or(0, bytes::Bytes::len)
}

fn timer_bytes(op: &queen_engine::timer::TimerOp) -> usize {
    use queen_engine::timer::TimerAction;
    let action = match &op.action {
        TimerAction::Schedule {
            partition,
            txn,
            message_id,
            payload,
            ..
        } => partition.len() + txn.len() + message_id.len() + payload.len(),
        TimerAction::Cancel { txn } => txn.as_ref().map_or(0, String::len),
    };
    64 + op.queue.len() + op.key.len() + action
}

fn bundle_bytes(bundle: &Bundle) -> usize {
    let positions = bundle
        .positions
        .iter()
        .map(|p| 96 + p.lane.len() + p.metadata.len());
    bundle.acks.iter().map(ack_bytes).sum::<usize>()
        + bundle.pushes.iter().map(item_bytes).sum::<usize>()
        + positions.sum::<usize>()
        + bundle.kv.iter().map(encoded_bytes).sum::<usize>()
        + bundle.timers.iter().map(timer_bytes).sum::<usize>()
}

/// The exact size in the log, for what is rare or has no short answer.
fn encoded_bytes<T: serde::Serialize>(value: &T) -> usize {
    postcard::experimental::serialized_size(value).unwrap_or(usize::MAX)
}

fn command_bytes(command: &Command) -> usize {
    match command {
        Command::Ack { items } => items.iter().map(ack_bytes).sum(),
        Command::Timers { ops } => ops.iter().map(timer_bytes).sum(),
        other => encoded_bytes(other),
    }
}

/// A request in the queue, with its share of the byte budget.
pub struct Queued {
    pub request: Request,
    pub bytes: usize,
    /// Given back when the request is answered.
    pub room: Option<OwnedSemaphorePermit>,
}
