//! Every route on one page. Paths are matched on their raw segments, so that an encoded slash is
//! part of a name; fixed words win over names by standing first.

use hyper::Method;

use crate::api::{
    ack, changed, cluster, configure, dead_letters, fetch, groups, health, kv, messages, pop, push,
    resources, status, system, timers, transaction,
};
use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::request::{Call, segment, tail};

/// Finds the route and runs it; also its name for metrics.
pub async fn dispatch(app: &App, call: &Call) -> (&'static str, Answer) {
    // The hot routes first, without taking the path apart.
    if call.method == Method::POST {
        match call.path.as_str() {
            "/api/v1/push" => return ("push", push::push(app, call).await),
            "/api/v1/ack" => return ("ack", ack::single(app, call).await),
            "/api/v1/ack/batch" => return ("ack_batch", ack::batch(app, call).await),
            "/api/v1/transaction" => {
                return ("transaction", transaction::commit(app, call).await);
            }
            _ => {}
        }
    } else if call.method == Method::GET && call.path.starts_with("/api/v1/pop") {
        let rest = &call.path["/api/v1/pop".len()..];
        let parts: Vec<&str> = rest.split('/').collect();
        match parts.as_slice() {
            [""] => return ("pop", pop::discover(app, call).await),
            ["", "queue", queue] => {
                return (
                    "pop_queue",
                    pop::queue(app, call, segment(queue), None).await,
                );
            }
            ["", "queue", queue, "partition", lane] => {
                let lane = Some(segment(lane));
                return (
                    "pop_partition",
                    pop::queue(app, call, segment(queue), lane).await,
                );
            }
            _ => {}
        }
    }
    Box::pin(cold(app, call)).await
}

async fn cold(app: &App, call: &Call) -> (&'static str, Answer) {
    let Some(path) = call.path.strip_prefix('/') else {
        return ("none", Err(Problem::no_such_route()));
    };
    let parts: Vec<&str> = path.split('/').collect();
    let method = match call.method {
        Method::HEAD => "GET",
        _ => call.method.as_str(),
    };
    match (method, parts.as_slice()) {
        ("GET", ["health"]) => ("health", health::health(app)),
        ("GET", ["metrics"]) if call.accepts_text => ("prometheus", health::prometheus(app)),
        ("GET", ["metrics"]) => ("metrics", health::metrics(app)),
        ("GET", ["metrics", "prometheus"]) => ("prometheus", health::prometheus(app)),
        ("GET", ["status"]) => ("status", health::status()),
        (method, ["api", "v1", rest @ ..]) => match api(app, call, method, rest).await {
            Some(found) => found,
            None => ("none", Err(Problem::no_such_route())),
        },
        _ => ("none", Err(Problem::no_such_route())),
    }
}

/// The routes under `/api/v1`.
async fn api(
    app: &App,
    call: &Call,
    method: &str,
    parts: &[&str],
) -> Option<(&'static str, Answer)> {
    Some(match (method, parts) {
        ("POST", ["configure"]) => ("configure", configure::configure(app, call).await),
        ("POST", ["lease", lease, "extend"]) => {
            ("extend", ack::extend(app, call, &segment(lease)).await)
        }

        ("POST", ["kv"]) => ("kv", kv::batch(app, call).await),
        ("GET", ["kv", ns, key @ ..]) if !key.is_empty() => {
            ("kv_get", kv::get(app, call, segment(ns), tail(key)).await)
        }
        ("PUT", ["kv", ns, key @ ..]) if !key.is_empty() => {
            ("kv_put", kv::put(app, call, segment(ns), tail(key)).await)
        }
        ("DELETE", ["kv", ns, key @ ..]) if !key.is_empty() => (
            "kv_delete",
            kv::delete(app, call, segment(ns), tail(key)).await,
        ),

        ("POST", ["timers"]) => ("timers", timers::batch(app, call).await),
        ("GET", ["timers", queue]) => {
            ("timers_list", timers::list(app, call, segment(queue)).await)
        }
        ("GET", ["timers", queue, key @ ..]) => (
            "timers_peek",
            timers::peek(app, segment(queue), tail(key)).await,
        ),
        ("DELETE", ["timers", queue, key @ ..]) if !key.is_empty() => (
            "timers_cancel",
            timers::cancel(app, call, segment(queue), tail(key)).await,
        ),

        ("POST", ["fetch"]) => ("fetch", fetch::fetch(app, call).await),
        ("POST", ["fetch", "offsets"]) => ("fetch_offsets", fetch::offsets(app, call).await),
        ("POST", ["partitions", "changed"]) => ("changed", changed::changed(app, call).await),

        ("GET", ["cluster"]) => ("cluster", cluster::status(app)),
        ("POST", ["cluster", "nodes"]) => ("cluster_add", cluster::add(app, call).await),
        ("DELETE", ["cluster", "nodes", id]) => ("cluster_remove", cluster::remove(app, id).await),
        ("POST", ["cluster", "transfer"]) => {
            ("cluster_transfer", cluster::transfer(app, call).await)
        }

        (_, ["dlq", ..]) => return dead_letters(app, call, method, &parts[1..]).await,
        (_, ["messages", ..]) => return messages(app, call, method, &parts[1..]).await,
        (_, ["consumer-groups", ..]) => return groups(app, call, method, &parts[1..]).await,
        (_, ["resources", ..]) => return resources(app, call, method, &parts[1..]).await,
        (_, ["status" | "stats" | "analytics" | "system", ..]) => {
            return operations(app, call, method, parts).await;
        }
        _ => return None,
    })
}

