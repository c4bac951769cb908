"""Faults that somebody reported about a broker, as small tests in raw frames. Each is named by its row in the list of cases.

Everything here also runs against Apache Kafka 4.3.1 (`run --peer cases_kafka`): the expectations are Kafka's.
"""

import threading
import time
import uuid

import confluent_kafka as ck
import pytest
from harness import errors, records
from harness import kafka as k
from harness.http import unique
from harness.kcat import kcat
from harness.polling import eventually
from harness.records import Record
from harness.wire import (
    ApiVersions, Connection, CreateTopics, DeleteRecords, DeleteTopics, DescribeConfigs, DescribeGroups, Fetch, Heartbeat, InitProducerId,
    JoinGroup, LeaveGroup, ListOffsets, Metadata, OffsetCommit, OffsetFetch, Produce, Reader, SyncGroup, framed, header,
)

TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE = 2, 4, 32


@pytest.fixture
def topic(wire):
    return k.create_topic(wire, unique("case"), 1)


def newest(wire, api):
    """The highest version of an API that the broker offers."""
    table = {e.key: e for e in wire.call(ApiVersions, 0)["keys"]}
    return table[api.key].high if api.key in table else -1


# --- protocol -----------------------------------------------------------------------------------


def test_PR_1_no_tagged_field_without_content(broker, wire):
    answer = wire.call(ApiVersions, 3, name="librdkafka", version="2.0.2")
    for number, data in answer.get("_tags", {}).items():
        if number == 1:  # the epoch of the finalized features
            assert int.from_bytes(data, "big", signed=True) >= 0
        else:
            assert data not in (b"", b"\x01"), f"tag {number} says nothing"
    # The client that trips over it.
    assert b"1 brokers:" in kcat(broker.kafka, "-L")


@pytest.mark.parametrize("version", [6, 99])
def test_PR_2_api_versions_above_ours(wire, version):
    wire.raw(framed(header(ApiVersions, version, 77) + b"\x01\x01\x00"))
    reader = Reader(wire.frame())
    assert reader.unpack("i") == 77
    answer = ApiVersions.decode(0, reader.data[4:])
    assert answer.error == errors.UNSUPPORTED_VERSION
    assert [e for e in answer["keys"] if e.key == 18]
    assert wire.call(ApiVersions, 2).error == 0


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_PR_5_a_codec_is_not_dropped(broker, wire, topic, codec):
    assert [e.low for e in wire.call(ApiVersions, 3, name="x", version="1")["keys"] if e.key == 0] == [0]
    client = ck.Producer({"bootstrap.servers": broker.kafka, "compression.type": codec, "linger.ms": 100})
    for i in range(100):
        client.produce(topic, key="k", value="compressible " * 20 + str(i), partition=0)
    assert client.flush(20) == 0
    batches = k.read_batches(wire, topic, 0)
    assert {b.codec for b in batches} == {records.CODECS[codec]} and sum(len(b.records) for b in batches) == 100


def test_PR_7_a_produce_without_acks_is_silent(wire, topic):
    wire.send(Produce, 9, answer=False, **k.produce_request(topic, 0, records.batch([(b"k", b"v")]), acks=0))
    correlation = wire.send(Metadata, 9, topics=[])
    assert wire.receive().brokers and wire.correlation == correlation
    eventually(lambda: len(k.read_all(wire, topic, 0)) == 1, 10, "the record is there")


