//! The clock that stamps entries: never goes back, never repeats, and does not follow jumps of the
//! wall clock. It starts at the wall (or at the newest applied stamp, if that is later), runs with
//! the monotonic clock and closes a gap to the wall by at most a millisecond per second.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use queen_engine::ids::TimeUs;

/// Fastest correction towards the wall: one part in this many.
const SLEW: i64 = 1000;

/// Where the clock takes its time from; tests and the simulator bring their own.
pub trait TimeSource: Send + Sync + 'static {
    /// Monotonic microseconds since some fixed point.
    fn monotonic_us(&self) -> i64;
    /// Wall-clock microseconds since the Unix epoch.
    fn wall_us(&self) -> i64;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemTimeSource {
    start: Instant,
}

impl Default for SystemTimeSource {
    fn default() -> Self {
        SystemTimeSource {
            start: Instant::now(),
        }
    }
}

impl TimeSource for SystemTimeSource {
    fn monotonic_us(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_micros()).unwrap_or(i64::MAX)
    }

    fn wall_us(&self) -> i64 {
        // A wall clock before 1970 counts as 1970.
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }
}

/// The node's clock.
pub struct Clock {
    source: Box<dyn TimeSource>,
    state: Mutex<Reading>,
}

struct Reading {
    /// Monotonic time of the last reading.
    read_at: i64,
    /// The clock at the last reading.
    now: i64,
    /// Newest stamp given out.
    stamped: i64,
    /// Elapsed time not yet turned into correction, microseconds.
    slew_rest: i64,
}

impl Clock {
    /// A clock that starts at the wall.
    pub fn new(source: Box<dyn TimeSource>) -> Clock {
        let reading = Reading {
            read_at: source.monotonic_us(),
            now: source.wall_us(),
            stamped: 0,
            slew_rest: 0,
        };
        Clock {
            source,
            state: Mutex::new(reading),
        }
    }

    /// Makes the clock run on from `stamp` if it is behind: every stamp from now on is later.
    pub fn start_after(&self, stamp: TimeUs) {
        let mut state = self.state.lock();
        self.advance(&mut state);
        state.now = state.now.max(stamp.0);
        state.stamped = state.stamped.max(stamp.0);
    }

    /// Goes on from another node's clock: followers keep the leader's time, so that a lease it gave
    /// ends when the leader meant it to, whatever this machine's wall clock says. May go back, but
    /// never behind a stamp.
    pub fn follow(&self, theirs: TimeUs) {
        let mut state = self.state.lock();
        self.advance(&mut state);
        state.now = theirs.0.max(state.stamped);
    }

    /// The time now. Equal readings are possible; stamps are not.
    pub fn now(&self) -> TimeUs {
        let mut state = self.state.lock();
        self.advance(&mut state);
        TimeUs(state.now.max(state.stamped))
    }

    /// A stamp, later than every stamp before.
    pub fn stamp(&self) -> TimeUs {
        let mut state = self.state.lock();
        self.advance(&mut state);
        state.stamped = state.now.max(state.stamped + 1);
        TimeUs(state.stamped)
    }

    /// How far the clock is ahead of the wall, microseconds.
    pub fn ahead_of_wall(&self) -> i64 {
        let mut state = self.state.lock();
        self.advance(&mut state);
        state.now - self.source.wall_us()
    }

    fn advance(&self, state: &mut Reading) {
        let monotonic = self.source.monotonic_us();
        let elapsed = (monotonic - state.read_at).max(0);
        state.read_at = state.read_at.max(monotonic);
        let slew = state.slew_rest + elapsed;
        let correction_max = slew / SLEW;
        state.slew_rest = slew % SLEW;
        let reading = state.now + elapsed;
        let gap = self.source.wall_us() - reading;
        // The correction is smaller than the elapsed time, so the clock never goes back.
        state.now = reading + gap.clamp(-correction_max, correction_max);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    #[derive(Clone, Default)]
    struct Fake {
        monotonic: Arc<AtomicI64>,
        wall: Arc<AtomicI64>,
    }

    impl TimeSource for Fake {
        fn monotonic_us(&self) -> i64 {
            self.monotonic.load(Ordering::Relaxed)
        }
        fn wall_us(&self) -> i64 {
            self.wall.load(Ordering::Relaxed)
        }
    }

    impl Fake {
        fn pass(&self, us: i64) {
            self.monotonic.fetch_add(us, Ordering::Relaxed);
            self.wall.fetch_add(us, Ordering::Relaxed);
        }
    }

    #[test]
    fn stamps_rise_when_time_stands_still() {
        let fake = Fake::default();
        fake.wall.store(5_000_000, Ordering::Relaxed);
        let clock = Clock::new(Box::new(fake));
        let stamps: Vec<i64> = (0..5).map(|_| clock.stamp().0).collect();
        assert_eq!(
            stamps,
            [5_000_000, 5_000_001, 5_000_002, 5_000_003, 5_000_004]
        );
        assert_eq!(clock.now().0, 5_000_004);
    }

    #[test]
    fn wall_jumps_do_not_move_it() {
        let fake = Fake::default();
        fake.wall.store(1_000_000_000, Ordering::Relaxed);
        let clock = Clock::new(Box::new(fake.clone()));
        for jump in [3_600_000_000, -7_200_000_000] {
            let before = clock.now().0;
            fake.wall.fetch_add(jump, Ordering::Relaxed);
            fake.pass(1_000_000);
            let passed = clock.now().0 - before;
            assert!((999_000..=1_001_000).contains(&passed), "{passed}");
        }
    }

    #[test]
    fn closes_a_gap_slowly() {
        let fake = Fake::default();
        fake.wall.store(1_000_000_000, Ordering::Relaxed);
        let clock = Clock::new(Box::new(fake.clone()));
        fake.wall.fetch_add(10_000, Ordering::Relaxed);
        for _ in 0..10_000 {
            fake.pass(2_000);
            clock.now();
        }
        assert_eq!(clock.ahead_of_wall(), 0);
    }

    #[test]
    fn follows_another_but_not_behind_its_own_stamps() {
        let fake = Fake::default();
        fake.wall.store(1_000_000_000, Ordering::Relaxed);
        let clock = Clock::new(Box::new(fake.clone()));
        clock.follow(TimeUs(400));
        fake.pass(100);
        assert_eq!(clock.now().0, 500);
        let stamp = clock.stamp();
        clock.follow(TimeUs(10));
        assert_eq!(clock.now(), stamp);
    }

    #[test]
    fn starts_behind_the_newest_stamp() {
        let fake = Fake::default();
        let clock = Clock::new(Box::new(fake));
        clock.start_after(TimeUs(77));
        assert_eq!(clock.stamp(), TimeUs(78));
    }
}
