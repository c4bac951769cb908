//! The switches of this node (http-api 12.3): kept in memory, gone with a restart.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;
use serde_json::json;

use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::reply::Reply;
use crate::request::Call;

#[derive(Deserialize)]
struct Switch {
    enabled: Option<bool>,
}

fn set(switch: &AtomicBool, call: &Call) -> Result<bool, Problem> {
    let body: Switch = call.json()?;
    let Some(enabled) = body.enabled else {
        return Err(Problem::bad_request("enabled is required"));
    };
    switch.store(enabled, Ordering::Relaxed);
    Ok(enabled)
}

fn message(what: &str, paused: bool) -> String {
    format!(
        "{what} are {} on this node",
        if paused { "paused" } else { "served" }
    )
}

/// `GET /api/v1/system/maintenance`.
pub fn maintenance(app: &App) -> Answer {
    Ok(Reply::json(&json!({
        "maintenanceMode": app.push_paused.load(Ordering::Relaxed),
        "popMaintenanceMode": app.pop_paused.load(Ordering::Relaxed),
        "bufferedMessages": 0,
        "bufferHealthy": true,
        "bufferStats": {},
    })))
}

/// `POST /api/v1/system/maintenance`.
pub fn set_push(app: &App, call: &Call) -> Answer {
    let paused = set(&app.push_paused, call)?;
    tracing::info!(paused, "push maintenance switched");
    Ok(Reply::json(
        &json!({"maintenanceMode": paused, "bufferedMessages": 0,
        "bufferHealthy": true, "message": message("pushes", paused)}),
    ))
}

/// `GET /api/v1/system/maintenance/pop`.
pub fn pop_maintenance(app: &App) -> Answer {
    let paused = app.pop_paused.load(Ordering::Relaxed);
    Ok(Reply::json(
        &json!({"popMaintenanceMode": paused, "message": message("pops", paused)}),
    ))
}

/// `POST /api/v1/system/maintenance/pop`.
pub fn set_pop(app: &App, call: &Call) -> Answer {
    let paused = set(&app.pop_paused, call)?;
    tracing::info!(paused, "pop maintenance switched");
    Ok(Reply::json(
        &json!({"popMaintenanceMode": paused, "message": message("pops", paused)}),
    ))
}