def test_PR_8_several_partitions_in_one_produce(wire):
    name = k.create_topic(wire, unique("case"), 3)
    answer = wire.call(Produce, 9, acks=-1, timeout=10_000, topics=[{"name": name, "partitions": [
        {"index": p, "records": records.batch([(b"k", b"%d" % p)])} for p in range(3)]}])
    assert sorted((p.index, p.error, p.base_offset) for p in answer.topics[0].partitions) == [(p, 0, 0) for p in range(3)]
    assert [k.read_all(wire, name, p)[0].value for p in range(3)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("codec", sorted(records.CODECS))
def test_PR_10_codec_bits_checksum_and_payload_agree(wire, topic, codec):
    sent = [Record(b"k%d" % i, b"v%d" % i, [("h", b"x")], 1000 + i) for i in range(20)]
    k.append(wire, topic, 0, records.batch(sent, records.CODECS[codec]))
    [batch] = k.read_batches(wire, topic, 0)
    assert batch.codec == records.CODECS[codec]
    assert [(r.key, r.value, r.headers, r.timestamp) for r in batch.records] == [(r.key, r.value, r.headers, r.timestamp) for r in sent]


@pytest.mark.parametrize("together", [True, False], ids=["one batch", "three batches"])
def test_PR_11_offset_by_time(wire, topic, together):
    sent = [Record(b"k", b"v", [], t) for t in (100, 200, 300)]
    for batch in ([sent] if together else [[r] for r in sent]):
        k.append(wire, topic, 0, batch)
    for asked, offset, stamp in ((100, 0, 100), (200, 1, 200), (201, 2, 300), (300, 2, 300), (301, -1, -1)):
        got = k.list_offset(wire, topic, 0, asked)
        assert (got.error, got.offset, got.timestamp) == (0, offset, stamp), asked


def delete_records(wire, topic, offset):
    answer = wire.call(DeleteRecords, 2, timeout=10_000, topics=[{"name": topic, "partitions": [{"index": 0, "offset": offset}]}])
    part = answer.topics[0].partitions[0]
    return part.error, part.low_watermark


def test_PR_14_a_time_before_the_log_start_is_the_log_start(wire, topic):
    for i in range(100):
        k.append(wire, topic, 0, [Record(b"k", b"%d" % i, [], 1000 + i)])
    assert delete_records(wire, topic, 50) == (0, 50)
    assert k.list_offset(wire, topic, 0, 0).offset == 50
    assert k.list_offset(wire, topic, 0, 1010).offset == 50
    assert k.list_offset(wire, topic, 0, k.EARLIEST).offset == 50
    assert k.fetch(wire, topic, 0, 49).error == errors.OFFSET_OUT_OF_RANGE
    assert k.read_all(wire, topic, 0, 50)[0].value == b"50"


def test_PR_15_an_empty_topic(wire, topic):
    for asked, offset in ((k.EARLIEST, 0), (k.LATEST, 0), (12345, -1), (k.MAX_TIMESTAMP, -1)):
        got = k.list_offset(wire, topic, 0, asked)
        assert (got.error, got.offset) == (0, offset), asked


@pytest.mark.parametrize("stamp", [0, -1])
def test_PR_18_odd_timestamps_come_back(wire, topic, stamp):
    k.append(wire, topic, 0, records.batch([Record(b"k", b"v", [], stamp)]))
    [batch] = k.read_batches(wire, topic, 0)
    assert batch.records[0].timestamp == stamp and batch.max_timestamp == stamp


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_PR_19_null_and_empty(wire, policy):
    name = k.create_topic(wire, unique("case"), 1, cleanup_policy=policy)
    keys = [b"", b"key"] + ([None] if policy == "delete" else [])
    sent = [Record(key, value, [("h", head)]) for key in keys for value in (None, b"", b"v") for head in (None, b"", b"x")]
    k.append(wire, name, 0, sent)
    got = k.read_all(wire, name, 0)
    assert [(r.key, r.value, r.headers) for r in got] == [(r.key, r.value, r.headers) for r in sent]
    if policy == "compact":
        assert k.produce(wire, name, 0, [Record(None, b"v")]).error == errors.INVALID_RECORD


def test_PR_22_an_idle_fetch_waits_and_data_ends_the_wait(broker, wire, topic):
    begun = time.monotonic()
    answer = wire.call(Fetch, 12, **k.fetch_request(topic, 0, 0, max_wait=1500))
    assert 1.4 <= time.monotonic() - begun < 3 and not answer.topics[0].partitions[0].records
    wire.send(Fetch, 12, **k.fetch_request(topic, 0, 0, max_wait=20_000))
    with Connection(broker.kafka) as other:
        k.append(other, topic, 0, [(b"k", b"v")])
    begun = time.monotonic()
    assert records.read_batches(wire.receive().topics[0].partitions[0].records)
    assert time.monotonic() - begun < 2


def test_PR_22_min_bytes_is_waited_for(wire, topic):
    k.append(wire, topic, 0, [(b"k", b"v")])
    begun = time.monotonic()
    answer = wire.call(Fetch, 12, **k.fetch_request(topic, 0, 0, max_wait=800, min_bytes=100_000))
    assert time.monotonic() - begun >= 0.7
    assert records.read_batches(answer.topics[0].partitions[0].records)


def test_PR_23_legal_admin_calls(broker, wire):
    name = k.create_topic(wire, unique("case"), 1)
    version = min(4, newest(wire, DescribeConfigs))
    answer = wire.call(DescribeConfigs, version, resources=[
        {"kind": BROKER_RESOURCE, "name": str(broker.node), "keys": None}, {"kind": TOPIC_RESOURCE, "name": name, "keys": None},
        {"kind": TOPIC_RESOURCE, "name": unique("missing"), "keys": None}, {"kind": GROUP_RESOURCE, "name": "some-group", "keys": None}])
    assert len(answer.results) == 4
    assert [r.error for r in answer.results[:3]] == [0, 0, errors.UNKNOWN_TOPIC_OR_PARTITION]
    assert "retention.ms" in {c.name for c in answer.results[1].configs}
    others = [k.create_topic(wire, unique("case"), 1) for _ in range(2)]
    identity = wire.call(Metadata, 12, topics=[{"name": others[1]}]).topics[0].topic_id
    answer = wire.call(DeleteTopics, 6, timeout=10_000, topics=[
        {"name": others[0]}, {"name": unique("missing")}, {"name": None, "topic_id": identity},
        {"name": None, "topic_id": uuid.uuid4()}])
    assert sorted(t.error for t in answer.topics) == sorted([0, errors.UNKNOWN_TOPIC_OR_PARTITION, 0, errors.UNKNOWN_TOPIC_ID])
    assert {t.name for t in answer.topics if t.error == 0} == set(others)
    assert wire.call(Metadata, 9, topics=[]).brokers


@pytest.mark.parametrize("name", ["..", ".", "a/../b", "a\\b", "a\0b", "", "x" * 250, "with space", "ü"], ids=repr)
def test_SE_12_path_tricks_in_topic_names(broker, wire, name):
    answer = wire.call(CreateTopics, 5, timeout=10_000, topics=[{"name": name, "partitions": 1, "replication": 1}])
    assert answer.topics[0].error == errors.INVALID_TOPIC_EXCEPTION
    assert wire.call(Metadata, 9, topics=[{"name": name}], allow_auto=True).topics[0].error == errors.INVALID_TOPIC_EXCEPTION


# --- group --------------------------------------------------------------------------------------


class Member:
    """A group member made of frames. Joins are sent and received apart, because the broker holds them back."""

    def __init__(self, broker, group, session=30_000, rebalance=30_000, version=5, instance=None):
        self.wire = Connection(broker.kafka, 40)
        self.group, self.session, self.rebalance, self.version, self.instance = group, session, rebalance, version, instance
        self.id, self.generation, self.metadata = "", -1, b"meta"

    def send_join(self):
        body = {"group": self.group, "session": self.session, "member": self.id, "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": self.metadata}]}
        if self.version >= 1:
            body["rebalance"] = self.rebalance
        if self.version >= 5:
            body["instance"] = self.instance
        self.wire.send(JoinGroup, self.version, **body)

    def receive_join(self):
        answer = self.wire.receive()
        if answer.error == errors.MEMBER_ID_REQUIRED:
            self.id = answer.member
            self.send_join()
            answer = self.wire.receive()
        if answer.error == 0:
            self.id, self.generation = answer.member, answer.generation
        return answer

    def join(self):
        self.send_join()
        return self.receive_join()

    def sync(self, assignments=None, version=3):
        body = {"group": self.group, "generation": self.generation, "member": self.id,
                "assignments": [{"member": m, "assignment": a} for m, a in (assignments or {}).items()]}
        if version >= 3:
            body["instance"] = self.instance
        if version >= 5:
            body |= {"protocol_type": "consumer", "protocol": "range"}
        return self.wire.call(SyncGroup, version, **body)

    def join_alone(self):
        answer = self.join()
        assert answer.error == 0, answer
        assert self.sync({self.id: b"all"}).assignment == b"all"
        return self

    def heartbeat(self):
        return self.wire.call(Heartbeat, 3, group=self.group, generation=self.generation, member=self.id, instance=self.instance).error

    def commit(self, topic, offset, **more):
        more = {"generation": self.generation, "member": self.id, **more}
        if self.instance:
            more["instance"] = self.instance
        return k.commit(self.wire, self.group, topic, 0, offset, **more)

    def leave(self):
        return self.wire.call(LeaveGroup, 3, group=self.group, members=[{"member": self.id, "instance": self.instance}])

    def state(self):
        return self.wire.call(DescribeGroups, 3, groups=[self.group]).groups[0].state


