//! KV, timers, groups, browsing and listings over a real socket.

mod support;

use base64::Engine as _;
use serde_json::{Value, json};
use support::client::Served;

#[tokio::test]
async fn kv_calls_answer_verdicts_with_200() {
    let served = Served::start().await;
    let kv = |ops: Value| served.post("/api/v1/kv", json!({"operations": ops}));
    let put = json!({"op": "put", "ns": "n", "key": "k", "value": null, "ttlSeconds": 60});
    let results = kv(json!([put])).await.json()["results"].clone();
    assert_eq!(
        (&results[0]["op"], &results[0]["applied"]),
        (&json!("put"), &json!(true))
    );
    let version = results[0]["version"].clone();

    let many = kv(json!([
        {"op": "get", "ns": "n", "key": "k"},
        {"op": "getMany", "ns": "n", "keys": ["k", "none"]},
        {"op": "getPrefix", "ns": "n", "prefix": "k"}]))
    .await
    .json()["results"]
        .clone();
    assert_eq!(
        (&many[0]["found"], &many[0]["value"]),
        (&json!(true), &Value::Null)
    );
    assert!(many[0]["expiresAt"].is_string());
    assert_eq!(many[1]["missing"], json!(["none"]));
    assert_eq!(
        (&many[2]["truncated"], &many[2]["nextAfter"]),
        (&json!(false), &Value::Null)
    );

    let once = json!({"op": "putIfAbsent", "ns": "n", "key": "k", "value": 2, "forever": true,
        "required": true});
    let lost = kv(
        json!([{"op": "put", "ns": "n", "key": "other", "value": 1, "forever": true},
        once]),
    )
    .await;
    assert_eq!(lost.status, 200);
    let lost = lost.json();
    assert_eq!(lost["ok"], false);
    assert_eq!(
        (&lost["failedIndex"], &lost["kvReason"]),
        (&json!(1), &json!("exists"))
    );
    assert_eq!(lost["version"], version);
    assert!(lost.get("results").is_none());
    assert_eq!(
        served.get("/api/v1/kv/n/other").await.json()["found"],
        false
    );

    let bundle = json!({"operations": [{"type": "push", "queue": "q", "payload": 1}],
        "kv": [once]});
    let rolled_back = served.post("/api/v1/transaction", bundle).await.json();
    assert_eq!(rolled_back["failedIndex"], 1);
    assert!(rolled_back["error"].as_str().unwrap().starts_with("QKV"));

    let query = served.get("/api/v1/kv/n/k?x=1").await;
    assert_eq!(
        (query.status, query.json()["reason"].clone()),
        (400, json!("kv_no_query_string"))
    );
    let body = json!({"op": "put", "value": 1, "forever": true}).to_string();
    let field = served
        .send("PUT", "/api/v1/kv/n/k", "", body.as_bytes())
        .await;
    assert_eq!(field.json()["reason"], "kv_field_in_path");
    let deleted = served.delete("/api/v1/kv/n/k").await.json();
    assert_eq!(deleted["applied"], true);
    let again = served.delete("/api/v1/kv/n/k").await.json();
    assert_eq!(
        (&again["applied"], &again["reason"]),
        (&json!(false), &json!("absent"))
    );
    let listed = served
        .post("/api/v1/resources/kv/list", json!({"namespace": "n"}))
        .await
        .json();
    assert_eq!(listed["rows"], json!([]));
}

