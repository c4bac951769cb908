//! The leader's desk: the scheduler's memory beside the state it plans on, and who must be told
//! when the state changes. Lock order: state, then scheduler.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use queen_engine::Effects;
use queen_engine::command::Claim;
use queen_engine::ids::TimeUs;
use queen_engine::port::{PopRequest, View};
use queen_engine::schedule::{Ask, Chores, Plan, Scheduler};
use tokio::sync::Notify;

use crate::apply::{SharedState, State};
use crate::batcher::Reserved;
use crate::clock::Clock;
use crate::waiters::{Parked, Waiters};

/// The scheduler and what surrounds it. Also exists on followers, where it plans nothing.
pub struct Leader {
    state: SharedState,
    clock: Arc<Clock>,
    scheduler: Mutex<Scheduler>,
    pub waiters: Arc<Waiters>,
    /// Something changed that may give the driver work.
    pub changed: Notify,
    /// The term this node leads and of which it has applied an entry; 0 for none.
    leading: AtomicU64,
}

impl Leader {
    pub fn new(state: SharedState, clock: Arc<Clock>) -> Arc<Leader> {
        Arc::new(Leader {
            state,
            clock,
            scheduler: Mutex::new(Scheduler::new()),
            waiters: Arc::default(),
            changed: Notify::new(),
            leading: AtomicU64::new(0),
        })
    }

    /// Notes the term this node leads, if it does. A new leader begins with an empty memory, also one
    /// that has led before and did not notice that others did in between.
    pub fn set_leading(&self, term: Option<u64>) {
        let term = term.unwrap_or(0);
        if self.leading.load(Ordering::Acquire) == term {
            return;
        }
        // Not leading in between: nothing is planned on an old memory or an old clock.
        self.leading.store(0, Ordering::Release);
        self.scheduler.lock().reset();
        if term != 0 {
            self.clock.start_after(self.state.read().engine.now());
        }
        self.leading.store(term, Ordering::Release);
        self.waiters.wake_all();
        self.changed.notify_one();
    }

    /// Whether this node leads and knows everything that was committed before its term.
    pub fn is_leading(&self) -> bool {
        self.leading.load(Ordering::Acquire) != 0
    }

    /// Plans a pop; parks it in the same look when there is nothing and it may wait, so that no
    /// event is missed in between.
    pub fn plan(&self, ask: Ask, pop: &PopRequest, may_wait: bool) -> (Plan, Option<Parked>) {
        let state = self.state.read();
        let plan = self.scheduler.lock().plan(state.view(), ask, pop);
        let parked = match &plan {
            Plan::Nothing { watch, .. } if may_wait => Some(self.waiters.park(watch, &pop.group)),
            Plan::Nothing { .. } | Plan::Submit(_) | Plan::Claim(_) => None,
        };
        (plan, parked)
    }

    /// What is due without anybody asking.
    pub fn housekeep(&self, now: TimeUs) -> Chores {
        let state = self.state.read();
        self.scheduler.lock().housekeep(state.view(), now)
    }

    /// The reservation of a planned claim, to be ended when its outcome is known.
    pub fn reserve(self: &Arc<Self>, claim: &Claim) -> Reserved {
        let (leader, claim) = (self.clone(), claim.clone());
        Reserved::new(move |applied| {
            let state = leader.state.read();
            let now = leader.clock.now();
            leader
                .scheduler
                .lock()
                .settled(state.view(), now, &claim, applied);
            drop(state);
            if !applied {
                // Its lanes may be another pop's work.
                leader.waiters.wake(claim.topic, &claim.group);
            }
        })
    }

    /// Lanes known to be ready.
    pub fn ready_lanes(&self) -> usize {
        self.scheduler.lock().ready()
    }

    /// Takes note of an applied entry, before anybody is woken.
    pub fn note(&self, state: &State, effects: &Effects) {
        if self.is_leading() {
            let view: View<'_> = state.view();
            self.scheduler.lock().note(view, self.clock.now(), effects);
        }
    }

    /// Wakes who waited for what an entry did.
    pub fn wake(&self, effects: &Effects) {
        for topic in &effects.appended {
            self.waiters.appended(*topic);
        }
        for touch in &effects.groups {
            self.waiters.wake(touch.topic, &touch.group);
        }
        if effects.topics {
            self.waiters.catalogue_changed();
        }
        if self.is_leading() {
            self.changed.notify_one();
        }
    }
}
