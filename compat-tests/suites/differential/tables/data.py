"""Records: produced well and badly, fetched, found by time, their epochs, their producers."""

import struct

import crc32c

from ..rows import Case, Epoch, Kept, Step, case
from .common import COMPACTED, FIXED, HUGE, STAMPED, T0, UNKNOWN_ID, batch, create, fetch, list_offsets, produce

HOUR = 3_600_000


def at(offset, fmt, value, seal=True):
    """Writes into a batch's header and, as a client that means it would, computes the checksum anew."""

    def bend(data):
        data = bytearray(data)
        struct.pack_into(">" + fmt, data, offset, value)
        if seal:
            struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
        return bytes(data)

    return bend


def cut(by):
    return lambda data: data[:-by]


def padded(data):
    return data + b"\0" * 7


def old_format(magic):
    """A message set of one message in format 0 or 1."""

    def bend(_):
        time = struct.pack(">q", T0) if magic else b""
        body = struct.pack(">bb", magic, 0) + time + struct.pack(">i", 1) + b"k" + struct.pack(">i", 1) + b"v"
        import zlib

        message = struct.pack(">I", zlib.crc32(body)) + body
        return struct.pack(">qi", 0, len(message)) + message

    return bend


def put(title, *batches, topic=FIXED, before=(), versions=None, **more):
    return case("Produce", title, produce(topic, *batches, **more), before, versions)


def bad(title, bend, topic="bent", **more):
    return put(f"produce: {title}", batch(b"one", b"two", bend=bend, **more), topic=topic)


def own(title, bend, **more):
    """A batch that one of the brokers stores: into a topic of its own, so that offsets elsewhere stay the same in both."""
    return put(f"produce: {title}", batch(b"one", b"two", bend=bend, **more), topic="put-{n}", before=[create("put-{n}")], versions=(3, 8, 13))


def init(**more):
    return Step("InitProducerId", {"TransactionalId": None, "TransactionTimeoutMs": 60000, "ProducerId": -1, "ProducerEpoch": -1, **more},
                keep={"id": "ProducerId", "epoch": "ProducerEpoch"})


def sequence(first, epoch=0, count=1, id=Kept("id")):
    return batch(*(b"s%d" % i for i in range(count)), producer=(id, epoch, first))


def sequences(title, *batches):
    """Batches of one idempotent producer, one request each, the last one in every version."""
    before = [create("seq-{n}"), init()]
    steps = [Step("Produce", produce("seq-{n}", b)) for b in batches]
    # A topic each: the oldest version, the newest, and one of each shape between.
    return Case(f"sequence: {title}", [*before, *steps], (3, 5, 8, 13))


def get(title, offset, topic=FIXED, **more):
    versions = more.pop("versions", None)
    before = more.pop("before", ())
    return case("Fetch", f"fetch: {title}", fetch(topic, offset, **more), before, versions)


def find(title, timestamp, topic=FIXED, versions=None, **more):
    return case("ListOffsets", f"list offsets: {title}", list_offsets(topic, timestamp, **more), versions=versions)


def ended(title, epoch, topic=FIXED, partition=0, current=-1):
    part = {"Partition": partition, "CurrentLeaderEpoch": current, "LeaderEpoch": epoch}
    return case("OffsetForLeaderEpoch", f"epoch end: {title}", {"ReplicaId": -1, "Topics": [{"Topic": topic, "Partitions": [part]}]})


def truncate(title, offset, topic="cut-{n}", partition=0, before=None):
    before = [create("cut-{n}"), Step("Produce", produce("cut-{n}", batch(b"a", b"b", b"c")))] if before is None else before
    body = {"Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": partition, "Offset": offset}]}], "TimeoutMs": 5000}
    return case("DeleteRecords", f"delete records: {title}", body, before)


def after_truncation(title, api, body):
    before = [
        create("cut-{n}"), Step("Produce", produce("cut-{n}", batch(b"a", b"b", b"c"))),
        Step("DeleteRecords", {"Topics": [{"Name": "cut-{n}", "Partitions": [{"PartitionIndex": 0, "Offset": 2}]}], "TimeoutMs": 5000}),
    ]
    return case(api, f"after delete records: {title}", body, before)


def producer(title, **more):
    return case("InitProducerId", f"producer id: {title}", {"TransactionalId": None, "TransactionTimeoutMs": 60000, "ProducerId": -1, "ProducerEpoch": -1, **more})


def producers(title, topic, partitions, before=()):
    body = {"Topics": [{"Name": topic, "PartitionIndexes": partitions}]}
    return case("DescribeProducers", f"producers: {title}", body, before)


