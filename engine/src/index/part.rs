//! A part of the index that no longer grows: still on the heap while its bytes are being encoded,
//! then looked up in its bytes. Both answer the same.

use std::sync::Arc;

use bytes::Bytes;

use super::active::ActivePart;
use super::sealed::{SealedPart, encode};
use super::{BatchRow, Place, WalkPosition, WalkedBatch};
use crate::ids::{LaneId, TopicId};

/// A part that was just closed. Its bytes are made by [`FrozenPart::encode`], away from apply.
#[derive(Clone, Debug)]
pub struct FrozenPart(Arc<ActivePart>);

impl FrozenPart {
    pub(super) fn new(part: ActivePart) -> FrozenPart {
        FrozenPart(Arc::new(part))
    }

    /// The bytes of the sealed form. Takes a while: some 100 ns a record.
    pub fn encode(&self) -> Bytes {
        encode(&self.0).into()
    }
}

#[derive(Debug)]
pub(super) enum Part {
    Frozen(FrozenPart),
    Sealed(SealedPart),
}

/// One look-up, answered by whichever form the part has.
macro_rules! either {
    ($part:expr, $method:ident($($argument:expr),*)) => {
        match $part {
            Part::Frozen(part) => part.0.$method($($argument),*),
            Part::Sealed(part) => part.$method($($argument),*),
        }
    };
}

impl Part {
    pub(super) fn covers(&self) -> Option<(u64, u64)> {
        either!(self, covers())
    }

    pub(super) fn has(&self, topic: TopicId, partition: u32) -> bool {
        either!(self, has(topic, partition))
    }

    pub(super) fn find(&self, topic: TopicId, partition: u32, offset: u64) -> Option<BatchRow> {
        either!(self, find(topic, partition, offset))
    }

    pub(super) fn locate(&self, lane: LaneId, number: u64) -> Option<Place> {
        either!(self, locate(lane, number))
    }

    pub(super) fn first_number(&self, lane: LaneId) -> Option<u64> {
        either!(self, first_number(lane))
    }

    pub(super) fn dropped(&self, row: &BatchRow) -> Option<Vec<u32>> {
        either!(self, dropped(row))
    }

    pub(super) fn walk(&self, topic: TopicId, from: WalkPosition) -> Option<WalkedBatch> {
        either!(self, walk(topic, from))
    }

    pub(super) fn all_rows(&self, wanted: impl Fn(&BatchRow) -> bool) -> bool {
        either!(self, all_rows(wanted))
    }

    /// Looks at a partition's rows in order until `look` says stop; whether it did not.
    pub(super) fn each_row(
        &self,
        topic: TopicId,
        partition: u32,
        look: &mut dyn FnMut(BatchRow) -> bool,
    ) -> bool {
        match self {
            Part::Frozen(part) => part.0.rows_of(topic, partition).all(look),
            Part::Sealed(part) => part.rows_of(topic, partition).all(look),
        }
    }
}
