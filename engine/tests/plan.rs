//! What the scheduler owes a pop beyond the oracle's queue: discovery, options that change, time.

mod world;

use queen_engine::command::{Command, TopicRef};
use queen_engine::config::{Patch, QueueOptionsPatch};
use queen_engine::port::{PopRequest, PopTarget, Subscription};
use queen_engine::schedule::Plan;
use world::{World, item, pop};

fn configure(world: &mut World, queue: &str, patch: QueueOptionsPatch) {
    let topic = world.engine.topics.named(queue).unwrap().id;
    let replace = false;
    world.submit(Command::Configure {
        topic: TopicRef::Id(topic),
        patch,
        replace,
    });
}

fn discovery(group: &str) -> PopRequest {
    PopRequest {
        target: PopTarget::Labels {
            namespace: Some("shop".into()),
            task: None,
        },
        subscription: Subscription::default(),
        ..pop("", group, 10, 10)
    }
}

/// http-api 5.3: a queue that appears while a pop waits must not lose its first message to it.
#[test]
fn a_queue_born_while_a_group_looks_for_it_is_read_from_its_first_message() {
    let mut world = World::new();
    world.push(&[item("shop.old", "a", "0", None)]);
    world.sleep_ms(1000);
    assert!(
        world.pop(&discovery("g")).is_empty(),
        "the backlog is skipped"
    );
    world.sleep_ms(1000);
    world.push(&[item("shop.new", "a", "1", None)]);
    let runs = world.pop(&discovery("g"));
    assert_eq!((runs[0].from, runs[0].to), (0, 1));
}

#[test]
fn a_queue_of_a_higher_priority_is_served_first() {
    let mut world = World::new();
    for queue in ["shop.low", "shop.high"] {
        world.push(&[item(queue, queue, "0", None)]);
    }
    let patch = QueueOptionsPatch {
        priority: Patch::Set(5),
        ..QueueOptionsPatch::default()
    };
    configure(&mut world, "shop.high", patch);
    let all = Subscription {
        mode: Some("all".into()),
        from: None,
    };
    let request = PopRequest {
        subscription: all,
        ..discovery("g")
    };
    assert_eq!(world.pop(&request)[0].name, "shop.high");
    assert_eq!(world.pop(&request)[0].name, "shop.low");
}

#[test]
fn a_shorter_window_or_delay_frees_what_was_looked_at_already() {
    for (long, none) in [
        (
            QueueOptionsPatch {
                window_buffer: Patch::Set(60),
                ..QueueOptionsPatch::default()
            },
            QueueOptionsPatch {
                window_buffer: Patch::Set(0),
                ..QueueOptionsPatch::default()
            },
        ),
        (
            QueueOptionsPatch {
                delayed_processing: Patch::Set(60),
                ..QueueOptionsPatch::default()
            },
            QueueOptionsPatch {
                delayed_processing: Patch::Reset,
                ..QueueOptionsPatch::default()
            },
        ),
    ] {
        let mut world = World::new();
        world.push(&[item("q", "a", "0", None)]);
        configure(&mut world, "q", long);
        let request = pop("q", "g", 10, 10);
        assert!(world.pop(&request).is_empty());
        let Plan::Nothing {
            wake_at: Some(at), ..
        } = world.plan(&request)
        else {
            panic!("a hidden message says when to look again");
        };
        assert!(at > world.now.plus_seconds(50) && at <= world.now.plus_seconds(60));
        configure(&mut world, "q", none);
        assert_eq!(world.pop(&request).len(), 1);
    }
}
