"""Hostile and odd Kafka frames: an error or a closed connection, bounded memory, and the next client is served."""

import json
import os
import random
import socket
import struct
import time
import zlib
from pathlib import Path

import pytest
import zstandard
from harness import errors, hostile, records
from harness import kafka as k
from harness.http import unique
from harness.records import Record
from harness.wire import (
    APIS, Answer, ApiVersions, Closed, Connection, DescribeGroups, Fetch, FindCoordinator, Heartbeat, JoinGroup, ListOffsets, Metadata,
    OffsetCommit, OffsetFetch, Produce, Reader, Writer, address, framed, header,
)

MIB = 1 << 20


@pytest.fixture(scope="module")
def broker_options():
    return ("--default-partitions", "2")


def served(broker):
    """A new client gets its answers."""
    with Connection(broker.kafka, 10) as client:
        assert client.call(ApiVersions, 3, name="next", version="1").error == 0
        assert client.call(Metadata, 9, topics=[]).brokers


class Memory:
    """Watches how far the broker's resident memory rises above where it was."""

    def __init__(self, broker):
        self.broker = broker
        if not broker.is_peer:
            Path(f"/proc/{broker.pid}/clear_refs").write_text("5")
            self.before = broker.rss()

    def grew_less_than(self, limit):
        if not self.broker.is_peer:
            grown = self.broker.peak_rss() - self.before
            assert grown < limit, f"resident memory rose by {grown / MIB:.0f} MiB"


def outcome(broker, data, timeout=10):
    """Sends bytes on a connection of their own; 'closed', or the payload of the answer frame."""
    with Connection(broker.kafka, timeout) as client:
        try:
            client.raw(data)
            return client.frame()
        except (Closed, BrokenPipeError, ConnectionResetError):
            return "closed"


def throw(broker, data):
    """Sends bytes and no more, and reads whatever comes until the broker closes; staying open is a failure."""
    with Connection(broker.kafka, 10) as client:
        try:
            client.raw(data)
            client.socket.shutdown(socket.SHUT_WR)
            while client.socket.recv(1 << 16):
                pass
        except TimeoutError:
            raise
        except OSError:
            pass


# --- versions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [99, 32767])
def test_an_api_versions_request_from_the_future_is_answered_in_the_first_layout(broker, version):
    with Connection(broker.kafka) as client:
        # The body of a later version is unknown to the broker: it must not be read.
        client.raw(framed(header(ApiVersions, version, 4711) + b"\xff\xfe\xfd garbage"))
        reader = Reader(client.frame())
        assert reader.unpack("i") == 4711
        answer = ApiVersions.decode(0, reader.data[4:])
        assert answer.error == errors.UNSUPPORTED_VERSION
        own = [entry for entry in answer["keys"] if entry.key == 18]
        assert own and own[0].low == 0 and own[0].high >= 3
        # The connection stays usable.
        assert client.call(ApiVersions, 3, name="again", version="1").error == 0


def test_the_version_table_can_be_used(broker, wire):
    table = {entry.key: entry for entry in wire.call(ApiVersions, 3, name="suite", version="1")["keys"]}
    assert len(table) < 1000
    for api in (Produce, Fetch, ListOffsets, Metadata, OffsetCommit, OffsetFetch, FindCoordinator, JoinGroup, Heartbeat, DescribeGroups):
        assert api.key in table, api.name
    # What today's librdkafka and its older releases look at.
    assert table[0].low == 0 and table[0].high >= 9
    assert table[1].low <= 4 and table[1].high >= 11
    for key in (10, 11, 12, 13, 14):
        assert table[key].low == 0
    for entry in table.values():
        assert 0 <= entry.low <= entry.high


def test_answers_of_every_api_versions_version_agree(broker, wire):
    tables = []
    for version in range(4):
        body = {"name": "suite", "version": "1.0"} if version >= 3 else {}
        answer = wire.call(ApiVersions, version, **body)
        assert answer.error == 0
        tables.append({(e.key, e.low, e.high) for e in answer["keys"]})
    assert tables[0] == tables[1] == tables[2] == tables[3]


def test_a_client_name_with_odd_characters_is_refused_and_the_connection_lives(wire):
    assert wire.call(ApiVersions, 3, name="bad name\n", version="1").error == errors.INVALID_REQUEST
    assert wire.call(ApiVersions, 3, name="good-name", version="1").error == 0


