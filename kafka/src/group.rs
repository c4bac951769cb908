//! stub
use std::sync::Arc;
use crate::config::KafkaConfig;
use crate::context::Context;
pub(crate) struct Coordinator;
impl Coordinator { pub(crate) fn new(_: &KafkaConfig) -> Coordinator { Coordinator } }
pub(crate) async fn run_timers(_: Arc<Context>) {}
