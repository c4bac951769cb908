//! Not a test: a listener over an in-memory engine for trying real clients by hand.
//! `QUEEN_TRY_PORT=19092 cargo test -p queen-kafka --test try_clients -- --ignored`

mod world;

use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs until it is killed"]
async fn serve_in_memory() {
    let port = std::env::var("QUEEN_TRY_PORT")
        .ok()
        .and_then(|port| port.parse().ok());
    let world =
        world::World::start_with(queen_kafka::KafkaConfig::default(), port.unwrap_or(0)).await;
    println!("serving on 127.0.0.1:{}", world.port);
    tokio::time::sleep(Duration::from_secs(600)).await;
}
