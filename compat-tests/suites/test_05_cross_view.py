"""One record, two views: what a Kafka client wrote is popped by its key, what HTTP pushed is read by kcat, and positions are shared."""

import base64
import json
import threading
import time

import confluent_kafka as ck
import pytest
from harness import errors, java, records
from harness import kafka as k
from harness.http import Http, ack_operation, push_operation, unique
from harness.kcat import kcat
from harness.polling import eventually
from harness.records import Record
from harness.wire import Connection, DeleteTopics, DescribeGroups, Fetch, ListGroups, Metadata


def producer(broker, **more):
    return ck.Producer({
        "bootstrap.servers": broker.kafka, "enable.idempotence": True, "partitioner": "murmur2_random", "linger.ms": 5,
        "topic.metadata.refresh.interval.ms": 200, **more})


def flush(client):
    assert client.flush(30) == 0, "records were not delivered within 30 s"


def drain(http, queue, group, **params):
    """Pops and acks until the queue answers empty; the messages in the order they came."""
    out = []
    while True:
        messages = http.pop(queue, consumerGroup=group, batch=500, partitions=64, subscriptionMode="all", **params)
        if not messages:
            return out
        assert all(r["success"] for r in http.ack_all(messages))
        out += messages


def by_lane(messages):
    out = {}
    for message in messages:
        out.setdefault(message["partition"], []).append(message)
    return out


# --- from Kafka to HTTP -------------------------------------------------------------------------


def test_a_kafka_record_is_popped_from_the_lane_of_its_key(queen, http):
    topic = unique("cross")
    client = producer(queen)
    for i in range(300):
        client.produce(topic, key=f"customer-{i % 30}", value=json.dumps({"n": i}))
    flush(client)
    messages = http.pop(topic, "customer-7", consumerGroup="g", subscriptionMode="all", batch=100)
    assert [m["data"]["n"] for m in messages] == list(range(7, 300, 30))
    assert [m["offset"] for m in messages] == list(range(10))
    assert {m["partition"] for m in messages} == {"customer-7"}
    assert len({m["partitionId"] for m in messages}) == 1 and messages[0]["partitionId"].isdigit()
    assert all(r["success"] for r in http.ack_all(messages))
    rest = by_lane(drain(http, topic, "g"))
    assert set(rest) == {f"customer-{i}" for i in range(30)} - {"customer-7"}
    for name, lane in rest.items():
        assert [m["data"]["n"] for m in lane] == list(range(int(name[9:]), 300, 30))
        assert [m["offset"] for m in lane] == list(range(10))


@pytest.mark.parametrize("codec", sorted(records.CODECS))
def test_lanes_are_found_inside_compressed_batches(wire, http, codec):
    topic = k.create_topic(wire, unique("cross"), 1)
    k.append(wire, topic, 0, records.batch([(b"key-%d" % (i % 4), b'{"n":%d}' % i) for i in range(40)], records.CODECS[codec]))
    lanes = by_lane(drain(http, topic, "g"))
    assert {name: [m["data"]["n"] for m in lane] for name, lane in lanes.items()} == {f"key-{i}": list(range(i, 40, 4)) for i in range(4)}


def test_names_of_lanes(wire, http):
    topic = k.create_topic(wire, unique("cross"), 3)
    keys = [b"plain", "Zürich ✓ / 1".encode(), b"\xff\xfe\x00", b"with space", b"a/b?c=d&e#f%25"]
    for i, key in enumerate(keys):
        k.append(wire, topic, i % 3, [(key, b'"v%d"' % i)])
    for partition in range(3):
        k.append(wire, topic, partition, [(None, b'"none-%d"' % partition)])
    lanes = by_lane(drain(http, topic, "g"))
    expected = {key.decode(): f"v{i}" for i, key in enumerate(keys) if i != 2}
    expected["base64:" + base64.b64encode(keys[2]).decode()] = "v2"
    expected |= {f"partition-{p}": f"none-{p}" for p in range(3)}
    assert {name: lane[0]["data"] for name, lane in lanes.items()} == expected
    # Each is found under its name, too.
    for name, data in expected.items():
        messages = http.pop(topic, name, consumerGroup="h", subscriptionMode="all")
        assert [m["data"] for m in messages] == [data], name
        assert http.ack(messages[0])["success"]


