//! Random appends, truncations, purges, resets, reopens and power cuts against a plain vector.

mod kit;

use std::sync::mpsc::Receiver;

use kit::{append, body, evil, frame, open_on};
use proptest::prelude::*;
use queen_log::storage::evil::EvilStorage;
use queen_log::{Log, LogConfig, LogError};

#[derive(Debug, Clone)]
enum Step {
    /// Frames of these sizes in one append; waits for it or not.
    Append {
        sizes: Vec<usize>,
        wait: bool,
    },
    /// Keeps this share (in 1/16) of the frames held.
    Truncate(u8),
    Purge(u8),
    Reset(u8),
    Vote,
    Reopen,
    /// Loses power after that many more changes to the disk.
    Crash {
        changes: u64,
        seed: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![4 => 0_usize..300, 2 => 300_usize..4000, 1 => 4000_usize..30_000];
    prop_oneof![
        10 => (prop::collection::vec(size, 0..5), any::<bool>())
            .prop_map(|(sizes, wait)| Step::Append { sizes, wait }),
        3 => (0_u8..17).prop_map(Step::Truncate),
        2 => (0_u8..17).prop_map(Step::Purge),
        1 => (0_u8..5).prop_map(Step::Reset),
        1 => Just(Step::Vote),
        2 => Just(Step::Reopen),
        4 => (0_u64..25, any::<u64>()).prop_map(|(changes, seed)| Step::Crash { changes, seed }),
    ]
}

/// The naive twin: frames by index, and how many of them are certain.
#[derive(Default)]
struct Model {
    first: u64,
    frames: Vec<(u64, usize)>,
    certain: usize,
    pending: Vec<(usize, Receiver<Result<(), LogError>>)>,
    /// The first index may have moved up to here.
    purged_to: u64,
    /// A reset was cut short: the log may also be empty.
    reset_to: Option<u64>,
    /// The last vote saved, and any that may have been saved after it.
    votes: Vec<u64>,
    vote_saved: bool,
    term: u64,
}

impl Model {
    fn next(&self) -> u64 {
        self.first + self.frames.len() as u64
    }

    /// Takes note of what has been acknowledged by now.
    fn settle(&mut self, wait: bool) {
        for (len, receiver) in std::mem::take(&mut self.pending) {
            let outcome = if wait {
                receiver.recv().ok()
            } else {
                receiver.try_recv().ok()
            };
            match outcome {
                Some(Ok(())) => {
                    assert!(self.certain <= len, "acknowledged out of order");
                    self.certain = len;
                }
                Some(Err(_)) => {}
                None => self.pending.push((len, receiver)),
            }
        }
    }

    fn run(&mut self, log: &Log, step: &Step) -> Result<(), LogError> {
        let index = |share: u8| self.first + (self.frames.len() as u64 * u64::from(share)) / 16;
        match step {
            Step::Append { sizes, wait } => {
                let (term, next) = (self.term, self.next());
                let frames = (next..)
                    .zip(sizes)
                    .map(|(index, len)| frame(term, index, &body(index, *len)));
                let receiver = append(log, frames.collect())?;
                self.frames.extend(sizes.iter().map(|len| (term, *len)));
                self.pending.push((self.frames.len(), receiver));
                self.settle(*wait);
            }
            Step::Truncate(share) => {
                let Some(after) = index(*share).checked_sub(1) else {
                    return Ok(());
                };
                let keep = usize::try_from(after + 1 - self.first).unwrap();
                self.settle(true);
                self.certain = self.certain.min(keep);
                log.truncate_after(after)?;
                self.frames.truncate(keep);
                self.term += 1;
            }
            Step::Purge(share) => {
                let through = index(*share);
                self.purged_to = self.purged_to.max(through + 1);
                let first = log.purge_through(through)?;
                self.drop_front(first);
            }
            Step::Reset(gap) => {
                self.settle(true);
                let to = self.next() + u64::from(*gap);
                self.reset_to = Some(to);
                self.certain = 0;
                log.reset_to(to)?;
                self.reset_to = None;
                self.first = to;
                self.frames.clear();
            }
            Step::Vote => {
                self.votes.push(self.term * 1000 + self.votes.len() as u64);
                log.save_vote(&self.votes.last().unwrap().to_le_bytes())?;
                self.votes.drain(..self.votes.len() - 1);
                self.vote_saved = true;
            }
            Step::Reopen | Step::Crash { .. } => {}
        }
        Ok(())
    }

