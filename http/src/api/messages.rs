//! Stub.
#![allow(unused_variables, unused_imports)]
use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::request::Call;
pub async fn list(app: &App, call: &Call) -> Answer {
    Err(Problem::no_such_route())
}
pub async fn detail(app: &App, lane: &str, txn: &str) -> Answer {
    Err(Problem::no_such_route())
}
