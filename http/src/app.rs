//! What every handler shares: the broker, the node's settings and its switches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use queen_engine::ids::TopicId;
use queen_engine::port::{Broker, View, query};
use queen_engine::topic::Topic;
use tokio::sync::watch;

use crate::forward::Others;

/// The Prometheus text of the process.
pub type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;

/// Settings of the listener.
#[derive(Clone)]
pub struct HttpConfig {
    /// Version the node reports.
    pub version: String,
    /// Largest request body in bytes.
    pub body_bytes_max: usize,
    /// Most open connections.
    pub connections_max: usize,
    /// Renders the process's metrics; handed in by whoever installed the recorder.
    pub render_metrics: RenderMetrics,
}

impl Default for HttpConfig {
    fn default() -> Self {
        HttpConfig {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            body_bytes_max: crate::limits::BODY_BYTES_MAX,
            connections_max: crate::limits::CONNECTIONS_MAX,
            render_metrics: Arc::new(String::new),
        }
    }
}

/// Counters shown by `/metrics`, which has its own small JSON form.
#[derive(Default)]
pub struct Totals {
    pub requests: AtomicU64,
    pub pushed: AtomicU64,
    pub popped: AtomicU64,
    pub acked: AtomicU64,
}

/// The shared part.
pub struct App {
    pub broker: Arc<dyn Broker>,
    pub config: HttpConfig,
    /// Pushes are refused; of this node, in memory.
    pub push_paused: AtomicBool,
    /// Pops answer empty; of this node, in memory.
    pub pop_paused: AtomicBool,
    pub started: Instant,
    pub totals: Totals,
    pub stopping: watch::Receiver<bool>,
    /// Connections to the other nodes' listeners.
    pub others: Others,
}

impl App {
    /// The state of a starting listener.
    pub fn new(
        broker: Arc<dyn Broker>,
        config: HttpConfig,
        stopping: watch::Receiver<bool>,
    ) -> App {
        App {
            broker,
            config,
            push_paused: AtomicBool::new(false),
            pop_paused: AtomicBool::new(false),
            started: Instant::now(),
            totals: Totals::default(),
            stopping,
            others: Others::new(),
        }
    }

    /// Looks at the applied state.
    pub fn view<R>(&self, look: impl FnOnce(View<'_>) -> R) -> R {
        query(&*self.broker, look)
    }

    /// Looks at a queue, if it exists.
    pub fn queue<R>(&self, name: &str, look: impl FnOnce(View<'_>, &Topic) -> R) -> Option<R> {
        self.view(|view| {
            view.engine
                .topics
                .named(name)
                .map(|topic| look(view, topic))
        })
    }

    /// The id of a queue, if it exists.
    pub fn queue_id(&self, name: &str) -> Option<TopicId> {
        self.queue(name, |_, topic| topic.id)
    }

    /// Resolves when the node begins to stop.
    pub async fn stopped(&self) {
        let mut stopping = self.stopping.clone();
        // A sender that is gone has stopped too.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }

    /// Counts messages, here and in the process's metrics.
    pub fn count(&self, what: Counted, messages: u64) {
        let total = match what {
            Counted::Pushed => &self.totals.pushed,
            Counted::Popped => &self.totals.popped,
            Counted::Acked => &self.totals.acked,
        };
        total.fetch_add(messages, Ordering::Relaxed);
        crate::metrics::messages(what, messages);
    }
}

/// What messages are counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    Pushed,
    Popped,
    Acked,
}