@pytest.fixture
def group(wire):
    name = unique("group")
    k.ensure_coordinator(wire, name)
    return name


@pytest.fixture
def member(broker, group):
    """Makes members of one group; all connections are closed at the end."""
    made = []

    def make(**options):
        made.append(Member(broker, group, **options))
        return made[-1]

    yield make
    for one in made:
        one.wire.close()


def two_stable(member):
    """A stable group of two: (leader, follower)."""
    first = member().join_alone()
    second = member()
    second.send_join()
    answer = second.wire.receive()
    assert answer.error == errors.MEMBER_ID_REQUIRED and answer.member
    second.id = answer.member
    second.send_join()
    eventually(lambda: first.heartbeat() == errors.REBALANCE_IN_PROGRESS, 10, "the first member hears of the newcomer")
    first.send_join()
    one, two = first.receive_join(), second.receive_join()
    assert one.error == two.error == 0 and one.generation == two.generation == 2
    leader, follower = (first, second) if one.leader == first.id else (second, first)
    assert {m.member for m in (one if leader is first else two).members} == {first.id, second.id}
    assert not (two if leader is first else one).members
    return leader, follower


def test_GR_1_a_second_member_gets_in_with_one_rebalance(member):
    leader, follower = two_stable(member)
    got = leader.sync({leader.id: b"L", follower.id: b"F"})
    assert (got.error, got.assignment) == (0, b"L")
    got = follower.sync()
    assert (got.error, got.assignment) == (0, b"F")
    assert leader.heartbeat() == follower.heartbeat() == 0
    assert leader.generation == follower.generation == 2