@pytest.mark.parametrize("value", [b"not json", b"\x00\x01\xff", b"{broken", b"", b"\xc3\x28"], ids=repr)
def test_a_value_that_is_no_json_comes_as_base64(wire, http, value):
    topic = k.create_topic(wire, unique("cross"), 1)
    k.append(wire, topic, 0, [(b"key", value)])
    data = http.pop(topic, consumerGroup="g", subscriptionMode="all")[0]["data"]
    assert isinstance(data, dict) and base64.b64encode(value).decode() in data.values(), data


@pytest.mark.parametrize("value", [
    b'{"a": 1.50, "b":[1,2 ,3], "c": "\\u00fc"}', b"42", b"42.00", b'"text"', b"true", b"null", b" [1] ", b"12345678901234567890123",
], ids=repr)
def test_a_value_that_is_json_comes_as_it_is(wire, http, value):
    topic = k.create_topic(wire, unique("cross"), 1)
    k.append(wire, topic, 0, [(b"key", value)])
    answer = http.get(f"/api/v1/pop/queue/{topic}", params={"consumerGroup": "g", "subscriptionMode": "all"}, status=None)
    assert answer.status_code == 200
    assert answer.json()["messages"][0]["data"] == json.loads(value)
    # Digits are not rounded on the way.
    assert value.strip() in answer.content


def test_a_tombstone_is_a_message_without_data(wire, http):
    topic = k.create_topic(wire, unique("cross"), 1)
    k.append(wire, topic, 0, [(b"key", None)])
    messages = http.pop(topic, consumerGroup="g", subscriptionMode="all")
    assert len(messages) == 1 and messages[0]["data"] is None
    assert http.ack(messages[0])["success"]


def test_kafka_records_are_read_by_offset_over_http(wire, http):
    topic = k.create_topic(wire, unique("cross"), 2)
    for i in range(20):
        k.append(wire, topic, i % 2, [(b"a", b"%d" % i), (b"b", b"%d" % -i)])
    lane = http.lane(topic, "a")
    assert [r["payload"] for r in lane] == list(range(20)) and [r["offset"] for r in lane] == list(range(20))
    assert [r["payload"] for r in http.lane(topic, "b")] == [-i for i in range(20)]


def test_a_waiting_pop_gets_a_kafka_record_at_once(queen, wire, http):
    topic = k.create_topic(wire, unique("cross"), 1)
    got = []

    def wait():
        with Http(queen.http) as client:
            got.extend(client.pop(topic, wait=True, timeout=15_000))
            got.append(time.monotonic())

    waiter = threading.Thread(target=wait)
    waiter.start()
    k.append(wire, topic, 0, [(b"key", b'"hello"')])
    sent = time.monotonic()
    waiter.join(20)
    assert got[0]["data"] == "hello" and got[0]["partition"] == "key"
    assert got[1] - sent < 3


# --- from HTTP to Kafka -------------------------------------------------------------------------

PAYLOADS = [
    '{"order":8891,"total":42.50}', '{ "spaced" :  [ 1 , 2.0, 3e2 ] }', '"just text"', "17", "1.10", "null", "true", "[]", "{}",
    '{"unicode":"Z\\u00fcrich","direct":"Zürich ✓"}', '{"big":12345678901234567890123,"nested":{"a":{"b":{"c":[[[]]]}}}}',
]


def raw_push(http, queue, partition, payload, txn):
    body = f'{{"items":[{{"queue":{json.dumps(queue)},"partition":{json.dumps(partition)},"transactionId":"{txn}","payload":{payload}}}]}}'
    answer = http.request("POST", "/api/v1/push", raw=body.encode(), status=(201,))
    assert answer[0]["status"] == "queued"


def test_a_push_is_read_by_kcat_with_its_key_and_exact_bytes(broker, wire, http):
    queue = unique("cross")
    for i, payload in enumerate(PAYLOADS):
        raw_push(http, queue, f"customer-{i}", payload, f"t{i}")
    out = kcat(broker.kafka, "-C", "-t", queue, "-o", "beginning", "-e", "-q", "-f", "%p|%k|%s\n").decode()
    expected = {f"{k.murmur2_partition(b'customer-%d' % i, 16)}|customer-{i}|{payload}" for i, payload in enumerate(PAYLOADS)}
    assert set(out.splitlines()) == expected
    assert len(out.splitlines()) == len(PAYLOADS)


