"""Classic groups: found, joined, synced, left, listed, deleted."""

from ..rows import Case, Kept, Step, case
from .common import FIXED, GROUP, commit, join


def find(title, key, kind=0):
    return case("FindCoordinator", f"coordinator: {title}", {"Key": key, "KeyType": kind, "CoordinatorKeys": [key]})


def enter(title, group="grp-{n}", versions=None, before=(), **more):
    return case("JoinGroup", f"join: {title}", join(group, **more), before, versions)


def asked(api, title, versions=None, **body):
    """A request of a member that nobody knows."""
    return case(api, title, {"GroupId": "grp-{n}", "GenerationId": 1, "MemberId": "nobody", **body}, versions=versions)


# One member, in generation 1, synced. JoinGroup v3 gives the id at once.
IN = [
    Step("JoinGroup@3", join("grp-{n}"), keep={"me": "MemberId", "generation": "GenerationId"}),
    Step("SyncGroup@2", {"GroupId": "grp-{n}", "GenerationId": Kept("generation"), "MemberId": Kept("me"),
                         "Assignments": [{"MemberId": Kept("me"), "Assignment": b"mine"}]}),
]
STATIC = [Step("JoinGroup@5", join("grp-{n}", GroupInstanceId="inst"), keep={"me": "MemberId", "generation": "GenerationId"})]
ME = {"GroupId": "grp-{n}", "GenerationId": Kept("generation"), "MemberId": Kept("me")}


def member(api, title, body=None, before=IN, versions=None, **more):
    return case(api, f"member: {title}", {**ME, **(body or {}), **more}, before, versions)


def of_member(api, title, body, before=IN, versions=None):
    return case(api, f"member: {title}", body, before, versions)


# Joins end a rebalance that takes half a second here; these versions are where the answer's shape changes.
SHAPES = (0, 2, 5, 7, 9)


def shapes(make):
    return [make(range(v, v + 1)) for v in SHAPES]


