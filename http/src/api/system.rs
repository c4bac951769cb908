//! Stub.
#![allow(unused_variables, unused_imports)]
use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::request::Call;
pub fn maintenance(app: &App) -> Answer {
    Err(Problem::no_such_route())
}
pub fn set_push(app: &App, call: &Call) -> Answer {
    Err(Problem::no_such_route())
}
pub fn pop_maintenance(app: &App) -> Answer {
    Err(Problem::no_such_route())
}
pub fn set_pop(app: &App, call: &Call) -> Answer {
    Err(Problem::no_such_route())
}
