"""Committed offsets: written, read, deleted."""

from ..rows import Step, case
from .common import FIXED, GROUP, HUGE, commit, create, offset_fetch


def put(title, group="off-{n}", topic=FIXED, offset=1, before=(), **more):
    return case("OffsetCommit", f"commit: {title}", commit(group, topic, offset, **more), before)


def get(title, group=GROUP, topic=FIXED, partitions=(0,), before=(), **more):
    return case("OffsetFetch", f"offset fetch: {title}", offset_fetch(group, topic, partitions, **more), before)


def committed(offset, **more):
    return [Step("OffsetCommit@9", commit("off-{n}", FIXED, offset, **more))]


def drop(title, group="off-{n}", topic=FIXED, partitions=(0,), before=()):
    body = {"GroupId": group, "Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": p} for p in partitions]}]}
    return case("OffsetDelete", f"offset delete: {title}", body, before)


CASES = [
    put("plain"),
    put("zero", offset=0),
    put("minus one", offset=-1),
    put("minus five", offset=-5),
    put("behind the end", offset=1000),
    put("huge", offset=HUGE),
    put("backwards", offset=1, before=committed(5)),
    put("null metadata", metadata=None),
    put("empty metadata", metadata=""),
    put("metadata of 4096", metadata="m" * 4096),
    put("metadata of 4097", metadata="m" * 4097),
    put("epoch", epoch=0),
    put("unknown topic", topic="unknown"),
    put("illegal topic name", topic="unknown topic"),
    put("bad partition", partition=99),
    put("negative partition", partition=-1),
    put("empty group", group=""),
    put("generation without members", generation=1),
    put("generation zero", generation=0),
    put("generation -2", generation=-2),
    put("unknown member", member="nobody"),
    put("unknown member with a generation", member="nobody", generation=1),
    put("unknown instance", member="nobody", generation=1, GroupInstanceId="instance"),
    case("OffsetCommit", "commit: nothing", {"GroupId": "off-{n}", "GenerationIdOrMemberEpoch": -1, "RetentionTimeMs": -1}),
    get("one partition"),
    get("both partitions", partitions=(0, 1)),
    get("all", topic=None),
    get("no partitions", partitions=()),
    get("unknown group", group="off-{n}"),
    get("unknown group, all", group="off-{n}", topic=None),
    get("unknown topic", topic="unknown"),
    get("bad partition", partitions=(99,)),
    get("negative partition", partitions=(-1,)),
    get("a partition twice", partitions=(0, 0)),
    get("empty group", group=""),
    get("empty group, all", group="", topic=None),
    *(get(f"what was committed: {name}", group="off-{n}", before=committed(offset, **more)) for name, offset, more in (
        ("zero", 0, {}), ("minus one", -1, {}), ("minus five", -5, {}), ("behind the end", 1000, {}), ("huge", HUGE, {}),
        ("null metadata", 3, {"metadata": None}), ("epoch", 3, {"epoch": 0}), ("metadata", 3, {"metadata": "m" * 4096}),
    )),
    get("what was committed: minus five, all", group="off-{n}", topic=None, before=committed(-5)),
    get("of a member", MemberId="nobody", MemberEpoch=1),
    get("of a member, epoch zero", MemberId="", MemberEpoch=0),
    case("OffsetFetch", "offset fetch: a topic that was deleted", offset_fetch("off-{n}", "gone-{n}"), [
        create("gone-{n}"), Step("OffsetCommit@9", commit("off-{n}", "gone-{n}", 1)),
        Step("DeleteTopics", {"Topics": [{"Name": "gone-{n}"}], "TimeoutMs": 15000})], range(1, 10)),
    drop("one", before=committed(1)),
    drop("none there", partitions=(1,), before=committed(1)),
    drop("unknown group", group="unknown"),
    drop("empty group", group=""),
    drop("unknown topic", topic="unknown", before=committed(1)),
    drop("bad partition", partitions=(99,), before=committed(1)),
    drop("negative partition", partitions=(-1,), before=committed(1)),
]
