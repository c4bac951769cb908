//! A pop from request to answer: plan, propose, answer; park while there is nothing. A pop that is
//! dropped after its claim was offered to the log gives the claim back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use queen_engine::command::{Claim, Command};
use queen_engine::ids::TimeUs;
use queen_engine::outcome::{Claimed, Outcome};
use queen_engine::port::{Failure, PopAnswer, PopRequest};
use queen_engine::schedule::{Ask, Plan, Scheduler};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::batcher::{Batcher, Request};
use crate::limits;
use crate::node::Inner;

/// Carries out a pop.
pub async fn pop(inner: Arc<Inner>, pop: PopRequest) -> Result<PopAnswer, Failure> {
    let deadline = Instant::now() + Duration::from_millis(pop.wait_ms);
    let since = inner.clock.now();
    let mut lost = 0;
    while lost < limits::POP_ROUNDS_MAX {
        inner.must_lead()?;
        let now = inner.clock.now();
        let ask = Ask {
            now,
            chance: rand::random(),
            default_partitions: inner.default_partitions,
            since,
            deadline: TimeUs(now.0.saturating_add(micros(limits::OUTCOME_WAIT))),
        };
        let may_wait = Instant::now() < deadline;
        let (plan, parked) = inner.leader.plan(ask, &pop, may_wait);
        match plan {
            Plan::Nothing { wake_at, .. } => {
                let Some(mut parked) = parked else { break };
                let until = wake_at.map_or(deadline, |at| {
                    let ahead = u64::try_from(at.0.saturating_sub(now.0)).unwrap_or(0);
                    deadline.min(Instant::now() + Duration::from_micros(ahead))
                });
                tokio::select! {
                    () = parked.woken() => {}
                    () = sleep_until(until) => {}
                }
            }
            Plan::Submit(command) => {
                let outcome = inner
                    .ask(|reply| Request::Command { command, reply })
                    .await?;
                if matches!(outcome, Outcome::Rejected(_)) {
                    lost += 1;
                }
            }
            Plan::Claim(claim) => match propose(&inner, &claim).await? {
                Some(claimed) if !claimed.is_empty() => {
                    return Ok(inner.look(|view| {
                        Scheduler::answer(view, &claim, &claimed).with_conflict(view, &pop)
                    }));
                }
                // It only walked on.
                Some(_) if claim.lanes.is_empty() => {}
                Some(_) | None => lost += 1,
            },
        }
    }
    Ok(inner.look(|view| Scheduler::empty_answer(view, &pop)))
}

/// Proposes a claim; what it leased, or `None` when it was refused.
async fn propose(inner: &Arc<Inner>, claim: &Claim) -> Result<Option<Vec<Claimed>>, Failure> {
    let reserved = inner.leader.reserve(claim);
    let (reply, answer) = oneshot::channel();
    let mut pending = Pending {
        inner: inner.clone(),
        claim: claim.clone(),
        proposed: reserved.proposed.clone(),
        answer: Some(answer),
    };
    let request = Request::Claim {
        claim: Box::new(claim.clone()),
        reserved,
        reply,
    };
    inner.enter(request).await?;
    if !claim.lanes.is_empty() {
        // There may be more than this pop takes.
        inner.leader.waiters.wake(claim.topic, &claim.group);
    }
    match pending.outcome().await? {
        Outcome::Claimed(claimed) => Ok(Some(claimed)),
        // Whatever the reason, the state is not what the plan was made for.
        _ => Ok(None),
    }
}

/// A claim whose outcome is awaited. Dropped before that, it is given back.
struct Pending {
    inner: Arc<Inner>,
    claim: Claim,
    proposed: Arc<AtomicBool>,
    answer: Option<oneshot::Receiver<Result<Outcome, Failure>>>,
}

impl Pending {
    async fn outcome(&mut self) -> Result<Outcome, Failure> {
        let Some(answer) = self.answer.as_mut() else {
            return Err(Failure::Timeout);
        };
        let outcome = Batcher::answer(answer).await;
        // After a failure other than an unknown outcome there is nothing to give back.
        if !matches!(outcome, Err(Failure::Timeout)) {
            self.answer = None;
        }
        outcome
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Some(mut answer) = self.answer.take() else {
            return;
        };
        // The proposer marks the claim before it looks whether anybody still waits: one of the two
        // sides sees the other.
        answer.close();
        let leased = !self.claim.lanes.is_empty() && !self.claim.commit;
        if leased && self.proposed.load(Ordering::SeqCst) {
            self.inner.give_back(Command::Unclaim {
                topic: self.claim.topic,
                group: self.claim.group.clone(),
                lease: self.claim.lease,
            });
        }
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
