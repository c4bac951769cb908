//! Who this node is, in a small checksummed file of the data directory: the cluster it belongs to,
//! its id there, and a random number of the directory. A wiped directory is another member: it
//! could vote twice in one term otherwise.
//!
//! ```text
//! magic "QNID" | version u32 (1) | crc u32 over the rest | node id i32 | group u32
//! | cluster id u128 | generation u64
//! ```

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use bytes::{Buf, BufMut};

use crate::error::StartError;

const MAGIC: &[u8; 4] = b"QNID";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 12;
const BODY_BYTES: usize = 32;
const NAME: &str = "identity";

/// A node's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub node_id: i32,
    pub group: u32,
    /// 0 as long as the node belongs to no cluster.
    pub cluster: u128,
    pub generation: u64,
}

impl Identity {
    /// Reads the identity of a data directory, or makes one when there is none. A node that is
    /// `alone` is a cluster of its own at once; one with peers belongs to none until they form one.
    pub fn open(dir: &Path, node_id: i32, group: u32, alone: bool) -> Result<Identity, StartError> {
        let path = dir.join(NAME);
        let fail = |what, source| StartError::File {
            what,
            path: path.clone(),
            source,
        };
        let mut bytes = Vec::new();
        match File::open(&path) {
            Ok(mut file) => {
                file.read_to_end(&mut bytes)
                    .map_err(|error| fail("cannot read", error))?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let made = Identity {
                    node_id,
                    group,
                    cluster: if alone { rand::random() } else { 0 },
                    generation: rand::random(),
                };
                made.write(dir)
                    .map_err(|error| fail("cannot write", error))?;
                return Ok(made);
            }
            Err(error) => return Err(fail("cannot open", error)),
        }
        let found = Identity::decode(&bytes).map_err(|why| StartError::Damaged {
            path: path.clone(),
            why,
        })?;
        if found.node_id != node_id {
            return Err(StartError::OtherNode {
                path,
                found: found.node_id,
                ours: node_id,
            });
        }
        if alone && found.cluster == 0 {
            let made = Identity {
                cluster: rand::random(),
                ..found
            };
            made.write(dir)
                .map_err(|error| fail("cannot write", error))?;
            return Ok(made);
        }
        Ok(found)
    }

    /// The cluster id as Kafka clients see it: 22 characters of URL-safe base64.
    pub fn cluster_text(&self) -> String {
        const ALPHABET: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        // 22 groups of 6 bits hold 128 bits and four zeros behind them.
        let digit = |nth: u32| {
            let bits = match nth {
                21 => self.cluster << 4,
                _ => self.cluster >> (122 - 6 * nth),
            };
            char::from(ALPHABET[(bits & 63) as usize])
        };
        (0..22).map(digit).collect()
    }

    fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(BODY_BYTES);
        body.put_i32_le(self.node_id);
        body.put_u32_le(self.group);
        body.put_u128_le(self.cluster);
        body.put_u64_le(self.generation);
        let mut bytes = Vec::with_capacity(HEAD_BYTES + BODY_BYTES);
        bytes.put_slice(MAGIC);
        bytes.put_u32_le(VERSION);
        bytes.put_u32_le(crc32fast::hash(&body));
        bytes.put_slice(&body);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Identity, String> {
        if bytes.len() != HEAD_BYTES + BODY_BYTES || !bytes.starts_with(MAGIC) {
            return Err("it is not an identity file".to_string());
        }
        let (mut head, mut body) = bytes.split_at(HEAD_BYTES);
        head.advance(MAGIC.len());
        let version = head.get_u32_le();
        if version != VERSION {
            return Err(format!(
                "it has format {version}, this binary reads {VERSION}"
            ));
        }
        if head.get_u32_le() != crc32fast::hash(body) {
            return Err("its checksum does not fit".to_string());
        }
        Ok(Identity {
            node_id: body.get_i32_le(),
            group: body.get_u32_le(),
            cluster: body.get_u128_le(),
            generation: body.get_u64_le(),
        })
    }

    /// Writes the identity; durable on return.
    pub(crate) fn write(&self, dir: &Path) -> std::io::Result<()> {
        let staged = dir.join(format!("{NAME}.tmp"));
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&staged)?;
        file.write_all(&self.encode())?;
        file.sync_all()?;
        std::fs::rename(&staged, dir.join(NAME))?;
        File::open(dir)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_made_once_and_belongs_to_its_node() {
        let dir = tempfile::tempdir().unwrap();
        let made = Identity::open(dir.path(), 3, 1, true).unwrap();
        assert_eq!(Identity::open(dir.path(), 3, 1, true).unwrap(), made);
        assert_eq!(made.cluster_text().len(), 22);
        let other = Identity::open(dir.path(), 4, 1, true);
        assert!(matches!(
            other,
            Err(StartError::OtherNode {
                found: 3,
                ours: 4,
                ..
            })
        ));
    }

    #[test]
    fn one_with_peers_belongs_to_no_cluster_until_they_form_one() {
        let dir = tempfile::tempdir().unwrap();
        let made = Identity::open(dir.path(), 3, 1, false).unwrap();
        assert_eq!(made.cluster, 0);
        let alone = Identity::open(dir.path(), 3, 1, true).unwrap();
        assert_ne!(alone.cluster, 0);
        assert_eq!(alone.generation, made.generation);
        assert_eq!(Identity::open(dir.path(), 3, 1, false).unwrap(), alone);
    }

    #[test]
    fn damage_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        Identity::open(dir.path(), 3, 1, true).unwrap();
        let path = dir.path().join(NAME);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            assert!(Identity::open(dir.path(), 3, 1, true).is_err(), "byte {at}");
        }
    }
}
