"""confluent-kafka (librdkafka) and kafka-python: 100,000 keyed records, idempotent, read by a group of three of whom one is killed."""

import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import confluent_kafka as ck
import pytest
from harness import kafka as k
from harness.http import unique
from harness.polling import eventually

COUNT, KEYS, PARTITIONS = 100_000, 1000, 12
LIBRARIES = ["confluent", "kafka-python"]


class Member:
    def __init__(self, library, broker, group, topic, path):
        self.path = Path(path)
        self.errors = self.path.with_suffix(".err")
        script = Path(__file__).parent / "harness" / "member.py"
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-P", script, library, broker, group, topic, path], stdin=subprocess.DEVNULL, stderr=errors)

    def lines(self):
        """The whole lines written so far; a line cut by a kill does not count."""
        text = self.path.read_text() if self.path.exists() else ""
        return text[: text.rfind("\n") + 1].splitlines()

    def partitions(self):
        assert self.process.poll() in (None, -9), self.errors.read_text()[-2000:]
        told = [line for line in self.lines() if line.startswith("#")]
        return {int(p) for p in told[-1][2:].split(",") if p} if told else set()

    def records(self):
        out = []
        for line in self.lines():
            if not line.startswith("#"):
                partition, offset, key, value = line.split(" ")
                out.append((int(partition), int(offset), key, int(value)))
        return out

    def has_written(self, size):
        return self.path.exists() and self.path.stat().st_size > size

    def kill(self):
        self.process.kill()
        self.process.wait(10)

    def stop(self):
        self.process.terminate()
        try:
            return self.process.wait(20)
        finally:
            self.kill()


def produce_confluent(broker, topic):
    errors = []

    def delivered(error, _):
        if error is not None:
            errors.append(error)

    client = ck.Producer({"bootstrap.servers": broker.kafka, "enable.idempotence": True, "linger.ms": 20, "compression.type": "lz4"})
    for n in range(COUNT):
        while True:
            try:
                client.produce(topic, key=f"key-{n % KEYS}", value=str(n // KEYS), on_delivery=delivered)
                break
            except BufferError:
                client.poll(0.1)
        if n % 1000 == 0:
            client.poll(0)
    assert client.flush(60) == 0
    assert not errors, errors[:3]


def produce_kafka_python(broker, topic):
    from kafka import KafkaProducer

    client = KafkaProducer(bootstrap_servers=broker.kafka, enable_idempotence=True, linger_ms=20, compression_type="gzip", batch_size=65536)
    try:
        futures = [client.send(topic, key=b"key-%d" % (n % KEYS), value=b"%d" % (n // KEYS)) for n in range(COUNT)]
        client.flush(60)
        assert all(f.succeeded() for f in futures)
    finally:
        client.close(timeout=10)


def check_order(records):
    """Offsets of a partition and numbers of a key only rise in what one member saw, but for a step back to a committed offset."""
    last_offset, last_number = {}, {}
    for partition, offset, key, number in records:
        if partition in last_offset and offset <= last_offset[partition]:
            # A rebalance gave the partition back: everything from there on comes again, in order.
            last_number = {name: value for name, value in last_number.items() if value[0] != partition}
        elif partition in last_offset:
            assert offset == last_offset[partition] + 1, f"partition {partition} jumps from {last_offset[partition]} to {offset}"
        last_offset[partition] = offset
        if key in last_number:
            assert number == last_number[key][1] + 1, f"{key} jumps from {last_number[key][1]} to {number}"
        last_number[key] = (partition, number)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_group_of_three_loses_a_member_and_no_record(broker, wire, tmp_path, library):
    topic, group = k.create_topic(wire, unique("clients"), PARTITIONS), unique("group")
    k.ensure_coordinator(wire, group)
    members = [Member(library, broker.kafka, group, topic, tmp_path / f"member{i}.txt") for i in range(3)]
    writer = None
    try:
        eventually(lambda: [len(m.partitions()) for m in members] == [4, 4, 4], 60, "four partitions for each of three", every=0.1)
        trouble = []

        def write():
            try:
                {"confluent": produce_confluent, "kafka-python": produce_kafka_python}[library](broker, topic)
            except BaseException as error:  # noqa: BLE001 - reported below
                trouble.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        victim, survivors = members[1], members[:1] + members[2:]
        eventually(lambda: victim.has_written(50_000) or trouble, 60, "the victim is at work", every=0.005)
        held = victim.partitions()
        victim.kill()
        writer.join(120)
        assert not writer.is_alive() and not trouble, trouble
        ends = {p: k.list_offset(wire, topic, p, k.LATEST).offset for p in range(PARTITIONS)}
        assert sum(ends.values()) == COUNT, "idempotence: each record is stored once"
        eventually(lambda: sum(len(m.partitions()) for m in survivors) == PARTITIONS, 60, "the survivors hold all partitions", every=0.1)

        def complete():
            return sum(k.committed(wire, group, topic, p) for p in range(PARTITIONS)) == COUNT

        eventually(complete, 90, "everything is read and committed", every=0.2)
    finally:
        codes = [m.stop() for i, m in enumerate(members) if i != 1]
        members[1].kill()
        if writer:
            writer.join(30)
    assert codes == [0, 0], [m.errors.read_text()[-2000:] for m in members]
    lost_member, living = victim.records(), [m.records() for m in survivors]
    for records in [lost_member, *living]:
        check_order(records)
    # None lost.
    seen = Counter((p, o) for records in [lost_member, *living] for p, o, _, _ in records)
    assert set(seen) == {(p, o) for p, end in ends.items() for o in range(end)}
    numbers = {(key, n) for records in [lost_member, *living] for _, _, key, n in records}
    assert numbers == {(f"key-{i}", n) for i in range(KEYS) for n in range(COUNT // KEYS)}
    # Doubled at most where at-least-once allows it: what the victim had read and not yet committed.
    again = {position for position, times in seen.items() if times > 1}
    of_victim = {(p, o) for p, o, _, _ in lost_member}
    assert again <= of_victim, f"{len(again - of_victim)} records came twice to living members"
    assert all(p in held for p, _ in again) and max(seen.values()) <= 2
    # Each key has one home.
    homes = Counter(key for key, _ in {(key, p) for records in [lost_member, *living] for p, _, key, _ in records})
    assert set(homes.values()) == {1}
