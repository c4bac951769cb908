//! Who waits for what: parked pops by (topic, group), long polls by topic. An event wakes one pop
//! per (topic, group); a pop that found work passes the wake on, one that found none lets it end,
//! so an event wakes about as many pops as there is work for. A wake that its pop did not live to
//! see is passed on as well. Holds no state but the waiting.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use queen_engine::ids::TopicId;
use queen_engine::port::BoxFuture;
use tokio::sync::oneshot;

/// A waiting place; filled as long as nobody was woken at it.
type Slot = Arc<Mutex<Option<oneshot::Sender<()>>>>;

#[derive(Default)]
struct Places {
    pops: HashMap<TopicId, HashMap<Arc<str>, VecDeque<Slot>>>,
    /// Pops that wait for any topic to be made or changed.
    catalogue: HashMap<usize, Slot>,
    polls: HashMap<TopicId, Vec<Slot>>,
}

/// All waiters of a node.
#[derive(Default)]
pub struct Waiters {
    places: Mutex<Places>,
    parked: AtomicUsize,
}

impl Waiters {
    /// Parks a pop of `group` until something happens on one of `topics`, or to the catalogue.
    pub fn park(self: &Arc<Self>, topics: &[TopicId], group: &str) -> Parked {
        let (sender, receiver) = oneshot::channel();
        let slot: Slot = Arc::new(Mutex::new(Some(sender)));
        let group: Arc<str> = Arc::from(group);
        let mut places = self.places.lock();
        for topic in topics {
            let queue = places
                .pops
                .entry(*topic)
                .or_default()
                .entry(group.clone())
                .or_default();
            queue.push_back(slot.clone());
        }
        places.catalogue.insert(address(&slot), slot.clone());
        self.parked.fetch_add(1, Ordering::Relaxed);
        Parked {
            waiters: self.clone(),
            slot,
            receiver,
            group,
            topics: topics.to_vec(),
        }
    }

    /// Wakes one pop of a group on a topic.
    pub fn wake(&self, topic: TopicId, group: &str) {
        let mut places = self.places.lock();
        if let Some(queue) = places
            .pops
            .get_mut(&topic)
            .and_then(|groups| groups.get_mut(group))
        {
            wake_first(queue);
        }
    }

    /// Records were appended to a topic: wakes one pop of each group and every long poll.
    pub fn appended(&self, topic: TopicId) {
        let mut places = self.places.lock();
        if let Some(groups) = places.pops.get_mut(&topic) {
            groups.values_mut().for_each(wake_first);
        }
        for slot in places.polls.remove(&topic).unwrap_or_default() {
            wake_slot(&slot);
        }
    }

    /// Topics were made, changed or deleted: wakes every pop.
    pub fn catalogue_changed(&self) {
        let woken = std::mem::take(&mut self.places.lock().catalogue);
        for slot in woken.into_values() {
            wake_slot(&slot);
        }
    }

    /// Wakes everybody: the leader changed, or the node stops.
    pub fn wake_all(&self) {
        let mut places = self.places.lock();
        for slot in std::mem::take(&mut places.catalogue).into_values() {
            wake_slot(&slot);
        }
        for slot in std::mem::take(&mut places.polls).into_values().flatten() {
            wake_slot(&slot);
        }
    }

    /// Resolves at the next append to one of `topics` after this call.
    pub fn poll(self: &Arc<Self>, topics: &[TopicId]) -> BoxFuture<()> {
        let (sender, receiver) = oneshot::channel();
        let slot: Slot = Arc::new(Mutex::new(Some(sender)));
        let mut places = self.places.lock();
        for topic in topics {
            places.polls.entry(*topic).or_default().push(slot.clone());
        }
        drop(places);
        let polled = Polled {
            waiters: self.clone(),
            slot,
            receiver,
            topics: topics.to_vec(),
        };
        Box::pin(polled.woken())
    }

    /// Pops parked now.
    pub fn parked(&self) -> usize {
        self.parked.load(Ordering::Relaxed)
    }
}

/// A slot's identity: its address, which is its own while it is held.
fn address(slot: &Slot) -> usize {
    Arc::as_ptr(slot).addr()
}

