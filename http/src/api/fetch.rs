//! Stub.
#![allow(unused_variables, unused_imports)]
use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::request::Call;
pub async fn fetch(app: &App, call: &Call) -> Answer {
    Err(Problem::no_such_route())
}
pub async fn offsets(app: &App, call: &Call) -> Answer {
    Err(Problem::no_such_route())
}
