//! The bytes of consensus between nodes. Our own layout: openraft's serde forms are not stable, and
//! an entry travels exactly as it lies in the leader's log.
//!
//! ```text
//! vote:      term u64 | node u64 | committed u8
//! log id:    0, or 1 and term u64, index u64
//! append:    vote | previous log id | leader's commit | entries u32
//!            | per entry: kind u8, term u64, index u64, length u32, bytes
//! ask vote:  vote | last log id | leadership transfer u8
//! vote said: vote | granted u8 | last log id
//! transfer:  vote | node u64 | last log id
//! install:   log id that the files must reach
//! has it:    u8, whether it is there already
//! ```

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, StreamAppendError, StreamAppendResult,
    TransferLeaderRequest, VoteRequest, VoteResponse,
};

use super::codec::log_id;
use super::log_store::{entry_of, parts_of};
use super::types::{LogId, TypeConfig, Vote};
use crate::replicator::Position;

type Append = AppendEntriesRequest<TypeConfig>;
type Appended = AppendEntriesResponse<TypeConfig>;

fn short() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "a message of a peer is cut short",
    )
}

fn put_vote(to: &mut BytesMut, vote: &Vote) {
    to.put_u64_le(vote.leader_id.term);
    to.put_u64_le(vote.leader_id.voted_for);
    to.put_u8(u8::from(vote.committed));
}

fn put_id(to: &mut BytesMut, id: Option<&LogId>) {
    match id {
        None => to.put_u8(0),
        Some(id) => {
            to.put_u8(1);
            to.put_u64_le(id.leader_id.term);
            to.put_u64_le(id.index);
        }
    }
}

fn get_vote(from: &mut Bytes) -> io::Result<Vote> {
    let term = from.try_get_u64_le().map_err(|_| short())?;
    let node = from.try_get_u64_le().map_err(|_| short())?;
    Ok(match from.try_get_u8().map_err(|_| short())? {
        0 => Vote::new(term, node),
        _ => Vote::new_committed(term, node),
    })
}

fn get_id(from: &mut Bytes) -> io::Result<Option<LogId>> {
    if from.try_get_u8().map_err(|_| short())? == 0 {
        return Ok(None);
    }
    let term = from.try_get_u64_le().map_err(|_| short())?;
    let index = from.try_get_u64_le().map_err(|_| short())?;
    Ok(Some(log_id(term, index)))
}

/// An append in pieces; the entries' bytes are not copied.
pub fn put_append(append: Append) -> Vec<Bytes> {
    let mut head = BytesMut::with_capacity(64 + 32 * append.entries.len());
    put_vote(&mut head, &append.vote);
    put_id(&mut head, append.prev_log_id.as_ref());
    put_id(&mut head, append.leader_commit.as_ref());
    head.put_u32_le(u32::try_from(append.entries.len()).unwrap_or(u32::MAX));
    let mut parts = Vec::new();
    for entry in append.entries {
        let (term, index) = (entry.log_id.leader_id.term, entry.log_id.index);
        let (kind, payload, _) = parts_of(entry.payload);
        let len: usize = payload.iter().map(Bytes::len).sum();
        head.put_u8(kind);
        head.put_u64_le(term);
        head.put_u64_le(index);
        head.put_u32_le(u32::try_from(len).unwrap_or(u32::MAX));
        if len > 0 {
            parts.push(head.split().freeze());
            parts.extend(payload);
        }
    }
    if !head.is_empty() {
        parts.push(head.freeze());
    }
    parts
}

/// Reads an append; its entries are slices of the message.
pub fn get_append(mut from: Bytes) -> io::Result<Append> {
    let vote = get_vote(&mut from)?;
    let prev_log_id = get_id(&mut from)?;
    let leader_commit = get_id(&mut from)?;
    let count = from.try_get_u32_le().map_err(|_| short())?;
    let mut entries = Vec::new();
    for _ in 0..count {
        let kind = from.try_get_u8().map_err(|_| short())?;
        let term = from.try_get_u64_le().map_err(|_| short())?;
        let index = from.try_get_u64_le().map_err(|_| short())?;
        let len = from.try_get_u32_le().map_err(|_| short())? as usize;
        if from.len() < len {
            return Err(short());
        }
        entries.push(entry_of(kind, term, index, from.split_to(len))?);
    }
    Ok(Append {
        vote,
        prev_log_id,
        entries,
        leader_commit,
    })
}