    fn drop_front(&mut self, first: u64) {
        assert!(first >= self.first, "the first index went back");
        assert!(
            first <= self.purged_to.max(self.first),
            "purged more than asked"
        );
        let gone = usize::try_from(first - self.first).unwrap();
        self.frames.drain(..gone);
        self.certain = self.certain.saturating_sub(gone);
        for (len, _) in &mut self.pending {
            *len = len.saturating_sub(gone);
        }
        self.first = first;
    }

    /// Accepts what a crash has left if it is one of the allowed outcomes.
    fn adopt(&mut self, log: &Log) {
        self.pending.clear();
        let (first, last) = (log.first_index(), log.last());
        if let Some(to) = self.reset_to.take()
            && last.is_none()
        {
            self.frames.clear();
            self.certain = 0;
            assert!([0, self.first, to].contains(&first), "{first}");
            self.first = first;
            return;
        }
        if last.is_none() && self.certain == 0 {
            self.frames.clear();
            self.first = first;
            return;
        }
        self.drop_front(first);
        let held = usize::try_from(last.map_or(0, |(_, index)| index + 1 - first)).unwrap();
        assert!(
            held >= self.certain,
            "{held} of {} certain frames left",
            self.certain
        );
        assert!(held <= self.frames.len(), "dropped frames came back");
        self.frames.truncate(held);
        self.certain = held;
    }

    fn check(&self, log: &Log) {
        assert_eq!(log.first_index(), self.first);
        let read = log.read_range(self.first, u64::MAX, u64::MAX).unwrap();
        assert_eq!(read.len(), self.frames.len());
        for ((index, expected), read) in (self.first..).zip(&self.frames).zip(read) {
            let found = (read.term, read.payload.len(), read.index);
            assert_eq!(found, (expected.0, expected.1, index));
            assert_eq!(read.payload, body(index, expected.1));
            assert_eq!(log.term_of(index), Some(expected.0));
            let half = (expected.1 / 2) as u32;
            assert_eq!(
                log.slice(index, half / 2, half).unwrap().len(),
                half as usize
            );
        }
        let expected_last = self.frames.last().map(|(term, _)| (*term, self.next() - 1));
        assert_eq!(log.last(), expected_last);
        assert!(log.durable_index() <= self.next());
    }
}

fn drive(steps: &[Step], fsync: bool) {
    let dir = tempfile::tempdir().unwrap();
    let (disk, mut config) = evil(dir.path());
    config.fsync = fsync;
    let mut model = Model {
        term: 1,
        ..Model::default()
    };
    let mut seed = 0;
    let mut log = reopen(&mut model, &disk, &config, seed);
    for step in steps {
        if let Step::Crash {
            changes,
            seed: chosen,
        } = step
        {
            disk.die_after(*changes);
            seed = *chosen;
        }
        let ran = model.run(&log, step);
        if ran.is_ok() && !matches!(step, Step::Reopen) {
            model.check(&log);
            continue;
        }
        assert!(ran.is_ok() || disk.is_dead(), "{ran:?}");
        model.settle(true);
        // Ends the log's threads before the disk changes under it.
        log.close();
        if !disk.is_dead() {
            model.certain = model.frames.len();
        }
        if !fsync && (disk.is_dead() || disk.is_armed()) {
            model.certain = 0;
        }
        log = reopen(&mut model, &disk, &config, seed);
        model.adopt(&log);
        model.check(&log);
        model.term += 1;
    }
}

/// Opens the log; a disk that is dead or dies meanwhile loses power and starts over.
fn reopen(model: &mut Model, disk: &EvilStorage, config: &LogConfig, seed: u64) -> Log {
    let (log, recovered) = loop {
        if disk.is_dead() {
            disk.lose_unsynced(seed).unwrap();
        }
        match open_on(config, disk) {
            Ok(opened) => break opened,
            Err(error) => assert!(disk.is_dead(), "{error}"),
        }
    };
    let vote = recovered
        .vote
        .map(|vote| u64::from_le_bytes(vote[..].try_into().unwrap()));
    match vote {
        Some(vote) => assert!(model.votes.contains(&vote), "{vote} of {:?}", model.votes),
        None => assert!(!model.vote_saved),
    }
    model.votes.retain(|possible| Some(*possible) == vote);
    log
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_log_agrees_with_a_vector(steps in prop::collection::vec(step(), 1..60)) {
        drive(&steps, true);
    }

    #[test]
    fn without_fsync_a_prefix_survives(steps in prop::collection::vec(step(), 1..60)) {
        drive(&steps, false);
    }
}
