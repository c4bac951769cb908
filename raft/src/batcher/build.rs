//! From requests to one entry, and from its outcomes back to the requesters.

use std::ops::Range;

use bytes::Bytes;
use queen_engine::command::{AppendBatch, Command, ProducerStamp, TopicRef};
use queen_engine::entry::EntryBuilder;
use queen_engine::outcome::{Appended, Outcome, Reject};
use queen_engine::port::{Failure, ProduceBatch};
use queen_engine::schedule::build::Landing;

use super::push::{self, Pushes};
use super::request::{PushPart, Queued, Request, send};
use super::{Proposer, Shared};

/// An entry ready to be proposed.
pub(super) struct Built {
    pub(super) parts: Vec<Bytes>,
    pub(super) routes: Vec<Routed>,
    /// Transaction ids of pushes in it.
    pub(super) ids: Vec<u128>,
    /// Position of the first command that merges pushes.
    pub(super) pushes_at: usize,
}

/// A request and where its outcomes will be.
pub(super) struct Routed {
    pub(super) queued: Queued,
    slots: Slots,
}

enum Slots {
    At(usize),
    Range(Range<usize>),
    /// Index of the item in its job, and where it landed among the merged batches.
    Push(Vec<(usize, Landing)>),
    /// Per push of the bundle where it landed.
    Transact(usize, Vec<Landing>),
    Record(usize, Landing),
}

/// Builds one entry of `taken`; `None` when none of it needs the log any more.
pub(super) fn build(proposer: &Proposer, taken: Vec<Queued>, shared: &Shared) -> Option<Built> {
    let mut entry = EntryBuilder::new();
    let mut routes = Vec::with_capacity(taken.len());
    let mut ids = Vec::new();
    // Failed below, without the lock: a claim that ends takes it for its desk.
    let mut abandoned = Vec::new();
    let pushes_at;
    {
        let state = proposer.state.read();
        let now = proposer.clock.now();
        let mut pushes = Pushes::new(state.view(), now, proposer.default_partitions);
        for queued in taken {
            if queued.request.is_abandoned() {
                abandoned.push(queued);
                continue;
            }
            if let Some(routed) = place(queued, &mut entry, &mut pushes, shared, &mut ids) {
                routes.push(routed);
            }
        }
        pushes_at = entry.len();
        for append in pushes.finish(&mut entry) {
            entry.command(Command::Append(append));
        }
    }
    for queued in abandoned {
        queued.request.fail(Failure::Timeout);
    }
    if entry.is_empty() {
        // An item may have been refused after its id was noted.
        shared.queue.lock().forget(&ids);
        return None;
    }
    Some(Built {
        parts: entry.finish(proposer.clock.stamp()),
        routes,
        ids,
        pushes_at,
    })
}

/// Puts one request into the entry. `None` when it is answered or comes later.
fn place(
    queued: Queued,
    entry: &mut EntryBuilder,
    pushes: &mut Pushes<'_>,
    shared: &Shared,
    ids: &mut Vec<u128>,
) -> Option<Routed> {
    let Queued {
        request,
        bytes,
        room,
    } = queued;
    let routed = |request, slots| {
        Some(Routed {
            queued: Queued {
                request,
                bytes,
                room,
            },
            slots,
        })
    };
    match request {
        Request::Command { command, reply } => {
            let at = entry.command((*command).clone());
            routed(Request::Command { command, reply }, Slots::At(at))
        }
        Request::Claim {
            claim,
            reserved,
            reply,
        } => {
            let at = entry.command(Command::Claim((*claim).clone()));
            routed(
                Request::Claim {
                    claim,
                    reserved,
                    reply,
                },
                Slots::At(at),
            )
        }
        Request::Produce { batches, reply } => {
            let from = entry.len();
            for batch in &batches {
                let append = append_of(batch, entry);
                entry.command(Command::Append(append));
            }
            let slots = Slots::Range(from..entry.len());
            routed(Request::Produce { batches, reply }, slots)
        }
        Request::Push(part) => {
            let (placed, later) = pushes.add(&part, &mut shared.queue.lock().ids_in_flight, ids);
            if !later.is_empty() {
                let part = PushPart {
                    job: part.job.clone(),
                    items: later,
                    attempts: part.attempts,
                };
                let request = Request::Push(part);
                let bytes = request.bytes();
                // What is left of the job pays for the room.
                let later = Queued {
                    request,
                    bytes,
                    room: None,
                };
                shared.queue.lock().deferred.push(later);
            }
            if placed.is_empty() {
                return None;
            }
            routed(Request::Push(part), Slots::Push(placed))
        }
        Request::Transact { bundle, reply } => match push::transaction(pushes, &bundle, entry) {
            Ok((transaction, landings)) => {
                let at = entry.command(Command::Transaction(transaction));
                routed(
                    Request::Transact { bundle, reply },
                    Slots::Transact(at, landings),
                )
            }
            Err(rollback) => {
                send(reply, Ok(Err(rollback)));
                None
            }
        },
        Request::Replay { id, copy, reply } => match pushes.alone(&copy, entry) {
            Ok((append, landing)) => {
                let at = entry.command(Command::ReplayDeadLetter { id, append });
                routed(
                    Request::Replay { id, copy, reply },
                    Slots::Record(at, landing),
                )
            }
            Err(reject) => {
                send(reply, Ok(Err(reject)));
                None
            }
        },
        Request::Fire {
            queue,
            key,
            version,
            message,
            reply,
        } => match pushes.alone(&message, entry) {
            Ok((append, _)) => {
                let (queue_name, key_name) = (queue.clone(), key.clone());
                let at = entry.command(Command::FireTimer {
                    queue: queue_name,
                    key: key_name,
                    version,
                    append,
                });
                let request = Request::Fire {
                    queue,
                    key,
                    version,
                    message,
                    reply,
                };
                routed(request, Slots::At(at))
            }
            Err(reject) => {
                send(reply, Ok(Outcome::Rejected(reject)));
                None
            }
        },
    }
}

