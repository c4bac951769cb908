//! Scripts of one group: who says what when, and what comes back.

use tokio::sync::oneshot::{self, Receiver, error::TryRecvError};

use super::super::member::SyncAnswer;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

struct Script {
    group: Group,
    rules: Rules,
    now: Instant,
}

type Pending = Receiver<JoinAnswer>;

fn join_of(member_id: &str, instance: Option<&str>) -> Join {
    Join {
        member_id: member_id.into(),
        instance_id: instance.map(Into::into),
        client_id: "client".into(),
        client_host: "/host".into(),
        session_timeout: 10 * SECOND,
        rebalance_timeout: 30 * SECOND,
        protocol_type: "consumer".into(),
        protocols: vec![("range".into(), Bytes::from_static(b"topics"))],
        id_required: false,
        can_skip: true,
    }
}

impl Script {
    fn new() -> Script {
        let now = Instant::now();
        let rules = Rules {
            initial_delay: SECOND,
            members_max: 3,
        };
        Script {
            group: Group::new(1, now),
            rules,
            now,
        }
    }

    fn join(&mut self, join: &Join) -> Pending {
        let (waiter, answer) = oneshot::channel();
        self.group.join(self.now, &self.rules, join, waiter);
        answer
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.group.tick(self.now, &self.rules);
    }

