//! Frames made to hurt: they must end in an error, not in a panic or an abort. Runs with the
//! allocator of the release binary, which turns a giant reserve into an error.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A small deterministic generator (xorshift), so that a failure repeats.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[test]
fn hostile_array_lengths_are_errors() {
    for api in queen_kafka::served_apis() {
        for version in api.min..=api.max {
            for lengths in [
                [0xff, 0xff, 0xff, 0xff, 0x07],
                [0x7f, 0xff, 0xff, 0xff, 0xff],
            ] {
                for lead in 0..24 {
                    let mut frame = Vec::new();
                    frame.extend_from_slice(&api.key.to_be_bytes());
                    frame.extend_from_slice(&version.to_be_bytes());
                    frame.extend_from_slice(&[0, 0, 0, 1, 0xff, 0xff, 0]);
                    frame.resize(frame.len() + lead, 0);
                    frame.extend_from_slice(&lengths);
                    queen_kafka::fuzz_frame(&frame);
                }
            }
        }
    }
}

#[test]
fn random_bodies_never_panic() {
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    for _ in 0..3000 {
        for api in queen_kafka::served_apis() {
            let span = u64::try_from(api.max - api.min + 1).unwrap();
            let version = api.min + i16::try_from(chance.next() % span).unwrap();
            let mut frame = Vec::new();
            frame.extend_from_slice(&api.key.to_be_bytes());
            frame.extend_from_slice(&version.to_be_bytes());
            frame.extend_from_slice(&[0, 0, 0, 1, 0, 1, b'c', 0]);
            for _ in 0..chance.next() % 64 {
                // Small numbers get further into a message than random ones.
                let byte = if chance.next().is_multiple_of(3) {
                    chance.next() as u8
                } else {
                    0
                };
                frame.push(byte.wrapping_add((chance.next() % 3) as u8));
            }
            queen_kafka::fuzz_frame(&frame);
        }
    }
}
