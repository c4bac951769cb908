"""Short forms of the Kafka calls that most suites make by hand."""

from . import errors, records
from .polling import eventually
from .wire import (
    CreatePartitions, CreateTopics, Fetch, FindCoordinator, ListOffsets, Metadata, OffsetCommit, OffsetFetch, Produce,
)

EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
RETRIED = {errors.COORDINATOR_LOAD_IN_PROGRESS, errors.COORDINATOR_NOT_AVAILABLE, errors.NOT_COORDINATOR}


def create_topic(wire, name, partitions=1, **configs):
    """Creates a topic and waits until each partition has a leader."""
    answer = wire.call(CreateTopics, 5, timeout=30000, topics=[{
        "name": name, "partitions": partitions, "replication": 1,
        "configs": [{"name": k.replace("_", "."), "value": str(v)} for k, v in configs.items()],
    }])
    assert answer.topics[0].error == 0, answer
    wait_topic(wire, name, partitions)
    return name


def wait_topic(wire, name, partitions):
    def ready():
        topic = wire.call(Metadata, 9, topics=[{"name": name}]).topics[0]
        if topic.error or sum(p.error == 0 and p.leader >= 0 for p in topic.partitions) != partitions:
            return False
        # Kafka's metadata may be ahead of its partitions.
        offsets = wire.call(ListOffsets, 7, replica=-1, topics=[{"name": name, "partitions": [
            {"index": p, "leader_epoch": -1, "timestamp": LATEST} for p in range(partitions)]}])
        return all(p.error == 0 for p in offsets.topics[0].partitions)

    eventually(ready, 20, f"topic {name} has {partitions} led partitions")


def widen(wire, name, partitions):
    answer = wire.call(CreatePartitions, 2, timeout=30000, topics=[{"name": name, "count": partitions}])
    assert answer.results[0].error == 0, answer
    wait_topic(wire, name, partitions)


def produce_request(topic, partition, batch, acks=-1):
    return {
        "acks": acks, "timeout": 30000,
        "topics": [{"name": topic, "partitions": [{"index": partition, "records": batch}]}],
    }


def produce(wire, topic, partition, batch, acks=-1, version=9):
    """Sends one batch (bytes, or records to make one of); answers the partition's part of the answer."""
    data = batch if isinstance(batch, bytes) else records.batch(batch)
    return wire.call(Produce, version, **produce_request(topic, partition, data, acks)).topics[0].partitions[0]


def append(wire, topic, partition, batch, **options):
    """As produce, and it must succeed; answers the base offset."""
    got = produce(wire, topic, partition, batch, **options)
    assert got.error == 0, got
    return got.base_offset


def fetch_request(topic, partition, offset, max_wait=0, min_bytes=1, max_bytes=32 << 20, **more):
    return {
        "replica": -1, "max_wait": max_wait, "min_bytes": min_bytes, "max_bytes": max_bytes, "session": 0, "epoch": -1,
        "topics": [{"name": topic, "partitions": [
            {"index": partition, "leader_epoch": -1, "offset": offset, "last_epoch": -1, "log_start": -1, "max_bytes": max_bytes}]}],
        **more,
    }


def fetch(wire, topic, partition, offset=0, version=12, **more):
    answer = wire.call(Fetch, version, **fetch_request(topic, partition, offset, **more))
    assert answer.get("error", 0) == 0, answer
    return answer.topics[0].partitions[0]


def read_batches(wire, topic, partition, offset=0):
    """Every batch from `offset` to the high watermark."""
    out = []
    while True:
        got = fetch(wire, topic, partition, offset)
        assert got.error == 0, got
        if offset >= got.high_watermark:
            return out
        batches = records.read_batches(got.records)
        assert batches, f"nothing at {offset} below the high watermark {got.high_watermark}"
        out += batches
        offset = batches[-1].next_offset


def read_all(wire, topic, partition, offset=0):
    """Every record from `offset` on."""
    return [r for b in read_batches(wire, topic, partition, offset) if not b.control for r in b.records if r.offset >= offset]


def list_offset(wire, topic, partition, timestamp, version=7, isolation=0):
    answer = wire.call(ListOffsets, version, replica=-1, isolation=isolation, topics=[
        {"name": topic, "partitions": [{"index": partition, "leader_epoch": -1, "timestamp": timestamp}]}])
    return answer.topics[0].partitions[0]


def ensure_coordinator(wire, group):
    """Waits until the group's coordinator answers (Kafka makes its offsets topic first)."""
    eventually(lambda: wire.call(FindCoordinator, 2, key=group, key_type=0).error == 0, 60, f"a coordinator for {group}", every=0.1)
    eventually(lambda: fetch_offsets_answer(wire, group, None).error not in RETRIED, 60, f"the coordinator of {group} is loaded", every=0.1)


def fetch_offsets_answer(wire, group, topics, version=7):
    body = None if topics is None else [{"name": name, "partitions": list(parts)} for name, parts in topics.items()]
    return wire.call(OffsetFetch, version, group=group, topics=body)


def committed(wire, group, topic, partition):
    """The committed offset, -1 when there is none."""
    answer = fetch_offsets_answer(wire, group, {topic: [partition]})
    assert answer.error == 0, answer
    part = answer.topics[0].partitions[0]
    assert part.error == 0, answer
    return part.offset


def commit(wire, group, topic, partition, offset, generation=-1, member="", metadata=None, version=7, **more):
    """Commits one offset; answers its error code."""
    answer = wire.call(OffsetCommit, version, group=group, generation=generation, member=member, topics=[
        {"name": topic, "partitions": [{"index": partition, "offset": offset, "epoch": -1, "metadata": metadata}]}], **more)
    return answer.topics[0].partitions[0].error


def murmur2_partition(key, partitions):
    """Where Kafka's default partitioner puts a key."""
    mask, mixer = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(key)
    whole = len(key) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * mixer & mask
        k = (k ^ k >> 24) * mixer & mask
        h = h * mixer & mask ^ k
    tail = key[whole:]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * mixer & mask
    h = (h ^ h >> 13) * mixer & mask
    return ((h ^ h >> 15) & 0x7FFFFFFF) % partitions
