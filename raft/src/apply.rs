//! The apply thread: takes committed entries in order, carries them out on the state it alone
//! changes, answers their proposers and tells whoever waits. Readers take short looks through the
//! lock. An entry that cannot be read or that makes the state machine panic stops the node: a
//! replica that skips is worse than none.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use parking_lot::{RwLock, RwLockWriteGuard};
use queen_engine::entry::Entry;
use queen_engine::index::RecordIndex;
use queen_engine::outcome::Outcome;
use queen_engine::port::View;
use queen_engine::{Effects, Engine};
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::Fatal;
use crate::limits::APPLY_QUEUE;
use crate::metrics;
use crate::replicator::{Content, Position};

/// The applied state.
#[derive(Debug, Default)]
pub struct State {
    pub engine: Engine,
    pub index: RecordIndex,
    /// The newest applied entry.
    pub applied: Option<Position>,
    /// The newest applied membership: its entry and its bytes.
    pub membership: Option<(Position, Bytes)>,
    /// Records of entries before this one are in sealed parts of the index.
    pub sealed_before: u64,
}

impl State {
    /// A look at the state for queries.
    pub fn view(&self) -> View<'_> {
        View {
            engine: &self.engine,
            index: &self.index,
        }
    }
}

/// The applied state as everybody holds it. Only the apply thread changes what it says.
pub type SharedState = Arc<RwLock<State>>;

/// Takes the outcomes of an applied entry.
pub type Reply = Box<dyn FnOnce(Vec<Outcome>) + Send>;

/// A committed entry on its way to the state.
pub struct Committed {
    pub at: Position,
    pub content: Content,
    pub reply: Option<Reply>,
}

/// Who is told of applied entries, on the apply thread.
pub trait Watcher: Send + 'static {
    /// Called before an entry changes the state, with the state as it is.
    fn before(&mut self, at: Position, bytes: usize, state: &mut State);

    /// Called after an entry changed the state, while it cannot change again.
    fn after(&mut self, at: Position, state: &State, effects: &Effects);

    /// Called after that without any lock, when the proposer has its answer.
    fn wake(&mut self, effects: &Effects);
}

enum Job {
    Apply(Committed),
    /// Answered when everything sent before is applied.
    Reached(oneshot::Sender<()>),
    /// Takes another state in place of the present one.
    Replace(Box<State>, oneshot::Sender<()>),
    /// Ends the thread.
    Stop,
}

/// The way to the apply thread.
#[derive(Clone)]
pub struct Applier {
    jobs: mpsc::Sender<Job>,
    state: SharedState,
    applied: watch::Receiver<Option<Position>>,
}

/// The apply thread has ended.
#[derive(Debug, thiserror::Error)]
#[error("the apply thread has ended")]
pub struct ApplyEnded;

impl Applier {
    /// Starts the apply thread on `state`. It ends when it is told to, or when the last
    /// applier is dropped.
    pub fn start(
        state: SharedState,
        watcher: impl Watcher,
        fatal: Fatal,
    ) -> std::io::Result<(Applier, JoinHandle<()>)> {
        let (jobs, inbox) = mpsc::channel(APPLY_QUEUE);
        let (sender, applied) = watch::channel(state.read().applied);
        let thread = ApplyThread {
            state: state.clone(),
            watcher,
            fatal,
            applied: sender,
        };
        let thread = std::thread::Builder::new()
            .name("queen-apply".to_string())
            .spawn(move || thread.run(inbox))?;
        Ok((
            Applier {
                jobs,
                state,
                applied,
            },
            thread,
        ))
    }

    /// Hands an entry over. Entries come in order, each once.
    pub async fn apply(&self, entry: Committed) -> Result<(), ApplyEnded> {
        self.jobs
            .send(Job::Apply(entry))
            .await
            .map_err(|_| ApplyEnded)
    }

