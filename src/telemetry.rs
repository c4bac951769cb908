//! Logs and metrics: who collects them and how they look. Everything else only emits.

use std::sync::Arc;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

/// Seconds, from a tenth of a millisecond to ten seconds: buckets of every `*_seconds` histogram.
const SECONDS: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
];

/// Starts logging to standard error. Standard output carries the ready line only.
pub fn logs(filter: &str, json: bool) -> Result<(), String> {
    let filter =
        EnvFilter::try_new(filter).map_err(|e| format!("--log {filter:?} is not a filter: {e}"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let started = if json {
        builder.json().try_init()
    } else {
        builder.with_ansi(false).try_init()
    };
    started.map_err(|e| format!("logging cannot start: {e}"))
}

/// Renders all metrics in Prometheus' text form.
pub type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// Installs the metrics recorder; what renders it in Prometheus' text form.
pub fn metrics() -> Result<(PrometheusHandle, Render), String> {
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), SECONDS)
        .map_err(|e| format!("metrics cannot start: {e}"))?
        .build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).map_err(|e| format!("metrics cannot start: {e}"))?;
    let shown = handle.clone();
    Ok((handle, Arc::new(move || shown.render())))
}