def test_a_push_without_a_partition_has_no_key(broker, wire, http):
    queue = unique("cross")
    http.push(queue, {"n": 1}, {"n": 2})
    got = [r for p in range(16) for r in k.read_all(wire, queue, p)]
    assert [(r.key, r.value) for r in got] == [(None, b'{"n": 1}'), (None, b'{"n": 2}')]
    assert {m["partition"] for m in drain(http, queue, "g")} == {"Default"}


def test_a_java_producer_and_a_push_of_one_key_meet_in_one_partition(broker, wire, http):
    queue = k.create_topic(wire, unique("cross"), 12)
    keys = [f"key-{i}" for i in range(40)] + ["Zürich", "x", "xy", "xyz", "a much longer key than the others, with spaces"]
    for key in keys:
        http.push(queue, {"from": "http"}, partition=key)
    lines = "".join(f"{key}\t{{\"from\":\"java\"}}\n" for key in keys).encode()
    java.tool("ConsoleProducer", "--bootstrap-server", broker.kafka, "--topic", queue, "--reader-property", "parse.key=true", stdin=lines)
    homes = {}
    for partition in range(12):
        for record in k.read_all(wire, queue, partition):
            homes.setdefault(record.key.decode(), []).append((partition, json.loads(record.value)["from"]))
    assert set(homes) == set(keys)
    for key, found in homes.items():
        where = k.murmur2_partition(key.encode(), 12)
        assert sorted(found) == [(where, "http"), (where, "java")], key
    # And in one lane, in commit order.
    for key, lane in by_lane(drain(http, queue, "g")).items():
        assert [(m["offset"], m["data"]["from"]) for m in lane] == [(0, "http"), (1, "java")], key


def test_a_waiting_fetch_gets_a_push_at_once(queen, wire, http):
    queue = k.create_topic(wire, unique("cross"), 1)
    wire.send(Fetch, 12, **k.fetch_request(queue, 0, 0, max_wait=15_000))
    http.push(queue, {"n": 1}, partition="key")
    sent = time.monotonic()
    part = wire.receive().topics[0].partitions[0]
    assert time.monotonic() - sent < 3
    assert [r.key for b in records.read_batches(part.records) for r in b.records] == [b"key"]


def test_transactions_and_timers_are_seen_by_kafka(wire, http):
    source, target, late = unique("cross"), unique("cross"), unique("cross")
    for queue in (target, late):
        k.create_topic(wire, queue, 1)
    http.push(source, {"n": 1}, partition="a")
    message = http.pop(source)[0]
    done = http.transaction(
        [ack_operation(message), push_operation(target, {"n": 2}, partition="b")],
        timers=[{"op": "schedule", "queue": late, "timerKey": "t", "delayMs": 100, "txn": "later", "partition": "c",
                 "payload": base64.b64encode(b'{"n":3}').decode()}])
    assert done["success"], done
    assert [(r.key, r.value) for r in k.read_all(wire, target, 0)] == [(b"b", b'{"n": 2}')]
    fired = eventually(lambda: k.read_all(wire, late, 0), 20, "the timer fires")
    assert [(r.key, r.value) for r in fired] == [(b"c", b'{"n":3}')]


def test_a_deduplicated_push_leaves_no_gap(wire, http):
    queue = k.create_topic(wire, unique("cross"), 1)
    for txn in ("a", "b", "a", "c", "b", "d"):
        http.push(queue, {"txn": txn}, partition="key", txn=txn)
    got = k.read_all(wire, queue, 0)
    assert [(r.offset, json.loads(r.value)["txn"]) for r in got] == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]


# --- topics and queues are one ------------------------------------------------------------------


def test_a_configured_queue_is_a_topic_and_a_deleted_topic_is_no_queue(wire, http):
    name = unique("cross")
    http.configure(name)
    topic = eventually(lambda: wire.call(Metadata, 9, topics=[{"name": name}]).topics[0], 5, "metadata")
    assert topic.error == 0 and len(topic.partitions) == 16
    http.push(name, 1, partition="a")
    answer = wire.call(DeleteTopics, 4, names=[name], timeout=10_000)
    assert answer.topics[0].error == 0
    assert http.fetch(name, "a")[0]["error"] == "UNKNOWN_TOPIC_OR_PARTITION"
    # Made again, it starts from nothing.
    assert http.push(name, 2, partition="a")[0]["offset"] == 0