/// The answer to a single append.
pub fn put_appended(answer: &Appended) -> Vec<Bytes> {
    let mut to = BytesMut::new();
    match answer {
        Appended::Success => to.put_u8(0),
        Appended::PartialSuccess(id) => {
            to.put_u8(1);
            put_id(&mut to, id.as_ref());
        }
        Appended::Conflict => to.put_u8(2),
        Appended::HigherVote(vote) => {
            to.put_u8(3);
            put_vote(&mut to, vote);
        }
    }
    vec![to.freeze()]
}

/// Reads the answer to a single append.
pub fn get_appended(mut from: Bytes) -> io::Result<Appended> {
    Ok(match from.try_get_u8().map_err(|_| short())? {
        0 => Appended::Success,
        1 => Appended::PartialSuccess(get_id(&mut from)?),
        2 => Appended::Conflict,
        _ => Appended::HigherVote(get_vote(&mut from)?),
    })
}

/// The answer to one append of a session.
pub fn put_streamed(answer: &StreamAppendResult<TypeConfig>) -> Vec<Bytes> {
    let mut to = BytesMut::new();
    match answer {
        Ok(id) => {
            to.put_u8(0);
            put_id(&mut to, id.as_ref());
        }
        Err(StreamAppendError::Conflict(id)) => {
            to.put_u8(1);
            put_id(&mut to, Some(id));
        }
        Err(StreamAppendError::HigherVote(vote)) => {
            to.put_u8(2);
            put_vote(&mut to, vote);
        }
    }
    vec![to.freeze()]
}

/// Reads the answer to one append of a session.
pub fn get_streamed(mut from: Bytes) -> io::Result<StreamAppendResult<TypeConfig>> {
    Ok(match from.try_get_u8().map_err(|_| short())? {
        0 => Ok(get_id(&mut from)?),
        1 => Err(StreamAppendError::Conflict(
            get_id(&mut from)?.ok_or_else(short)?,
        )),
        _ => Err(StreamAppendError::HigherVote(get_vote(&mut from)?)),
    })
}

/// A request for a vote.
pub fn put_vote_request(request: &VoteRequest<TypeConfig>) -> Vec<Bytes> {
    let mut to = BytesMut::new();
    put_vote(&mut to, &request.vote);
    put_id(&mut to, request.last_log_id.as_ref());
    to.put_u8(u8::from(request.leadership_transfer));
    vec![to.freeze()]
}

/// Reads a request for a vote.
pub fn get_vote_request(mut from: Bytes) -> io::Result<VoteRequest<TypeConfig>> {
    let mut request = VoteRequest::new(get_vote(&mut from)?, get_id(&mut from)?);
    request.leadership_transfer = from.try_get_u8().map_err(|_| short())? != 0;
    Ok(request)
}

/// The answer to a request for a vote.
pub fn put_vote_response(response: &VoteResponse<TypeConfig>) -> Vec<Bytes> {
    let mut to = BytesMut::new();
    put_vote(&mut to, &response.vote);
    to.put_u8(u8::from(response.vote_granted));
    put_id(&mut to, response.last_log_id.as_ref());
    vec![to.freeze()]
}

/// Reads the answer to a request for a vote.
pub fn get_vote_response(mut from: Bytes) -> io::Result<VoteResponse<TypeConfig>> {
    let vote = get_vote(&mut from)?;
    let granted = from.try_get_u8().map_err(|_| short())? != 0;
    let last = get_id(&mut from)?;
    Ok(VoteResponse::new(vote, last, granted))
}

/// A wish that another node leads.
pub fn put_transfer(request: &TransferLeaderRequest<TypeConfig>) -> Vec<Bytes> {
    let mut to = BytesMut::new();
    put_vote(&mut to, request.from_leader());
    to.put_u64_le(*request.to_node_id());
    put_id(&mut to, request.last_log_id());
    vec![to.freeze()]
}