    /// Waits until everything handed over before is applied.
    pub async fn reached(&self) -> Result<(), ApplyEnded> {
        let (sender, receiver) = oneshot::channel();
        self.jobs
            .send(Job::Reached(sender))
            .await
            .map_err(|_| ApplyEnded)?;
        receiver.await.map_err(|_| ApplyEnded)
    }

    /// Puts another state in place of the present one: a snapshot was installed.
    pub async fn replace(&self, state: State) -> Result<(), ApplyEnded> {
        let (sender, receiver) = oneshot::channel();
        let job = Job::Replace(Box::new(state), sender);
        self.jobs.send(job).await.map_err(|_| ApplyEnded)?;
        receiver.await.map_err(|_| ApplyEnded)
    }

    /// Ends the thread when it has applied what was handed over before.
    pub async fn stop(&self) {
        // It may have ended by itself.
        let _ = self.jobs.send(Job::Stop).await;
    }

    /// The state the thread works on.
    pub fn state(&self) -> &SharedState {
        &self.state
    }

    /// The newest applied entry, as it moves.
    pub fn applied(&self) -> watch::Receiver<Option<Position>> {
        self.applied.clone()
    }
}

struct ApplyThread<W> {
    state: SharedState,
    watcher: W,
    fatal: Fatal,
    applied: watch::Sender<Option<Position>>,
}

impl<W: Watcher> ApplyThread<W> {
    fn run(mut self, mut inbox: mpsc::Receiver<Job>) {
        while let Some(job) = inbox.blocking_recv() {
            match job {
                Job::Apply(entry) => {
                    let at = entry.at;
                    let result = catch_unwind(AssertUnwindSafe(|| self.apply(entry)));
                    let reason = match result {
                        Ok(Ok(())) => continue,
                        Ok(Err(reason)) => reason,
                        Err(_) => "the state machine panicked".to_string(),
                    };
                    let Position { term, index } = at;
                    self.fatal.stop(&format!(
                        "cannot apply entry {index} of term {term}: {reason}"
                    ));
                    return;
                }
                Job::Reached(sender) => {
                    // Whoever asked may have gone.
                    let _ = sender.send(());
                }
                Job::Replace(state, sender) => {
                    let applied = state.applied;
                    *self.state.write() = *state;
                    self.applied.send_replace(applied);
                    let _ = sender.send(());
                }
                Job::Stop => return,
            }
        }
    }

    fn apply(&mut self, entry: Committed) -> Result<(), String> {
        let Committed { at, content, reply } = entry;
        let started = std::time::Instant::now();
        let mut effects = Effects::default();
        let mut outcomes = Vec::new();
        // Decoded before the lock: readers need not wait for it.
        let decoded = match &content {
            Content::Commands(bytes) => {
                Some(Entry::decode(bytes.clone()).map_err(|error| error.to_string())?)
            }
            Content::Blank | Content::Membership(_) => None,
        };
        let bytes = match &content {
            Content::Commands(bytes) | Content::Membership(bytes) => bytes.len(),
            Content::Blank => 0,
        };
        let mut guard = self.state.write();
        self.watcher.before(at, bytes, &mut guard);
        let state = &mut *guard;
        match (decoded, content) {
            (Some(entry), _) => {
                metrics::commands(entry.commands.len());
                outcomes =
                    state
                        .engine
                        .apply(at.index, at.term, &entry, &mut state.index, &mut effects);
            }
            (None, Content::Membership(bytes)) => {
                state.membership = Some((at, bytes));
                state.engine.apply_blank(at.index);
            }
            (None, Content::Blank | Content::Commands(_)) => state.engine.apply_blank(at.index),
        }
        state.applied = Some(at);
        let guard = RwLockWriteGuard::downgrade(guard);
        self.watcher.after(at, &guard, &effects);
        drop(guard);
        self.applied.send_replace(Some(at));
        if let Some(reply) = reply {
            reply(outcomes);
        }
        self.watcher.wake(&effects);
        metrics::applied(started.elapsed());
        Ok(())
    }
}
