//! The calling end of the connections to one peer, one connection per purpose. Dials when there is
//! something to say, pairs answers with questions, and forgets a connection that fails; whoever
//! asked is told at once and asks again when it likes.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncWriteExt, BufReader, BufWriter};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::handshake::{self, Hello, Purpose};
use super::wire::{self, BODY_BYTES_MAX, Frame};
use super::{Cluster, kind};

/// How long a dial may take.
const DIAL: Duration = Duration::from_secs(1);
/// Frames that wait for the socket before a caller waits.
const SEND_QUEUE: usize = 16;

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Frame>>>>;

/// A live connection.
struct Live {
    frames: mpsc::Sender<Frame>,
    waiting: Waiting,
    numbers: AtomicU64,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Live {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The calling end of one purpose.
pub struct Link {
    cluster: Arc<Cluster>,
    peer: i32,
    purpose: Purpose,
    live: tokio::sync::Mutex<Option<Arc<Live>>>,
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the connection was lost")
}

/// A question on its way; resolves to the answer.
pub struct Question {
    answer: oneshot::Receiver<Frame>,
    waiting: Waiting,
    number: u64,
    // Keeps the connection's tasks alive while somebody waits.
    _live: Arc<Live>,
}

impl Question {
    /// Waits for the answer.
    pub async fn answer(mut self) -> io::Result<Frame> {
        (&mut self.answer).await.map_err(|_| gone())
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.number);
    }
}

impl Link {
    /// A link that has not dialled yet.
    pub fn new(cluster: Arc<Cluster>, peer: i32, purpose: Purpose) -> Link {
        Link {
            cluster,
            peer,
            purpose,
            live: tokio::sync::Mutex::new(None),
        }
    }

    /// Sends a question. Questions arrive in the order of the calls.
    pub async fn send(&self, kind: u8, body: Vec<Bytes>) -> io::Result<Question> {
        // Held while sending: the order of the calls is the order on the wire.
        let mut slot = self.live.lock().await;
        let live = match slot.as_ref().filter(|live| !live.frames.is_closed()) {
            Some(live) => live.clone(),
            None => {
                *slot = None;
                let live = Arc::new(self.dial().await?);
                *slot = Some(live.clone());
                live
            }
        };
        let number = live.numbers.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        live.waiting.lock().insert(number, sender);
        let question = Question {
            answer,
            waiting: live.waiting.clone(),
            number,
            _live: live.clone(),
        };
        let frame = Frame { kind, number, body };
        live.frames.send(frame).await.map_err(|_| gone())?;
        Ok(question)
    }

    /// Sends a question and waits for the answer, at most for `within`.
    pub async fn ask(&self, kind: u8, body: Vec<Bytes>, within: Duration) -> io::Result<Bytes> {
        let asked = async {
            let frame = self.send(kind, body).await?.answer().await?;
            match frame.kind {
                kind::ERROR => {
                    let text = String::from_utf8_lossy(&frame.whole()).into_owned();
                    Err(io::Error::other(text))
                }
                _ => Ok(frame.whole()),
            }
        };
        match tokio::time::timeout(within, asked).await {
            Ok(answer) => answer,
            Err(_) => {
                // Whatever hangs on this connection, the next call begins on a new one.
                self.drop_live();
                Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the peer does not answer",
                ))
            }
        }
    }

    /// Forgets the connection.
    pub fn drop_live(&self) {
        // Somebody who dials now gets a new one anyway.
        if let Ok(mut live) = self.live.try_lock() {
            *live = None;
        }
    }

    async fn dial(&self) -> io::Result<Live> {
        let address = self.cluster.address_of(self.peer).ok_or_else(|| {
            let text = format!("the address of node {} is not known", self.peer);
            io::Error::new(io::ErrorKind::AddrNotAvailable, text)
        })?;
        let dialled = dial(&self.cluster, &address, self.purpose).await;
        let (stream, theirs) = dialled.inspect_err(|error| {
            self.cluster.note_failure(self.peer, error);
        })?;
        if theirs.node_id != self.peer {
            let text = format!("{address} is node {}, not {}", theirs.node_id, self.peer);
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        self.cluster.note_success(self.peer);
        let (read, write) = stream.into_split();
        let waiting: Waiting = Arc::default();
        let (frames, mut outbox) = mpsc::channel::<Frame>(SEND_QUEUE);
        let writing = tokio::spawn(async move {
            let mut write = BufWriter::with_capacity(64 << 10, write);
            while let Some(frame) = outbox.recv().await {
                if wire::write(&mut write, &frame).await.is_err() {
                    return;
                }
                if outbox.is_empty() && write.flush().await.is_err() {
                    return;
                }
            }
        });
        let answers = waiting.clone();
        let closing = frames.downgrade();
        let stop_writing = writing.abort_handle();
        let reading = tokio::spawn(async move {
            let mut read = BufReader::with_capacity(64 << 10, read);
            while let Ok(Some(frame)) = wire::read(&mut read, BODY_BYTES_MAX).await {
                if let Some(waiter) = answers.lock().remove(&frame.number) {
                    // Who asked may have gone.
                    let _ = waiter.send(frame);
                }
            }
            // The writer's end closes with it, so that nobody sends into nothing.
            stop_writing.abort();
            drop(closing);
            answers.lock().clear();
        });
        Ok(Live {
            frames,
            waiting,
            numbers: AtomicU64::new(1),
            tasks: [writing, reading],
        })
    }
}

/// Connects to a node and makes sure of it.
pub async fn dial(
    cluster: &Cluster,
    address: &str,
    purpose: Purpose,
) -> io::Result<(TcpStream, Hello)> {
    let connecting = tokio::time::timeout(DIAL, TcpStream::connect(address));
    let mut stream = match connecting.await {
        Ok(stream) => stream?,
        Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "no connection")),
    };
    stream.set_nodelay(true)?;
    let theirs = handshake::call(&mut stream, cluster.hello(purpose), cluster.secret()).await?;
    cluster
        .judge(&theirs)
        .map_err(|text| io::Error::new(io::ErrorKind::ConnectionRefused, text))?;
    Ok((stream, theirs))
}