/// Reads a wish that another node leads.
pub fn get_transfer(mut from: Bytes) -> io::Result<TransferLeaderRequest<TypeConfig>> {
    let vote = get_vote(&mut from)?;
    let node = from.try_get_u64_le().map_err(|_| short())?;
    let last = get_id(&mut from)?;
    Ok(TransferLeaderRequest::new(vote, node, last))
}

/// The entry that a follower is asked for, or for the files that hold it.
pub fn put_wanted(wanted: Option<&LogId>) -> Vec<Bytes> {
    let mut to = BytesMut::new();
    put_id(&mut to, wanted);
    vec![to.freeze()]
}

/// Reads the entry that is asked for.
pub fn get_wanted(mut from: Bytes) -> io::Result<Option<Position>> {
    let id = get_id(&mut from)?;
    Ok(id.map(|id| Position {
        term: id.leader_id.term,
        index: id.index,
    }))
}

/// The answer: whether it is there.
pub fn put_has(has: bool) -> Vec<Bytes> {
    vec![Bytes::copy_from_slice(&[u8::from(has)])]
}

/// Reads whether it is there.
pub fn get_has(mut from: Bytes) -> io::Result<bool> {
    Ok(from.try_get_u8().map_err(|_| short())? != 0)
}

#[cfg(test)]
mod tests {
    use super::super::types::{Entry, Payload};
    use super::*;
    use openraft::EntryPayload;

    fn whole(parts: Vec<Bytes>) -> Bytes {
        parts.concat().into()
    }

    #[test]
    fn appends_come_back_and_cut_ones_do_not() {
        let normal = Payload::stored(Bytes::from_static(b"abc"));
        let entries = vec![
            Entry {
                log_id: log_id(2, 7),
                payload: EntryPayload::Normal(normal),
            },
            Entry {
                log_id: log_id(3, 8),
                payload: EntryPayload::Blank,
            },
        ];
        let append = Append {
            vote: Vote::new_committed(3, 1),
            prev_log_id: Some(log_id(2, 6)),
            entries,
            leader_commit: None,
        };
        let bytes = whole(put_append(append.clone()));
        let back = get_append(bytes.clone()).unwrap();
        assert_eq!(back.vote, append.vote);
        assert_eq!(back.prev_log_id, append.prev_log_id);
        assert_eq!(back.entries, append.entries);
        for end in 0..bytes.len() {
            assert!(get_append(bytes.slice(..end)).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn votes_and_answers_come_back() {
        let mut ask = VoteRequest::new(Vote::new(4, 2), Some(log_id(3, 9)));
        ask.leadership_transfer = true;
        assert_eq!(
            get_vote_request(whole(put_vote_request(&ask))).unwrap(),
            ask
        );
        let said = VoteResponse::new(Vote::new(4, 2), None, true);
        assert_eq!(
            get_vote_response(whole(put_vote_response(&said))).unwrap(),
            said
        );
        for answer in [
            Appended::Success,
            Appended::PartialSuccess(Some(log_id(1, 2))),
            Appended::Conflict,
            Appended::HigherVote(Vote::new(9, 9)),
        ] {
            assert_eq!(get_appended(whole(put_appended(&answer))).unwrap(), answer);
        }
        for wanted in [None, Some(Position { term: 3, index: 9 })] {
            let id = wanted.map(|at| log_id(at.term, at.index));
            assert_eq!(get_wanted(whole(put_wanted(id.as_ref()))).unwrap(), wanted);
        }
        for has in [true, false] {
            assert_eq!(get_has(whole(put_has(has))).unwrap(), has);
        }
        for answer in [
            Ok(None),
            Ok(Some(log_id(1, 2))),
            Err(StreamAppendError::Conflict(log_id(5, 6))),
            Err(StreamAppendError::HigherVote(Vote::new(9, 9))),
        ] {
            assert_eq!(get_streamed(whole(put_streamed(&answer))).unwrap(), answer);
        }
    }
}
