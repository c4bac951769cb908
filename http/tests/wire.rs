//! What the listener does with requests as bytes: paths, bodies, statuses, waits, endings.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use queen_engine::port::Failure;
use queen_http::HttpConfig;
use serde_json::{Value, json};
use support::client::{Connection, Served};

#[tokio::test]
async fn an_empty_pop_is_204_without_body_or_length_and_keeps_the_connection() {
    let served = Served::start().await;
    let mut connection = Connection::open(&served).await;
    for _ in 0..3 {
        let answer = connection.send("GET", "/api/v1/pop/queue/q", "", b"").await;
        assert_eq!(answer.status, 204);
        assert!(
            !answer.headers.contains_key("content-length"),
            "{:?}",
            answer.headers
        );
        assert!(
            !answer.headers.contains_key("transfer-encoding"),
            "{:?}",
            answer.headers
        );
        assert!(answer.body.is_empty());
    }
}

#[tokio::test]
async fn unknown_routes_say_so_and_missing_things_do_not() {
    let served = Served::start().await;
    let unknown = [
        ("GET", "/"),
        ("GET", "/api/v1"),
        ("GET", "/api/v1/nothing"),
        ("PATCH", "/api/v1/push"),
        ("DELETE", "/api/v1/queues/q/clear"),
        ("POST", "/api/v1/messages/1/t/dlq"),
        ("POST", "/api/v1/locks"),
        ("POST", "/api/v1/traces"),
        ("POST", "/api/v1/ephemeral/push"),
        ("POST", "/streams/v1/queries"),
        ("GET", "/api/v1/pop/queue/a/b"),
    ];
    for (method, path) in unknown {
        let answer = served.send(method, path, "", b"").await;
        assert_eq!(answer.status, 404, "{method} {path}");
        assert_eq!(
            answer.json(),
            json!({"error": "Not Found", "code": "no_such_route"})
        );
    }
    for path in [
        "/api/v1/resources/queues/none/depth",
        "/api/v1/resources/queues/none",
    ] {
        let answer = served.get(path).await;
        assert_eq!(answer.status, 404);
        assert_ne!(answer.json()["code"], "no_such_route");
    }
}

#[tokio::test]
async fn names_survive_the_path_in_every_spelling() {
    let served = Served::start().await;
    let name = "a/b c:d#e?f%g é";
    let encoded = "a%2Fb%20c%3Ad%23e%3Ff%25g%20%C3%A9";
    let lane = "x".repeat(200);
    served.push(name, &lane, json!(1), "t").await;
    let path = format!(
        "/api/v1/pop/queue/{encoded}/partition/{lane}?consumerGroup=my+group%20x&\
        subscriptionMode=all"
    );
    let popped = served.get(&path).await.json();
    assert_eq!(
        (&popped["queue"], &popped["partition"]),
        (&json!(name), &json!(lane))
    );
    assert_eq!(popped["consumerGroup"], "my group x");
    let detail = served
        .get(&format!("/api/v1/resources/queues/{encoded}"))
        .await
        .json();
    assert_eq!(detail["name"], name);
    // A key's tail takes raw slashes too.
    let body = json!({"value": 1, "forever": true}).to_string();
    let put = served
        .send("PUT", "/api/v1/kv/ns/a%2Fb", "", body.as_bytes())
        .await;
    assert_eq!(put.json()["applied"], true);
    assert_eq!(served.get("/api/v1/kv/ns/a/b").await.json()["found"], true);
    let empty = served.post("/api/v1/configure", json!({"queue": ""})).await;
    assert_eq!(empty.json()["configured"], true);
}

