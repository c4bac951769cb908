//! How two nodes make sure of each other before anything else is said: both tell who they are with
//! a fresh random number, and prove with the cluster's secret that they know both. A stranger gets
//! nothing but a closed connection, and learns nothing of the secret.
//!
//! ```text
//! hello: magic "QNPEER1\0" | node id i32 | group u32 | cluster u128 | generation u64
//!        | purpose u8 | nonce 32
//! proof: HMAC-SHA256(secret, side u8 | caller's hello | answerer's hello)
//! ```
//! Order: caller's hello, answerer's hello, caller's proof, answerer's proof and its verdict (empty,
//! or the sentence why it will not talk).

use std::io;
use std::time::Duration;

use bytes::{Buf, BufMut};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const MAGIC: &[u8; 8] = b"QNPEER1\0";
const HELLO_BYTES: usize = 77;
const PROOF_BYTES: usize = 32;
const VERDICT_BYTES_MAX: usize = 1024;

/// How long a handshake may take.
pub const TIMEOUT: Duration = Duration::from_secs(3);

/// What a connection is for; each has its own, so that one never waits for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Votes, heartbeats, cards.
    Fast = 1,
    /// Entries.
    Bulk = 2,
    /// Files of the log, for a node that lacks too much.
    Files = 3,
    /// Commands on their way to the leader.
    Commands = 4,
}

/// Who an end of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    pub node_id: i32,
    pub group: u32,
    /// 0 as long as it belongs to no cluster.
    pub cluster: u128,
    pub generation: u64,
    pub purpose: Purpose,
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl Hello {
    fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        let mut put = &mut bytes[..];
        put.put_slice(MAGIC);
        put.put_i32_le(self.node_id);
        put.put_u32_le(self.group);
        put.put_u128_le(self.cluster);
        put.put_u64_le(self.generation);
        put.put_u8(self.purpose as u8);
        put.put_slice(&rand::random::<[u8; 32]>());
        // Four bytes are kept for later.
        bytes
    }

    fn decode(bytes: &[u8; HELLO_BYTES]) -> io::Result<Hello> {
        let mut rest = &bytes[..];
        if !rest.starts_with(MAGIC) {
            return Err(invalid("the other end is no node of this version"));
        }
        rest.advance(MAGIC.len());
        Ok(Hello {
            node_id: rest.get_i32_le(),
            group: rest.get_u32_le(),
            cluster: rest.get_u128_le(),
            generation: rest.get_u64_le(),
            purpose: match rest.get_u8() {
                1 => Purpose::Fast,
                2 => Purpose::Bulk,
                3 => Purpose::Files,
                4 => Purpose::Commands,
                _ => return Err(invalid("the connection's purpose is unknown")),
            },
        })
    }
}

fn proof(secret: &[u8], side: u8, caller: &[u8], answerer: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret)
        .expect("HMAC takes keys of any length, by its definition (RFC 2104)");
    mac.update(&[side]);
    mac.update(caller);
    mac.update(answerer);
    mac
}

async fn read<const N: usize>(from: &mut (impl AsyncRead + Unpin)) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn within<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(TIMEOUT, work).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "handshake took too long",
        )),
    }
}

/// The calling side. Returns who answered.
pub async fn call(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ours: Hello,
    secret: &[u8],
) -> io::Result<Hello> {
    within(async {
        let sent = ours.encode();
        stream.write_all(&sent).await?;
        let got = read::<HELLO_BYTES>(stream).await?;
        let theirs = Hello::decode(&got)?;
        let mine = proof(secret, 1, &sent, &got).finalize().into_bytes();
        stream.write_all(&mine).await?;
        let answer = read::<PROOF_BYTES>(stream).await.map_err(|_| {
            io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the other end does not accept our --cluster-secret",
            )
        })?;
        proof(secret, 2, &sent, &got)
            .verify_slice(&answer)
            .map_err(|_| {
                io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    "the other end does not know our --cluster-secret",
                )
            })?;
        let len = usize::from(stream.read_u16_le().await?);
        if len > VERDICT_BYTES_MAX {
            return Err(invalid("an overlong refusal"));
        }
        let mut verdict = vec![0; len];
        stream.read_exact(&mut verdict).await?;
        if len > 0 {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionRefused,
                String::from_utf8_lossy(&verdict).into_owned(),
            ));
        }
        Ok(theirs)
    })
    .await
}

/// The answering side. `judge` sees who calls, once it has proved itself, and may refuse with a
/// sentence. The answerer's purpose is the caller's.
pub async fn answer(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ours: Hello,
    secret: &[u8],
    judge: impl FnOnce(&Hello) -> Result<(), String>,
) -> io::Result<Hello> {
    within(async {
        let got = read::<HELLO_BYTES>(stream).await?;
        let theirs = Hello::decode(&got)?;
        let sent = Hello {
            purpose: theirs.purpose,
            ..ours
        }
        .encode();
        stream.write_all(&sent).await?;
        let answer = read::<PROOF_BYTES>(stream).await?;
        proof(secret, 1, &got, &sent)
            .verify_slice(&answer)
            .map_err(|_| {
                io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    "the caller does not know our --cluster-secret",
                )
            })?;
        let mine = proof(secret, 2, &got, &sent).finalize().into_bytes();
        stream.write_all(&mine).await?;
        let verdict = judge(&theirs);
        let mut text = verdict.as_ref().err().cloned().unwrap_or_default();
        text.truncate(text.floor_char_boundary(VERDICT_BYTES_MAX));
        stream
            .write_u16_le(u16::try_from(text.len()).unwrap_or(0))
            .await?;
        stream.write_all(text.as_bytes()).await?;
        match verdict {
            Ok(()) => Ok(theirs),
            Err(text) => Err(io::Error::new(io::ErrorKind::ConnectionRefused, text)),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(node_id: i32) -> Hello {
        Hello {
            node_id,
            group: 1,
            cluster: 7,
            generation: 9,
            purpose: Purpose::Bulk,
        }
    }

    async fn meet(
        ours: &[u8],
        theirs: &[u8],
        verdict: Result<(), String>,
    ) -> (io::Result<Hello>, io::Result<Hello>) {
        let (mut a, mut b) = tokio::io::duplex(4096);
        let answered = async {
            let answered = answer(&mut b, hello(2), theirs, |_| verdict).await;
            drop(b);
            answered
        };
        tokio::join!(call(&mut a, hello(1), ours), answered)
    }

    #[tokio::test]
    async fn both_learn_who_the_other_is() {
        let (called, answered) = meet(b"s", b"s", Ok(())).await;
        assert_eq!(called.unwrap(), hello(2));
        assert_eq!(answered.unwrap(), hello(1));
    }

    #[tokio::test]
    async fn another_secret_gets_nothing() {
        let (called, answered) = meet(b"s", b"t", Ok(())).await;
        assert!(called.unwrap_err().to_string().contains("--cluster-secret"));
        assert!(answered.is_err());
    }

    #[tokio::test]
    async fn a_refusal_says_why() {
        let (called, answered) = meet(b"s", b"s", Err("wiped".into())).await;
        assert_eq!(called.unwrap_err().to_string(), "wiped");
        assert!(answered.is_err());
    }
}