fn wake_slot(slot: &Slot) -> bool {
    match slot.lock().take() {
        Some(sender) => sender.send(()).is_ok(),
        None => false,
    }
}

fn wake_first(queue: &mut VecDeque<Slot>) {
    while let Some(slot) = queue.pop_front() {
        if wake_slot(&slot) {
            return;
        }
    }
}

/// A parked pop. Dropping it leaves the queue and passes an unseen wake on.
pub struct Parked {
    waiters: Arc<Waiters>,
    slot: Slot,
    receiver: oneshot::Receiver<()>,
    group: Arc<str>,
    topics: Vec<TopicId>,
}

impl Parked {
    /// Resolves when the pop is woken. May be polled again after it was dropped half way.
    pub async fn woken(&mut self) {
        // An error means that the sender is gone, which is as good as a wake.
        let _ = (&mut self.receiver).await;
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        let waiters = &self.waiters;
        waiters.parked.fetch_sub(1, Ordering::Relaxed);
        let waiting = self.slot.lock().take().is_some();
        let unseen = !waiting && self.receiver.try_recv().is_ok();
        let mut places = waiters.places.lock();
        places.catalogue.remove(&address(&self.slot));
        for topic in &self.topics {
            let Some(groups) = places.pops.get_mut(topic) else {
                continue;
            };
            let Some(queue) = groups.get_mut(&self.group) else {
                continue;
            };
            // Those that leave unwoken are mostly the oldest, near the front.
            if let Some(at) = queue.iter().position(|slot| Arc::ptr_eq(slot, &self.slot)) {
                queue.remove(at);
            }
            if unseen {
                wake_first(queue);
            }
            if queue.is_empty() {
                groups.remove(&self.group);
            }
            if groups.is_empty() {
                places.pops.remove(topic);
            }
        }
    }
}

/// A long poll.
struct Polled {
    waiters: Arc<Waiters>,
    slot: Slot,
    receiver: oneshot::Receiver<()>,
    topics: Vec<TopicId>,
}

impl Polled {
    async fn woken(mut self) {
        let _ = (&mut self.receiver).await;
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        if self.slot.lock().take().is_none() {
            return;
        }
        let mut places = self.waiters.places.lock();
        for topic in &self.topics {
            let Some(slots) = places.polls.get_mut(topic) else {
                continue;
            };
            slots.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
            if slots.is_empty() {
                places.polls.remove(topic);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const TOPIC: TopicId = TopicId(7);

    #[test]
    fn an_append_wakes_one_pop_per_group() {
        let waiters = Arc::new(Waiters::default());
        let mut a1 = waiters.park(&[TOPIC], "a");
        let mut a2 = waiters.park(&[TOPIC], "a");
        let mut b = waiters.park(&[TOPIC], "b");
        waiters.appended(TOPIC);
        assert!(a1.woken().now_or_never().is_some());
        assert!(a2.woken().now_or_never().is_none());
        assert!(b.woken().now_or_never().is_some());
        waiters.wake(TOPIC, "a");
        assert!(a2.woken().now_or_never().is_some());
    }

    #[test]
    fn an_unseen_wake_is_passed_on() {
        let waiters = Arc::new(Waiters::default());
        let first = waiters.park(&[TOPIC], "a");
        let mut second = waiters.park(&[TOPIC], "a");
        waiters.appended(TOPIC);
        drop(first);
        assert!(second.woken().now_or_never().is_some());
        assert_eq!(waiters.parked(), 1);
    }

    #[test]
    fn leaving_cleans_up() {
        let waiters = Arc::new(Waiters::default());
        drop(waiters.park(&[TOPIC], "a"));
        drop(waiters.poll(&[TOPIC]));
        let places = waiters.places.lock();
        assert!(places.pops.is_empty() && places.polls.is_empty() && places.catalogue.is_empty());
    }

    #[test]
    fn a_poll_counts_from_the_call() {
        let waiters = Arc::new(Waiters::default());
        let poll = waiters.poll(&[TOPIC]);
        waiters.appended(TOPIC);
        assert!(poll.now_or_never().is_some());
    }
}