# The topic that bad batches are sent to, and the start of its log moved, so that it shows in the refusals.
SETUP = [
    create("bent"), Step("Produce", produce("bent", batch(b"a", b"b", b"c"))),
    Step("DeleteRecords", {"Topics": [{"Name": "bent", "Partitions": [{"PartitionIndex": 0, "Offset": 2}]}], "TimeoutMs": 5000}),
]

CASES = [
    put("produce: one batch", batch(b"one", b"two"), topic="put-{n}", before=[create("put-{n}")]),
    *(put(f"produce: codec {codec}", batch(b"one", b"two", codec=codec), topic="put-{n}", before=[create("put-{n}")], versions=(3, 6, 7, 13))
      for codec in range(1, 5)),
    put("produce: acks 1", batch(), topic="put-{n}", before=[create("put-{n}")], acks=1),
    put("produce: acks 2", batch(), acks=2),
    put("produce: acks -2", batch(), acks=-2),
    put("produce: stamped by the broker", batch(), topic=STAMPED),
    put("produce: unknown topic", batch(), topic="unknown"),
    put("produce: illegal topic name", batch(), topic="unknown topic"),
    put("produce: bad partition", batch(), partition=99),
    put("produce: negative partition", batch(), partition=-1),
    # Kafka answers nothing at all; two versions are enough to wait for that.
    *(case("Produce", "produce: null records", produce("bent", None), versions=range(v, v + 1), limit=0.5) for v in (3, 13)),
    put("produce: empty records", b"", topic="bent"),
    put("produce: two batches", batch(b"one"), batch(b"two"), topic="put-{n}", before=[create("put-{n}")], versions=(3, 8, 13)),
    put("produce: two batches in one", batch(bend=lambda data: data * 2), topic="bent"),
    put("produce: without a key into a compacted topic", batch(key=None), topic=COMPACTED),
    put("produce: a key and none into a compacted topic", batch(b"one", b"two", key=None), topic=COMPACTED),
    put("produce: too large", batch(b"x" * 1_100_000), topic="bent"),
    put("produce: time in the future", batch(timestamp=T0 + 3 * HOUR), topic="bent"),
    own("no time", None, timestamp=-1),
    put("produce: transactional id, plain batch", batch(), topic="put-{n}", before=[create("put-{n}")], versions=(3, 8, 13), TransactionalId="tx-{n}"),
    put("produce: empty transactional id", batch(), topic="put-{n}", before=[create("put-{n}")], TransactionalId=""),
    put("produce: transactional batch without an id", batch(attributes=0x10, producer=(1, 0, 0)), topic="bent"),
    put("produce: control batch", batch(attributes=0x20), topic="bent"),
    put("produce: base offset 5", batch(base_offset=5), topic="bent"),
    bad("bad CRC", at(17, "I", 1, seal=False)),
    bad("magic 0 in the header", at(16, "b", 0, seal=False)),
    bad("magic 1 in the header", at(16, "b", 1, seal=False)),
    bad("magic 3", at(16, "b", 3)),
    bad("magic 127", at(16, "b", 127)),
    bad("magic -1", at(16, "b", -1)),
    bad("message of format 0", old_format(0)),
    bad("message of format 1", old_format(1)),
    bad("cut by one byte", cut(1)),
    bad("cut by thirty bytes", cut(30)),
    bad("cut inside the header", lambda data: data[:40]),
    bad("cut inside the length", lambda data: data[:10]),
    bad("cut behind the length", lambda data: data[:12]),
    bad("cut before the magic", lambda data: data[:16]),
    bad("cut behind the magic", lambda data: data[:17]),
    bad("one byte", lambda data: data[:1]),
    own("bytes behind the batch", padded),
    bad("length of zero", at(8, "i", 0, seal=False)),
    bad("length of 13", at(8, "i", 13, seal=False)),
    bad("length of 48", at(8, "i", 48, seal=False)),
    bad("negative length", at(8, "i", -1, seal=False)),
    bad("huge length", at(8, "i", (1 << 31) - 1, seal=False)),
    bad("count of zero", at(57, "i", 0)),
    bad("count too small", at(57, "i", 1)),
    bad("count too large", at(57, "i", 3)),
    bad("negative count", at(57, "i", -1)),
    bad("last offset delta too small", at(23, "i", 0)),
    bad("last offset delta too large", at(23, "i", 9)),
    bad("unknown codec", at(21, "h", 5)),
    bad("codec that the bytes are not", at(21, "h", 1)),
    bad("records of noise", lambda data: at(61, "16s", b"\xff" * 16)(data)),
    bad("producer without a sequence", None, producer=(5, 0, -1)),
    own("producer without an epoch", None, producer=(5, -1, 0)),
    own("sequence without a producer", None, producer=(-1, 0, 0)),
    own("delete horizon bit", None, attributes=0x40),
    own("unused attribute bits", at(21, "h", 0x4000)),
    own("append time bit", None, attributes=0x08),
    sequences("first", sequence(0)),
    sequences("next", sequence(0), sequence(1)),
    sequences("repeated", sequence(0), sequence(1), sequence(1)),
    sequences("repeated, older", sequence(0), sequence(1), sequence(2), sequence(0)),
    sequences("repeated with another length", sequence(0, count=2), sequence(0)),
    sequences("gap", sequence(0), sequence(5)),
    sequences("first not zero", sequence(3)),
    sequences("forgotten by the broker", *(sequence(i) for i in range(7)), sequence(0)),
    sequences("overlap", sequence(0, count=3), sequence(2, count=3)),
    sequences("new epoch", sequence(0), sequence(0, epoch=1)),
    sequences("new epoch, not from zero", sequence(0), sequence(1, epoch=1)),
    sequences("old epoch", sequence(0, epoch=1), sequence(0)),
    sequences("never initialised", sequence(0, id=123_456_789)),
    sequences("never initialised, not from zero", sequence(7, id=123_456_789)),
    producer("plain"),
    producer("empty transactional id", TransactionalId=""),
    producer("unknown id and epoch", ProducerId=999_999_999, ProducerEpoch=3),
    producer("id without an epoch", ProducerId=5),
    producer("epoch without an id", ProducerEpoch=5),
    producer("negative id", ProducerId=-7),
    producer("zero timeout", TransactionTimeoutMs=0),
    producer("negative timeout", TransactionTimeoutMs=-1),
    Case("producer id: next epoch", [init(), Step("InitProducerId", {
        "TransactionalId": None, "TransactionTimeoutMs": 60000, "ProducerId": Kept("id"), "ProducerEpoch": Kept("epoch")})]),
    producers("none", FIXED, [0, 1]),
    producers("one", "seq-{n}", [0], [create("seq-{n}"), init(), Step("Produce", produce("seq-{n}", sequence(0, count=3)))]),
    producers("unknown topic", "unknown", [0]),
    producers("bad partition", FIXED, [99, -1]),
    producers("illegal topic name", "not legal", [0]),
    get("from the start", 0),
    get("from the middle of a batch", 1),
    get("last record", 5),
    get("at the end", 6),
    get("behind the end", 7),
    get("negative offset", -1),
    get("very negative offset", -HUGE - 1),
    get("huge offset", HUGE),
    get("empty partition", 0, partition=1),
    get("unknown topic", 0, topic="unknown"),
    get("illegal topic name", 0, topic="unknown topic", versions=range(0, 13)),
    get("bad partition", 0, partition=99),
    get("negative partition", 0, partition=-1),
    get("committed records only", 0, IsolationLevel=1),
    get("unknown isolation", 0, IsolationLevel=9),
    get("present epoch", 0, epoch=Epoch(FIXED)),
    get("future epoch", 0, epoch=Epoch(FIXED, 1)),
    get("huge epoch", 0, epoch=(1 << 31) - 1),
    get("very negative epoch", 0, epoch=-5),
    get("last epoch of the present", 3, last_epoch=Epoch(FIXED), versions=range(12, 99)),
    get("last epoch of the future", 3, last_epoch=Epoch(FIXED, 5), versions=range(12, 99)),
    get("one byte", 0, MaxBytes=1),
    get("one byte of the partition", 0, part_max=1),
    get("no bytes", 0, MaxBytes=0),
    get("no bytes of the partition", 0, part_max=0),
    get("negative bytes", 0, MaxBytes=-1),
    get("negative bytes of the partition", 0, part_max=-1),
    get("first batch only", 0, MaxBytes=90),
    get("session opened", 0, SessionEpoch=0, versions=range(7, 99)),
    get("unknown session", 0, SessionEpoch=1, SessionId=12345, versions=range(7, 99)),
    get("session of zero, epoch one", 0, SessionEpoch=1, versions=range(7, 99)),
    get("negative session epoch", 0, SessionEpoch=-2, versions=range(7, 99)),
    get("session closed that is unknown", 0, SessionEpoch=-1, SessionId=12345, versions=range(7, 99)),
    *(
        Case(f"fetch: session, then {title}", [
            Step("Fetch", fetch(FIXED, 0, SessionEpoch=0), keep={"session": "SessionId"}, sweep=True),
            Step("Fetch", {**fetch(FIXED, 6), "SessionId": Kept("session"), **more}),
        ], range(7, 99))
        for title, more in (
            ("nothing new", {"SessionEpoch": 1, "Topics": []}), ("its end", {"SessionEpoch": 1}), ("a wrong epoch", {"SessionEpoch": 5}),
            ("the same epoch again", {"SessionEpoch": 0}), ("closed", {"SessionEpoch": -1, "Topics": []}),
            ("a forgotten partition", {"SessionEpoch": 1, "Topics": [], "ForgottenTopicsData": [
                {"Topic": FIXED, "TopicId": fetch(FIXED, 0)["Topics"][0]["TopicId"], "Partitions": [0]}]}),
        )
    ),
    get("replica", 0, ReplicaId=1, versions=range(0, 15)),
    get("debugging replica", 0, ReplicaId=-2, versions=range(0, 15)),
    get("id of zero", 0, topic="unknown", Topics=[{"TopicId": UNKNOWN_ID.__class__(int=0), "Partitions": [{"Partition": 0}]}], versions=range(13, 99)),
    get("a topic twice", 0, Topics=fetch(FIXED, 0)["Topics"] + fetch(FIXED, 3)["Topics"]),
    get("a good and an unknown topic", 0, Topics=fetch(FIXED, 0)["Topics"] + fetch("unknown", 3)["Topics"]),
    *(find(f"{name}", time) for name, time in (
        ("latest", -1), ("earliest", -2), ("largest time", -3), ("earliest local", -4), ("latest tiered", -5), ("earliest pending upload", -6),
        ("special -7", -7), ("special -100", -100), ("very negative", -HUGE - 1), ("time zero", 0), ("first time", T0), ("between", T0 + 400),
        ("last time", T0 + 1001), ("behind the last", T0 + 5000), ("huge time", HUGE),
    )),
    *(find(f"{name}, empty partition", time, partition=1) for name, time in (
        ("latest", -1), ("earliest", -2), ("largest time", -3), ("earliest local", -4), ("latest tiered", -5), ("time", T0))),
    find("committed", -1, isolation=1),
    find("unknown isolation", -1, isolation=9),
    find("unknown topic", -1, topic="unknown"),
    find("illegal topic name", -1, topic="not legal"),
    find("bad partition", -1, partition=99),
    find("negative partition", -1, partition=-1),
    find("present epoch", -1, epoch=Epoch(FIXED)),
    find("future epoch", -1, epoch=Epoch(FIXED, 1)),
    find("unknown topic with a future epoch", -1, topic="unknown", epoch=9),
    case("ListOffsets", "list offsets: a partition twice", {"ReplicaId": -1, "Topics": [{"Name": FIXED, "Partitions": [
        {"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": -1}, {"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": -2},
        {"PartitionIndex": 1, "CurrentLeaderEpoch": -1, "Timestamp": -2}]}]}),
    ended("present", Epoch(FIXED)),
    ended("future", Epoch(FIXED, 1)),
    ended("huge", (1 << 31) - 1),
    ended("none", -1),
    ended("empty partition", Epoch(FIXED), partition=1),
    ended("unknown topic", 0, topic="unknown"),
    ended("bad partition", 0, partition=99),
    ended("negative partition", 0, partition=-1),
    ended("asked with the present epoch", Epoch(FIXED), current=Epoch(FIXED)),
    ended("asked with a future epoch", Epoch(FIXED), current=Epoch(FIXED, 1)),
    truncate("two", 2),
    truncate("all", -1),
    truncate("none", 0),
    truncate("at the end", 3),
    truncate("behind the end", 4),
    truncate("negative", -2),
    truncate("huge", HUGE),
    truncate("unknown topic", 1, topic="unknown", before=[]),
    truncate("bad partition", 1, topic=FIXED, partition=99, before=[]),
    truncate("negative partition", 1, topic=FIXED, partition=-1, before=[]),
    truncate("compacted topic", 0, topic=COMPACTED, before=[]),
    after_truncation("earliest", "ListOffsets", list_offsets("cut-{n}", -2)),
    after_truncation("largest time", "ListOffsets", list_offsets("cut-{n}", -3)),
    after_truncation("first time", "ListOffsets", list_offsets("cut-{n}", T0)),
    after_truncation("fetch below the start", "Fetch", fetch("cut-{n}", 0)),
    after_truncation("fetch at the start", "Fetch", fetch("cut-{n}", 2)),
    after_truncation("produce", "Produce", produce("cut-{n}", batch())),
]