@pytest.mark.parametrize("version", [0, 3, 5])
def test_GR_3_a_follower_gets_its_bytes(member, version):
    leader, follower = two_stable(member)
    blob = bytes(range(256)) * 3
    leader.sync({leader.id: b"L", follower.id: blob})
    got = follower.sync(version=version)
    assert (got.error, got.assignment) == (0, blob)
    if version >= 5:
        assert (got.protocol_type, got.protocol) == ("consumer", "range")


def test_GR_4_join_version_0_uses_the_session_as_rebalance_timeout(member):
    first = member(version=0, session=6000).join_alone()
    second = member(version=0, session=6000)
    second.send_join()
    begun = time.monotonic()
    box = []
    waiter = threading.Thread(target=lambda: box.append(second.receive_join()))
    waiter.start()
    # The first one stays alive and never joins again: it is left behind when its session time has passed.
    while waiter.is_alive():
        assert first.heartbeat() in (0, errors.REBALANCE_IN_PROGRESS, errors.UNKNOWN_MEMBER_ID)
        waiter.join(0.3)
        assert time.monotonic() - begun < 20
    assert box[0].error == 0 and box[0].leader == second.id and len(box[0].members) == 1
    assert 4 < time.monotonic() - begun < 12


def test_GR_7_a_lower_commit_stands(wire, group, member, topic):
    one = member().join_alone()
    assert one.commit(topic, 50) == 0 and one.commit(topic, 20) == 0
    assert k.committed(wire, group, topic, 0) == 20


def test_GR_9_a_topic_is_named_once(wire, group, topic):
    for offset in (1, 2, 3):
        assert k.commit(wire, group, topic, 0, offset) == 0
    answer = k.fetch_offsets_answer(wire, group, None)
    assert [t.name for t in answer.topics] == [topic]
    assert [(p.index, p.offset) for p in answer.topics[0].partitions] == [(0, 3)]


@pytest.mark.timeout(180)
def test_GR_10_a_group_is_readable_after_a_restart(broker, group, member, topic):
    one = member().join_alone()
    assert one.commit(topic, 7) == 0
    assert one.leave().error == 0
    broker.restart()
    with Connection(broker.kafka) as wire:
        k.ensure_coordinator(wire, group)
        described = wire.call(DescribeGroups, 3, groups=[group]).groups[0]
        assert (described.error, described.state, described.protocol_type) == (0, "Empty", "consumer")
        assert k.committed(wire, group, topic, 0) == 7


@pytest.mark.parametrize("version", [2, 3, 4])
def test_GR_11_an_old_commit_with_default_retention(wire, group, topic, version):
    answer = wire.call(OffsetCommit, version, group=group, generation=-1, member="", retention=-1, topics=[
        {"name": topic, "partitions": [{"index": 0, "offset": 11, "metadata": "m"}]}])
    assert answer.topics[0].partitions[0].error == 0
    assert k.committed(wire, group, topic, 0) == 11


