//! What a load balancer and a scraper ask (http-api 12.2).

use std::sync::atomic::Ordering;

use hyper::StatusCode;
use serde_json::json;

use crate::app::App;
use crate::backlog;
use crate::problem::Answer;
use crate::reply::Reply;

/// Name of the storage engine in health answers.
const ENGINE: &str = "queen";

/// `GET /health`.
pub fn health(app: &App) -> Answer {
    let node = app.broker.node();
    let body = json!({
        "status": if node.ready { "healthy" } else { "settling" },
        "engine": ENGINE,
        "version": app.config.version,
        "raft": {
            "role": if node.is_leader { "leader" } else { "follower" },
            "leader": node.is_leader,
            "leaderId": node.leader,
            "node": node.id,
            "term": node.term,
            "applied": node.applied,
            "commit": node.committed,
            "lag": node.committed.saturating_sub(node.applied),
            "storageReady": node.ready,
            "storageFull": node.storage_full,
            "clusterVersion": 1,
            "kinds": [],
        },
    });
    let status = if node.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    Ok(Reply::json_with(status, &body))
}

/// `GET /metrics`: five figures as JSON.
pub fn metrics(app: &App) -> Answer {
    let uptime = app.started.elapsed().as_secs_f64();
    let requests = app.totals.requests.load(Ordering::Relaxed);
    let messages =
        app.totals.pushed.load(Ordering::Relaxed) + app.totals.popped.load(Ordering::Relaxed);
    let rate = |total: u64| total as f64 / uptime.max(1.0);
    let process = Process::read();
    Ok(Reply::json(&json!({
        "uptime": uptime,
        "requests": {"total": requests, "rate": rate(requests)},
        "messages": {"total": messages, "rate": rate(messages)},
        "memory": {"rss": process.resident_bytes, "virtual": process.virtual_bytes},
        "cpu": {"user": process.user_us, "system": process.system_us},
    })))
}

/// Most series of one kind with a name in them.
const NAMED_SERIES_MAX: usize = 2_000;

/// `GET /metrics/prometheus`, and `GET /metrics` for a client that asks for text.
pub fn prometheus(app: &App) -> Answer {
    // The node sets its gauges when it is asked, so an idle one costs nothing.
    app.broker.figures();
    let mut text = (app.config.render_metrics)();
    app.view(|view| {
        text.push_str("# TYPE queen_group_lag_messages gauge\n");
        let lags = view.engine.groups.iter().flat_map(|(name, group)| {
            group
                .topics
                .iter()
                .map(move |(topic, state)| (name, *topic, state))
        });
        for (name, topic, state) in lags.take(NAMED_SERIES_MAX) {
            let Some(topic) = view.engine.topics.get(topic) else {
                continue;
            };
            let lag = backlog::by_offsets(topic, state);
            let (group, topic) = (label(name), label(&topic.name));
            let line =
                format!("queen_group_lag_messages{{group=\"{group}\",topic=\"{topic}\"}} {lag}\n");
            text.push_str(&line);
        }
    });
    Ok(Reply::text(
        StatusCode::OK,
        "text/plain; version=0.0.4",
        text,
    ))
}

/// A label's value in Prometheus' text form.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// `GET /status`.
pub fn status() -> Answer {
    Ok(Reply::json(&json!({"status": "ok", "engine": ENGINE})))
}

/// What the operating system says of this process; zeroes where it says nothing.
#[derive(Default)]
struct Process {
    resident_bytes: u64,
    virtual_bytes: u64,
    user_us: u64,
    system_us: u64,
}

impl Process {
    fn read() -> Process {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Process::parse(&stat).unwrap_or_default()
    }

    /// Fields 14, 15, 23 and 24 of proc(5), counted behind the name in parentheses.
    fn parse(stat: &str) -> Option<Process> {
        const TICK_US: u64 = 10_000;
        const PAGE_BYTES: u64 = 4096;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Process {
            user_us: number(11)? * TICK_US,
            system_us: number(12)? * TICK_US,
            virtual_bytes: number(20)?,
            resident_bytes: number(21)? * PAGE_BYTES,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_process_line() {
        let line = "42 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 9 0 100 8192 3 18446744";
        let process = Process::parse(line).unwrap();
        assert_eq!((process.user_us, process.system_us), (1_500_000, 500_000));
        assert_eq!(
            (process.virtual_bytes, process.resident_bytes),
            (8192, 3 * 4096)
        );
        assert!(Process::parse("").is_none());
    }
}
