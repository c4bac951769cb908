//! Stub.
#![allow(unused_variables, unused_imports)]
use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::request::Call;
pub async fn status(app: &App, call: &Call) -> Answer {
    Err(Problem::no_such_route())
}
pub async fn queues(app: &App, call: &Call) -> Answer {
    Err(Problem::no_such_route())
}
pub async fn queue(app: &App, queue: &str) -> Answer {
    Err(Problem::no_such_route())
}
pub async fn analytics(app: &App, call: &Call) -> Answer {
    Err(Problem::no_such_route())
}
pub fn buffers() -> Answer {
    Err(Problem::no_such_route())
}
pub fn refresh() -> Answer {
    Err(Problem::no_such_route())
}
pub async fn series(app: &App, call: &Call, name: &str) -> Option<Answer> {
    None
}
