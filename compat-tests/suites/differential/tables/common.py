"""Pieces that the tables share: the standing topics and groups, and bodies of frequent requests."""

import time
import uuid

from ..rows import Batch, Step, TopicId

# Record times: a constant of the run, an hour ago, so that neither retention nor clocks meet them.
T0 = int(time.time() * 1000) - 3_600_000
UNKNOWN_ID = uuid.UUID(int=0xDEAD)
HUGE = (1 << 63) - 1

# Standing topics: two partitions; partition 0 of "fixed" holds six records in three batches, partition 1 none.
FIXED = "fixed"
COMPACTED = "compacted"
STAMPED = "stamped"
GROUP = "standing"


def ref(topic):
    """Name and id of a topic; an unknown one has an id that nobody has."""
    return {"Name": topic, "TopicId": UNKNOWN_ID if topic.startswith("unknown") else TopicId(topic)}


def create(topic, partitions=2, configs=None):
    row = {"Name": topic, "NumPartitions": partitions, "ReplicationFactor": 1}
    row["Configs"] = [{"Name": k, "Value": v} for k, v in (configs or {}).items()]
    return Step("CreateTopics", {"Topics": [row], "timeoutMs": 15000})


def batch(*values, **more):
    return Batch(values or (b"one",), timestamp=more.pop("timestamp", T0), **more)


def produce(topic, *batches, partition=0, acks=-1, **more):
    """A Produce body: one partition, the batches one behind the other or None."""
    parts = [{"Index": partition, "Records": records} for records in batches]
    return {"Acks": acks, "TimeoutMs": 15000, "TopicData": [{**ref(topic), "PartitionData": parts}], **more}


def fetch(topic, offset, partition=0, **more):
    """A Fetch body outside of sessions that does not wait."""
    part = {
        "Partition": partition, "CurrentLeaderEpoch": more.pop("epoch", -1), "FetchOffset": offset, "LastFetchedEpoch": more.pop("last_epoch", -1),
        "LogStartOffset": -1, "PartitionMaxBytes": more.pop("part_max", 1 << 20),
    }
    name = ref(topic)
    wanted = {"Topic": name["Name"], "TopicId": name["TopicId"], "Partitions": [part]}
    return {"MaxWaitMs": 0, "MinBytes": 0, "MaxBytes": 1 << 20, "SessionId": 0, "SessionEpoch": -1, "Topics": [wanted], **more}


def list_offsets(topic, timestamp, partition=0, epoch=-1, isolation=0):
    part = {"PartitionIndex": partition, "CurrentLeaderEpoch": epoch, "Timestamp": timestamp}
    return {"ReplicaId": -1, "IsolationLevel": isolation, "Topics": [{"Name": topic, "Partitions": [part]}], "TimeoutMs": 5000}


def commit(group, topic, offset, partition=0, generation=-1, member="", **more):
    part = {
        "PartitionIndex": partition, "CommittedOffset": offset, "CommittedLeaderEpoch": more.pop("epoch", -1),
        "CommittedMetadata": more.pop("metadata", "note"),
    }
    topics = [{**ref(topic), "Partitions": [part]}]
    return {"GroupId": group, "GenerationIdOrMemberEpoch": generation, "MemberId": member, "RetentionTimeMs": -1, "Topics": topics, **more}


def offset_fetch(group, topic=None, partitions=(0,), **more):
    """Both the form for one group and the one for several; the version takes its own."""
    topics = None if topic is None else [{**ref(topic), "PartitionIndexes": list(partitions)}]
    old = None if topics is None else [{k: v for k, v in t.items() if k != "TopicId"} for t in topics]
    return {"GroupId": group, "Topics": old, "Groups": [{"GroupId": group, "MemberEpoch": -1, "Topics": topics, **more}]}


# Sessions outlast the run: who is in a group must not hang on when a broker is asked.
def join(group, member="", session=300_000, protocol_type="consumer", protocols=(("range", b"\0\0"),), **more):
    rows = [{"Name": name, "Metadata": data} for name, data in protocols]
    return {
        "GroupId": group, "SessionTimeoutMs": session, "RebalanceTimeoutMs": more.pop("rebalance", 10000), "MemberId": member,
        "ProtocolType": protocol_type, "Protocols": rows, **more,
    }


# What stands before the first case.
SETUP = [
    create(FIXED), create(COMPACTED, configs={"cleanup.policy": "compact"}),
    create(STAMPED, configs={"message.timestamp.type": "LogAppendTime"}),
    Step("Produce", produce(FIXED, batch(b"one", b"two", b"three"))),
    Step("Produce", produce(FIXED, batch(b"four", b"five", codec=1, timestamp=T0 + 1000))),
    Step("Produce", produce(FIXED, batch(b"six", timestamp=T0 + 500))),
    Step("OffsetCommit@9", commit(GROUP, FIXED, 3)),
]
