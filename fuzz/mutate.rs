// Seeded mutation for the plain corpus tests: each crate's `tests/corpus.rs` includes this file and
// runs its parser over the seeds and their neighbours. Deterministic: a failure repeats.

use std::path::Path;

/// Mutants per seed.
const MUTANTS: u64 = 3_000;

/// Lengths that parsers like to believe.
const LIES: [u32; 6] = [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x00ff_ffff];

fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn mutate(seed: &[u8], state: &mut u64) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=next(state) % 4 {
        let len = bytes.len().max(1) as u64;
        let at = usize::try_from(next(state) % len).unwrap_or(0);
        match next(state) % 6 {
            _ if bytes.is_empty() => bytes.push(0),
            0 => bytes[at] ^= 1 << (next(state) % 8),
            1 => bytes[at] = next(state) as u8,
            2 => bytes.truncate(at),
            3 => {
                let lie = LIES[usize::try_from(next(state) % 6).unwrap_or(0)];
                let lie = if next(state).is_multiple_of(2) {
                    lie.to_be_bytes()
                } else {
                    lie.to_le_bytes()
                };
                let end = (at + 4).min(bytes.len());
                bytes[at..end].copy_from_slice(&lie[..end - at]);
            }
            4 => {
                let end = (at + usize::try_from(next(state) % 32).unwrap_or(0)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                let end = (at + usize::try_from(next(state) % 32).unwrap_or(0)).min(bytes.len());
                bytes.drain(at..end);
            }
        }
    }
    bytes
}

/// Runs `parse` over every seed of `fuzz/seeds/NAME`, over `extra`, and over mutants of all of them.
pub fn run(name: &str, extra: &[Vec<u8>], parse: impl Fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/seeds")
        .join(name);
    let mut seeds = extra.to_vec();
    if dir.exists() {
        let mut files: Vec<_> = std::fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        seeds.extend(files.iter().map(|file| std::fs::read(file).unwrap()));
    }
    assert!(!seeds.is_empty(), "no seeds for {name}");
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for seed in &seeds {
        parse(seed);
        for _ in 0..MUTANTS {
            parse(&mutate(seed, &mut state));
        }
    }
}
