//! The disk dies at every single change of a workload that touches everything, and loses what was
//! not synced in many ways. Whatever is left must open and hold all that was acknowledged.

mod kit;

use kit::{append, body, evil, frame, open_on};
use queen_log::storage::evil::EvilStorage;
use queen_log::{Log, LogError};

/// What the log has promised, and what it might hold beyond that.
#[derive(Default)]
struct Promise {
    /// Term of every frame that may be there, from index 0.
    terms: Vec<u64>,
    /// Frames that must be there.
    acked: usize,
    votes: Vec<Vec<u8>>,
    acked_votes: usize,
    purge_asked: u64,
    image: u64,
}

impl Promise {
    fn append(&mut self, log: &Log, term: u64, count: u64, len: usize) -> Result<(), LogError> {
        let first = self.terms.len() as u64;
        let frames: Vec<_> = (first..first + count)
            .map(|index| frame(term, index, &body(index, len)))
            .collect();
        let receiver = append(log, frames)?;
        self.terms.extend((0..count).map(|_| term));
        kit::outcome(&receiver)?;
        self.acked = self.terms.len();
        Ok(())
    }

    fn truncate(&mut self, log: &Log, index: u64) -> Result<(), LogError> {
        let keep = index as usize + 1;
        self.acked = self.acked.min(keep);
        log.truncate_after(index)?;
        self.terms.truncate(keep);
        Ok(())
    }

    fn vote(&mut self, log: &Log, vote: &[u8]) -> Result<(), LogError> {
        self.votes.push(vote.to_vec());
        log.save_vote(vote)?;
        self.acked_votes = self.votes.len();
        Ok(())
    }

    fn workload(&mut self, log: &Log) -> Result<(), LogError> {
        self.vote(log, b"first")?;
        self.append(log, 1, 3, 500)?;
        self.append(log, 1, 1, 5000)?;
        self.append(log, 2, 4, 3000)?;
        self.append(log, 2, 2, 700)?;
        self.truncate(log, 8)?;
        self.append(log, 3, 3, 100)?;
        self.vote(log, b"second")?;
        self.append(log, 3, 3, 4000)?;
        self.truncate(log, 4)?;
        self.append(log, 4, 2, 40_000)?;
        self.append(log, 4, 3, 2000)?;
        self.image = 1;
        log.write_image(3, &[b"state"])?;
        self.image = 2;
        self.purge_asked = 5;
        log.purge_through(5)?;
        self.append(log, 4, 3, 2000)?;
        Ok(())
    }

    fn check(&self, log: &Log, vote: Option<&[u8]>, context: &str) {
        let last = log.last().map_or(0, |(_, index)| index as usize + 1);
        assert!(
            last >= self.acked,
            "{context}: {last} frames left, {} promised",
            self.acked
        );
        assert!(
            last <= self.terms.len(),
            "{context}: frames that were dropped came back"
        );
        let first = log.first_index();
        assert!(first <= self.purge_asked + 1, "{context}: purged too much");
        for index in first..last as u64 {
            let read = log.read(index).unwrap().unwrap();
            assert_eq!(
                read.term, self.terms[index as usize],
                "{context}: term of {index}"
            );
            assert_eq!(read.payload, body(index, read.payload.len()), "{context}");
            assert_eq!(log.term_of(index), Some(read.term), "{context}");
        }
        let possible = &self.votes[self.acked_votes.saturating_sub(1)..];
        let none_yet = self.acked_votes == 0 && vote.is_none();
        assert!(
            none_yet || possible.iter().any(|possible| Some(&possible[..]) == vote),
            "{context}: vote {vote:?}"
        );
        let images = log.images().unwrap();
        assert!(images.len() as u64 <= self.image.min(1), "{context}");
        assert!(
            self.image < 2 || images.len() == 1,
            "{context}: the image is gone"
        );
    }
}

fn run(disk: &EvilStorage, config: &queen_log::LogConfig) -> (Promise, bool) {
    let mut promise = Promise::default();
    let Ok((log, _)) = open_on(config, disk) else {
        assert!(disk.is_dead());
        return (promise, false);
    };
    let whole = promise.workload(&log).is_ok();
    assert!(whole || disk.is_dead());
    log.close();
    (promise, whole)
}

#[test]
fn the_disk_dies_at_every_change() {
    let mut fuse = 0;
    loop {
        let mut survived = false;
        for seed in 0..3 {
            let dir = tempfile::tempdir().unwrap();
            let (disk, config) = evil(dir.path());
            disk.die_after(fuse);
            let (promise, whole) = run(&disk, &config);
            survived = whole && !disk.is_dead();
            disk.lose_unsynced(seed * 1000 + fuse).unwrap();
            // The recovery itself may be cut short, too.
            disk.die_after(seed * 2);
            drop(open_on(&config, &disk));
            disk.lose_unsynced(seed * 1000 + fuse + 1).unwrap();
            let context = format!("fuse {fuse}, seed {seed}");
            let (log, recovered) =
                open_on(&config, &disk).unwrap_or_else(|error| panic!("{context}: {error}"));
            promise.check(&log, recovered.vote.as_deref(), &context);
            let next = log.last().map_or(log.first_index(), |(_, index)| index + 1);
            kit::append_wait(&log, 9, next..next + 3, 1000);
            log.close();
            let (log, _) = open_on(&config, &disk).unwrap();
            assert_eq!(log.last(), Some((9, next + 2)), "{context}");
        }
        if survived {
            break;
        }
        fuse += 1;
    }
    assert!(fuse > 60, "the workload is too small: {fuse} changes");
}