#[tokio::test]
async fn bad_requests_have_their_status_and_shape() {
    let served = Served::with(HttpConfig {
        body_bytes_max: 1000,
        ..HttpConfig::default()
    })
    .await;
    let large = served.send("POST", "/api/v1/push", "", &[b' '; 1001]).await;
    assert_eq!(
        (large.status, large.headers["content-type"].as_str()),
        (413, "text/plain")
    );
    let long = "q".repeat(500);
    let cases = [
        ("/api/v1/push", json!({}), 400, "bad_body"),
        (
            "/api/v1/push",
            json!({"items": [{"queue": "q"}]}),
            400,
            "bad_body",
        ),
        (
            "/api/v1/push",
            json!({"items": [{"queue": long, "payload": 1}]}),
            413,
            "name_too_long",
        ),
        (
            "/api/v1/push",
            json!({"items": [{"queue": "a\0b", "payload": 1}]}),
            400,
            "bad_request",
        ),
        (
            "/api/v1/configure",
            json!({"options": {}}),
            400,
            "bad_request",
        ),
        (
            "/api/v1/configure",
            json!({"queue": "q", "mode": "x"}),
            400,
            "bad_request",
        ),
        (
            "/api/v1/configure",
            json!({"queue": "q", "leaseTime": -1}),
            400,
            "bad_request",
        ),
        (
            "/api/v1/ack",
            json!({"transactionId": "t"}),
            400,
            "bad_request",
        ),
        ("/api/v1/ack/batch", json!({}), 400, "bad_request"),
        (
            "/api/v1/transaction",
            json!({"operations": []}),
            400,
            "bad_request",
        ),
        ("/api/v1/transaction", json!({"kv": {}}), 400, "bad_request"),
        (
            "/api/v1/transaction",
            json!({"operations": [{"type": "kv"}]}),
            400,
            "bad_request",
        ),
    ];
    for (path, body, status, code) in cases {
        let answer = served.post(path, body.clone()).await;
        assert_eq!(answer.status, status, "{path} {body}");
        assert_eq!(answer.json()["code"], code, "{path} {body}");
        assert!(answer.json()["error"].is_string());
    }
    for query in ["?batch=abc", "?wait=perhaps", "?conflation=true"] {
        let answer = served.get(&format!("/api/v1/pop/queue/q{query}")).await;
        assert_eq!(answer.status, 400, "{query}");
        assert_eq!(answer.json()["messages"], json!([]));
        assert_eq!(answer.json()["success"], false);
    }
    let discovery = served.get("/api/v1/pop").await;
    assert_eq!(discovery.status, 400);
    assert_eq!(discovery.json()["error"], "namespace or task is required");
    let prefix = json!({"kv": [{"op": "getPrefix", "ns": "n", "prefix": "p"}]});
    let refused = served.post("/api/v1/transaction", prefix).await;
    assert_eq!(refused.status, 400);
    assert_eq!(
        refused.json()["reason"],
        "kv_get_prefix_not_allowed_in_transaction"
    );
    assert!(refused.json()["error"].as_str().unwrap().contains("prefix"));
    let garbage = served
        .send("POST", "/api/v1/ack", "application/json", b"{\xff")
        .await;
    assert_eq!(
        (garbage.status, garbage.json()["code"].clone()),
        (400, json!("bad_body"))
    );
}

