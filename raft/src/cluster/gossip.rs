//! When nodes tell each other how they are: each asks each a few times a second, with its own card.
//! A peer that does not answer delays nobody else.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::card::Card;
use super::handshake::Purpose;
use super::{Links, kind};
use crate::node::Inner;

/// Between two cards to a peer.
const BETWEEN: Duration = Duration::from_millis(250);
/// How long a peer may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs until the task is aborted.
pub(crate) async fn run(inner: Arc<Inner>, links: Arc<Links>) {
    let mut pulse = tokio::time::interval(BETWEEN);
    pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut asked: HashSet<i32> = HashSet::new();
    let mut asking = JoinSet::new();
    loop {
        tokio::select! {
            _ = pulse.tick() => {}
            Some(done) = asking.join_next() => {
                if let Ok(peer) = done {
                    asked.remove(&peer);
                }
                continue;
            }
        }
        let card: Bytes = inner.card(&links.cluster).encode().into();
        for peer in links.cluster.others() {
            if !asked.insert(peer) {
                continue;
            }
            let (inner, links, card) = (inner.clone(), links.clone(), card.clone());
            asking.spawn(async move {
                let link = links.get(peer, Purpose::Fast);
                // A failure is noted where it is met, and the peer's age tells the rest.
                if let Ok(answer) = link.ask(kind::CARD, vec![card], PATIENCE).await
                    && let Some(card) = Card::decode(&answer).filter(|card| card.id == peer)
                {
                    inner.take_card(&links.cluster, card);
                }
                peer
            });
        }
    }
}
