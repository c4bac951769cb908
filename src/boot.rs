//! What starts in which order, and stops in reverse: listeners are bound first (a taken port is
//! told before anything else), then the node recovers, then the listeners serve.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use queen_engine::port::Broker;
use queen_raft::{Node, NodeConfig};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::{error, info};

use crate::config::Config;
use crate::{signals, telemetry};

/// Seconds between clean-ups of the metrics recorder's histograms.
const METRICS_UPKEEP: Duration = Duration::from_secs(30);

/// Runs the broker until a signal stops it.
pub fn serve(config: Config) -> ExitCode {
    if let Err(told) = telemetry::logs(&config.log_filter, config.json_logs) {
        eprintln!("queen: {told}");
        return ExitCode::from(2);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(told) => return fail(format!("threads cannot be started: {told}")),
    };
    let code = match runtime.block_on(run(config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(told) => fail(told),
    };
    // A read of cold data may still block one of its threads; it has nothing left to say.
    runtime.shutdown_timeout(Duration::from_millis(200));
    code
}

fn fail(told: String) -> ExitCode {
    eprintln!("queen: {told}");
    ExitCode::FAILURE
}

async fn run(config: Config) -> Result<(), String> {
    let stop = signals::stop().map_err(|e| format!("signals cannot be watched: {e}"))?;
    let (upkeep, render_metrics) = telemetry::metrics()?;
    let kafka = bind("--kafka-listen", config.kafka_listen).await?;
    let http = bind("--http-listen", config.http_listen).await?;
    let kafka_at = local(&kafka)?;
    let http_at = local(&http)?;
    let (host, port) = config
        .kafka_advertise
        .clone()
        .unwrap_or_else(|| (kafka_at.ip().to_string(), kafka_at.port()));

    let node_config = NodeConfig {
        kafka_host: host.clone(),
        kafka_port: port,
        fsync: config.fsync,
        segment_bytes: config.segment_bytes,
        default_partitions: config.default_partitions,
        rack: config.rack.clone(),
        cluster: config.cluster.clone(),
        ..NodeConfig::new(config.node_id, config.data_dir.clone())
    };
    let mut stop = std::pin::pin!(stop);
    let started = tokio::task::spawn_blocking(move || Node::start(node_config));
    let started = tokio::select! {
        started = started => started,
        // A start may wait for a leader's files; ending in its midst is as safe as a kill.
        signal = &mut stop => {
            info!(signal, "stopping while starting");
            return Ok(());
        }
    };
    let node = started
        .map_err(|e| format!("start-up failed: {e}"))?
        .map_err(|e| e.to_string())?;
    let broker: Arc<dyn Broker> = node.clone();
    let has_peers = config.cluster.listen.is_some();
    if has_peers {
        node.set_http_address(&http_reached(&config, http_at));
    }

    let (stopping, stopped) = watch::channel(false);
    let until_stopped = |mut stopped: watch::Receiver<bool>| async move {
        let _ = stopped.wait_for(|stop| *stop).await; // an error means the sender is gone: stop too
    };
    let http_config = queen_http::HttpConfig {
        version: env!("CARGO_PKG_VERSION").to_string(),
        render_metrics,
        ..queen_http::HttpConfig::default()
    };
    let serve_http = || {
        tokio::spawn(queen_http::serve(
            http,
            broker.clone(),
            http_config,
            until_stopped(stopped.clone()),
        ))
    };
    let is_ready = async {
        node.ready()
            .await
            .map_err(|e| format!("the node does not come to serve: {e}"))
    };
    let serve_http = if has_peers {
        // Tells what it waits for, for as long as it takes the others to come.
        let serve_http = serve_http();
        tokio::select! {
            ready = is_ready => ready?,
            signal = &mut stop => {
                info!(signal, "stopping before the cluster was there");
                stopping.send_replace(true);
                finished("http", serve_http.await);
                node.shutdown().await;
                return Ok(());
            }
        }
        serve_http
    } else {
        is_ready.await?;
        serve_http()
    };
    let kafka_config = queen_kafka::KafkaConfig::default();
    let serve_kafka = tokio::spawn(queen_kafka::serve(
        kafka,
        broker.clone(),
        kafka_config,
        until_stopped(stopped.clone()),
    ));
    let upkeep = tokio::spawn(async move {
        let mut pulse = tokio::time::interval(METRICS_UPKEEP);
        loop {
            pulse.tick().await;
            upkeep.run_upkeep();
        }
    });

    println!(
        "ready kafka={host}:{port} http={http_at} node={} data={}",
        config.node_id,
        config.data_dir.display()
    );
    let signal = stop.await;
    info!(signal, "stopping");
    // First of all: clients whose calls end here go on with the next leader.
    node.hand_over().await;
    stopping.send_replace(true);
    upkeep.abort();
    let (kafka, http) = tokio::join!(serve_kafka, serve_http);
    if let Err(told) = kafka {
        error!(%told, "kafka listener failed");
    }
    finished("http", http);
    node.shutdown().await;
    info!("stopped");
    Ok(())
}

/// Says why a listener ended badly.
fn finished(listener: &str, ended: Result<std::io::Result<()>, tokio::task::JoinError>) {
    match ended {
        Err(told) => error!(%told, listener, "listener failed"),
        Ok(Err(told)) => error!(%told, listener, "listener failed"),
        Ok(Ok(())) => {}
    }
}

/// Where the other nodes reach the HTTP listener.
fn http_reached(config: &Config, http_at: SocketAddr) -> String {
    if let Some((host, port)) = &config.http_advertise {
        return format!("{host}:{port}");
    }
    match http_at.ip().is_unspecified() {
        false => http_at.to_string(),
        true => {
            let peer = &config.cluster.address;
            let host = peer
                .rsplit_once(':')
                .map_or(peer.as_str(), |(host, _)| host);
            format!("{host}:{}", http_at.port())
        }
    }
}

async fn bind(option: &str, address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|e| {
        format!("{option} {address} cannot be listened on: {e}; choose another address or port")
    })
}

fn local(listener: &TcpListener) -> Result<SocketAddr, String> {
    listener
        .local_addr()
        .map_err(|e| format!("a listener has no address: {e}"))
}
