"""kcat as Debian ships it (librdkafka 2.0.2): what it wrote is read back, exactly."""

import json
import os
import re
import subprocess
import tempfile
import time

import pytest
from harness import kafka as k
from harness.http import unique
from harness.kcat import kcat, start
from harness.polling import eventually
from harness.records import CODECS
from harness.wire import CreateTopics

ALL = ("-o", "beginning", "-e", "-q")


@pytest.fixture
def topic(wire):
    return k.create_topic(wire, unique("kcat"), 1)


def test_lists_brokers_and_topics(broker, wire):
    name = k.create_topic(wire, unique("kcat"), 3)
    out = kcat(broker.kafka, "-L", "-t", name).decode()
    node = broker.node
    expected = f"Metadata for {name} (from broker {node}: {broker.kafka}/{node}):\n 1 brokers:\n"
    expected += f"  broker {node} at {broker.kafka} (controller)\n 1 topics:\n  topic \"{name}\" with 3 partitions:\n"
    expected += "".join(f"    partition {p}, leader {node}, replicas: {node}, isrs: {node}\n" for p in range(3))
    assert out == expected


def test_lists_everything_as_json(broker, wire):
    name = k.create_topic(wire, unique("kcat"), 2)
    out = json.loads(kcat(broker.kafka, "-L", "-J"))
    assert out["brokers"] == [{"id": broker.node, "name": broker.kafka}]
    assert out["controllerid"] == broker.node
    mine = [t for t in out["topics"] if t["topic"] == name]
    parts = [{"partition": p, "leader": broker.node, "replicas": [{"id": broker.node}], "isrs": [{"id": broker.node}]} for p in range(2)]
    assert mine == [{"topic": name, "partitions": parts}]


def test_a_topic_appears_when_it_is_first_written(broker):
    name = unique("auto")
    kcat(broker.kafka, "-P", "-t", name, "-p", "0", stdin=b"hello\n")
    assert kcat(broker.kafka, "-C", "-t", name, "-p", "0", *ALL) == b"hello\n"
    listed = json.loads(kcat(broker.kafka, "-L", "-J", "-t", name))
    assert len(listed["topics"][0]["partitions"]) == 16


def test_keys_and_values_come_back(broker, topic):
    lines = b"".join(b"key-%d:value %d\n" % (i % 7, i) for i in range(200))
    kcat(broker.kafka, "-P", "-t", topic, "-K:", stdin=lines)
    out = kcat(broker.kafka, "-C", "-t", topic, *ALL, "-f", "%t/%p/%o %k:%s\n")
    assert out == b"".join(b"%s/0/%d key-%d:value %d\n" % (topic.encode(), i, i % 7, i) for i in range(200))


def test_headers_come_back(broker, topic):
    kcat(broker.kafka, "-P", "-t", topic, "-K:", "-H", "trace=abc", "-H", "trace=again", "-H", "empty=", "-H", "null", stdin=b"k:v\n")
    assert kcat(broker.kafka, "-C", "-t", topic, *ALL, "-f", "%k %s %h\n") == b"k v trace=abc,trace=again,empty=,null=NULL\n"


def test_null_and_empty_are_two_things(broker, topic):
    kcat(broker.kafka, "-P", "-t", topic, "-K:", stdin=b"empty:\n:nokey\n")
    kcat(broker.kafka, "-P", "-t", topic, "-K:", "-Z", stdin=b"gone:\n")
    kcat(broker.kafka, "-P", "-t", topic, stdin=b"plain\n")
    out = kcat(broker.kafka, "-C", "-t", topic, *ALL, "-f", "%K[%k] %S[%s]\n")
    assert out == b"5[empty] 0[]\n0[] 5[nokey]\n4[gone] -1[]\n-1[] 5[plain]\n"


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_codec_arrives_as_sent(broker, wire, topic, codec):
    lines = b"".join(b"key-%d:{\"number\": %d, \"text\": \"%s\"}\n" % (i % 5, i, b"abcdefgh" * 12) for i in range(500))
    kcat(broker.kafka, "-P", "-t", topic, "-K:", "-z", codec, "-X", "linger.ms=300", stdin=lines)
    assert kcat(broker.kafka, "-C", "-t", topic, *ALL, "-K:") == lines
    batches = k.read_batches(wire, topic, 0)
    assert {b.codec for b in batches} == {CODECS[codec]}
    assert sum(len(b.raw) for b in batches) < len(lines) / 2


def test_an_idempotent_producer_writes_each_line_once(broker, wire, topic):
    lines = b"".join(b"line %d\n" % i for i in range(2000))
    kcat(broker.kafka, "-P", "-t", topic, "-X", "enable.idempotence=true", "-X", "batch.num.messages=50", stdin=lines)
    assert kcat(broker.kafka, "-C", "-t", topic, *ALL) == lines
    batches = k.read_batches(wire, topic, 0)
    assert all(b.producer[0] >= 0 for b in batches) and len({b.producer[:2] for b in batches}) == 1


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_setting(broker, topic, acks):
    lines = b"".join(b"line %d\n" % i for i in range(300))
    kcat(broker.kafka, "-P", "-t", topic, "-X", f"acks={acks}", stdin=lines)
    # acks=0 is not answered, so the read may come before the write.
    eventually(lambda: kcat(broker.kafka, "-C", "-t", topic, *ALL) == lines, 10, "all lines are there")


def test_one_large_message(broker, topic):
    body = b"x" * 900_000
    kcat(broker.kafka, "-P", "-t", topic, "-X", "message.max.bytes=1500000", stdin=body + b"\n")
    assert kcat(broker.kafka, "-C", "-t", topic, *ALL) == body + b"\n"