    fn sync(&mut self, member: &str, parts: &[(&str, &'static [u8])]) -> Receiver<SyncAnswer> {
        let (waiter, answer) = oneshot::channel();
        let sync = Sync {
            member_id: member.into(),
            generation: self.group.generation,
            assignments: parts
                .iter()
                .map(|(id, bytes)| ((*id).to_owned(), Bytes::from_static(bytes)))
                .collect(),
            ..Sync::default()
        };
        self.group.sync(self.now, &sync, waiter);
        answer
    }

    fn beat(&mut self, member: &str) -> Result<(), ResponseError> {
        let generation = self.group.generation;
        self.group.heartbeat(self.now, member, None, generation)
    }

    /// Two members in a stable group: leader and follower.
    fn stable() -> (Script, String, String) {
        let mut script = Script::new();
        let mut a = script.join(&join_of("", None));
        let mut b = script.join(&join_of("", None));
        assert_eq!(
            a.try_recv(),
            Err(TryRecvError::Empty),
            "waits for more members"
        );
        script.pass(SECOND);
        script.pass(SECOND);
        let a = a.try_recv().unwrap().unwrap();
        let b = b.try_recv().unwrap().unwrap();
        assert_eq!((a.generation, b.generation), (1, 1));
        assert_eq!(a.leader, a.member_id);
        assert_eq!((a.members.len(), b.members.len()), (2, 0));
        let mut follower = script.sync(&b.member_id, &[]);
        assert!(follower.try_recv().is_err(), "waits for the leader");
        let parts = [
            (a.member_id.as_str(), &b"one"[..]),
            (b.member_id.as_str(), &b"two"[..]),
        ];
        let mut leader = script.sync(&a.member_id, &parts);
        assert_eq!(leader.try_recv().unwrap().unwrap().assignment, "one");
        assert_eq!(follower.try_recv().unwrap().unwrap().assignment, "two");
        assert_eq!(script.group.phase, Phase::Stable);
        (script, a.member_id, b.member_id)
    }
}

#[test]
fn two_members_join_sync_and_beat() {
    let (mut script, a, b) = Script::stable();
    assert_eq!(script.beat(&a), Ok(()));
    assert_eq!(script.beat(&b), Ok(()));
    assert_eq!(script.beat("stranger"), Err(ResponseError::UnknownMemberId));
    let stale = script.group.heartbeat(script.now, &a, None, 0);
    assert_eq!(stale, Err(ResponseError::IllegalGeneration));
}

#[test]
fn a_newcomer_with_required_id_joins_in_one_rebalance() {
    let (mut script, a, b) = Script::stable();
    let mut newcomer = join_of("", None);
    newcomer.id_required = true;
    let refused = script.join(&newcomer).try_recv().unwrap().unwrap_err();
    assert_eq!(refused.error, ResponseError::MemberIdRequired);
    let mut c = script.join(&Join {
        member_id: refused.member_id,
        ..newcomer
    });
    assert_eq!(script.beat(&a), Err(ResponseError::RebalanceInProgress));
    let mut a_again = script.join(&join_of(&a, None));
    let mut b_again = script.join(&join_of(&b, None));
    assert_eq!(a_again.try_recv().unwrap().unwrap().members.len(), 3);
    assert_eq!(b_again.try_recv().unwrap().unwrap().generation, 2);
    assert_eq!(c.try_recv().unwrap().unwrap().leader, a);
    // The group takes three.
    let full = script
        .join(&join_of("", None))
        .try_recv()
        .unwrap()
        .unwrap_err();
    assert_eq!(full.error, ResponseError::GroupMaxSizeReached);
}

#[test]
fn commits_follow_the_phase() {
    let (mut script, a, b) = Script::stable();
    let now = script.now;
    let commit = |s: &mut Script, id: &str, g| s.group.check_commit(now, id, None, g);
    assert_eq!(commit(&mut script, &a, 1), Ok(()));
    assert_eq!(
        commit(&mut script, &a, 0),
        Err(ResponseError::IllegalGeneration)
    );
    assert_eq!(
        commit(&mut script, "", -1),
        Err(ResponseError::UnknownMemberId)
    );
    let _a = script.join(&join_of(&a, None));
    assert_eq!(
        commit(&mut script, &a, 1),
        Ok(()),
        "while others are joining"
    );
    let _b = script.join(&join_of(&b, None));
    assert_eq!(
        commit(&mut script, &a, 2),
        Err(ResponseError::RebalanceInProgress)
    );
    let mut empty = Group::new(1, now);
    assert_eq!(empty.check_commit(now, "", None, -1), Ok(()));
}

#[test]
fn a_silent_member_is_out_and_late_joiners_do_not_stop_a_rebalance() {
    let (mut script, a, b) = Script::stable();
    script.pass(9 * SECOND);
    assert_eq!(script.beat(&a), Ok(()));
    script.pass(2 * SECOND);
    assert_eq!(script.beat(&b), Err(ResponseError::UnknownMemberId));
    assert_eq!(script.group.phase, Phase::PreparingRebalance);
    let mut again = script.join(&join_of(&a, None));
    assert_eq!(again.try_recv().unwrap().unwrap().members.len(), 1);

    let (mut script, a, _b) = Script::stable();
    let mut rejoin = script.join(&join_of(&a, None));
    assert!(rejoin.try_recv().is_err());
    for _ in 0..31 {
        script.pass(SECOND);
    }
    assert_eq!(rejoin.try_recv().unwrap().unwrap().members.len(), 1);
}

#[test]
fn who_never_syncs_is_removed_even_if_it_beats() {
    let (mut script, a, b) = Script::stable();
    let _a = script.join(&join_of(&a, None));
    let _b = script.join(&join_of(&b, None));
    assert_eq!(script.group.phase, Phase::CompletingRebalance);
    let mut follower = script.sync(&b, &[]);
    for _ in 0..30 {
        script.pass(SECOND);
        let _ = script.beat(&a);
    }
    let lost = follower.try_recv().unwrap().unwrap_err();
    assert_eq!(lost, ResponseError::RebalanceInProgress);
    assert_eq!(script.beat(&a), Err(ResponseError::UnknownMemberId));
}

#[test]
fn leaving_starts_the_rebalance_at_once() {
    let (mut script, a, b) = Script::stable();
    assert_eq!(
        script
            .group
            .leave(script.now, &script.rules.clone(), &a, None),
        Ok(())
    );
    assert_eq!(script.beat(&b), Err(ResponseError::RebalanceInProgress));
    let mut again = script.join(&join_of(&b, None));
    let again = again.try_recv().unwrap().unwrap();
    assert_eq!((again.leader, again.members.len()), (b.clone(), 1));
    assert_eq!(
        script
            .group
            .leave(script.now, &script.rules.clone(), &b, None),
        Ok(())
    );
    assert_eq!(script.group.phase, Phase::Empty);
}

fn static_group() -> (Script, String) {
    let mut script = Script::new();
    let mut first = script.join(&join_of("", Some("i1")));
    script.pass(SECOND);
    script.pass(SECOND);
    let first = first.try_recv().unwrap().unwrap();
    let mut synced = script.sync(&first.member_id, &[(first.member_id.as_str(), b"all")]);
    // A static member must name its instance on every call; the check is by instance.
    assert_eq!(synced.try_recv().unwrap().unwrap().assignment, "all");
    (script, first.member_id)
}

#[test]
fn a_static_member_that_restarts_keeps_its_assignment() {
    let (mut script, old) = static_group();
    let mut back = script.join(&join_of("", Some("i1")));
    let back = back.try_recv().unwrap().unwrap();
    assert_ne!(back.member_id, old);
    assert_eq!(back.generation, 1);
    assert!(back.skip_assignment);
    let mut synced = script.sync(&back.member_id, &[]);
    assert_eq!(synced.try_recv().unwrap().unwrap().assignment, "all");
    let fenced = script.group.heartbeat(script.now, &old, Some("i1"), 1);
    assert_eq!(fenced, Err(ResponseError::FencedInstanceId));
    let fenced = script
        .join(&join_of(&old, Some("i1")))
        .try_recv()
        .unwrap()
        .unwrap_err();
    assert_eq!(fenced.error, ResponseError::FencedInstanceId);
}

#[test]
fn a_static_member_with_new_metadata_starts_a_rebalance() {
    let (mut script, _old) = static_group();
    let mut changed = join_of("", Some("i1"));
    changed.protocols[0].1 = Bytes::from_static(b"other topics");
    let back = script.join(&changed).try_recv().unwrap().unwrap();
    assert_eq!(back.generation, 2);
}

#[test]
fn a_static_member_of_before_our_restart_is_let_in() {
    let mut script = Script::new();
    let mut back = script.join(&join_of("i1-old-id", Some("i1")));
    script.pass(SECOND);
    script.pass(SECOND);
    assert_eq!(back.try_recv().unwrap().unwrap().member_id, "i1-old-id");
}

#[test]
fn types_and_protocols_must_match() {
    let (mut script, ..) = Script::stable();
    for (kind, protocol) in [("connect", "range"), ("consumer", "sticky")] {
        let mut odd = join_of("", None);
        odd.protocol_type = kind.into();
        odd.protocols[0].0 = protocol.into();
        let refused = script.join(&odd).try_recv().unwrap().unwrap_err();
        assert_eq!(refused.error, ResponseError::InconsistentGroupProtocol);
    }
}

#[test]
fn an_id_handed_out_and_not_used_does_not_hold_the_group() {
    let (mut script, a, b) = Script::stable();
    let mut newcomer = join_of("", None);
    newcomer.id_required = true;
    drop(script.join(&newcomer));
    let mut a_again = script.join(&join_of(&a, None));
    let _b_again = script.join(&join_of(&b, None));
    assert!(a_again.try_recv().is_err(), "the newcomer may still come");
    script.pass(11 * SECOND);
    assert_eq!(a_again.try_recv().unwrap().unwrap().members.len(), 2);
}