CASES = [
    find("group", "grp"),
    find("empty group", ""),
    find("transaction", "tx", 1),
    find("share", "grp:AAAAAAAAAAAAAAAAAAAAAA:0", 2),
    find("share, not a key", "grp", 2),
    find("unknown type", "grp", 9),
    find("negative type", "grp", -1),
    case("FindCoordinator", "coordinator: no keys", {"CoordinatorKeys": []}, versions=range(4, 99)),
    case("FindCoordinator", "coordinator: several", {"CoordinatorKeys": ["one", "two", ""]}, versions=range(4, 99)),
    enter("empty group", group=""),
    enter("unknown member", member="nobody"),
    enter("session too short", session=1),
    enter("session too long", session=100_000_000),
    enter("no protocol type", protocol_type=""),
    enter("no protocols", protocols=()),
    enter("first without an id", versions=range(4, 99)),
    enter("instance and unknown member", member="nobody", GroupInstanceId="inst", versions=range(5, 99)),
    *shapes(lambda v: Case("join: alone", [Step("JoinGroup", join("grp-{n}"), keep={"me": "MemberId"}, sweep=True),
                                          Step("JoinGroup", join("grp-{n}", member=Kept("me")))], v)),
    enter("alone with an instance", GroupInstanceId="inst", versions=range(5, 10)),
    enter("other protocol type than the group's", protocol_type="connect", before=IN),
    enter("no common protocol", protocols=(("sticky", b""),), before=IN),
    enter("again with the same protocols", member=Kept("me"), before=IN, versions=range(5, 6)),
    asked("Heartbeat", "heartbeat: unknown group"),
    asked("Heartbeat", "heartbeat: empty group", GroupId=""),
    asked("Heartbeat", "heartbeat: standing group", GroupId=GROUP),
    asked("Heartbeat", "heartbeat: negative generation", GenerationId=-1),
    asked("Heartbeat", "heartbeat: no member", MemberId=""),
    member("Heartbeat", "heartbeat"),
    member("Heartbeat", "heartbeat, wrong generation", GenerationId=77),
    member("Heartbeat", "heartbeat, generation -1", GenerationId=-1),
    member("Heartbeat", "heartbeat of nobody", MemberId="nobody"),
    member("Heartbeat", "heartbeat with an unknown instance", GroupInstanceId="other", versions=range(3, 99)),
    member("Heartbeat", "heartbeat between join and sync", before=IN[:1]),
    member("Heartbeat", "heartbeat of another's instance", before=STATIC, GroupInstanceId="inst", MemberId="nobody", versions=range(3, 99)),
    asked("SyncGroup", "sync: unknown group", Assignments=[]),
    asked("SyncGroup", "sync: empty group", GroupId="", Assignments=[]),
    asked("SyncGroup", "sync: with protocols", ProtocolType="consumer", ProtocolName="range"),
    member("SyncGroup", "sync again", ProtocolType="consumer", ProtocolName="range"),
    member("SyncGroup", "sync without protocols"),
    member("SyncGroup", "sync, wrong generation", GenerationId=77, ProtocolType="consumer", ProtocolName="range"),
    member("SyncGroup", "sync of nobody", MemberId="nobody", ProtocolType="consumer", ProtocolName="range"),
    member("SyncGroup", "sync, other protocol type", ProtocolType="connect", ProtocolName="range"),
    member("SyncGroup", "sync, other protocol", ProtocolType="consumer", ProtocolName="sticky"),
    member("SyncGroup", "first sync", before=IN[:1], ProtocolType="consumer", ProtocolName="range",
           Assignments=[{"MemberId": Kept("me"), "Assignment": b"mine"}]),
    member("SyncGroup", "first sync, assignment for nobody", before=IN[:1], ProtocolType="consumer", ProtocolName="range",
           Assignments=[{"MemberId": "nobody", "Assignment": b"mine"}]),
    of_member("OffsetCommit", "commit", commit("grp-{n}", FIXED, 1, generation=Kept("generation"), member=Kept("me"))),
    of_member("OffsetCommit", "commit, wrong generation", commit("grp-{n}", FIXED, 1, generation=77, member=Kept("me"))),
    of_member("OffsetCommit", "commit of nobody", commit("grp-{n}", FIXED, 1, generation=Kept("generation"), member="nobody")),
    of_member("OffsetCommit", "commit without a generation", commit("grp-{n}", FIXED, 1)),
    of_member("OffsetCommit", "commit without a generation by the member", commit("grp-{n}", FIXED, 1, member=Kept("me"))),
    of_member("OffsetCommit", "commit between join and sync", commit("grp-{n}", FIXED, 1, generation=Kept("generation"), member=Kept("me")), IN[:1]),
    of_member("OffsetCommit", "commit of an unknown instance",
              commit("grp-{n}", FIXED, 1, generation=Kept("generation"), member=Kept("me"), GroupInstanceId="other"), versions=range(7, 99)),
    of_member("OffsetDelete", "offset delete of a topic it reads",
              {"GroupId": "grp-{n}", "Topics": [{"Name": FIXED, "Partitions": [{"PartitionIndex": 0}]}]}),
    case("LeaveGroup", "leave: unknown group", {"GroupId": "grp-{n}", "MemberId": "nobody", "Members": [{"MemberId": "nobody"}]}),
    case("LeaveGroup", "leave: empty group", {"GroupId": "", "MemberId": "nobody", "Members": [{"MemberId": "nobody"}]}),
    case("LeaveGroup", "leave: standing group", {"GroupId": GROUP, "MemberId": "nobody", "Members": [{"MemberId": "nobody"}]}),
    case("LeaveGroup", "leave: nobody", {"GroupId": "grp-{n}", "Members": []}, versions=range(3, 99)),
    of_member("LeaveGroup", "leave", {"GroupId": "grp-{n}", "MemberId": Kept("me"), "Members": [{"MemberId": Kept("me")}]}),
    of_member("LeaveGroup", "leave of nobody", {"GroupId": "grp-{n}", "MemberId": "nobody", "Members": [{"MemberId": "nobody"}]}),
    of_member("LeaveGroup", "leave twice in one request", {"GroupId": "grp-{n}", "Members": [{"MemberId": Kept("me")}] * 2}, versions=range(3, 99)),
    of_member("LeaveGroup", "leave by instance", {"GroupId": "grp-{n}", "Members": [{"MemberId": "", "GroupInstanceId": "inst"}]}, STATIC, range(3, 99)),
    of_member("LeaveGroup", "leave by unknown instance", {"GroupId": "grp-{n}", "Members": [{"MemberId": "", "GroupInstanceId": "no"}]}, STATIC, range(3, 99)),
    of_member("LeaveGroup", "leave by instance and wrong member",
              {"GroupId": "grp-{n}", "Members": [{"MemberId": "nobody", "GroupInstanceId": "inst"}]}, STATIC, range(3, 99)),
    case("DescribeGroups", "describe groups: unknown", {"Groups": ["grp-{n}"]}),
    case("DescribeGroups", "describe groups: standing", {"Groups": [GROUP]}),
    case("DescribeGroups", "describe groups: empty name", {"Groups": [""]}),
    case("DescribeGroups", "describe groups: none", {"Groups": []}),
    case("DescribeGroups", "describe groups: several", {"Groups": [GROUP, "grp-{n}", GROUP]}),
    case("DescribeGroups", "describe groups: operations", {"Groups": [GROUP], "IncludeAuthorizedOperations": True}, versions=range(3, 99)),
    of_member("DescribeGroups", "described", {"Groups": ["grp-{n}"]}),
    of_member("DescribeGroups", "described between join and sync", {"Groups": ["grp-{n}"]}, IN[:1]),
    case("ListGroups", "list groups: unknown state", {"StatesFilter": ["Sleeping"]}, versions=range(4, 99)),
    case("ListGroups", "list groups: dead", {"StatesFilter": ["Dead"]}, versions=range(4, 99)),
    case("ListGroups", "list groups: unknown type", {"TypesFilter": ["odd"]}, versions=range(5, 99)),
    case("ListGroups", "list groups: share", {"TypesFilter": ["share"]}, versions=range(5, 99)),
    case("DeleteGroups", "delete groups: unknown", {"GroupsNames": ["grp-{n}"]}),
    case("DeleteGroups", "delete groups: empty name", {"GroupsNames": [""]}),
    case("DeleteGroups", "delete groups: none", {"GroupsNames": []}),
    case("DeleteGroups", "delete groups: one", {"GroupsNames": ["off-{n}"]}, [Step("OffsetCommit@9", commit("off-{n}", FIXED, 1))]),
    case("DeleteGroups", "delete groups: one twice", {"GroupsNames": ["off-{n}", "off-{n}"]}, [Step("OffsetCommit@9", commit("off-{n}", FIXED, 1))]),
    of_member("DeleteGroups", "delete groups while it is in", {"GroupsNames": ["grp-{n}"]}),
]
