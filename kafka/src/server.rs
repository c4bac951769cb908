//! The accept loop: one task per connection, bounded in number, all ended on shutdown.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use queen_engine::port::Broker;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{debug, error, info, warn};

use crate::config::KafkaConfig;
use crate::connection;
use crate::context::Context;
use crate::group;

/// Pause after an accept that failed, which is mostly for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves Kafka clients until `shutdown` resolves, then answers what is under way and returns.
pub async fn serve(
    listener: TcpListener,
    broker: Arc<dyn Broker>,
    config: KafkaConfig,
    shutdown: impl Future<Output = ()> + Send,
) {
    let (stop, stopped) = watch::channel(false);
    let context = Arc::new(Context::new(broker, config, stopped));
    let mut connections = JoinSet::new();
    let timers = tokio::spawn(group::run_timers(context.clone()));
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => accept(&context, &mut connections, socket),
                Err(error) => {
                    warn!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(ended) = connections.join_next() => reap(ended),
        }
    }
    drop(listener);
    // The receiver lives in the context, so this cannot fail.
    let _ = stop.send(true);
    let drained = async {
        while let Some(ended) = connections.join_next().await {
            reap(ended);
        }
    };
    if tokio::time::timeout(context.config.drain, drained)
        .await
        .is_err()
    {
        info!(
            connections = connections.len(),
            "connections cut at shutdown"
        );
        connections.shutdown().await;
    }
    timers.abort();
}

fn reap(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        error!(%error, "a connection's task panicked");
    }
}

fn accept(context: &Arc<Context>, connections: &mut JoinSet<()>, socket: TcpStream) {
    if connections.len() >= context.config.connections_max {
        context.metrics.connections_refused.increment(1);
        warn!(
            connections = connections.len(),
            "connection refused, too many are open"
        );
        return;
    }
    let peer = match socket.peer_addr() {
        Ok(address) => Arc::from(format!("/{}", address.ip())),
        Err(error) => return debug!(%error, "connection lost before it began"),
    };
    if let Err(error) = socket.set_nodelay(true) {
        debug!(%error, "no TCP_NODELAY");
    }
    let context = context.clone();
    connections.spawn(async move {
        context.metrics.connections.increment(1);
        let (read, write) = socket.into_split();
        connection::run(context.clone(), read, write, peer).await;
        context.metrics.connections.decrement(1);
    });
}