#[tokio::test]
async fn failures_of_the_node_reach_the_client_as_it_expects_them() {
    let served = Served::start().await;
    let first = served.push("q", "p", json!(1), "t").await;
    assert_eq!(first["status"], "queued");
    let popped = served.get("/api/v1/pop/queue/q").await.json();
    let message = popped["messages"][0].clone();
    let ack = json!({"transactionId": "t", "partitionId": message["partitionId"],
        "leaseId": message["leaseId"]});
    let push = json!({"items": [{"queue": "q", "payload": 1}]});
    let kv = json!({"operations": [{"op": "get", "ns": "n", "key": "k"}]});
    let cases = [
        (
            Failure::NotLeader { leader: Some(2) },
            503,
            "retry",
            "kv_retry",
            true,
        ),
        (Failure::Timeout, 503, "timeout", "kv_timeout", true),
        (
            Failure::StorageFull,
            507,
            "storage_full",
            "kv_storage_full",
            false,
        ),
        (
            Failure::Overloaded,
            429,
            "overloaded",
            "kv_overloaded",
            true,
        ),
        (
            Failure::TooLarge,
            413,
            "too_large",
            "kv_call_too_large",
            false,
        ),
        (Failure::Stopping, 503, "retry", "kv_retry", true),
    ];
    for (failure, status, code, kv_reason, retry_after) in cases {
        served.broker.fail_with(Some(failure.clone()));
        let answer = served.post("/api/v1/push", push.clone()).await;
        assert_eq!(
            (answer.status, answer.json()["code"].clone()),
            (status, json!(code))
        );
        assert_eq!(
            answer.headers.contains_key("retry-after"),
            retry_after,
            "{failure:?}"
        );
        let answer = served.post("/api/v1/kv", kv.clone()).await;
        assert_eq!(
            (answer.status, answer.json()["reason"].clone()),
            (status, json!(kv_reason))
        );
        let answer = served.post("/api/v1/ack", ack.clone()).await;
        let code = if failure == Failure::Timeout {
            "outcome_unknown"
        } else {
            code
        };
        assert_eq!(
            (answer.status, answer.json()["code"].clone()),
            (status, json!(code))
        );
        let answer = served.get("/api/v1/pop/queue/q").await;
        assert_eq!(
            (answer.status, answer.json()["messages"].clone()),
            (status, json!([]))
        );
        assert_eq!(served.get("/health").await.status, 503);
    }
    served.broker.fail_with(None);
    assert_eq!(
        served.post("/api/v1/ack", ack).await.json()[0]["success"],
        true
    );
}