async fn dead_letters(
    app: &App,
    call: &Call,
    method: &str,
    parts: &[&str],
) -> Option<(&'static str, Answer)> {
    Some(match (method, parts) {
        ("GET", []) => ("dlq", dead_letters::list(app, call).await),
        ("DELETE", []) => ("dlq_purge", dead_letters::purge(app, call).await),
        ("POST", [id, "replay"]) => (
            "dlq_replay",
            dead_letters::replay(app, call, &segment(id)).await,
        ),
        _ => return None,
    })
}

async fn messages(
    app: &App,
    call: &Call,
    method: &str,
    parts: &[&str],
) -> Option<(&'static str, Answer)> {
    Some(match (method, parts) {
        ("GET", []) => ("messages", messages::list(app, call).await),
        ("GET", [lane, txn]) => (
            "message",
            messages::detail(app, &segment(lane), &segment(txn)).await,
        ),
        ("POST", [lane, txn, "retry"]) => (
            "message_retry",
            dead_letters::retry(app, call, &segment(lane), &segment(txn)).await,
        ),
        ("DELETE", [lane, txn]) => (
            "message_delete",
            dead_letters::delete(app, &segment(lane), &segment(txn)).await,
        ),
        _ => return None,
    })
}

async fn groups(
    app: &App,
    call: &Call,
    method: &str,
    parts: &[&str],
) -> Option<(&'static str, Answer)> {
    Some(match (method, parts) {
        ("GET", []) => ("groups", groups::list(app).await),
        ("GET", ["lagging"]) => ("groups_lagging", groups::lagging(app, call).await),
        ("GET", [group]) => ("group", groups::detail(app, &segment(group)).await),
        ("POST", [group, "subscription"]) => (
            "group_subscription",
            groups::resubscribe(app, call, segment(group)).await,
        ),
        ("POST", [group, "queues", queue, "seek"]) => (
            "group_seek",
            groups::seek(app, call, segment(group), segment(queue), None).await,
        ),
        ("POST", [group, "queues", queue, "partitions", lane, "seek"]) => {
            let lane = Some(segment(lane));
            (
                "group_seek",
                groups::seek(app, call, segment(group), segment(queue), lane).await,
            )
        }
        ("DELETE", [group]) => (
            "group_delete",
            groups::delete(app, call, segment(group), None).await,
        ),
        ("DELETE", [group, "queues", queue]) => {
            let queue = Some(segment(queue));
            (
                "group_delete",
                groups::delete(app, call, segment(group), queue).await,
            )
        }
        _ => return None,
    })
}

async fn resources(
    app: &App,
    call: &Call,
    method: &str,
    parts: &[&str],
) -> Option<(&'static str, Answer)> {
    Some(match (method, parts) {
        ("GET", ["overview"]) => ("overview", resources::overview(app).await),
        ("GET", ["queues"]) => ("queues", resources::queues(app).await),
        ("GET", ["queues", queue]) => ("queue", resources::queue(app, &segment(queue)).await),
        ("GET", ["queues", queue, "depth"]) => {
            ("depth", resources::depth(app, call, &segment(queue)).await)
        }
        ("DELETE", ["queues", queue]) => {
            ("queue_delete", configure::delete(app, segment(queue)).await)
        }
        ("GET", ["namespaces"]) => ("namespaces", resources::namespaces(app).await),
        ("GET", ["tasks"]) => ("tasks", resources::tasks(app).await),
        ("GET", ["partitions"]) => ("partitions", resources::partitions(app, call).await),
        ("GET", ["kv", "namespaces"]) => ("kv_namespaces", kv::namespaces(app).await),
        ("POST", ["kv", "list"]) => ("kv_list", kv::list(app, call).await),
        _ => return None,
    })
}

async fn operations(
    app: &App,
    call: &Call,
    method: &str,
    parts: &[&str],
) -> Option<(&'static str, Answer)> {
    Some(match (method, parts) {
        ("GET", ["status"]) => ("api_status", status::status(app, call).await),
        ("GET", ["status", "queues"]) => ("status_queues", status::queues(app, call).await),
        ("GET", ["status", "queues", queue]) => {
            ("status_queue", status::queue(app, &segment(queue)).await)
        }
        ("GET", ["status", "analytics"]) => {
            ("status_analytics", status::analytics(app, call).await)
        }
        ("GET", ["status", "buffers"]) => ("status_buffers", status::buffers()),
        ("POST", ["stats", "refresh"]) => ("stats_refresh", status::refresh()),
        ("GET", ["analytics", name]) => (
            "analytics",
            status::series(app, call, &segment(name)).await?,
        ),
        ("GET", ["system", "maintenance"]) => ("maintenance", system::maintenance(app)),
        ("POST", ["system", "maintenance"]) => ("maintenance", system::set_push(app, call)),
        ("GET", ["system", "maintenance", "pop"]) => ("maintenance", system::pop_maintenance(app)),
        ("POST", ["system", "maintenance", "pop"]) => ("maintenance", system::set_pop(app, call)),
        _ => return None,
    })
}
