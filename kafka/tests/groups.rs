//! Group membership over the wire: what stock consumers do, in old and new versions.

mod world;

use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;
use world::{Client, World};

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

fn join(version: i16, group: &str, member: &StrBytes) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(text("range"))
        .with_metadata(Bytes::from_static(b"opaque"));
    let request = JoinGroupRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_session_timeout_ms(6000)
        .with_member_id(member.clone())
        .with_protocol_type(text("connect"))
        .with_protocols(vec![protocol]);
    if version >= 1 {
        request.with_rebalance_timeout_ms(20_000)
    } else {
        request
    }
}

fn sync(version: i16, joined: &JoinGroupResponse, group: &str) -> SyncGroupRequest {
    let assignments = joined.members.iter().map(|member| {
        SyncGroupRequestAssignment::default()
            .with_member_id(member.member_id.clone())
            .with_assignment(member.member_id.clone().into_bytes())
    });
    let request = SyncGroupRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_generation_id(joined.generation_id)
        .with_member_id(joined.member_id.clone())
        .with_assignments(assignments.collect());
    if version >= 5 {
        request
            .with_protocol_type(Some(text("connect")))
            .with_protocol_name(Some(text("range")))
    } else {
        request
    }
}

async fn two_members(
    versions: (i16, i16),
    group: &str,
    a: &mut Client,
    b: &mut Client,
) -> (JoinGroupResponse, JoinGroupResponse) {
    let (join_version, sync_version) = versions;
    let mut ids = [StrBytes::new(), StrBytes::new()];
    if join_version >= 4 {
        for (client, id) in [&mut *a, &mut *b].into_iter().zip(&mut ids) {
            let refused = client
                .call(join_version, &join(join_version, group, id))
                .await;
            assert_eq!(refused.error_code, 79);
            *id = refused.member_id;
        }
    }
    let id_a = a
        .send(join_version, &join(join_version, group, &ids[0]))
        .await;
    let id_b = b
        .send(join_version, &join(join_version, group, &ids[1]))
        .await;
    let joined_a = a.receive::<JoinGroupRequest>(join_version, id_a).await;
    let joined_b = b.receive::<JoinGroupRequest>(join_version, id_b).await;
    assert_eq!((joined_a.error_code, joined_b.error_code), (0, 0));
    assert_eq!(joined_a.leader, joined_b.leader);
    let sync_a = a
        .send(sync_version, &sync(sync_version, &joined_a, group))
        .await;
    let sync_b = b
        .send(sync_version, &sync(sync_version, &joined_b, group))
        .await;
    let synced_a = a.receive::<SyncGroupRequest>(sync_version, sync_a).await;
    let synced_b = b.receive::<SyncGroupRequest>(sync_version, sync_b).await;
    for (synced, joined) in [(synced_a, &joined_a), (synced_b, &joined_b)] {
        assert_eq!(synced.error_code, 0);
        assert_eq!(
            synced.assignment,
            joined.member_id.as_bytes(),
            "its own part, verbatim"
        );
        if sync_version >= 5 {
            assert_eq!(synced.protocol_name.as_deref(), Some("range"));
        }
    }
    (joined_a, joined_b)
}

#[tokio::test]
async fn two_members_share_a_group_in_old_and_new_versions() {
    let world = World::start().await;
    for (index, versions) in [(0, 0), (3, 1), (5, 3), (9, 5)].into_iter().enumerate() {
        let group = format!("g{index}");
        let (mut a, mut b) = (world.client().await, world.client().await);
        let (joined_a, joined_b) = two_members(versions, &group, &mut a, &mut b).await;
        let beat = |joined: &JoinGroupResponse| {
            HeartbeatRequest::default()
                .with_group_id(GroupId(text(&group)))
                .with_generation_id(joined.generation_id)
                .with_member_id(joined.member_id.clone())
        };
        assert_eq!(a.call(4, &beat(&joined_a)).await.error_code, 0);
        let describe = DescribeGroupsRequest::default().with_groups(vec![GroupId(text(&group))]);
        let described = a.call(5, &describe).await.groups.remove(0);
        assert_eq!(described.group_state.as_str(), "Stable");
        assert_eq!(
            (described.members.len(), described.protocol_data.as_str()),
            (2, "range")
        );
        let delete = DeleteGroupsRequest::default().with_groups_names(vec![GroupId(text(&group))]);
        assert_eq!(a.call(2, &delete).await.results[0].error_code, 68);
        let leaver = |id: &StrBytes| MemberIdentity::default().with_member_id(id.clone());
        let leave = LeaveGroupRequest::default()
            .with_group_id(GroupId(text(&group)))
            .with_members(vec![leaver(&joined_b.member_id), leaver(&text("ghost"))]);
        let left = b.call(4, &leave).await;
        assert_eq!(left.error_code, 0);
        assert_eq!(
            (left.members[0].error_code, left.members[1].error_code),
            (0, 25)
        );
        assert_eq!(a.call(4, &beat(&joined_a)).await.error_code, 27);
        assert_eq!(b.call(4, &beat(&joined_b)).await.error_code, 25);
    }
}

#[tokio::test]
async fn unknown_groups_and_bad_timeouts_have_their_codes() {
    let world = World::start().await;
    let mut client = world.client().await;
    let stranger = join(5, "nobody", &text("stranger"));
    assert_eq!(client.call(5, &stranger).await.error_code, 25);
    let hasty = join(5, "g", &StrBytes::new()).with_session_timeout_ms(100);
    assert_eq!(client.call(5, &hasty).await.error_code, 26);
    let nameless = join(5, "", &StrBytes::new());
    assert_eq!(client.call(5, &nameless).await.error_code, 24);
    let describe = DescribeGroupsRequest::default().with_groups(vec![GroupId(text("nobody"))]);
    let old = client.call(5, &describe).await.groups.remove(0);
    assert_eq!((old.error_code, old.group_state.as_str()), (0, "Dead"));
    assert_eq!(client.call(6, &describe).await.groups[0].error_code, 69);
}
