//! Stub.
#![allow(unused_variables, unused_imports)]
use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::request::Call;
pub async fn overview(app: &App) -> Answer {
    Err(Problem::no_such_route())
}
pub async fn queues(app: &App) -> Answer {
    Err(Problem::no_such_route())
}
pub async fn queue(app: &App, queue: &str) -> Answer {
    Err(Problem::no_such_route())
}
pub async fn depth(app: &App, call: &Call, queue: &str) -> Answer {
    Err(Problem::no_such_route())
}
pub async fn namespaces(app: &App) -> Answer {
    Err(Problem::no_such_route())
}
pub async fn tasks(app: &App) -> Answer {
    Err(Problem::no_such_route())
}
pub async fn partitions(app: &App, call: &Call) -> Answer {
    Err(Problem::no_such_route())
}
