//! Stub.
#![allow(unused_variables, unused_imports)]
use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::request::Call;
pub async fn list(app: &App, call: &Call) -> Answer {
    Err(Problem::no_such_route())
}
pub async fn purge(app: &App, call: &Call) -> Answer {
    Err(Problem::no_such_route())
}
pub async fn replay(app: &App, call: &Call, id: &str) -> Answer {
    Err(Problem::no_such_route())
}
pub async fn retry(app: &App, call: &Call, lane: &str, txn: &str) -> Answer {
    Err(Problem::no_such_route())
}
pub async fn delete(app: &App, lane: &str, txn: &str) -> Answer {
    Err(Problem::no_such_route())
}
