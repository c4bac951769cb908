//! The five-minute guide with the official Rust client: each step checks what it got, and says so on one line.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use queen_mq::{
    Config, Expiry, FetchOptions, Message, PushItem, PushStatus, Queen, QueueOptions, Since,
    StopReason, SubscriptionMode,
};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).expect("guide URL NAME");
    let name = std::env::args().nth(2).expect("guide URL NAME");
    let queen = Queen::connect(Config::new(url))?;
    let orders = format!("{name}-orders");
    let receipts = format!("{name}-receipts");
    let reminders = format!("{name}-reminders");

    // Configure.
    let configured = queen
        .queue(&orders)
        .configure(QueueOptions {
            lease_time: Some(30),
            retry_limit: Some(2),
            ..Default::default()
        })
        .await?;
    assert_eq!(configured["configured"], json!(true), "{configured}");
    assert_eq!(configured["options"]["leaseTime"], json!(30));
    println!("configured");

    // The same transaction id twice: the second is a duplicate and names the first.
    let item = || {
        PushItem::new(&orders, json!({ "order": 8891, "total": 42.50 }))
            .partition("customer-7")
            .transaction_id("order-8891-placed")
    };
    let first = queen.queue(&orders).push_items(vec![item()]).await?;
    let again = queen.queue(&orders).push_items(vec![item()]).await?;
    assert_eq!(first[0].status, PushStatus::Queued);
    assert_eq!(again[0].status, PushStatus::Duplicate);
    assert_eq!(again[0].message_id, first[0].message_id);
    println!("pushed");

    // Consume: the loop hands over, acks and stops at its limit.
    let seen: Arc<Mutex<Vec<Message>>> = Arc::default();
    let handed = seen.clone();
    let summary = queen
        .queue(&orders)
        .limit(1)
        .consume(move |message| {
            let handed = handed.clone();
            async move {
                handed.lock().unwrap().push(message);
                Ok::<_, Infallible>(())
            }
        })
        .await?;
    assert_eq!((summary.processed, summary.acked), (1, 1));
    assert_eq!(summary.stopped_by, StopReason::Limit);
    {
        let seen = seen.lock().unwrap();
        assert_eq!(seen[0].partition, "customer-7");
        assert_eq!(seen[0].transaction_id, "order-8891-placed");
        assert_eq!(seen[0].data["total"], json!(42.50));
    }
    let rest = queen.queue(&orders).batch(1).wait(false).pop().await?;
    assert!(rest.is_empty(), "{rest:?}");
    println!("consumed");

    // The transaction: ack, state with a lifetime, the next event, tomorrow's reminder. All or nothing.
    queen
        .queue(&orders)
        .partition("customer-7")
        .push(json!({ "order": 8892 }))
        .await?;
    let popped = queen.queue(&orders).batch(1).wait(true).pop().await?;
    assert_eq!(popped.len(), 1);
    let done = queen
        .transaction()
        .ack(&popped[0])
        .push_to(receipts.clone(), "customer-7", json!({ "receipt": 8892 }))?
        .kv_put(
            "orders",
            &format!("{name}/8892"),
            json!({ "state": "paid" }),
            Expiry::seconds(3600),
        )?
        .schedule(
            &reminders,
            "order-8892",
            Duration::from_millis(300),
            json!({ "remind": 8892 }).to_string(),
        )
        .commit()
        .await?;
    assert!(done.success, "{done:?}");
    let state = queen.kv().get("orders", &format!("{name}/8892")).await?;
    assert!(state.found());
    assert_eq!(state.value, Some(json!({ "state": "paid" })));
    assert!(state.expires_at.is_some());
    let receipt = queen.queue(&receipts).batch(1).wait(true).pop().await?;
    assert_eq!(receipt[0].data, json!({ "receipt": 8892 }));
    assert_eq!(receipt[0].partition, "customer-7");
    let reminder = queen
        .queue(&reminders)
        .batch(1)
        .wait(true)
        .poll_timeout(Duration::from_secs(20))
        .pop()
        .await?;
    assert_eq!(reminder.len(), 1, "the timer did not fire");
    assert_eq!(reminder[0].data, json!({ "remind": 8892 }));
    let rest = queen.queue(&orders).batch(1).wait(false).pop().await?;
    assert!(rest.is_empty(), "the ack did not hold: {rest:?}");
    println!("committed");

    // A step whose marker is there already is not done again.
    queen
        .queue(&orders)
        .partition("customer-7")
        .push(json!({ "order": 8893 }))
        .await?;
    let popped = queen.queue(&orders).batch(1).wait(true).pop().await?;
    let marker = format!("{name}/8892");
    let refused = queen
        .transaction()
        .ack(&popped[0])
        .push(receipts.clone(), json!({ "receipt": 8893 }))?
        .kv_put_if_absent("orders", &marker, json!(true), Expiry::seconds(60))?
        .commit()
        .await?;
    assert!(!refused.success);
    assert!(refused.lost_precondition().is_some(), "{refused:?}");
    let receipt = queen.queue(&receipts).batch(1).wait(false).pop().await?;
    assert!(receipt.is_empty(), "a refused transaction pushed");
    assert!(queen.ack(&popped[0]).await?.success, "the lease was lost");
    println!("refused");

    // A second group with a start of its own.
    let audit = queen
        .queue(&orders)
        .group("audit")
        .subscription_mode(SubscriptionMode::All)
        .subscription_from("2020-01-01T00:00:00Z")
        .batch(10)
        .wait(true)
        .pop()
        .await?;
    let ids: Vec<_> = audit.iter().map(|m| m.data["order"].clone()).collect();
    assert_eq!(ids, [json!(8891), json!(8892), json!(8893)]);
    let late = queen
        .queue(&orders)
        .group("late")
        .subscription_from("now")
        .wait(false)
        .pop()
        .await?;
    assert!(late.is_empty(), "{late:?}");
    println!("second group");

    // Reads by offset: no lease, no cursor.
    let read = queen.queue(&orders).fetch(["customer-7", "nobody"]).await?;
    let lane = &read["customer-7"];
    assert_eq!(lane.records.len(), 3);
    assert_eq!(lane.high_watermark, 3);
    assert_eq!(lane.next_offset, 3);
    let offsets: Vec<_> = lane.records.iter().map(|record| record.offset).collect();
    assert_eq!(offsets, [0, 1, 2]);
    assert!(read["nobody"].records.is_empty());
    let later = queen
        .queue(&orders)
        .fetch_with(["customer-7"], FetchOptions::new().offset("customer-7", 2))
        .await?;
    assert_eq!(later["customer-7"].records.len(), 1);
    let changed = queen
        .queue(&orders)
        .changed_since(SystemTime::now() - Duration::from_secs(600))
        .await?;
    assert!(changed.partitions.iter().any(|p| p.name == "customer-7"));
    let all = queen.queue(&orders).changed_since(Since::All).await?;
    assert!(all.partitions.iter().any(|p| p.name == "customer-7"));
    println!("read by offset");

    queen.close().await?;
    println!("done");
    Ok(())
}