def test_a_deleted_queue_is_no_topic(wire, http):
    name = k.create_topic(wire, unique("cross"), 2)
    k.append(wire, name, 0, [(b"a", b"1")])
    assert http.drop(name)["deleted"] is True
    answer = wire.call(Metadata, 9, topics=[{"name": name}], allow_auto=False)
    assert answer.topics[0].error == errors.UNKNOWN_TOPIC_OR_PARTITION
    assert http.drop(name)["deleted"] is False


# --- one group, two protocols -------------------------------------------------------------------


@pytest.fixture
def mixed(wire):
    """One partition: offsets 0 to 4 hold A, B, A, B, C."""
    topic = k.create_topic(wire, unique("cross"), 1)
    for i, key in enumerate("ABABC"):
        k.append(wire, topic, 0, [(key.encode(), b"%d" % i)])
    return topic


@pytest.mark.parametrize("params", [{}, {"subscriptionMode": "all"}], ids=["default", "all"])
def test_a_pop_goes_on_where_kafka_committed(wire, http, mixed, params):
    group = unique("group")
    k.ensure_coordinator(wire, group)
    assert k.commit(wire, group, mixed, 0, 2) == 0
    got = []
    while messages := http.pop(mixed, consumerGroup=group, partitions=10, **params):
        got += messages
        assert all(r["success"] for r in http.ack_all(messages))
    assert sorted(m["data"] for m in got) == [2, 3, 4]
    assert {m["partition"]: m["offset"] for m in got} == {"A": 1, "B": 1, "C": 0}
    assert k.committed(wire, group, mixed, 0) == 5


def test_kafka_sees_the_lowest_offset_that_a_lane_has_not_finished(wire, http, mixed):
    group = unique("group")

    def take(lane, n=10):
        messages = http.pop(mixed, lane, consumerGroup=group, subscriptionMode="all", batch=n)
        assert all(r["success"] for r in http.ack_all(messages))
        return [m["data"] for m in messages]

    assert take("B") == [1, 3]
    assert k.committed(wire, group, mixed, 0) == 0
    assert take("A", 1) == [0]
    assert k.committed(wire, group, mixed, 0) == 2
    assert take("C") == [4]
    assert k.committed(wire, group, mixed, 0) == 2
    assert take("A") == [2]
    assert k.committed(wire, group, mixed, 0) == 5


def test_a_leased_message_is_not_finished(wire, http, mixed):
    group = unique("group")
    held = http.pop(mixed, "A", consumerGroup=group, subscriptionMode="all", leaseSeconds=30)
    assert [m["data"] for m in held] == [0, 2]
    for lane in "BC":
        assert all(r["success"] for r in http.ack_all(http.pop(mixed, lane, consumerGroup=group)))
    assert k.committed(wire, group, mixed, 0) == 0
    assert http.ack(held[0])["success"]
    assert k.committed(wire, group, mixed, 0) == 2


def test_a_kafka_commit_ends_the_leases_of_its_partition(wire, http, mixed):
    group = unique("group")
    held = http.pop(mixed, "A", consumerGroup=group, subscriptionMode="all", leaseSeconds=60)
    assert held
    k.ensure_coordinator(wire, group)
    assert k.commit(wire, group, mixed, 0, 3) == 0
    result = http.ack(held[0])
    assert not result["success"] and "invalid or expired lease" in result["error"]
    assert k.committed(wire, group, mixed, 0) == 3
    assert sorted(m["data"] for m in drain(http, mixed, group)) == [3, 4]


def test_a_kafka_commit_backwards_brings_messages_back(wire, http, mixed):
    group = unique("group")
    assert len(drain(http, mixed, group)) == 5
    assert k.committed(wire, group, mixed, 0) == 5
    k.ensure_coordinator(wire, group)
    assert k.commit(wire, group, mixed, 0, 1) == 0
    assert sorted(m["data"] for m in drain(http, mixed, group)) == [1, 2, 3, 4]


