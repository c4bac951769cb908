//! Our own bytes for what openraft wants kept: the vote with the purge point, and memberships. The
//! serde forms of openraft are not stable between its releases; these are.
//!
//! ```text
//! meta:       version u8 (1) | flags u8: 1 vote, 2 vote is a leader's, 4 purged
//!             | vote term u64 | voted for u64 | purged term u64 | purged index u64
//! membership: version u8 (1) | configs u32 | per config: voters u32, ids u64 ...
//!             | members u32 | per member: id u64, generation u64, address length u16, address
//! ```
//! Integers little-endian. The log checks the bytes; a decoder still never panics.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::types::{LogId, Membership, Peer, Vote};

const VERSION: u8 = 1;
const HAS_VOTE: u8 = 1;
const VOTE_COMMITTED: u8 = 2;
const HAS_PURGED: u8 = 4;
const META_BYTES: usize = 34;

/// What is kept beside the entries.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Meta {
    pub vote: Option<Vote>,
    /// Entries up to here are gone for openraft.
    pub purged: Option<LogId>,
}

/// A log id of a term and an index.
pub fn log_id(term: u64, index: u64) -> LogId {
    LogId::new_term_index(term, index)
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("stored {what} cannot be decoded"),
    )
}

impl Meta {
    pub fn encode(&self) -> Vec<u8> {
        let mut flags = 0;
        let (mut term, mut node) = (0, 0);
        if let Some(vote) = &self.vote {
            flags |= HAS_VOTE;
            flags |= if vote.committed { VOTE_COMMITTED } else { 0 };
            (term, node) = (vote.leader_id.term, vote.leader_id.voted_for);
        }
        let mut purged = (0, 0);
        if let Some(id) = &self.purged {
            flags |= HAS_PURGED;
            purged = (id.leader_id.term, id.index);
        }
        let mut bytes = Vec::with_capacity(META_BYTES);
        bytes.put_slice(&[VERSION, flags]);
        for number in [term, node, purged.0, purged.1] {
            bytes.put_u64_le(number);
        }
        bytes
    }

    pub fn decode(mut bytes: &[u8]) -> io::Result<Meta> {
        if bytes.len() != META_BYTES || bytes[0] != VERSION {
            return Err(invalid("vote"));
        }
        let flags = bytes[1];
        bytes.advance(2);
        let mut next = || bytes.get_u64_le();
        let (term, node, purged_term, purged_index) = (next(), next(), next(), next());
        let vote = match flags & VOTE_COMMITTED {
            0 => Vote::new(term, node),
            _ => Vote::new_committed(term, node),
        };
        Ok(Meta {
            vote: (flags & HAS_VOTE != 0).then_some(vote),
            purged: (flags & HAS_PURGED != 0).then(|| log_id(purged_term, purged_index)),
        })
    }
}

/// The bytes of a membership.
pub fn encode_membership(membership: &Membership) -> Bytes {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let mut bytes = BytesMut::new();
    bytes.put_u8(VERSION);
    let configs = membership.get_joint_config();
    bytes.put_u32_le(count(configs.len()));
    for config in configs {
        bytes.put_u32_le(count(config.len()));
        config.iter().for_each(|id| bytes.put_u64_le(*id));
    }
    let nodes: Vec<_> = membership.nodes().collect();
    bytes.put_u32_le(count(nodes.len()));
    for (id, peer) in nodes {
        bytes.put_u64_le(*id);
        bytes.put_u64_le(peer.generation);
        let address = &peer.address.as_bytes()[..peer.address.len().min(usize::from(u16::MAX))];
        bytes.put_u16_le(u16::try_from(address.len()).unwrap_or(u16::MAX));
        bytes.put_slice(address);
    }
    bytes.freeze()
}

/// Reads a membership.
pub fn decode_membership(bytes: &[u8]) -> io::Result<Membership> {
    let mut rest = bytes;
    decode(&mut rest)
        .filter(|_| rest.is_empty())
        .ok_or_else(|| invalid("membership"))
}

fn decode(rest: &mut &[u8]) -> Option<Membership> {
    if rest.try_get_u8().ok()? != VERSION {
        return None;
    }
    let mut configs = Vec::new();
    for _ in 0..rest.try_get_u32_le().ok()? {
        let mut config = BTreeSet::new();
        for _ in 0..rest.try_get_u32_le().ok()? {
            config.insert(rest.try_get_u64_le().ok()?);
        }
        configs.push(config);
    }
    let mut nodes = BTreeMap::new();
    for _ in 0..rest.try_get_u32_le().ok()? {
        let id = rest.try_get_u64_le().ok()?;
        let generation = rest.try_get_u64_le().ok()?;
        let len = usize::from(rest.try_get_u16_le().ok()?);
        let (address, tail) = rest.split_at_checked(len)?;
        *rest = tail;
        let address = std::str::from_utf8(address).ok()?.to_string();
        nodes.insert(
            id,
            Peer {
                address,
                generation,
            },
        );
    }
    if configs.is_empty() && nodes.is_empty() {
        return Some(Membership::default());
    }
    Membership::new(configs, nodes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meta_comes_back() {
        for vote in [
            None,
            Some(Vote::new(3, 7)),
            Some(Vote::new_committed(u64::MAX, 0)),
        ] {
            for purged in [None, Some(log_id(2, 9))] {
                let meta = Meta { vote, purged };
                assert_eq!(Meta::decode(&meta.encode()).unwrap(), meta);
            }
        }
    }

    #[test]
    fn memberships_come_back_and_cut_ones_do_not() {
        let peer = |address: &str| Peer {
            address: address.to_string(),
            generation: 5,
        };
        let nodes = BTreeMap::from([(1, peer("a:1")), (2, peer("")), (3, peer("ü:9"))]);
        let configs = vec![BTreeSet::from([1, 2]), BTreeSet::from([1, 3])];
        let membership = Membership::new(configs, nodes).unwrap();
        let bytes = encode_membership(&membership);
        assert_eq!(decode_membership(&bytes).unwrap(), membership);
        for end in 0..bytes.len() {
            assert!(decode_membership(&bytes[..end]).is_err());
        }
        let none = Membership::default();
        assert_eq!(decode_membership(&encode_membership(&none)).unwrap(), none);
    }
}
