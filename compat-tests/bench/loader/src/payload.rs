//! What the loaders send, and the book that checks what came back.
//!
//! Message `n` goes to lane `lane_of(n)`. Its value is one JSON document of a fixed size with `n` and the time at which it
//! was due at fixed places, so that a reader checks it without parsing.

use std::sync::OnceLock;
use std::time::Instant;

const HEAD: usize = 46;
const FILLERS: usize = 1024;
/// Prime and coprime with every power of ten: visits all lanes once a turn, in no order.
const STRIDE: u64 = 2_654_435_761;

/// Nanoseconds on the clock that all threads of this machine share.
pub fn now_ns() -> u64 {
    static START: OnceLock<()> = OnceLock::new();
    START.get_or_init(|| ());
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// How message numbers map to lanes: `writers` connections own disjoint lanes, so that order per lane can be checked.
#[derive(Clone, Copy)]
pub struct Lanes {
    pub lanes: u64,
    pub writers: u64,
}

impl Lanes {
    pub fn of(self, n: u64) -> u64 {
        let own = (self.lanes / self.writers).max(1);
        let turn = n / self.writers;
        (turn.wrapping_mul(STRIDE) % own) * self.writers + n % self.writers
    }
}

pub fn lane_name(out: &mut Vec<u8>, lane: u64) {
    out.clear();
    out.extend_from_slice(b"lane-");
    digits(out, lane, 8);
}

/// The number in a lane's name; 1 for a name that is not ours, which the book then reports.
pub fn lane_number(name: &[u8]) -> u64 {
    number(name.get(5..).unwrap_or(b"x")).unwrap_or(1)
}

fn digits(out: &mut Vec<u8>, mut number: u64, width: usize) {
    let start = out.len();
    out.resize(start + width, b'0');
    for at in (start..start + width).rev() {
        out[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Values of one size. The filler is words and hexadecimal digits, half and half: about what business JSON compresses to.
pub struct Payloads {
    fillers: Vec<Vec<u8>>,
}

impl Payloads {
    pub fn new(size: usize) -> Payloads {
        const WORDS: [&str; 16] = [
            "order", "customer", "amount", "currency", "created", "status", "shipping", "address", "invoice", "total",
            "discount", "warehouse", "payment", "pending", "accepted", "reference",
        ];
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let room = size.saturating_sub(HEAD + 2);
        let fillers = (0..FILLERS)
            .map(|_| {
                let mut text = String::new();
                while text.len() < room {
                    text.push_str(WORDS[(next() % 16) as usize]);
                    text.push_str(&format!(" {:08x} ", next() as u32));
                }
                text.truncate(room);
                text.into_bytes()
            })
            .collect();
        Payloads { fillers }
    }

    /// `{"n":000000000000,"t":00000000000000000,"f":"..."}`
    pub fn write(&self, out: &mut Vec<u8>, n: u64, due_ns: u64) {
        out.extend_from_slice(b"{\"n\":1");
        digits(out, n, 12);
        out.extend_from_slice(b",\"t\":1");
        digits(out, due_ns, 16);
        out.extend_from_slice(b",\"f\":\"");
        out.extend_from_slice(&self.fillers[(n % FILLERS as u64) as usize]);
        out.extend_from_slice(b"\"}");
    }
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.iter().try_fold(0u64, |sum, byte| {
        byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0'))
    })
}

/// The message's number and due time.
pub fn read(value: &[u8]) -> Option<(u64, u64)> {
    if value.len() < HEAD || !value.starts_with(b"{\"n\":1") {
        return None;
    }
    Some((number(&value[6..18])?, number(&value[24..40])?))
}

/// Every message once, and in rising order within its lane.
pub struct Book {
    lanes: Lanes,
    seen: Vec<u64>,
    last: Vec<u32>,
    pub count: u64,
    pub twice: u64,
    pub disorder: u64,
    pub strange: u64,
}

impl Book {
    pub fn new(lanes: Lanes, messages: u64) -> Book {
        Book {
            lanes,
            seen: vec![0; messages as usize / 64 + 1],
            last: vec![0; (lanes.lanes + lanes.writers) as usize],
            count: 0,
            twice: 0,
            disorder: 0,
            strange: 0,
        }
    }

    /// Notes a message read from the lane named `lane`; answers when it was due.
    pub fn note(&mut self, lane: &[u8], value: &[u8]) -> Option<u64> {
        let Some((n, due)) = read(value) else {
            self.strange += 1;
            return None;
        };
        let expected = self.lanes.of(n);
        if number(lane.get(5..).unwrap_or(b"x")) != Some(expected) || n as usize / 64 >= self.seen.len() {
            self.strange += 1;
            return None;
        }
        let (word, bit) = (n as usize / 64, 1u64 << (n % 64));
        if self.seen[word] & bit != 0 {
            self.twice += 1;
            return None;
        }
        self.seen[word] |= bit;
        self.count += 1;
        let last = &mut self.last[expected as usize];
        if n as u32 + 1 <= *last {
            self.disorder += 1;
        }
        *last = n as u32 + 1;
        Some(due)
    }

    pub fn clean(&self) -> bool {
        self.twice == 0 && self.disorder == 0 && self.strange == 0
    }
}

/// Sends at a fixed rate whatever the answers do: message `i` is due at a time known before.
pub struct Pace {
    start_ns: u64,
    rate: f64,
}

impl Pace {
    /// `rate` of 0 means as fast as possible: then everything is due now.
    pub fn new(rate: f64) -> Pace {
        Pace { start_ns: now_ns(), rate }
    }

    pub fn open(&self) -> bool {
        self.rate > 0.0
    }

    pub fn due(&self, index: u64) -> u64 {
        if self.open() { self.start_ns + (index as f64 * 1e9 / self.rate) as u64 } else { now_ns() }
    }

    pub fn wait(due_ns: u64) {
        let now = now_ns();
        if due_ns > now + 50_000 {
            std::thread::sleep(std::time::Duration::from_nanos(due_ns - now));
        }
    }
}

/// A deadline that no loader outlives.
pub fn past(start: Instant, seconds: u64) -> bool {
    start.elapsed().as_secs() >= seconds
}