#[tokio::test]
async fn timers_are_scheduled_listed_and_cancelled() {
    let served = Served::start().await;
    let payload = base64::engine::general_purpose::STANDARD.encode(r#"{"a":1}"#);
    let schedule = |key: &str, txn: &str| {
        json!({"op": "schedule", "queue": "q", "timerKey": key, "delayMs": 60_000, "txn": txn,
            "payload": payload, "partition": "p"})
    };
    let body = json!({"operations": [schedule("a/1", "t1"), schedule("b:2", "t2")]});
    let results = served.post("/api/v1/timers", body).await.json()["results"].clone();
    assert_eq!(
        (&results[0]["ok"], &results[0]["status"]),
        (&json!(true), &json!("scheduled"))
    );
    assert_eq!(results[0]["deliverAt"].as_str().unwrap().len(), 27);
    let again = json!({"operations": [schedule("a/1", "t3")]});
    let again = served.post("/api/v1/timers", again).await.json();
    assert_eq!(again["results"][0]["status"], "rescheduled");

    let peeked = served.get("/api/v1/timers/q/a/1").await.json();
    assert_eq!(
        (&peeked["found"], &peeked["txn"]),
        (&json!(true), &json!("t3"))
    );
    assert_eq!(peeked["payload"], payload);
    assert_eq!(
        served.get("/api/v1/timers/q/a%2F1").await.json()["found"],
        true
    );
    let page = served.get("/api/v1/timers/q?limit=1").await.json();
    assert_eq!(
        (&page["truncated"], &page["nextAfter"]),
        (&json!(true), &json!("a/1"))
    );
    let rest = served.get("/api/v1/timers/q?after=a%2F1").await.json();
    assert_eq!(rest["rows"][0]["timerKey"], "b:2");
    let count = served
        .get("/api/v1/timers/q?mode=count&prefix=a")
        .await
        .json();
    assert_eq!(count, json!({"count": 1}));
    assert_eq!(served.get("/api/v1/timers/q?mode=count").await.status, 400);

    assert_eq!(
        served.delete("/api/v1/timers/q/a/1").await.json()["status"],
        "cancelled"
    );
    let absent = served.delete("/api/v1/timers/q/a/1?txn=mine").await.json();
    assert_eq!(
        (&absent["ok"], &absent["txn"]),
        (&json!(false), &json!("mine"))
    );
    assert_eq!(
        served.get("/api/v1/timers/q/a/1").await.json()["found"],
        false
    );
}

#[tokio::test]
async fn groups_are_listed_sought_and_deleted() {
    let served = Served::start().await;
    for n in 0..4 {
        served
            .push("q", &format!("p{}", n % 2), json!(n), &format!("t{n}"))
            .await;
    }
    let path = "/api/v1/pop/queue/q?consumerGroup=g&subscriptionMode=all&partitions=10&\
        commitOnDelivery=true";
    let popped = served.get(path).await.json();
    assert_eq!(popped["messages"].as_array().unwrap().len(), 4);
    assert_eq!(popped["partitionsClaimed"], 2);
    assert_eq!(served.get(path).await.status, 204);

    let list = served.get("/api/v1/consumer-groups").await.json();
    assert_eq!(
        (&list[0]["name"], &list[0]["totalLag"]),
        (&json!("g"), &json!(0))
    );
    assert_eq!(list[0]["subscriptionMode"], "all");
    served.push("q", "p0", json!(9), "t9").await;
    served.broker.pass(2000);
    let lagging = served
        .get("/api/v1/consumer-groups/lagging?minLagSeconds=0")
        .await
        .json();
    assert_eq!(lagging.as_array().unwrap().len(), 1, "{lagging}");
    assert_eq!(
        (&lagging[0]["partition_name"], &lagging[0]["offset_lag"]),
        (&json!("p0"), &json!(1))
    );
    let far = served.get("/api/v1/consumer-groups/lagging").await.json();
    assert_eq!(far, json!([]));
    let detail = served.get("/api/v1/consumer-groups/g").await.json();
    assert_eq!(detail["q"]["partitions"].as_array().unwrap().len(), 2);
    assert_eq!(
        served.get("/api/v1/consumer-groups/none").await.json(),
        json!({})
    );

    let seek = "/api/v1/consumer-groups/g/queues/q/seek";
    for body in [
        json!({}),
        json!({"position": 1}),
        json!({"timestamp": "soon"}),
    ] {
        assert_eq!(served.post(seek, body).await.status, 400);
    }
    let sought = served
        .post(seek, json!({"timestamp": "1970-01-01T00:00:00Z"}))
        .await
        .json();
    assert_eq!(
        (&sought["success"], &sought["partitionsUpdated"]),
        (&json!(true), &json!(2))
    );
    let again = served.get(path).await.json();
    assert_eq!(again["messages"].as_array().unwrap().len(), 5);
    let lane = "/api/v1/consumer-groups/g/queues/q/partitions/p1/seek";
    let epoch = json!({"timestamp": "1970-01-01T00:00:00Z"});
    assert_eq!(
        served.post(lane, epoch.clone()).await.json()["updated"],
        true
    );
    assert_eq!(
        served.get(path).await.json()["messages"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    served.post(lane, epoch).await;
    let end = served.send("POST", lane, "", b"").await.json();
    assert_eq!(end["seekToEnd"], true);
    assert_eq!(served.get(path).await.status, 204);
    let none = "/api/v1/consumer-groups/g/queues/none/seek";
    assert_eq!(served.post(none, json!({"toEnd": true})).await.status, 404);

    let subscription = "/api/v1/consumer-groups/g/subscription";
    assert_eq!(served.post(subscription, json!({})).await.status, 400);
    let body = json!({"subscriptionTimestamp": "2026-01-01T00:00:00Z"});
    let renewed = served.post(subscription, body.clone()).await.json();
    assert_eq!(renewed["newTimestamp"], body["subscriptionTimestamp"]);

    let deleted = served
        .delete("/api/v1/consumer-groups/g/queues/q?deleteMetadata=true")
        .await;
    assert_eq!(deleted.json()["queueName"], "q");
    assert_eq!(
        served.get(path).await.json()["messages"]
            .as_array()
            .unwrap()
            .len(),
        5
    );
    for _ in 0..2 {
        let deleted = served
            .delete("/api/v1/consumer-groups/g?deleteMetadata=true")
            .await;
        assert_eq!(
            (deleted.status, deleted.json()["success"].clone()),
            (200, json!(true))
        );
    }
}

#[tokio::test]
async fn messages_are_browsed_newest_first_and_shown_in_detail() {
    let served = Served::start().await;
    for n in 0..3 {
        served
            .push("ns.task.q", "p", json!({"n": n}), &format!("t{n}"))
            .await;
        served.broker.pass(10);
    }
    let list = served
        .get("/api/v1/messages?queue=ns.task.q&limit=2")
        .await
        .json();
    let ids: Vec<&Value> = list["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["transactionId"])
        .collect();
    assert_eq!(ids, ["t2", "t1"]);
    assert_eq!(list["mode"]["type"], "none");
    assert_eq!(list["messages"][0]["status"], "pending");
    assert_eq!(list["messages"][0]["payload"], json!({"n": 2}));
    let rest = served.get("/api/v1/messages?offset=2&ns=ns").await.json();
    assert_eq!(rest["messages"][0]["transactionId"], "t0");

    let path = "/api/v1/pop/queue/ns.task.q?consumerGroup=g&subscriptionMode=all&batch=1";
    let message = served.get(path).await.json()["messages"][0].clone();
    let path = format!(
        "/api/v1/messages/{}/t0",
        message["partitionId"].as_str().unwrap()
    );
    let detail = served.get(&path).await.json();
    assert_eq!(detail["status"], "processing");
    for key in [
        "id",
        "transactionId",
        "partitionId",
        "partition",
        "queue",
        "queuePath",
        "namespace",
        "task",
        "payload",
        "createdAt",
        "retryCount",
        "queueConfig",
        "data",
    ] {
        assert!(detail.get(key).is_some(), "{key}");
    }
    assert_eq!(detail["consumerGroups"][0]["name"], "g");
    assert_eq!(detail["queueConfig"]["leaseTime"], 60);
    assert_eq!(detail["namespace"], "ns");
    let missing = served.get("/api/v1/messages/x/t0").await;
    assert_eq!(
        (missing.status, missing.json()["error"].clone()),
        (404, json!("Message not found"))
    );
    // Only dead letters can be deleted or tried again.
    assert_eq!(served.delete(&path).await.status, 404);
    assert_eq!(
        served
            .send("POST", &format!("{path}/retry"), "", b"")
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn resources_and_status_count_what_is_there() {
    let served = Served::start().await;
    for n in 0..3 {
        served
            .push("a.b.c", &format!("p{}", n % 2), json!(n), &format!("t{n}"))
            .await;
    }
    let queues = served
        .get("/api/v1/resources/queues?whatever=1")
        .await
        .json();
    let row = &queues["queues"][0];
    assert_eq!(
        (&row["namespace"], &row["task"]),
        (&json!("a"), &json!("b"))
    );
    assert_eq!(
        (&row["partitions"], &row["messages"]["pending"]),
        (&json!(2), &json!(3))
    );
    served
        .get("/api/v1/pop/queue/a.b.c?consumerGroup=g&subscriptionMode=all&partitions=1")
        .await;
    let depth = served
        .get("/api/v1/resources/queues/a.b.c/depth?group=g")
        .await
        .json();
    assert_eq!(
        (&depth["pending"], &depth["partitionsPending"]),
        (&json!(3), &json!(2))
    );
    let processing = depth["processing"].as_u64().unwrap();
    assert_eq!(depth["ready"], json!(3 - processing));
    assert!((1..=2).contains(&processing));
    let overview = served.get("/api/v1/resources/overview").await.json();
    assert_eq!(
        (&overview["queues"], &overview["messages"]["total"]),
        (&json!(1), &json!(3))
    );
    assert!(overview["lag"]["time"]["avg"].is_i64());
    let status = served.get("/api/v1/status").await.json();
    assert_eq!(status["leases"]["active"], 1);
    for path in [
        "/api/v1/resources/namespaces",
        "/api/v1/resources/tasks",
        "/api/v1/resources/partitions?queue=a.b.c",
        "/api/v1/status/queues?namespace=a",
        "/api/v1/status/queues/a.b.c",
        "/api/v1/status/analytics",
        "/api/v1/status/buffers",
        "/api/v1/analytics/system-metrics",
        "/api/v1/analytics/worker-metrics",
        "/api/v1/analytics/queue-lag",
        "/api/v1/analytics/dlq-signatures?queue=a.b.c",
        "/status",
    ] {
        assert_eq!(served.get(path).await.status, 200, "{path}");
    }
    assert_eq!(
        served
            .send("POST", "/api/v1/stats/refresh", "", b"")
            .await
            .status,
        200
    );
    assert_eq!(
        served
            .get("/api/v1/analytics/workload?groupBy=x")
            .await
            .status,
        400
    );
    let config = served.get("/api/v1/status/queues/a.b.c").await.json();
    assert_eq!(config["queue"]["config"]["retryDelay"], 1000);

    let deleted = served.delete("/api/v1/resources/queues/a.b.c").await.json();
    assert_eq!(
        (&deleted["deleted"], &deleted["existed"]),
        (&json!(true), &json!(true))
    );
    let again = served.delete("/api/v1/resources/queues/a.b.c").await;
    assert_eq!(
        (again.status, again.json()["existed"].clone()),
        (200, json!(false))
    );
    // The name begins anew, and a used transaction id is new again.
    let fresh = served.push("a.b.c", "p0", json!(1), "t0").await;
    assert_eq!(
        (&fresh["status"], &fresh["offset"]),
        (&json!("queued"), &json!(0))
    );
}