def test_offsets_by_position_and_by_time(broker, topic):
    before = int(time.time() * 1000) - 1000
    kcat(broker.kafka, "-P", "-t", topic, stdin=b"a\nb\nc\n")

    def query(*what):
        arguments = [a for w in what for a in ("-t", f"{topic}:0:{w}")]
        return kcat(broker.kafka, "-Q", *arguments)

    prefix = f"{topic} [0] offset ".encode()
    assert query(-2) == prefix + b"0\n"
    assert query(-1) == prefix + b"3\n"
    assert query(before) == prefix + b"0\n"
    # kcat prints the end for a time after the last record, whose offset is -1 on the wire.
    assert query(before + 3_600_000) in (prefix + b"-1\n", prefix + b"3\n")


def test_reading_from_the_middle_the_tail_and_a_time(broker, topic):
    kcat(broker.kafka, "-P", "-t", topic, stdin=b"".join(b"%d\n" % i for i in range(10)))
    assert kcat(broker.kafka, "-C", "-t", topic, "-p", "0", "-o", "4", "-e", "-q") == b"4\n5\n6\n7\n8\n9\n"
    assert kcat(broker.kafka, "-C", "-t", topic, "-p", "0", "-o", "-3", "-e", "-q") == b"7\n8\n9\n"
    assert kcat(broker.kafka, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", "2", "-q") == b"0\n1\n"
    start_of_day = int(time.time() * 1000) - 3_600_000
    assert kcat(broker.kafka, "-C", "-t", topic, "-p", "0", "-o", f"s@{start_of_day}", "-c", "1", "-q") == b"0\n"


def test_a_waiting_consumer_gets_new_data_at_once(broker, topic):
    consumer = start(broker.kafka, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", "1", "-u", "-q",
                     "-X", "fetch.wait.max.ms=20000", stdout=subprocess.PIPE)
    try:
        # Its first fetch has reached the empty end once it holds an established connection; a record wakes it.
        begun = time.monotonic()
        kcat(broker.kafka, "-P", "-t", topic, stdin=b"wake\n")
        assert consumer.communicate(timeout=10)[0] == b"wake\n"
        assert time.monotonic() - begun < 8
    finally:
        consumer.kill()
        consumer.wait()


class Member:
    """A kcat -G whose lines and assignment can be looked at while it runs."""

    ASSIGNED = re.compile(r"rebalanced \(memberid \S+\): assigned: (.*)")
    REVOKED = re.compile(r"rebalanced \(memberid \S+\): revoked")

    def __init__(self, broker, group, topic, *options):
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.process = start(
            broker.kafka, "-G", group, "-u", "-f", "%p %o %k %s\n", "-X", "auto.offset.reset=earliest",
            "-X", "session.timeout.ms=6000", "-X", "heartbeat.interval.ms=200", *options, topic,
            stdout=self.out, stderr=self.err)

    def text(self, pipe):
        # pread leaves the offset alone, which the child shares.
        return os.pread(pipe.fileno(), 1 << 24, 0).decode()

    def lines(self):
        text = self.text(self.out)
        return text[: text.rfind("\n") + 1].splitlines()

    def partitions(self):
        held = None
        for line in self.text(self.err).splitlines():
            match = self.ASSIGNED.search(line)
            if match:
                held = {int(n) for n in re.findall(r"\[(\d+)\]", match[1])}
            elif self.REVOKED.search(line):
                held = None
        return held

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(15)
        finally:
            self.process.kill()
            self.process.wait()
            self.out.close()
            self.err.close()


def test_two_members_of_a_group_share_the_partitions(broker, wire):
    topic, group = k.create_topic(wire, unique("kcat"), 4), unique("group")
    k.ensure_coordinator(wire, group)
    first = Member(broker, group, topic)
    second = None
    try:
        eventually(lambda: first.partitions() == {0, 1, 2, 3}, 30, "the first member holds all")
        second = Member(broker, group, topic)
        eventually(lambda: first.partitions() and second.partitions() and len(first.partitions()) == len(second.partitions()) == 2,
                   30, "two partitions each")
        assert first.partitions() | second.partitions() == {0, 1, 2, 3}
        lines = b"".join(b"key-%d:value-%d\n" % (i % 50, i) for i in range(1000))
        kcat(broker.kafka, "-P", "-t", topic, "-K:", stdin=lines)
        eventually(lambda: len(first.lines()) + len(second.lines()) >= 1000, 30, "1000 lines at both members")
        got = [line.split(" ") for line in first.lines() + second.lines()]
        assert sorted(f"{key}:{value}" for _, _, key, value in got) == sorted(lines.decode().splitlines())
        assert {int(line.split()[0]) for line in first.lines()} <= first.partitions()
        ends = {p: k.list_offset(wire, topic, p, k.LATEST).offset for p in range(4)}
        assert sum(ends.values()) == 1000
    finally:
        first.stop()
        if second:
            second.stop()
    # Leaving commits what was read.
    assert {p: max(k.committed(wire, group, topic, p), 0) for p in range(4)} == ends


def test_a_group_goes_on_where_it_was(broker, wire, topic):
    group = unique("group")
    k.ensure_coordinator(wire, group)
    for round_ in range(2):
        kcat(broker.kafka, "-P", "-t", topic, stdin=b"".join(b"%d-%d\n" % (round_, i) for i in range(20)))
        member = Member(broker, group, topic)
        try:
            eventually(lambda: len(member.lines()) >= 20, 30, "20 lines")
            assert [line.split()[-1] for line in member.lines()] == [f"{round_}-{i}" for i in range(20)]
        finally:
            member.stop()


def test_creating_what_exists_is_told(wire, topic):
    answer = wire.call(CreateTopics, 5, timeout=10000, topics=[{"name": topic, "partitions": 1, "replication": 1}])
    assert answer.topics[0].error == 36
