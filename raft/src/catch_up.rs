//! Files of the log for a node that lacks more than its peers' logs still hold: the newest state
//! image with every segment and sidecar, as they lie on the leader's disk. The node that lacks
//! fetches them (`fetch.rs`) from one that has them (`source.rs`) into a directory beside its log,
//! goes on there after a failure, and starts again with them once all are whole (`install.rs`).
//! Its own log stays in use until then. A node whose own log is damaged does the same before it
//! takes part in anything (`repair.rs`).

pub mod fetch;
pub mod install;
pub mod repair;
pub mod source;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::replicator::Position;

/// Directory of what is fetched, in the data directory.
const INCOMING: &str = "incoming";
/// Bytes of one piece.
const PIECE_BYTES: u32 = 1 << 20;
/// Bytes of a file that its tag is made of; they hold its header.
const TAG_BYTES: usize = 4096;

/// One file to fetch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileEntry {
    /// `segments/NAME` or `images/NAME`.
    name: String,
    /// Bytes to fetch.
    bytes: u64,
    /// Bytes the file has; the rest are zeros.
    size: u64,
    /// Checksum of its beginning, which differs between files of one name.
    tag: u32,
}

/// What makes up a log and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Manifest {
    /// Newest entry: term and index.
    last: (u64, u64),
    /// Newest entry that consensus has let go of.
    purged: Option<(u64, u64)>,
    files: Vec<FileEntry>,
}

const MANIFEST_VERSION: u8 = 1;

impl Manifest {
    fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![MANIFEST_VERSION])
            .expect("a manifest is plain data; encoding to memory cannot fail")
    }

    fn decode(bytes: &[u8]) -> Option<Manifest> {
        let (version, rest) = bytes.split_first()?;
        let manifest: Manifest = (*version == MANIFEST_VERSION)
            .then(|| postcard::from_bytes(rest).ok())
            .flatten()?;
        let valid = manifest
            .files
            .iter()
            .all(|file| split(&file.name).is_some());
        valid.then_some(manifest)
    }

    fn purged(&self) -> Option<Position> {
        self.purged.map(|(term, index)| Position { term, index })
    }
}

/// Directory and name of a file; `None` for anything that is not a plain name in one of the two.
fn split(name: &str) -> Option<(&str, &str)> {
    let (dir, file) = name.split_once('/')?;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'.';
    let known = dir == "segments" || dir == "images";
    let valid = known && !file.is_empty() && !file.starts_with('.') && file.bytes().all(plain);
    valid.then_some((dir, file))
}

/// Where what was fetched of a file lies until it is installed; a file that has changed since has
/// another name.
fn staged(incoming: &Path, file: &FileEntry) -> PathBuf {
    let flat = file.name.replace('/', "-");
    incoming.join(format!("{flat}-{:08x}-{}", file.tag, file.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_of_the_two_directories_pass() {
        assert!(split("segments/0000000000000001.seg").is_some());
        assert!(split("images/00000000000000000001.img").is_some());
        for name in [
            "vote",
            "segments/",
            "segments/../vote",
            "other/a.seg",
            "segments/a/b",
            "/etc/passwd",
            "images/.hidden",
            "segments/A",
        ] {
            assert!(split(name).is_none(), "{name}");
        }
    }

    #[test]
    fn manifests_come_back_and_hostile_ones_do_not() {
        let file = |name: &str| FileEntry {
            name: name.to_string(),
            bytes: 5,
            size: 9,
            tag: 77,
        };
        let good = Manifest {
            last: (2, 9),
            purged: Some((1, 3)),
            files: vec![file("segments/1.seg"), file("images/2.img")],
        };
        assert_eq!(Manifest::decode(&good.encode()), Some(good.clone()));
        let bad = Manifest {
            files: vec![file("segments/../../x")],
            ..good
        };
        assert_eq!(Manifest::decode(&bad.encode()), None);
    }
}
