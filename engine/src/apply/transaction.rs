//! Transactions: every part is judged first, in the order that names the reason (semantics
//! TXN-8); only then is anything changed.

use super::Applying;
use crate::command::{TopicRef, Transaction};
use crate::outcome::{Committed, Reject, Rollback};

impl Applying<'_> {
    pub(super) fn transaction(&mut self, parts: &Transaction) -> Result<Committed, Rollback> {
        self.check(parts)?;
        let acks = self.ack(&parts.acks);
        let mut pushes = Vec::with_capacity(parts.pushes.len());
        for (at, batch) in parts.pushes.iter().enumerate() {
            // Checked above: what is left to refuse would be a batch that contradicts itself.
            pushes.push(
                self.append(batch)
                    .map_err(|reject| Rollback::Push(at, reject))?,
            );
        }
        for (at, position) in parts.positions.iter().enumerate() {
            self.set_position(position)
                .map_err(|reject| Rollback::Position(at, reject))?;
        }
        let kv = self.engine.kv.apply(&parts.kv, self.now);
        let timers = self.engine.timers.apply(&parts.timers, self.now);
        self.effects.timers |= !timers.is_empty();
        Ok(Committed {
            acks,
            pushes,
            kv,
            timers,
        })
    }

    fn check(&self, parts: &Transaction) -> Result<(), Rollback> {
        if let Some((at, reject)) = self.first_refused_ack(&parts.acks) {
            return Err(Rollback::Ack(at, reject));
        }
        for (batch_at, batch) in parts.pushes.iter().enumerate() {
            if let Some(record) = self.first_duplicate(batch) {
                return Err(Rollback::Duplicate {
                    batch: batch_at,
                    record,
                });
            }
            self.check_push(batch)
                .map_err(|reject| Rollback::Push(batch_at, reject))?;
        }
        for (at, position) in parts.positions.iter().enumerate() {
            let found = match &position.topic {
                TopicRef::Id(id) => self.engine.topics.get(*id).is_some(),
                TopicRef::Name { name, .. } => self.engine.topics.named(name).is_some(),
            };
            if !found {
                return Err(Rollback::Position(at, Reject::UnknownTopic));
            }
        }
        match self.engine.kv.first_loss(&parts.kv, self.now) {
            Some(loss) => Err(Rollback::Kv(loss)),
            None => Ok(()),
        }
    }
}