@pytest.mark.parametrize("key, version", [(9999, 0), (-1, 0), (32767, 32767), (3, 99), (3, -1), (1, 3), (0, 99), (4, 0), (5, 0), (6, 0), (7, 0)])
def test_unknown_requests_close_the_connection(broker, key, version):
    out = Writer()
    out.pack("h", key)
    out.pack("h", version)
    out.pack("i", 1)
    out.sized(b"suite", False, False)
    out.uvarint(0)
    assert outcome(broker, framed(bytes(out.out) + b"\0" * 16)) == "closed"
    served(broker)


def test_produce_older_than_three_is_listed_but_refused(broker):
    for version in range(3):
        body = struct.pack(">hii", 1, 1000, 0)
        assert outcome(broker, framed(header(Produce, version, 1) + body)) == "closed"
    served(broker)


# --- order and silence --------------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order(broker, wire):
    topic = k.create_topic(wire, unique("hostile"), 1)
    sent = []
    for i in range(60):
        if i % 3 == 0:
            sent.append((Metadata, wire.send(Metadata, 9, topics=[{"name": topic}])))
        elif i % 3 == 1:
            sent.append((Produce, wire.send(Produce, 9, **k.produce_request(topic, 0, records.batch([(b"k", b"%d" % i)])))))
        else:
            # A fetch that waits a little: what follows must wait behind it.
            sent.append((Fetch, wire.send(Fetch, 12, **k.fetch_request(topic, 0, 10_000 if i == 2 else i // 3, max_wait=100, min_bytes=1 << 20))))
    for _ in sent:
        wire.receive()
    values = [r.value for r in k.read_all(wire, topic, 0)]
    assert values == [b"%d" % i for i in range(60) if i % 3 == 1]


def test_a_waiting_fetch_holds_back_the_answers_behind_it(broker, wire):
    topic = k.create_topic(wire, unique("hostile"), 1)
    begun = time.monotonic()
    wire.send(Fetch, 12, **k.fetch_request(topic, 0, 0, max_wait=700))
    wire.send(Metadata, 9, topics=[])
    assert wire.receive().topics[0].partitions[0].error == 0
    assert time.monotonic() - begun >= 0.6
    assert wire.receive().brokers


def test_acks_zero_is_not_answered(broker, wire):
    topic = k.create_topic(wire, unique("hostile"), 1)
    for i in range(3):
        wire.send(Produce, 9, answer=False, **k.produce_request(topic, 0, records.batch([(None, b"%d" % i)]), acks=0))
    assert wire.call(Metadata, 9, topics=[]).brokers
    wire.call(Fetch, 12, **k.fetch_request(topic, 0, 0, max_wait=3000))
    assert [r.value for r in k.read_all(wire, topic, 0)] == [b"0", b"1", b"2"]


def test_an_unknown_acks_value_is_an_error_of_the_partition(broker, wire):
    topic = k.create_topic(wire, unique("hostile"), 1)
    got = k.produce(wire, topic, 0, [(b"k", b"v")], acks=2)
    assert got.error == 21
    assert k.list_offset(wire, topic, 0, k.LATEST).offset == 0


# --- lengths ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [-1, -2, -(1 << 31), (1 << 31) - 1, 1 << 30, 101 * MIB])
def test_a_frame_of_impossible_size_closes_the_connection(broker, size):
    memory = Memory(broker)
    with Connection(broker.kafka, 10) as client:
        client.raw(struct.pack(">i", size) + b"\0" * 64)
        assert client.closed_by_peer(10)
    memory.grew_less_than(16 * MIB)
    served(broker)


@pytest.mark.parametrize("payload", [b"", b"\0", b"\0\3\0\1", b"\0\3\0\1\0\0\0\1", b"\0\3\0\1\0\0\0\1\x7f\xff"], ids=len)
def test_a_frame_too_small_for_its_header_closes_the_connection(broker, payload):
    assert outcome(broker, framed(payload)) == "closed"
    served(broker)


def test_a_cut_frame_is_dropped_with_its_connection(broker):
    whole = hostile.request(Metadata, 9, Metadata.encode(9, {"topics": None}))
    for keep in (1, 3, 5, 12, len(whole) - 1):
        throw(broker, whole[:keep])
    served(broker)


def test_memory_is_not_taken_for_announced_bytes(queen):
    """Many connections that each announce a large frame and send nothing of it. (Apache Kafka allocates it all and dies.)"""
    memory = Memory(queen)
    clients = [Connection(queen.kafka, 10) for _ in range(40)]
    try:
        for client in clients:
            client.raw(struct.pack(">i", 64 * MIB) + b"\0\0\0\0")
        served(queen)
        memory.grew_less_than(96 * MIB)
    finally:
        for client in clients:
            client.close()


LIES = [(1 << 31) - 1, 1_000_000, -2, 0xFFFFFFFF, (1 << 63) - 1]


def _versions(api):
    # The oldest that is served, the last before and the first with compact lengths.
    lows = {Produce.key: 3, Fetch.key: 4, ListOffsets.key: 1, OffsetCommit.key: 2, OffsetFetch.key: 1, 19: 2, 20: 1, 32: 1, 23: 2}
    low = lows.get(api.key, 0)
    return sorted({low, max(low, api.flexible - 1), api.flexible})


@pytest.mark.parametrize("name", sorted(n for n in APIS if isinstance(n, str)))
def test_lying_lengths_in_every_kind_of_request(broker, name):
    """SE-3: each string, byte and array length of the request replaced by a lie."""
    api, memory = APIS[name], Memory(broker)
    for version in _versions(api):
        for lie in LIES:
            if version >= api.flexible and lie < 0:
                continue
            for body in hostile.lying_bodies(api, version, lie):
                throw(broker, hostile.request(api, version, body))
    memory.grew_less_than(64 * MIB)
    served(broker)


# Fields of which the value that says nothing is not zero.
PLAIN = {
    "Produce": {"acks": -1}, "Fetch": {"replica": -1, "epoch": -1}, "ListOffsets": {"replica": -1}, "OffsetForLeaderEpoch": {"replica": -2},
    # A topic that is named may be created, and is answered differently then.
    "Metadata": {"topics": []},
}
# What the wire codec of the suites describes, where Apache Kafka has a later version with more fields.
HIGHEST = {"InitProducerId": 5, "ApiVersions": 4}


@pytest.mark.parametrize("name", sorted(n for n in APIS if isinstance(n, str)))
def test_bytes_behind_a_request_change_no_answer(broker, wire, name):
    """PR: Apache Kafka does not look behind a body; librdkafka from 2.12 on sends three bytes there."""
    api, memory = APIS[name], Memory(broker)
    k.ensure_coordinator(wire, "x")
    served_here = {entry.key: entry for entry in wire.call(ApiVersions, 3, name="suite", version="1")["keys"]}[api.key]
    for version in range(max(served_here.low, 3 if name == "Produce" else 0), min(served_here.high, HIGHEST.get(name, 99)) + 1):
        fields = {**hostile.filled(api.request, version), **PLAIN.get(name, {})}
        body = api.encode(version, {f.name: fields[f.name] for f in api.request if f.at(version) and f.name in fields})
        with Connection(broker.kafka, 20) as client:
            answers = {}
            for behind in (0, 1, 3, 100):
                try:
                    client.raw(hostile.request(api, version, body + b"\1" * behind))
                    answers[behind] = client.frame()
                except Closed:
                    pytest.fail(f"version {version} with {behind} bytes behind its body closed the connection")
        assert len(set(answers.values())) == 1, f"version {version}: {answers}"
    memory.grew_less_than(64 * MIB)


def test_a_million_topics_in_one_request(broker):
    """A true array of a million empty names fits into two megabytes: it may cost time, not much memory, and no other client."""
    memory = Memory(broker)
    body = struct.pack(">i", 1_000_000) + b"\0\0" * 1_000_000 + b"\0"
    got = outcome(broker, framed(header(Metadata, 4, 1) + body), timeout=60)
    assert got == "closed" or len(got) > 4
    memory.grew_less_than(512 * MIB)
    served(broker)


def test_a_varint_without_end(broker):
    # The last one would be an empty array, and the rest a body with bytes behind it, to a reader that stops at the fifth byte.
    for body in (b"\xff" * 64, b"\x80" * 64, b"\xff" * 9 + b"\x01" + b"\0" * 8, b"\x81" + b"\x80" * 5 + b"\0" * 16):
        out = header(Metadata, 9, 1)[:-1] + body
        assert outcome(broker, framed(out)) == "closed"
        assert outcome(broker, framed(header(Metadata, 9, 1) + body)) == "closed"
    served(broker)


def test_garbage_behind_the_header(broker):
    dice = random.Random(20260)
    for _ in range(150):
        api = APIS[dice.choice([n for n in APIS if isinstance(n, str)])]
        version = dice.choice(_versions(api))
        throw(broker, hostile.request(api, version, dice.randbytes(dice.randrange(0, 200))))
    served(broker)


def test_bytes_that_are_no_kafka_at_all(broker):
    tls = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", tls + os.urandom(64), b"\0" * 4096, os.urandom(4096)):
        throw(broker, data)
    served(broker)


# --- batches ------------------------------------------------------------------------------------


def zeros(codec, size):
    """A compressed stream of `size` zero bytes, made without holding them."""
    piece = b"\0" * MIB
    if codec == "gzip":
        worker = zlib.compressobj(6, zlib.DEFLATED, 31)
    else:
        worker = zstandard.ZstdCompressor(level=3).compressobj()
    prefix = b""
    return worker, piece, prefix, size


def bomb(codec, size):
    """One batch whose only record has a value of `size` zero bytes; a few hundred kilobytes on the wire at most."""
    body = Writer()
    body.pack("b", 0)
    for number in (0, 0, -1, size):
        body.varint(number)
    head = Writer()
    head.varint(len(body.out) + size + 1)
    worker, piece, _, _ = zeros(codec, size)
    out = worker.compress(bytes(head.out) + bytes(body.out))
    for _ in range(size // MIB):
        out += worker.compress(piece)
    out += worker.compress(b"\0") + worker.flush()
    return records.seal(records.CODECS[codec], 0, 1, 1, (-1, -1, -1), 1, out)


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_decompression_bomb(broker, wire, codec):
    topic = k.create_topic(wire, unique("hostile"), 1)
    data = bomb(codec, 256 * MIB)
    assert len(data) < MIB
    memory = Memory(broker)
    with Connection(broker.kafka, 60) as client:
        try:
            got = k.produce(client, topic, 0, data)
        except Closed:
            got = Answer(error=-1)
    memory.grew_less_than(160 * MIB)
    served(broker)
    if not broker.is_peer:  # Kafka streams through it and stores it as it is.
        assert got.error != 0
        assert k.list_offset(wire, topic, 0, k.LATEST).offset == 0


def test_a_bomb_of_many_small_records(broker, wire):
    """Four million empty records in a few kilobytes of zstd: refused or stored, in bounded memory."""
    topic = k.create_topic(wire, unique("hostile"), 1)
    one = bytes([12, 0, 0, 0, 1, 1, 0])
    count = 4_000_000
    worker = zstandard.ZstdCompressor().compressobj()
    out = b"".join(worker.compress(one * 100_000) for _ in range(count // 100_000)) + worker.flush()
    data = records.seal(records.ZSTD, count - 1, 1, 1, (-1, -1, -1), count, out)
    assert len(data) < MIB
    memory = Memory(broker)
    with Connection(broker.kafka, 60) as client:
        try:
            k.produce(client, topic, 0, data)
        except Closed:
            pass
    memory.grew_less_than(256 * MIB)
    served(broker)


def _bent(name):
    good = records.batch([(b"key", b"value"), (b"key2", b"value2")])
    payload = records.encode_records([Record(b"k", b"v")], 1)
    producer = (-1, -1, -1)

    def patched(at, fmt, value, crc=True):
        out = bytearray(good)
        struct.pack_into(">" + fmt, out, at, value)
        if crc and at >= 21:
            struct.pack_into(">I", out, 17, records.crc32c.crc32c(bytes(out[21:])))
        return bytes(out)

    def one_record(body):
        out = Writer()
        out.varint(len(body))
        return records.seal(0, 0, 1, 1, producer, 1, bytes(out.out) + body)

    def varints(*numbers):
        out = Writer()
        out.pack("b", 0)
        for number in numbers:
            out.varint(number)
        return bytes(out.out)

    return {
        "a flipped bit": patched(len(good) - 2, "B", good[-2] ^ 1, crc=False),
        "a wrong crc": patched(17, "I", 1),
        "magic 1": patched(16, "b", 1),
        "magic 3": patched(16, "b", 3),
        "length beyond the data": patched(8, "i", len(good) * 2),
        "negative length": patched(8, "i", -1),
        "length below a header": patched(8, "i", 10),
        "no records": records.seal(0, -1, 1, 1, producer, 0, b""),
        "negative count": patched(57, "i", -1),
        "count above what is there": patched(57, "i", 1000),
        "a huge count": records.seal(0, (1 << 31) - 2, 1, 1, producer, (1 << 31) - 1, payload),
        "last delta does not fit the count": patched(23, "i", 7),
        "negative last delta": patched(23, "i", -5),
        "an unknown codec": patched(21, "h", 7),
        "a control batch from a client": patched(21, "h", 0x20),
        "a key longer than the record": one_record(varints(0, 0, 1000) + b"k"),
        "a negative record length": records.seal(0, 0, 1, 1, producer, 1, b"\x09" + payload[1:]),
        "a huge record length": records.seal(0, 0, 1, 1, producer, 1, b"\xfe\xff\xff\xff\x0f" + payload[1:]),
        "a huge header count": one_record(varints(0, 0, -1, -1, (1 << 31) - 1)),
        "a negative header count": one_record(varints(0, 0, -1, -1, -1)),
        "a varint without end": one_record(b"\0" + b"\xff" * 12),
        "bytes behind the records": records.seal(0, 0, 1, 1, producer, 1, payload + b"garbage"),
        "gzip that is none": records.seal(1, 0, 1, 1, producer, 1, b"this is not gzip"),
        "snappy that is none": records.seal(2, 0, 1, 1, producer, 1, b"\xff\xff\xff\xff\x0fnot snappy"),
        "snappy that claims gigabytes": records.seal(2, 0, 1, 1, producer, 1, b"\xff\xff\xff\xff\x07\x00a"),
        "lz4 that is none": records.seal(3, 0, 1, 1, producer, 1, b"this is not lz4"),
        "zstd that is none": records.seal(4, 0, 1, 1, producer, 1, b"this is not zstd"),
        "zstd that claims gigabytes": records.seal(
            4, 0, 1, 1, producer, 1, bytes.fromhex("28b52ffde0") + struct.pack("<Q", 1 << 40) + b"\x01\x00\x00"),
        "two batches": good + good,
        "nothing": b"",
        "ten bytes": good[:10],
    }[name]


BENT = [
    "a flipped bit", "a wrong crc", "magic 1", "magic 3", "length beyond the data", "negative length", "length below a header", "no records",
    "negative count", "count above what is there", "a huge count", "last delta does not fit the count", "negative last delta",
    "an unknown codec", "a control batch from a client", "a key longer than the record", "a negative record length", "a huge record length",
    "a huge header count", "a negative header count", "a varint without end", "bytes behind the records", "gzip that is none",
    "snappy that is none", "snappy that claims gigabytes", "lz4 that is none", "zstd that is none", "zstd that claims gigabytes",
    "two batches", "nothing", "ten bytes",
]


@pytest.mark.parametrize("name", BENT)
def test_a_bent_batch_is_refused_and_nothing_is_stored(broker, wire, name):
    topic = k.create_topic(wire, unique("hostile"), 1)
    memory = Memory(broker)
    with Connection(broker.kafka, 20) as client:
        try:
            got = k.produce(client, topic, 0, _bent(name)).error
        except Closed:
            got = "closed"
    assert got != 0
    memory.grew_less_than(64 * MIB)
    served(broker)
    assert k.list_offset(wire, topic, 0, k.LATEST).offset == 0
    # The partition is as good as before.
    assert k.append(wire, topic, 0, [(b"k", b"v")]) == 0


def test_half_a_batch_behind_a_whole_one_is_not_stored(broker, wire):
    """Kafka takes the whole one and drops the rest; refusing both is as good."""
    topic = k.create_topic(wire, unique("hostile"), 1)
    good = records.batch([(b"key", b"value")])
    with Connection(broker.kafka, 20) as client:
        got = k.produce(client, topic, 0, good + good[:40])
    assert k.list_offset(wire, topic, 0, k.LATEST).offset == (1 if got.error == 0 else 0)
    assert len(k.read_all(wire, topic, 0)) == (1 if got.error == 0 else 0)


# --- slow and many ------------------------------------------------------------------------------


def test_a_client_that_sends_byte_by_byte_does_not_hold_up_others(broker):
    whole = hostile.request(ApiVersions, 3, ApiVersions.encode(3, {"name": "slow", "version": "1"}))
    with Connection(broker.kafka, 20) as slow:
        for at in range(len(whole)):
            slow.raw(whole[at : at + 1])
            if at % 8 == 0:
                served(broker)
        assert struct.unpack(">i", slow.frame()[:4])[0] == 7


def test_hundreds_of_idle_connections(broker):
    memory = Memory(broker)
    idle = []
    try:
        for _ in range(400):
            client = Connection(broker.kafka, 20)
            idle.append(client)
            client.call(ApiVersions, 3, name="idle", version="1")
        served(broker)
        memory.grew_less_than(128 * MIB)
    finally:
        for client in idle:
            client.close()


def test_a_client_that_never_reads_is_held_back(broker, wire):
    """A hundred fetches of five megabytes each on a connection whose answers nobody takes."""
    topic = k.create_topic(wire, unique("hostile"), 1)
    for _ in range(8):
        k.append(wire, topic, 0, [(b"k", os.urandom(700_000))])
    memory = Memory(broker)
    with Connection(broker.kafka, 20) as client:
        client.socket.settimeout(2)
        try:
            for _ in range(100):
                client.send(Fetch, 12, **k.fetch_request(topic, 0, 0))
        except TimeoutError:
            pass
        for _ in range(20):
            served(broker)
        memory.grew_less_than(128 * MIB)
    served(broker)


# --- the HTTP side ------------------------------------------------------------------------------


def http_outcome(queen, data, timeout=10):
    with socket.create_connection(address(queen.http), timeout=timeout) as client:
        out = b""
        try:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while piece := client.recv(1 << 16):
                out += piece
        except OSError:  # reset, or closed before our end was shut
            pass
        return out


@pytest.mark.parametrize("data", [
    b"\0\0\0\x10" + b"\0" * 64,
    b"POST /api/v1/push HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"POST /api/v1/push HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST /api/v1/push HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X-Header: y\r\n" * 5_000 + b"\r\n",
    b"GET /api/v1/pop/queue/%ff%fe HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"GET /api/v1/pop/queue/%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
], ids=range(8))
def test_malformed_http_is_refused(queen, http, data):
    memory = Memory(queen)
    answer = http_outcome(queen, data)
    assert not answer or answer.split(b" ", 2)[1][:1] in (b"4", b"2"), answer[:200]
    memory.grew_less_than(32 * MIB)
    assert http.get("/health")["status"] == "healthy"


@pytest.mark.parametrize("body", [
    b"", b"{", b"null", b"[]", b"42", b'"x"', b"\xff\xfe", b'{"items": 3}', b'{"items": [3]}', b'{"items": [{"queue": {}, "payload": 1}]}',
    b'{"items": [{"payload": 1}]}', b'{"items": [{"queue": "q"}]}', b'{"items": [{"queue": "q", "payload": }]}',
    b"[" * 100_000, b'{"items":[{"queue":"q","payload":' + b"[" * 100_000, b'{"a":' * 50_000,
], ids=range(16))
def test_a_push_body_that_is_none_is_a_400(queen, http, body):
    answer = http.request("POST", "/api/v1/push", raw=body, status=None)
    assert answer.status_code == 400, answer.text[:200]
    assert json.loads(answer.content)["error"]
    assert http.get("/health")["status"] == "healthy"


def test_a_body_above_the_limit_is_a_413(queen, http):
    memory = Memory(queen)
    head = b"POST /api/v1/push HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (65 * MIB)
    answer = http_outcome(queen, head + b" " * MIB)
    assert answer.startswith(b"HTTP/1.1 413"), answer[:200]
    memory.grew_less_than(96 * MIB)
    assert http.get("/health")["status"] == "healthy"
