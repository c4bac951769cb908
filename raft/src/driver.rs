//! When this node leads, and the leader's chores: timers that are due, bases that may advance,
//! retention. Sleeps until something is due or the state changes; an idle node does nothing at all.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use queen_engine::command::{Claim, Command};
use queen_engine::ids::TimeUs;
use queen_engine::outcome::Outcome;
use queen_engine::port::{Failure, PushItem};
use queen_engine::timer::Timer;
use tokio::time::{Instant, sleep_until};

use crate::batcher::Request;
use crate::limits;
use crate::node::Inner;

/// Keeps note of the term this node leads, until the task is aborted. Apart from the chores: those
/// may wait for an outcome for as long as a lost leader is not told of it.
pub async fn follow_role(inner: Arc<Inner>) {
    let mut roles = inner.replicator.roles();
    let mut applied = inner.applier.applied();
    loop {
        let role = roles.borrow_and_update().clone();
        let at = *applied.borrow_and_update();
        let leads = role.is_leader && at.is_some_and(|at| at.term == role.term);
        inner.leader.set_leading(leads.then_some(role.term));
        let waits_for_entry = role.is_leader && !leads;
        tokio::select! {
            changed = roles.changed() => if changed.is_err() { return },
            changed = applied.changed(), if waits_for_entry => if changed.is_err() { return },
        }
    }
}

/// Does the leader's chores until the task is aborted.
pub async fn run(inner: Arc<Inner>) {
    let mut chores_at: Option<Instant> = None;
    let mut last_chores: Option<Instant> = None;
    loop {
        if !inner.leader.is_leading() {
            last_chores = None;
            inner.leader.changed.notified().await;
            continue;
        }
        let now = Instant::now();
        let fired = fire(&inner).await;
        let due = chores_at.is_some_and(|at| at <= now);
        let rested = last_chores.is_none_or(|last| now >= last + limits::HOUSEKEEPING);
        if last_chores.is_none() || (due && rested) {
            last_chores = Some(now);
            chores_at = chores(&inner).await.map(|next| inner.instant_of(next));
        }
        let timers_at = match fired {
            Fired::Some => continue,
            // Those that are due could not be fired; look again in a while.
            Fired::Stuck => Some(now + limits::HOUSEKEEPING),
            Fired::None => inner
                .look(|view| view.engine.timers.next_due())
                .map(|due| inner.instant_of(due)),
        };
        let chores_next = chores_at.map(|at| match last_chores {
            Some(last) => at.max(last + limits::HOUSEKEEPING),
            None => at,
        });
        let until = [timers_at, chores_next].into_iter().flatten().min();
        let asleep = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = asleep => {}
            () = inner.leader.changed.notified() => {
                // Whatever changed may have given the housekeeping something to do.
                let soon = Instant::now() + limits::HOUSEKEEPING;
                chores_at = Some(chores_at.map_or(soon, |at| at.min(soon)));
            }
        }
    }
}

enum Fired {
    None,
    Some,
    Stuck,
}

/// Fires the timers that are due.
async fn fire(inner: &Arc<Inner>) -> Fired {
    let now = inner.clock.now();
    let due: Vec<Timer> = inner.look(|view| {
        view.engine
            .timers
            .due(now, limits::TIMERS_PER_ROUND)
            .into_iter()
            .cloned()
            .collect()
    });
    if due.is_empty() {
        return Fired::None;
    }
    let fired = join_all(due.into_iter().map(|timer| fire_one(inner, timer))).await;
    let moved = |result: &Result<Outcome, Failure>| matches!(result, Ok(outcome) if !matches!(outcome, Outcome::Rejected(_)));
    if fired.iter().any(moved) {
        Fired::Some
    } else {
        Fired::Stuck
    }
}

async fn fire_one(inner: &Arc<Inner>, timer: Timer) -> Result<Outcome, Failure> {
    let message = Box::new(PushItem {
        queue: timer.queue.clone(),
        lane: timer.partition,
        payload: timer.payload,
        transaction_id: Some(timer.txn),
        trace_id: None,
        producer_sub: timer.producer_sub,
        message_id: Some(timer.message_id),
    });
    let (queue, key, version) = (timer.queue, timer.key, timer.version);
    inner
        .ask(|reply| Request::Fire {
            queue,
            key,
            version,
            message,
            reply,
        })
        .await
}

/// Does what housekeeping asks for; when to ask again.
async fn chores(inner: &Arc<Inner>) -> Option<TimeUs> {
    let chores = inner.leader.housekeep(inner.clock.now());
    let commands = chores
        .commands
        .into_iter()
        .map(|command| submit(inner, command));
    let claims = chores.claims.into_iter().map(|claim| step(inner, claim));
    let (commands, claims) = tokio::join!(join_all(commands), join_all(claims));
    let failed = commands
        .iter()
        .chain(&claims)
        .filter(|result| result.is_err())
        .count();
    if failed > 0 {
        tracing::debug!(failed, "chores not done");
        let again = inner.clock.now().0.saturating_add(1_000_000);
        return Some(
            chores
                .next
                .map_or(TimeUs(again), |next| next.min(TimeUs(again))),
        );
    }
    chores.next
}

async fn submit(inner: &Arc<Inner>, command: Command) -> Result<Outcome, Failure> {
    let command = Box::new(command);
    inner.ask(|reply| Request::Command { command, reply }).await
}

async fn step(inner: &Arc<Inner>, claim: Claim) -> Result<Outcome, Failure> {
    let reserved = inner.leader.reserve(&claim);
    let claim = Box::new(claim);
    inner
        .ask(|reply| Request::Claim {
            claim,
            reserved,
            reply,
        })
        .await
}

/// How far in the future a time is, at least nothing.
pub(crate) fn ahead(now: TimeUs, at: TimeUs) -> Duration {
    Duration::from_micros(u64::try_from(at.0.saturating_sub(now.0)).unwrap_or(0))
}