@pytest.mark.timeout(180)
def test_GR_13_a_static_member_comes_back_after_a_crash_of_the_broker(broker, group, member):
    one = member(instance="i1").join_alone()
    broker.restart(clean=False)
    with Connection(broker.kafka) as wire:
        k.ensure_coordinator(wire, group)
    again = member(instance="i1")
    again.id = one.id
    answer = again.join()
    assert answer.error == 0
    assert again.sync({again.id: b"all"}).error == 0
    # Another process under the same instance takes over; the old id is fenced.
    other = member(instance="i1")
    assert other.join().error == 0 and other.id != again.id
    assert again.heartbeat() == errors.FENCED_INSTANCE_ID


def test_GR_17_an_expired_member_is_unknown(member, topic):
    one = member(session=6000).join_alone()
    watcher = member()
    eventually(lambda: watcher.state() == "Empty", 20, "the session ends", every=0.1)
    assert one.heartbeat() == errors.UNKNOWN_MEMBER_ID
    assert one.commit(topic, 1) == errors.UNKNOWN_MEMBER_ID


def test_GR_18_commits_around_a_rebalance(wire, group, member, topic):
    first = member().join_alone()
    second = member()
    second.send_join()
    second.id = second.wire.receive().member
    second.send_join()
    eventually(lambda: first.heartbeat() == errors.REBALANCE_IN_PROGRESS, 10, "the rebalance has begun")
    assert first.commit(topic, 5) == 0
    first.send_join()
    assert first.receive_join().error == 0 and second.receive_join().error == 0
    assert first.commit(topic, 6) == errors.REBALANCE_IN_PROGRESS
    assert first.commit(topic, 6, generation=1) == errors.ILLEGAL_GENERATION
    assert k.committed(wire, group, topic, 0) == 5


def test_GR_19_a_leave_starts_the_rebalance(member):
    leader, follower = two_stable(member)
    leader.sync({leader.id: b"L", follower.id: b"F"})
    follower.sync()
    assert leader.leave().error == 0
    begun = time.monotonic()
    eventually(lambda: follower.heartbeat() == errors.REBALANCE_IN_PROGRESS, 5, "the leave starts a rebalance")
    newcomer = member()
    newcomer.send_join()
    newcomer.id = newcomer.wire.receive().member
    newcomer.send_join()
    follower.send_join()
    assert follower.receive_join().error == 0 and newcomer.receive_join().error == 0
    assert time.monotonic() - begun < 6


def test_GR_21_commit_metadata(wire, group, topic):
    for text in ("a\0b", "ü✓", "x" * 4096):
        assert k.commit(wire, group, topic, 0, 1, metadata=text) == 0
        assert k.fetch_offsets_answer(wire, group, {topic: [0]}).topics[0].partitions[0].metadata == text
    assert k.commit(wire, group, topic, 0, 2, metadata="x" * 4097) == errors.OFFSET_METADATA_TOO_LARGE
    assert k.committed(wire, group, topic, 0) == 1


def test_GR_26_an_empty_commit(wire, group, topic):
    assert wire.call(OffsetCommit, 7, group=group, generation=-1, member="", topics=[]).topics == []
    answer = wire.call(OffsetCommit, 7, group=group, generation=-1, member="", topics=[{"name": topic, "partitions": []}])
    assert all(not t.partitions for t in answer.topics)
    answer = k.fetch_offsets_answer(wire, group, None)
    assert answer.error == 0 and answer.topics == []


@pytest.mark.parametrize("version", [1, 5, 7, 8, 9])
def test_offset_fetch_in_every_form(wire, group, topic, version):
    assert k.commit(wire, group, topic, 0, 33, metadata="m") == 0
    if version < 8:
        answer = wire.call(OffsetFetch, version, group=group, topics=[{"name": topic, "partitions": [0, 5]}])
        parts = answer.topics[0].partitions
    else:
        answer = wire.call(OffsetFetch, version, groups=[{"group": group, "topics": [{"name": topic, "partitions": [0, 5]}]}])
        assert answer.groups[0].error == 0
        parts = answer.groups[0].topics[0].partitions
    assert [(p.index, p.offset, p.error) for p in parts] == [(0, 33, 0), (5, -1, 0)]
    assert parts[0].metadata == "m"


# --- storage ------------------------------------------------------------------------------------


