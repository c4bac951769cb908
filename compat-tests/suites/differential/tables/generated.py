"""Requests made from the schemas alone, so that every key and version is asked, those of later work too: all defaults, and one
of everything."""

from ..rows import Case, Step
from .common import FIXED, GROUP, UNKNOWN_ID, ref

# Of what all requests made here name.
WORLDS = {
    "one of everything": {"topic": FIXED, "partition": 0},
    "one of everything, unknown": {"topic": "unknown", "partition": 0, "group": "unknown-group"},
    "one of everything, bad partition": {"topic": FIXED, "partition": 12345},
    "one of everything, negative partition": {"topic": FIXED, "partition": -1},
}

# Not sent: what would destroy the standing topics or groups, and what no client sends.
ALL_BUT = {"DeleteTopics", "DeleteGroups", "OffsetDelete", "DeleteRecords", "AlterConfigs", "IncrementalAlterConfigs", "CreatePartitions", "CreateTopics"}
NUMBERS = {
    "Acks": -1, "TimeoutMs": 5000, "timeoutMs": 5000, "MaxBytes": 1 << 20, "PartitionMaxBytes": 1 << 20, "SessionEpoch": -1, "ReplicaId": -1,
    "CurrentLeaderEpoch": -1, "LastFetchedEpoch": -1, "Timestamp": -1, "GenerationIdOrMemberEpoch": -1, "ResponsePartitionLimit": 100,
    "ProducerId": -1, "ProducerEpoch": -1, "TransactionTimeoutMs": 60000, "SessionTimeoutMs": 10000, "RebalanceTimeoutMs": 10000,
    "ResourceType": 2, "EndpointType": 1, "MemberEpoch": -1, "RetentionTimeMs": -1,
}


def fill(fields, world):
    """One of everything that a request can name."""
    out = {}
    for f in fields:
        value = _value(f, world)
        if value is not None:
            out[f.name] = [value] if f.is_array else value
    return out


def _value(f, world):
    if f.fields:
        return fill(f.fields, world) if f.is_array else None
    if f.name in ("PartitionIndex", "Partition", "Index", "PartitionIndexes", "Partitions"):
        return world["partition"]
    if f.name in ("TopicId",):
        return UNKNOWN_ID if world["topic"].startswith("unknown") else ref(world["topic"])["TopicId"]
    if f.kind == "string":
        # Where the schemas say what a name is of; the names of configs, protocols and members stay of their own.
        names = {"topicName": world["topic"], "groupId": world.get("group", GROUP)}
        return names.get(_entity(f)) or {"MemberId": "nobody", "ResourceName": world["topic"], "Key": GROUP, "CoordinatorKeys": GROUP}.get(f.name)
    if f.name == "AllowAutoTopicCreation":
        return False
    if f.kind in ("bytes", "records"):
        return b""
    return NUMBERS.get(f.name)


def _entity(f):
    if f.name in ("GroupId", "Groups", "GroupsNames"):
        return "groupId"
    return "topicName" if f.name in ("Topic", "TopicName", "Name") else None


def cases(apis, common):
    out = []
    for key in sorted(common):
        api = apis[key]
        # By default a Produce wants no answer.
        out.append(Case("all defaults", [Step(api.name, {"Acks": -1} if key == 0 else {})]))
        if api.name not in ALL_BUT and api.request.fields:
            for title, world in WORLDS.items():
                # Before v4 a Metadata request creates the topics that are unknown.
                since = 4 if api.name == "Metadata" else 0
                out.append(Case(title, [Step(api.name, fill(api.request.fields, world))], range(since, 1 << 15)))
    return out
