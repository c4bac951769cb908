//! Stub.
#![allow(unused_variables, unused_imports)]
use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::request::Call;
pub async fn list(app: &App) -> Answer {
    Err(Problem::no_such_route())
}
pub async fn lagging(app: &App, call: &Call) -> Answer {
    Err(Problem::no_such_route())
}
pub async fn detail(app: &App, group: &str) -> Answer {
    Err(Problem::no_such_route())
}
pub async fn resubscribe(app: &App, call: &Call, group: String) -> Answer {
    Err(Problem::no_such_route())
}
pub async fn seek(
    app: &App,
    call: &Call,
    group: String,
    queue: String,
    lane: Option<String>,
) -> Answer {
    Err(Problem::no_such_route())
}
pub async fn delete(app: &App, call: &Call, group: String, queue: Option<String>) -> Answer {
    Err(Problem::no_such_route())
}
