//! Commands that a client brought to a node that does not lead: handed to the leader, as Kafka's
//! brokers hand theirs to the controller (KIP-590), and answered when they are applied here too, so
//! that the client finds here what it was told.
//!
//! ```text
//! question: command (postcard)
//! answer:   index of the leader's newest applied entry u64 | outcome or failure (postcard)
//! ```

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use queen_engine::command::Command;
use queen_engine::outcome::Outcome;
use queen_engine::port::Failure;

use crate::batcher::Request;
use crate::cluster::handshake::Purpose;
use crate::cluster::{Links, kind};
use crate::limits;
use crate::node::Inner;

/// How long this node may take to apply what the leader has applied.
const FOLLOW_WAIT: Duration = Duration::from_secs(5);

type Answer = Result<Outcome, Failure>;

fn damaged(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn encode(index: u64, answer: &Answer) -> io::Result<Bytes> {
    let mut bytes = BytesMut::new();
    bytes.put_u64_le(index);
    let answer = postcard::to_allocvec(answer).map_err(damaged)?;
    bytes.put_slice(&answer);
    Ok(bytes.freeze())
}

fn decode(mut bytes: Bytes) -> io::Result<(u64, Answer)> {
    let index = bytes.try_get_u64_le().map_err(damaged)?;
    Ok((index, postcard::from_bytes(&bytes).map_err(damaged)?))
}

impl Inner {
    /// Logs and applies a command, here or on the leader.
    pub(crate) async fn submit(&self, command: Command) -> Answer {
        if let Err(failure) = self.must_lead() {
            return match (&failure, &self.links) {
                (
                    Failure::NotLeader {
                        leader: Some(leader),
                    },
                    Some(links),
                ) => self.hand_on(links, *leader, &command).await,
                _ => Err(failure),
            };
        }
        let command = Box::new(command);
        self.ask(|reply| Request::Command { command, reply }).await
    }

    async fn hand_on(&self, links: &Links, leader: i32, command: &Command) -> Answer {
        let body = postcard::to_allocvec(command)
            .map_err(|error| Failure::Storage(format!("a command cannot be encoded: {error}")))?;
        let link = links.get(leader, Purpose::Commands);
        // Nothing is lost when there is no way to the leader; after that the outcome is unknown.
        let sent = tokio::time::timeout(FOLLOW_WAIT, link.send(kind::SUBMIT, vec![body.into()]));
        let question = match sent.await {
            Ok(Ok(question)) => question,
            Ok(Err(_)) | Err(_) => return Err(Failure::NotLeader { leader: None }),
        };
        let answered = tokio::time::timeout(limits::OUTCOME_WAIT, question.answer()).await;
        let Ok(Ok(frame)) = answered else {
            return Err(Failure::Timeout);
        };
        if frame.kind == kind::ERROR {
            return Err(Failure::Timeout);
        }
        let (index, answer) = decode(frame.whole()).map_err(|_| Failure::Timeout)?;
        let mut applied = self.applier.applied();
        let reached = applied.wait_for(|at| at.is_some_and(|at| at.index >= index));
        // Applied is applied, however long this node takes to see it.
        let _ = tokio::time::timeout(FOLLOW_WAIT, reached).await;
        match answer {
            // Not this node, the other one.
            Err(Failure::Stopping) => Err(Failure::NotLeader { leader: None }),
            answer => answer,
        }
    }

    /// Answers a command of a peer.
    pub(crate) async fn submitted(self: Arc<Self>, body: Bytes) -> io::Result<Vec<Bytes>> {
        let command: Command = postcard::from_bytes(&body).map_err(damaged)?;
        let answer = match self.must_lead() {
            Ok(()) => {
                let command = Box::new(command);
                self.ask(|reply| Request::Command { command, reply }).await
            }
            Err(failure) => Err(failure),
        };
        Ok(vec![encode(self.applied_index(), &answer)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back() {
        for answer in [
            Ok(Outcome::Done),
            Err(Failure::NotLeader { leader: Some(2) }),
            Err(Failure::Storage("x".to_string())),
        ] {
            let bytes = encode(7, &answer).unwrap();
            assert_eq!(decode(bytes.clone()).unwrap(), (7, answer));
            assert!(decode(bytes.slice(..3)).is_err());
        }
    }
}
