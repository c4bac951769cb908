//! Stub.
#![allow(unused_variables, unused_imports)]
use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::request::Call;
pub async fn changed(app: &App, call: &Call) -> Answer {
    Err(Problem::no_such_route())
}
