//! openraft's own storage suite on our log and state machine.

use std::sync::Arc;

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use queen_engine::Effects;
use queen_log::{Log, LogConfig};
use queen_raft::Fatal;
use queen_raft::apply::{Applier, SharedState, State, Watcher};
use queen_raft::consensus::{LogStore, Machine, TypeConfig};
use queen_raft::replicator::Position;

struct Builder;

struct NoWatcher;

impl Watcher for NoWatcher {
    fn before(&mut self, _at: Position, _bytes: usize, _state: &mut State) {}
    fn after(&mut self, _at: Position, _state: &State, _effects: &Effects) {}
    fn wake(&mut self, _effects: &Effects) {}
}

impl StoreBuilder<TypeConfig, LogStore, Machine, tempfile::TempDir> for Builder {
    async fn build(
        &self,
    ) -> Result<(tempfile::TempDir, LogStore, Machine), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().unwrap();
        let config = LogConfig {
            segment_bytes: 1 << 20,
            ..LogConfig::new(dir.path(), 1)
        };
        let (log, recovered) = Log::open(config).unwrap();
        let store = LogStore::new(Arc::new(log), recovered.vote.as_deref(), true).unwrap();
        let fatal = Fatal::new(|reason| panic!("{reason}"));
        let (applier, _) = Applier::start(SharedState::default(), NoWatcher, fatal).unwrap();
        let machine = Machine::new(applier, None);
        Ok((dir, store, machine))
    }
}

#[test]
fn upstream_storage_suite() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(Suite::test_all(Builder)).unwrap();
}