def test_ST_5_the_end_is_never_beyond_what_can_be_read(broker, topic):
    stop, trouble = threading.Event(), []

    def write():
        with Connection(broker.kafka) as client:
            while not stop.is_set():
                for _ in range(4):
                    client.send(Produce, 9, **k.produce_request(topic, 0, records.batch([(b"k", b"v" * 500)] * 20)))
                for _ in range(4):
                    if client.receive().topics[0].partitions[0].error:
                        trouble.append("produce failed")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with Connection(broker.kafka) as client:
            for _ in range(100):
                end = k.list_offset(client, topic, 0, k.LATEST).offset
                if end:
                    batches = records.read_batches(k.fetch(client, topic, 0, end - 1).records)
                    assert batches and batches[-1].next_offset >= end
    finally:
        stop.set()
        writer.join(20)
    assert not trouble


def test_ST_7_pipelined_produces_keep_their_order(wire):
    name = k.create_topic(wire, unique("case"), 3)
    for i in range(30):
        wire.send(Produce, 9, **k.produce_request(name, i % 3 if i % 5 else 0, records.batch([(b"k", b"%d" % i)] * (1 + i % 4))))
    for _ in range(30):
        assert wire.receive().topics[0].partitions[0].error == 0
    for partition in range(3):
        values = [int(r.value) for r in k.read_all(wire, name, partition)]
        assert values == sorted(values)


@pytest.mark.timeout(180)
def test_ST_11_many_commits_survive_a_restart(broker, wire, group):
    name = k.create_topic(wire, unique("case"), 50)
    for round_ in range(1, 201):
        answer = wire.call(OffsetCommit, 7, group=group, generation=-1, member="", topics=[
            {"name": name, "partitions": [{"index": p, "offset": round_ * 100 + p, "epoch": -1, "metadata": None} for p in range(50)]}])
        assert all(p.error == 0 for p in answer.topics[0].partitions)
    broker.restart(clean=False)
    with Connection(broker.kafka) as again:
        k.ensure_coordinator(again, group)
        answer = k.fetch_offsets_answer(again, group, {name: range(50)})
        assert sorted((p.index, p.offset) for p in answer.topics[0].partitions) == [(p, 20_000 + p) for p in range(50)]


def test_ST_14_boundaries_of_delete_records(wire, topic):
    k.append(wire, topic, 0, [(b"k", b"%d" % i) for i in range(10)])
    assert delete_records(wire, topic, 4) == (0, 4)
    assert delete_records(wire, topic, 3) == (0, 4)
    assert delete_records(wire, topic, 4) == (0, 4)
    assert delete_records(wire, topic, 11)[0] == errors.OFFSET_OUT_OF_RANGE
    assert k.list_offset(wire, topic, 0, k.EARLIEST).offset == 4
    assert [r.value for r in k.read_all(wire, topic, 0, 4)] == [b"%d" % i for i in range(4, 10)]
    assert delete_records(wire, topic, 10) == (0, 10)
    k.append(wire, topic, 0, [(b"k", b"more")])
    assert delete_records(wire, topic, -1) == (0, 11)
    assert k.append(wire, topic, 0, [(b"k", b"next")]) == 11


def test_ST_15_a_flipped_bit_is_refused_and_a_wrong_base_offset_rewritten(wire, topic):
    good = records.batch([(b"key", b"value")])
    flipped = bytearray(good)
    flipped[-3] ^= 1
    assert k.produce(wire, topic, 0, bytes(flipped)).error == errors.CORRUPT_MESSAGE
    assert k.list_offset(wire, topic, 0, k.LATEST).offset == 0
    assert k.append(wire, topic, 0, good) == 0
    # Kafka checks that clients number their batches from 0; a broker that takes another number rewrites it.
    got = k.produce(wire, topic, 0, records.batch([(b"key", b"value2")], base_offset=999))
    stored = k.read_all(wire, topic, 0)
    assert [r.offset for r in stored] == list(range(2 if got.error == 0 else 1))