#[tokio::test]
async fn a_parked_pop_wakes_on_a_push_and_a_quiet_one_waits() {
    let served = Arc::new(Served::start().await);
    let begun = Instant::now();
    let quiet = served
        .get("/api/v1/pop/queue/q?wait=true&timeout=300")
        .await;
    assert_eq!(quiet.status, 204);
    assert!(
        begun.elapsed() >= Duration::from_millis(280),
        "{:?}",
        begun.elapsed()
    );

    let waiting = served.clone();
    let parked = tokio::spawn(async move {
        waiting
            .get("/api/v1/pop/queue/q?wait=true&timeout=10000")
            .await
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    served.push("q", "late", json!(1), "t").await;
    let begun = Instant::now();
    assert_eq!(
        parked.await.unwrap().json()["messages"][0]["partition"],
        "late"
    );
    assert!(begun.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn a_client_that_leaves_takes_nothing_with_it() {
    let served = Served::start().await;
    let mut connection = Connection::open(&served).await;
    connection
        .write(
            "GET",
            "/api/v1/pop/queue/q?wait=true&timeout=20000",
            "",
            b"",
        )
        .await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(connection);
    tokio::time::sleep(Duration::from_millis(100)).await;
    served.push("q", "p", json!(1), "t").await;
    let popped = served.get("/api/v1/pop/queue/q").await.json();
    assert_eq!(popped["messages"][0]["deliveryAttempt"], 1);
}

#[tokio::test]
async fn a_claim_whose_records_cannot_be_read_goes_back() {
    let served = Served::start().await;
    served.push("q", "p", json!(1), "t").await;
    served.broker.lose_log();
    let answer = served.get("/api/v1/pop/queue/q").await;
    assert_eq!(
        (answer.status, answer.json()["code"].clone()),
        (500, json!("internal"))
    );
    assert_eq!(served.broker.unclaimed.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_shutdown_answers_parked_pops_and_ends() {
    let mut served = Served::start().await;
    let mut connection = Connection::open(&served).await;
    connection
        .write(
            "GET",
            "/api/v1/pop/queue/q?wait=true&timeout=30000",
            "",
            b"",
        )
        .await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let begun = Instant::now();
    served.stop().await;
    assert_eq!(connection.read().await.status, 204);
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    assert!(
        tokio::net::TcpStream::connect(served.address)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn binary_pushes_and_scrapes() {
    let render = Arc::new(|| "queen_up 1\n".to_owned());
    let config = HttpConfig {
        render_metrics: render,
        ..HttpConfig::default()
    };
    let served = Served::with(config).await;
    let mut body = b"QPB1\x02".to_vec();
    body.extend_from_slice(&1_u32.to_le_bytes());
    body.extend_from_slice(b"\x01\x00q\x01\x00p");
    body.extend_from_slice(&1_u32.to_le_bytes());
    body.extend_from_slice(&3_u32.to_le_bytes());
    body.extend_from_slice(b"[1]");
    let kind = "application/x-queen-push; v=1";
    let pushed = served.send("POST", "/api/v1/push", kind, &body).await;
    assert_eq!(pushed.status, 201);
    assert_eq!(
        pushed.json(),
        json!({"count": 1, "queued": 1, "duplicate": 0, "error": 0})
    );
    body.pop();
    let damaged = served.send("POST", "/api/v1/push", kind, &body).await;
    assert_eq!(
        (damaged.status, damaged.json()["code"].clone()),
        (400, json!("bad_body"))
    );
    assert_eq!(
        served
            .send("POST", "/api/v1/transaction", kind, b"QTB1")
            .await
            .status,
        400
    );

    let scraped = served.get("/metrics/prometheus").await;
    assert_eq!(scraped.text(), "queen_up 1\n");
    assert_eq!(scraped.headers["content-type"], "text/plain; version=0.0.4");
    let figures = served.get("/metrics").await.json();
    for key in ["uptime", "requests", "messages", "memory", "cpu"] {
        assert!(!figures[key].is_null(), "{key}");
    }
}

#[tokio::test]
async fn maintenance_pauses_and_resumes_this_node() {
    let served = Served::start().await;
    let set = |path: &'static str, enabled: bool| served.post(path, json!({"enabled": enabled}));
    served.push("q", "p", json!(1), "t").await;
    set("/api/v1/system/maintenance", true).await;
    let push = json!({"items": [{"queue": "q", "payload": 1}]});
    assert_eq!(served.post("/api/v1/push", push.clone()).await.status, 503);
    set("/api/v1/system/maintenance/pop", true).await;
    assert_eq!(served.get("/api/v1/pop/queue/q").await.status, 204);
    let path = "/api/v1/pop/queue/q?conflation=true&consumerGroup=g";
    let paused = served.get(path).await.json();
    assert_eq!(
        (&paused["paused"], &paused["conflation"]),
        (&json!(true), &json!(true))
    );
    let state = served.get("/api/v1/system/maintenance").await.json();
    assert_eq!(state["maintenanceMode"], true);
    assert_eq!(state["popMaintenanceMode"], true);
    set("/api/v1/system/maintenance", false).await;
    set("/api/v1/system/maintenance/pop", false).await;
    assert_eq!(served.post("/api/v1/push", push).await.status, 201);
    assert_eq!(served.get("/api/v1/pop/queue/q").await.status, 200);
    assert_eq!(
        served
            .post("/api/v1/system/maintenance", json!({}))
            .await
            .status,
        400
    );
}

#[tokio::test]
async fn parameters_do_not_stick_to_a_connection() {
    let served = Served::start().await;
    for n in 0..3 {
        served.push("q", "p", json!(n), &format!("t{n}")).await;
    }
    let mut connection = Connection::open(&served).await;
    let path = "/api/v1/pop/queue/q?batch=1&autoAck=true";
    let one: Value = connection.send("GET", path, "", b"").await.json();
    assert_eq!(one["messages"].as_array().unwrap().len(), 1);
    assert_eq!(one["leaseId"], "");
    let rest: Value = connection
        .send("GET", "/api/v1/pop/queue/q", "", b"")
        .await
        .json();
    assert_eq!(rest["messages"].as_array().unwrap().len(), 2);
    assert_ne!(rest["leaseId"], "");
}