def test_a_kafka_consumer_goes_on_where_http_acked_and_the_other_way_round(queen, http):
    topic, group = unique("cross"), unique("group")
    client = producer(queen)
    for i in range(100):
        client.produce(topic, key=f"key-{i % 10}", value=str(i))
    flush(client)
    first = []
    while len(first) < 50:
        messages = http.pop(topic, consumerGroup=group, subscriptionMode="all", partitions=5, batch=50 - len(first))
        assert messages
        assert all(r["success"] for r in http.ack_all(messages))
        first += [m["data"] for m in messages]
    consumer = ck.Consumer({"bootstrap.servers": queen.kafka, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    try:
        consumer.subscribe([topic])
        second = []

        def poll():
            message = consumer.poll(0.2)
            if message is not None and not message.error():
                second.append(int(message.value()))
            return set(first) | set(second) == set(range(100))

        eventually(poll, 30, "the Kafka consumer has what HTTP left", every=0)
        # At least what was left, at most what is not below each partition's position.
        assert len(second) == len(set(second))
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    assert http.pop(topic, consumerGroup=group, partitions=64) == []
    client.produce(topic, key="key-3", value="100")
    flush(client)
    assert [m["data"] for m in http.pop(topic, consumerGroup=group, wait=True, timeout=10_000)] == [100]


def test_kafka_lists_and_describes_a_group_of_http(wire, http, mixed):
    group = unique("group")
    drain(http, mixed, group)
    assert group in [g.group for g in wire.call(ListGroups, 2).groups]
    described = wire.call(DescribeGroups, 3, groups=[group]).groups[0]
    assert described.error == 0 and described.state == "Empty"


# --- a topic that grows while it is written -----------------------------------------------------


def test_order_holds_in_every_lane_while_the_topic_grows_from_4_to_12(queen, wire, http):
    """Three writers of the same keys (murmur2 over Kafka, partitions drawn at random over Kafka, HTTP pushes), widened in the middle."""
    topic, keys, rounds = k.create_topic(wire, unique("cross"), 4), 60, 45
    middle, grown, trouble = threading.Event(), threading.Event(), []

    def murmur():
        client = producer(queen)
        for n in range(rounds):
            for key in range(keys):
                client.produce(topic, key=f"lane-{key}", value=json.dumps({"by": "murmur", "n": n}))
            flush(client)
            if n == rounds // 3:
                middle.set()
                grown.wait(30)

    def scattered():
        with Connection(queen.kafka) as client:
            for n in range(rounds):
                # However fast this writer is, its last rounds use every new partition.
                if n == rounds // 2:
                    grown.wait(60)
                width = 12 if grown.is_set() else 4
                for part in range(6):
                    batch = [(b"lane-%d" % key, json.dumps({"by": "scattered", "n": n}).encode()) for key in range(keys) if key % 6 == part]
                    k.append(client, topic, (n * 7 + part * 5) % width, batch)

    def pushed():
        with Http(queen.http) as client:
            for n in range(rounds):
                client.push(topic, items=[{"partition": f"lane-{key}", "payload": {"by": "pushed", "n": n}} for key in range(keys)])

    def guarded(work):
        def run():
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - reported by the test
                trouble.append(error)
                middle.set()
        return run

    writers = [threading.Thread(target=guarded(w)) for w in (murmur, scattered, pushed)]
    for writer in writers:
        writer.start()
    middle.wait(60)
    k.widen(wire, topic, 12)
    grown.set()
    for writer in writers:
        writer.join(90)
        assert not writer.is_alive()
    assert not trouble, trouble
    lanes = by_lane(drain(http, topic, "g"))
    assert set(lanes) == {f"lane-{i}" for i in range(keys)}
    for name, lane in lanes.items():
        assert [m["offset"] for m in lane] == list(range(3 * rounds)), name
        for by in ("murmur", "scattered", "pushed"):
            assert [m["data"]["n"] for m in lane if m["data"]["by"] == by] == list(range(rounds)), (name, by)
    # Kafka's view: dense offsets, every record once, the new partitions in use.
    total = 0
    for partition in range(12):
        got = k.read_all(wire, topic, partition)
        assert [r.offset for r in got] == list(range(len(got)))
        assert got, f"partition {partition} stayed empty"
        total += len(got)
    assert total == 3 * rounds * keys


def test_offset_reads_agree_with_pops_after_a_topic_grew(wire, http):
    topic = k.create_topic(wire, unique("cross"), 2)
    for i in range(10):
        k.append(wire, topic, i % 2, [Record(b"key", b"%d" % i)])
    k.widen(wire, topic, 5)
    for i in range(10, 20):
        k.append(wire, topic, i % 5, [Record(b"key", b"%d" % i)])
    assert [r["payload"] for r in http.lane(topic, "key")] == list(range(20))
    assert [m["data"] for m in drain(http, topic, "g")] == list(range(20))