@pytest.mark.timeout(60)
def test_ST_22_a_topic_made_again_is_another(wire):
    name = k.create_topic(wire, unique("case"), 1)
    k.append(wire, name, 0, [(b"k", b"old")])
    old = wire.call(Metadata, 12, topics=[{"name": name}]).topics[0].topic_id
    assert old.int
    assert wire.call(DeleteTopics, 4, names=[name], timeout=10_000).topics[0].error == 0
    eventually(lambda: wire.call(Metadata, 9, topics=[{"name": name}], allow_auto=False).topics[0].error == 3, 15, "the topic is gone")
    k.create_topic(wire, name, 1)
    new = wire.call(Metadata, 12, topics=[{"name": name}]).topics[0].topic_id
    assert new.int and new != old
    assert k.list_offset(wire, name, 0, k.LATEST).offset == 0
    assert k.append(wire, name, 0, [(b"k", b"new")]) == 0
    if newest(wire, Fetch) >= 13:
        def by_id(identity):
            body = k.fetch_request(name, 0, 0)
            body["topics"][0] = {"topic_id": identity, "partitions": body["topics"][0]["partitions"]}
            return wire.call(Fetch, 13, **body).topics[0].partitions[0]

        assert by_id(old).error in (errors.UNKNOWN_TOPIC_ID, errors.INCONSISTENT_TOPIC_ID)
        assert records.read_batches(by_id(new).records)[0].records[0].value == b"new"
    if newest(wire, Produce) >= 13:
        def write(identity):
            return wire.call(Produce, 13, acks=-1, timeout=5000, topics=[{"topic_id": identity, "partitions": [
                {"index": 0, "records": records.batch([(b"k", b"x")])}]}]).topics[0].partitions[0].error

        assert write(old) == errors.UNKNOWN_TOPIC_ID
        assert write(new) == 0


# --- fetch, as clients rely on it ---------------------------------------------------------------


def test_a_fetch_inside_a_batch_returns_the_whole_batch(wire, topic):
    k.append(wire, topic, 0, [(b"k", b"%d" % i) for i in range(10)])
    [batch] = records.read_batches(k.fetch(wire, topic, 0, 7).records)
    assert batch.base_offset == 0 and len(batch.records) == 10


def test_the_end_of_the_log_is_valid_and_beyond_is_not(wire, topic):
    k.append(wire, topic, 0, [(b"k", b"v")])
    assert k.fetch(wire, topic, 0, 1).error == 0
    got = k.fetch(wire, topic, 0, 2)
    assert got.error == errors.OFFSET_OUT_OF_RANGE


def test_a_batch_above_the_limit_is_still_handed_out(wire, topic):
    k.append(wire, topic, 0, [(b"k", b"x" * 200_000)])
    k.append(wire, topic, 0, [(b"k", b"y" * 200_000)])
    got = k.fetch(wire, topic, 0, 0, max_bytes=1000)
    assert [b.base_offset for b in records.read_batches(got.records)] == [0]


@pytest.mark.parametrize("version", range(4, 19))
def test_every_fetch_version(wire, topic, version):
    if version > newest(wire, Fetch):
        pytest.skip(f"Fetch v{version} is not offered")
    k.append(wire, topic, 0, [(b"k", b"v")])
    body = k.fetch_request(topic, 0, 0)
    if version >= 13:
        identity = wire.call(Metadata, 12, topics=[{"name": topic}]).topics[0].topic_id
        body["topics"][0] = {"topic_id": identity, "partitions": body["topics"][0]["partitions"]}
    part = wire.call(Fetch, version, **body).topics[0].partitions[0]
    assert part.error == 0 and part.high_watermark == 1
    assert records.read_batches(part.records)[0].records[0].value == b"v"


@pytest.mark.parametrize("version", range(3, 14))
def test_every_produce_version(wire, topic, version):
    if version > newest(wire, Produce):
        pytest.skip(f"Produce v{version} is not offered")
    body = k.produce_request(topic, 0, records.batch([(b"k", b"v")]))
    if version >= 13:
        identity = wire.call(Metadata, 12, topics=[{"name": topic}]).topics[0].topic_id
        body["topics"][0] = {"topic_id": identity, "partitions": body["topics"][0]["partitions"]}
    part = wire.call(Produce, version, **body).topics[0].partitions[0]
    assert (part.error, part.base_offset) == (0, 0)


@pytest.mark.parametrize("version", range(1, 11))
def test_every_list_offsets_version(wire, topic, version):
    k.append(wire, topic, 0, [Record(b"k", b"v", [], 5000)])
    for asked, offset in ((k.LATEST, 1), (k.EARLIEST, 0), (4000, 0)) + (((k.MAX_TIMESTAMP, 0),) if version >= 7 else ()):
        answer = wire.call(ListOffsets, version, replica=-1, topics=[{"name": topic, "partitions": [
            {"index": 0, "timestamp": asked, **({"leader_epoch": -1} if version >= 4 else {})}]}])
        part = answer.topics[0].partitions[0]
        assert (part.error, part.offset) == (0, offset), asked


