//! The conversation of the contract's five-minute guide, and the rules of push, pop, ack and
//! transaction that clients build on.

mod support;

use serde_json::{Value, json};
use support::client::{Answer, Served};

async fn pop(served: &Served, query: &str) -> Answer {
    served.get(&format!("/api/v1/pop/queue/{query}")).await
}

fn ack_of(message: &Value, status: &str) -> Value {
    json!({"transactionId": message["transactionId"], "partitionId": message["partitionId"],
        "leaseId": message["leaseId"], "status": status})
}

#[tokio::test]
async fn the_five_minute_guide() {
    let served = Served::start().await;
    let health = served.get("/health").await;
    assert_eq!(
        (health.status, health.json()["status"].clone()),
        (200, json!("healthy"))
    );

    let options = json!({"leaseTime": 300, "retryLimit": 3, "priority": 0, "delayedProcessing": 0,
        "windowBuffer": 0, "maxSize": 0, "retentionSeconds": 0, "completedRetentionSeconds": 0,
        "encryptionEnabled": false});
    let body = json!({"queue": "orders", "namespace": null, "task": null, "options": options});
    let configured = served.post("/api/v1/configure", body).await.json();
    assert_eq!(configured["configured"], true);
    assert_eq!(configured["options"]["ttl"], 3600);
    assert!(configured.get("error").is_none());

    let first = served
        .push("orders", "Default", json!({"n": 1}), "order-1")
        .await;
    assert_eq!(
        (&first["status"], &first["offset"]),
        (&json!("queued"), &json!(0))
    );
    let again = served
        .push("orders", "Default", json!({"n": 1}), "order-1")
        .await;
    assert_eq!(again["status"], "duplicate");
    assert_eq!(
        (&again["message_id"], &again["offset"]),
        (&first["message_id"], &json!(0))
    );

    let popped = pop(&served, "orders?batch=1&wait=true&timeout=5000").await;
    assert_eq!(popped.status, 200);
    let popped = popped.json();
    let message = &popped["messages"][0];
    assert_eq!(message["id"], first["message_id"]);
    assert_eq!(message["data"], json!({"n": 1}));
    assert_eq!(
        (&message["traceId"], &message["producerSub"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(
        (&message["deliveryAttempt"], &message["offset"]),
        (&json!(1), &json!(0))
    );
    assert!(message["leaseExpiresAt"].is_string());
    assert_eq!(popped["leaseId"], message["leaseId"]);
    assert_eq!(popped["consumerGroup"], "__QUEUE_MODE__");

    let acked = served
        .post("/api/v1/ack", ack_of(message, "completed"))
        .await
        .json();
    assert_eq!(
        acked,
        json!([{"index": 0, "transactionId": "order-1", "success": true,
        "error": null, "leaseReleased": true, "dlq": false, "noop": false}])
    );
    assert_eq!(pop(&served, "orders?wait=false").await.status, 204);

    served
        .push("orders", "Default", json!({"n": 2}), "order-2")
        .await;
    let popped = pop(&served, "orders").await.json();
    let mut ack = ack_of(&popped["messages"][0], "completed");
    ack["type"] = json!("ack");
    let receipt = |txn: &str| {
        json!({"type": "push", "items": [
            {"queue": "receipts", "payload": {"for": 2}, "transactionId": txn,
             "traceId": "00000000-0000-4000-8000-000000000001"}]})
    };
    let bundle = json!({
        "operations": [ack, receipt("receipt-2")],
        "requiredLeases": [],
        "kv": [{"op": "put", "ns": "orders", "key": "order-2", "value": {"paid": true},
            "forever": true}],
    });
    let done = served
        .post("/api/v1/transaction", bundle.clone())
        .await
        .json();
    assert_eq!(done["success"], true, "{done}");
    let kinds: Vec<&Value> = done["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["type"])
        .collect();
    assert_eq!(kinds, ["ack", "push", "kv"]);
    assert_eq!(done["results"][2]["opIndex"], 0);

    let row = served.get("/api/v1/kv/orders/order-2").await;
    assert_eq!(row.json()["value"]["paid"], true);
    assert_eq!(
        row.headers["etag"],
        format!("\"{}\"", row.json()["version"])
    );
    let receipts = pop(&served, "receipts").await.json();
    let trace = &receipts["messages"][0]["traceId"];
    assert_eq!(trace, "00000000-0000-4000-8000-000000000001");
    assert_eq!(pop(&served, "orders").await.status, 204);

    // Sent again, the bundle changes nothing: its lease was released by the first commit.
    let repeated = served.post("/api/v1/transaction", bundle).await.json();
    assert_eq!(repeated["success"], false);
    assert!(["rejected_ack", "duplicate"].contains(&repeated["reason"].as_str().unwrap()));
    let only = json!({"operations": [receipt("receipt-2")]});
    let refused = served.post("/api/v1/transaction", only).await.json();
    assert_eq!(refused["reason"], "duplicate");
    assert!(refused["error"].as_str().unwrap().starts_with("QDUP "));
    assert!(refused["error"].as_str().unwrap().contains("rolled back"));
    assert_eq!(refused["results"], json!([]));
}

#[tokio::test]
async fn refused_acks_name_their_reason_and_change_nothing() {
    let served = Served::start().await;
    for n in 0..3 {
        served.push("q", "p", json!(n), &format!("t{n}")).await;
    }
    let popped = pop(&served, "q?consumerGroup=g&subscriptionMode=from_beginning")
        .await
        .json();
    let messages = popped["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 3);
    let ack = |txn: &str, partition: &str, lease: &Value, status: &str| {
        json!({"transactionId": txn, "partitionId": partition, "leaseId": lease,
            "consumerGroup": "g", "status": status})
    };
    let id = messages[0]["partitionId"].as_str().unwrap();
    let lease = &messages[0]["leaseId"];
    let stale = json!("00000000-0000-4000-8000-00000000dead");
    let cases = [
        (
            ack("t0", id, &stale, "completed"),
            "invalid or expired lease",
        ),
        (
            ack("t0", id, &json!("nonsense"), "completed"),
            "invalid or expired lease",
        ),
        (ack("nope", id, lease, "completed"), "unresolv"),
        (ack("nope", id, lease, "failed"), "unresolv"),
        (ack("t0", "999", lease, "completed"), "unresolv"),
        (ack("t0", "not-a-number", lease, "completed"), "unresolv"),
    ];
    for (body, text) in cases {
        let result = served.post("/api/v1/ack", body).await.json();
        assert_eq!(result[0]["success"], false);
        assert!(
            result[0]["error"].as_str().unwrap().contains(text),
            "{result}"
        );
    }
    let stranger = json!({"transactionId": "t0", "partitionId": id});
    let result = served.post("/api/v1/ack", stranger).await.json();
    assert_eq!(result[0]["error"], "consumer not found");

    // The middle one completes the first and keeps the lease; the last releases it.
    let result = served
        .post("/api/v1/ack", ack("t1", id, lease, "completed"))
        .await
        .json();
    assert_eq!(
        (&result[0]["success"], &result[0]["leaseReleased"]),
        (&json!(true), &json!(false))
    );
    let result = served
        .post("/api/v1/ack", ack("t0", id, lease, "completed"))
        .await
        .json();
    assert_eq!(
        (&result[0]["success"], &result[0]["noop"]),
        (&json!(true), &json!(true))
    );
    let result = served
        .post("/api/v1/ack", ack("t0", id, lease, "failed"))
        .await
        .json();
    assert!(result[0]["error"].as_str().unwrap().contains("committed"));
    let result = served
        .post("/api/v1/ack", ack("t2", id, lease, "completed"))
        .await
        .json();
    assert_eq!(result[0]["leaseReleased"], true);
    let extended = served
        .post(
            &format!("/api/v1/lease/{}/extend", lease.as_str().unwrap()),
            json!({}),
        )
        .await
        .json();
    assert_eq!(
        (&extended["success"], &extended["renewed"]),
        (&json!(false), &json!(0))
    );
    assert_eq!(extended["newExpiresAt"], Value::Null);
}

#[tokio::test]
async fn batches_keep_order_and_a_failure_dead_letters_with_its_payload() {
    let served = Served::start().await;
    let body = json!({"queue": "q", "options": {"retryLimit": 0}});
    served.post("/api/v1/configure", body).await;
    for n in 0..3 {
        served
            .push("q", "p", json!({"n": n}), &format!("t{n}"))
            .await;
    }
    let popped = pop(&served, "q?consumerGroup=g&subscriptionMode=all")
        .await
        .json();
    let mut acks: Vec<Value> = Vec::new();
    for (n, message) in popped["messages"].as_array().unwrap().iter().enumerate() {
        let mut ack = ack_of(message, if n == 1 { "failed" } else { "completed" });
        if n == 1 {
            ack["error"] = json!("boom");
        }
        acks.push(ack);
    }
    acks.push(json!({"transactionId": "x", "partitionId": "1"}));
    let body = json!({"acknowledgments": acks, "consumerGroup": "g"});
    let results = served.post("/api/v1/ack/batch", body).await.json();
    let rows = results.as_array().unwrap();
    assert_eq!(rows.len(), 4);
    assert_eq!(rows[1]["dlq"], true, "{results}");
    assert_eq!(rows[3]["success"], false);
    for (index, row) in rows.iter().enumerate() {
        assert_eq!(row["index"], index);
        for key in [
            "transactionId",
            "success",
            "error",
            "leaseReleased",
            "dlq",
            "noop",
        ] {
            assert!(row.get(key).is_some(), "{key}");
        }
    }
    let letters = served
        .get("/api/v1/dlq?queue=q&consumerGroup=g&partition=p")
        .await
        .json();
    assert_eq!(letters["total"], 1);
    let letter = &letters["messages"][0];
    assert_eq!(
        (&letter["data"], &letter["errorMessage"]),
        (&json!({"n": 1}), &json!("boom"))
    );
    assert!(letter["retryCount"].is_u64());

    // Replayed once it moves; the second time it is gone.
    let path = format!("/api/v1/dlq/{}/replay", letter["id"].as_str().unwrap());
    let moved = served.send("POST", &path, "", b"").await.json();
    assert_eq!(
        (&moved["result"], &moved["dlqRowRemoved"]),
        (&json!("moved"), &json!(true))
    );
    let id = format!("dlq:{}", letter["id"].as_str().unwrap());
    assert_eq!(moved["replayedAs"]["transaction_id"], id);
    let gone = served.send("POST", &path, "", b"").await;
    assert_eq!(
        (gone.status, gone.json()["result"].clone()),
        (404, json!("gone"))
    );
    assert_eq!(
        served
            .post("/api/v1/ack/batch", json!({"acknowledgments": []}))
            .await
            .json(),
        json!([])
    );
}

#[tokio::test]
async fn payloads_come_back_byte_for_byte() {
    let served = Served::start().await;
    let texts = [
        "null",
        "{}",
        "1.50e3",
        "\"\\u00e9\"",
        "[ 1 ,2 ]",
        "12345678901234567890123",
    ];
    let items: Vec<String> = texts
        .iter()
        .map(|text| format!(r#"{{"queue":"q","payload":{text},"traceId":"x"}}"#))
        .collect();
    let body = format!(r#"{{"items":[{}]}}"#, items.join(","));
    // The content type is not looked at.
    let pushed = served
        .send("POST", "/api/v1/push", "text/plain", body.as_bytes())
        .await;
    assert_eq!(pushed.status, 201);
    let popped = pop(&served, "q?batch=100").await.text();
    for text in texts {
        assert!(
            popped.contains(&format!("\"data\":{text},")),
            "{text} in {popped}"
        );
    }
}

#[tokio::test]
async fn offsets_can_be_read_without_a_group() {
    let served = Served::start().await;
    for n in 0..5 {
        served.push("q", "p", json!(n), &format!("t{n}")).await;
    }
    let body = json!({"entries": [
        {"queue": "q", "partition": "p", "offset": 2},
        {"queue": "q", "partition": "never", "offset": 0},
        {"queue": "q", "partition": "p", "offset": 9},
        {"queue": "none", "offset": 0},
        {"queue": "q", "partition": "p", "offset": 0, "maxBytes": 1}], "barrier": true});
    let entries = served.post("/api/v1/fetch", body).await.json()["entries"].clone();
    let offsets: Vec<&Value> = entries[0]["records"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["offset"])
        .collect();
    assert_eq!(offsets, [2, 3, 4]);
    assert_eq!(
        (&entries[0]["highWatermark"], &entries[0]["logStartOffset"]),
        (&json!(5), &json!(0))
    );
    assert_eq!(entries[1]["records"], json!([]));
    assert!(entries[1].get("error").is_none());
    assert_eq!(entries[2]["error"], "OFFSET_OUT_OF_RANGE");
    assert_eq!(entries[3]["error"], "UNKNOWN_TOPIC_OR_PARTITION");
    assert_eq!(entries[4]["records"].as_array().unwrap().len(), 1);
    let negative = json!({"entries": [{"queue": "q", "offset": -1}]});
    assert_eq!(served.post("/api/v1/fetch", negative).await.status, 400);

    let body = json!({"entries": [{"queue": "q", "limit": 1}]});
    let page = served.post("/api/v1/partitions/changed", body).await.json();
    let lane = &page["entries"][0]["partitions"][0];
    assert_eq!(
        (&lane["name"], &lane["lastOffset"]),
        (&json!("p"), &json!(4))
    );
    let next = page["entries"][0]["next"].clone();
    let body = json!({"entries": [{"queue": "q", "after": next, "since": page["safeTime"]}]});
    let rest = served.post("/api/v1/partitions/changed", body).await.json();
    assert_eq!(rest["entries"][0]["partitions"], json!([]));
    let bad = json!({"entries": [{"queue": "q", "since": "yesterday"}]});
    assert_eq!(
        served.post("/api/v1/partitions/changed", bad).await.status,
        400
    );
    let body = json!({"entries": [{"queue": "q", "after": "junk"}]});
    let page = served.post("/api/v1/partitions/changed", body).await.json();
    assert_eq!(page["entries"][0]["error"], "BAD_CURSOR");

    let at = |millis: i64| {
        json!({"entries": [{"queue": "q", "partition": "p",
        "timestamp": millis}]})
    };
    let begin = support::BEGIN.millis();
    let found = served.post("/api/v1/fetch/offsets", at(begin)).await.json();
    assert_eq!(found["entries"][0]["offset"], 0);
    let late = served
        .post("/api/v1/fetch/offsets", at(begin + 1000))
        .await
        .json();
    assert_eq!(late["entries"][0]["offset"], Value::Null);
}
