//! The answering end: accepts peers, makes sure of them, and hands what they ask to consensus (or
//! to the node, for cards and the like). Appends of a session are carried out in order, everything
//! else as it comes.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use queen_engine::port::BoxFuture;
use tokio::io::{AsyncWriteExt, BufReader, BufWriter};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::handshake;
use super::wire::{self, BODY_BYTES_MAX, Frame};
use super::{Cluster, kind};

/// Connections of peers and of strangers that have not proved themselves.
const CONNECTIONS_MAX: usize = 256;
/// Questions of one connection that are answered at the same time.
const AT_ONCE_MAX: usize = 64;
/// Answers that wait for the socket.
const ANSWERS: usize = 64;
/// A peer says something several times a second; one that is silent for so long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// What a node answers to its peers.
pub trait Peers: Send + Sync + 'static {
    /// Answers one question.
    fn answer(&self, from: i32, kind: u8, body: Bytes) -> BoxFuture<io::Result<Vec<Bytes>>>;

    /// Carries out the appends of a session, in order, each with one answer in `answers`. Ends with
    /// the first that fails, or when the requests end.
    fn appends(
        &self,
        from: i32,
        requests: mpsc::Receiver<Bytes>,
        answers: mpsc::Sender<Vec<Bytes>>,
    ) -> BoxFuture<()>;
}

/// Accepts peers until it is aborted.
pub async fn run(listener: TcpListener, cluster: Arc<Cluster>, peers: Arc<dyn Peers>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a peer");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(permit) = room.clone().try_acquire_owned() else {
            tracing::warn!(%from, "too many connections on the port for peers; closed");
            continue;
        };
        let (cluster, peers) = (cluster.clone(), peers.clone());
        connections.spawn(async move {
            if let Err(error) = converse(stream, &cluster, peers).await {
                tracing::info!(%from, %error, "connection of a peer ended");
            }
            drop(permit);
        });
    }
}

/// A session of appends.
struct Session {
    number: u64,
    requests: mpsc::Sender<Bytes>,
    /// Numbers of the questions that are not answered.
    questions: Arc<Mutex<VecDeque<u64>>>,
}

async fn converse(
    mut stream: TcpStream,
    cluster: &Cluster,
    peers: Arc<dyn Peers>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let ours = cluster.hello(handshake::Purpose::Fast);
    let judge = |theirs: &handshake::Hello| cluster.judge(theirs);
    let theirs = handshake::answer(&mut stream, ours, cluster.secret(), judge).await?;
    let from = theirs.node_id;
    let (read, write) = stream.into_split();
    let (answers, mut outbox) = mpsc::channel::<Frame>(ANSWERS);
    // Everything that belongs to this connection ends with it.
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
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
    let room = Arc::new(Semaphore::new(AT_ONCE_MAX));
    let mut session: Option<Session> = None;
    let mut read = BufReader::with_capacity(64 << 10, read);
    loop {
        let next = tokio::time::timeout(SILENCE_MAX, wire::read(&mut read, BODY_BYTES_MAX));
        let frame = match next.await {
            Ok(Ok(Some(frame))) => frame,
            Ok(Ok(None)) => return Ok(()),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Ok(Err(error)) => return Err(error),
            Err(_) => return Ok(()),
        };
        // The membership may have changed since the handshake.
        cluster
            .judge(&theirs)
            .map_err(|text| io::Error::new(io::ErrorKind::ConnectionRefused, text))?;
        while tasks.try_join_next().is_some() {}
        let (kind, number) = (frame.kind, frame.number);
        let mut body = frame.whole();
        if kind == kind::STREAM {
            let wanted = body.try_get_u64_le().map_err(io::Error::other)?;
            if session.as_ref().is_none_or(|open| open.number != wanted) {
                session = Some(open(wanted, from, &peers, &answers, &mut tasks));
            }
            if let Some(open) = &session {
                open.questions.lock().push_back(number);
                // A session that has ended answers nothing more; its caller has ended it too.
                let _ = open.requests.send(body).await;
            }
            continue;
        }
        let Ok(permit) = room.clone().acquire_owned().await else {
            return Ok(());
        };
        let (answers, work) = (answers.clone(), peers.answer(from, kind, body));
        tasks.spawn(async move {
            let frame = match work.await {
                Ok(body) => Frame { kind, number, body },
                Err(error) => Frame::new(kind::ERROR, number, error.to_string()),
            };
            // The connection may be gone.
            let _ = answers.send(frame).await;
            drop(permit);
        });
    }
}

fn open(
    number: u64,
    from: i32,
    peers: &Arc<dyn Peers>,
    answers: &mpsc::Sender<Frame>,
    tasks: &mut JoinSet<()>,
) -> Session {
    let (requests, inbox) = mpsc::channel(AT_ONCE_MAX);
    let (results, mut outcomes) = mpsc::channel::<Vec<Bytes>>(AT_ONCE_MAX);
    let questions: Arc<Mutex<VecDeque<u64>>> = Arc::default();
    let (asked, answers) = (questions.clone(), answers.clone());
    tasks.spawn(peers.appends(from, inbox, results));
    tasks.spawn(async move {
        while let Some(body) = outcomes.recv().await {
            let Some(number) = asked.lock().pop_front() else {
                return;
            };
            let kind = kind::STREAM;
            if answers.send(Frame { kind, number, body }).await.is_err() {
                return;
            }
        }
    });
    Session {
        number,
        requests,
        questions,
    }
}