fn append_of(batch: &ProduceBatch, entry: &mut EntryBuilder) -> AppendBatch {
    let header = &batch.header;
    let producer = (header.producer_id >= 0).then_some(ProducerStamp {
        id: header.producer_id,
        epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
    });
    AppendBatch {
        topic: TopicRef::Id(batch.topic),
        partition: batch.partition,
        span: entry.batch(batch.bytes.clone()),
        records: u32::try_from(header.records).unwrap_or(0),
        max_timestamp: header.max_timestamp,
        producer,
        lanes: batch.lanes.clone(),
        dedup: batch.dedup.clone(),
        verdicts: false,
    }
}

/// Hands the outcomes of an applied entry to the requesters. Returns requests that must be built
/// again because the state moved on between plan and apply.
pub(super) fn deliver(
    routes: Vec<Routed>,
    pushes_at: usize,
    outcomes: Vec<Outcome>,
) -> Vec<Queued> {
    let mut outcomes: Vec<Option<Outcome>> = outcomes.into_iter().map(Some).collect();
    // The node proposes and applies in one process: an entry it proposed has an outcome for each
    // of its commands.
    let mut take = |at: usize| -> Outcome {
        outcomes
            .get_mut(at)
            .and_then(Option::take)
            .expect("one outcome per command")
    };
    let mut again = Vec::new();
    let mut pushed = Vec::new();
    for Routed { queued, slots } in routes {
        let Queued {
            request,
            bytes,
            room,
        } = queued;
        match (request, slots) {
            (Request::Command { reply, .. } | Request::Fire { reply, .. }, Slots::At(at)) => {
                send(reply, Ok(take(at)));
            }
            (
                Request::Claim {
                    reserved, reply, ..
                },
                Slots::At(at),
            ) => {
                let outcome = take(at);
                reserved.settle(matches!(outcome, Outcome::Claimed(_)));
                send(reply, Ok(outcome));
            }
            (Request::Produce { reply, .. }, Slots::Range(range)) => {
                send(reply, Ok(range.map(|at| appended(take(at))).collect()));
            }
            (Request::Push(part), Slots::Push(placed)) => pushed.push((part, placed, room)),
            (Request::Transact { bundle, reply }, Slots::Transact(at, landings)) => {
                send(reply, Ok(push::bundle_answer(&bundle, &landings, take(at))));
            }
            (Request::Replay { copy, reply, .. }, Slots::Record(at, landing)) => {
                let answer =
                    appended(take(at)).and_then(|appended| push::pushed(&copy, &appended, landing));
                send(reply, Ok(answer));
            }
            // Slots are made from their request above; no other pair exists.
            (request, _) => {
                again.push(Queued {
                    request,
                    bytes,
                    room,
                });
            }
        }
    }
    for (part, placed, room) in pushed {
        let later = push::deliver(&part, &placed, &|landing: Landing| {
            outcomes
                .get(pushes_at + landing.batch)
                .and_then(Option::as_ref)
        });
        if !later.is_empty() {
            let attempts = part.attempts + 1;
            let request = Request::Push(PushPart {
                job: part.job,
                items: later,
                attempts,
            });
            again.push(Queued {
                bytes: request.bytes(),
                request,
                room,
            });
        }
    }
    again
}

fn appended(outcome: Outcome) -> Result<Appended, Reject> {
    match outcome {
        Outcome::Appended(appended) => Ok(appended),
        Outcome::Rejected(reject) => Err(reject),
        other => unreachable!("an append came to {other:?}"),
    }
}