@pytest.mark.parametrize("version", range(14))
def test_every_metadata_version(broker, wire, topic, version):
    answer = wire.call(Metadata, version, topics=[{"name": topic}])
    assert [(b.node, f"{b.host}:{b.port}") for b in answer.brokers] == [(broker.node, broker.kafka)]
    assert answer.topics[0].error == 0 and answer.topics[0].name == topic
    assert [(p.index, p.leader, p.replicas, p.isr) for p in answer.topics[0].partitions] == [(0, broker.node, [broker.node], [broker.node])]
    if version >= 1:
        assert answer.controller == broker.node
    if version >= 2:
        assert answer.cluster_id
    if version >= 8:
        assert answer.topics[0].topic_ops == -(1 << 31)


def test_fetch_sessions(wire, topic):
    other = k.create_topic(wire, unique("case"), 1)
    body = k.fetch_request(topic, 0, 0)
    body |= {"epoch": 0}
    body["topics"] += k.fetch_request(other, 0, 0)["topics"]
    first = wire.call(Fetch, 12, **body)
    assert first.error == 0
    if first.session == 0:
        return  # sessions are always refusable
    assert len(first.topics) == 2
    ask = {"replica": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session": first.session}
    assert wire.call(Fetch, 12, **ask, epoch=1).topics == []
    k.append(wire, topic, 0, [(b"k", b"v")])
    news = wire.call(Fetch, 12, **ask, epoch=2)
    assert [t.name for t in news.topics] == [topic]
    forgot = wire.call(Fetch, 12, **ask, epoch=3, forgotten=[{"name": topic, "partitions": [0]}])
    assert forgot.error == 0 and forgot.topics == []
    assert wire.call(Fetch, 12, **ask, epoch=9).error == errors.INVALID_FETCH_SESSION_EPOCH
    assert wire.call(Fetch, 12, **{**ask, "session": first.session ^ 0x55}, epoch=4).error == errors.FETCH_SESSION_ID_NOT_FOUND


# --- dedup: idempotent producers ----------------------------------------------------------------


def producer_id(wire):
    def ask():
        answer = wire.call(InitProducerId, 1, transactional_id=None, timeout=60_000)
        return answer if answer.error not in k.RETRIED else None

    answer = eventually(ask, 30, "a producer id")
    assert answer.error == 0 and answer.producer_id >= 0 and answer.producer_epoch == 0
    return answer.producer_id


def numbered(who, sequence, count=3, epoch=0):
    return records.batch([(b"k", b"%d" % (sequence + i)) for i in range(count)], producer=(who, epoch, sequence))


def test_DD_5_a_restarted_producer_is_a_new_one(wire, topic):
    for round_ in range(3):
        assert k.append(wire, topic, 0, numbered(producer_id(wire), 0)) == round_ * 3
    assert len(k.read_all(wire, topic, 0)) == 9


def test_the_window_of_an_idempotent_producer(wire, topic):
    who = producer_id(wire)
    for i in range(6):
        assert k.append(wire, topic, 0, numbered(who, i * 3)) == i * 3
    # The last five are remembered with their offsets; older ones and gaps are out of order.
    for i in range(1, 6):
        assert k.append(wire, topic, 0, numbered(who, i * 3)) == i * 3
    assert k.produce(wire, topic, 0, numbered(who, 0)).error in (errors.OUT_OF_ORDER_SEQUENCE_NUMBER, errors.DUPLICATE_SEQUENCE_NUMBER)
    assert k.produce(wire, topic, 0, numbered(who, 21)).error == errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert k.append(wire, topic, 0, numbered(who, 18)) == 18
    assert k.append(wire, topic, 0, numbered(who, 0, epoch=1)) == 21
    assert k.produce(wire, topic, 0, numbered(who, 21)).error == errors.INVALID_PRODUCER_EPOCH
    assert len(k.read_all(wire, topic, 0)) == 24


@pytest.mark.timeout(180)
def test_DD_10_the_window_survives_a_crash(broker, wire, topic):
    who = producer_id(wire)
    for i in range(7):
        k.append(wire, topic, 0, numbered(who, i * 3))
    broker.restart(clean=False)
    with Connection(broker.kafka) as again:
        k.wait_topic(again, topic, 1)
        # Kafka keeps the last batch of each producer over a crash; here all five are in the log.
        for i in range(6 if broker.is_peer else 2, 7):
            assert k.append(again, topic, 0, numbered(who, i * 3)) == i * 3
        assert k.append(again, topic, 0, numbered(who, 21)) == 21
        assert [r.value for r in k.read_all(again, topic, 0)] == [b"%d" % i for i in range(24)]
