"""One lane's worker sleeps; the other 999 keys of the same Kafka partition are finished meanwhile."""

import threading
import time

import confluent_kafka as ck
import pytest
from harness import kafka as k
from harness.http import Http, unique
from harness.polling import eventually

KEYS, EACH, WORKERS = 1000, 5, 4
SLOW = "key-500"


@pytest.fixture
def written(queen, wire):
    """One partition, a thousand keys, five records each, one key after the other."""
    topic = k.create_topic(wire, unique("slow"), 1)
    client = ck.Producer({"bootstrap.servers": queen.kafka, "enable.idempotence": True, "linger.ms": 20})
    for n in range(EACH):
        for key in range(KEYS):
            client.produce(topic, key=f"key-{key}", value=str(n))
            client.poll(0)
    assert client.flush(30) == 0
    assert k.list_offset(wire, topic, 0, k.LATEST).offset == KEYS * EACH
    return topic


class Workers:
    """Workers of one group. Whoever meets the slow lane is told to deal with it in its own way."""

    def __init__(self, queen, topic, group, batch, partitions, meet_slow):
        self.done, self.lock, self.trouble, self.halt = {}, threading.Lock(), [], threading.Event()
        self.threads = [threading.Thread(target=self.work, args=(queen, topic, group, batch, partitions, meet_slow)) for _ in range(WORKERS)]
        for thread in self.threads:
            thread.start()

    def work(self, queen, topic, group, batch, partitions, meet_slow):
        try:
            with Http(queen.http) as http:
                while not self.halt.is_set():
                    messages = http.pop(topic, consumerGroup=group, subscriptionMode="all", batch=batch, partitions=partitions,
                                        leaseSeconds=60, wait=True, timeout=300)
                    slow = [m for m in messages if m["partition"] == SLOW]
                    rest = [m for m in messages if m["partition"] != SLOW]
                    if rest:
                        assert all(r["success"] for r in http.ack_all(rest))
                        with self.lock:
                            for m in rest:
                                self.done.setdefault(m["partition"], []).append(m["data"])
                    if slow:
                        meet_slow(http, slow)
        except BaseException as error:  # noqa: BLE001 - reported by the test
            self.trouble.append(error)

    def finished(self):
        assert not self.trouble, self.trouble
        with self.lock:
            return sum(len(lane) for lane in self.done.values())

    def stop(self):
        self.halt.set()
        for thread in self.threads:
            thread.join(30)
        assert not self.trouble, self.trouble


@pytest.mark.parametrize("batch, partitions", [(5, 1), (200, 20)], ids=["one lane a pop", "twenty lanes a pop"])
def test_a_sleeping_worker_delays_its_own_lane_only(queen, wire, http, written, batch, partitions):
    group, wake, asleep = unique("group"), threading.Event(), []

    def sleep(client, messages):
        asleep.append([m["data"] for m in messages])
        wake.wait(100)
        assert all(r["success"] for r in client.ack_all(messages))

    begun = time.monotonic()
    workers = Workers(queen, written, group, batch, partitions, sleep)
    try:
        eventually(lambda: workers.finished() == (KEYS - 1) * EACH, 60, "999 lanes are finished", every=0.05)
        eventually(lambda: len(asleep) == 1, 10, "one worker met the slow lane")
        took = time.monotonic() - begun
        assert took < 45
        # It is the one thing that is open, and Kafka's view of the group waits for it.
        assert k.committed(wire, group, written, 0) == 500
        assert http.pop(written, consumerGroup=group, partitions=64) == []
        for lane in workers.done.values():
            assert lane == list(range(EACH))
        wake.set()
        eventually(lambda: k.committed(wire, group, written, 0) == KEYS * EACH, 15, "the slow lane is finished, too")
    finally:
        wake.set()
        workers.stop()
    assert asleep == [list(range(EACH))]


def test_a_failing_lane_delays_itself_only(queen, wire, http, written):
    group, tries = unique("group"), []

    def fail(client, messages):
        tries.append(messages[0]["data"])
        assert client.ack(messages[0], "failed", error="no")["success"]

    workers = Workers(queen, written, group, 50, 10, fail)
    try:
        eventually(lambda: workers.finished() == (KEYS - 1) * EACH, 60, "999 lanes are finished", every=0.05)
        # Each of its five messages is tried four times (three retries by default) and then put aside.
        eventually(lambda: len(tries) == 4 * EACH, 30, "the failing lane is done with")
    finally:
        workers.stop()
    assert tries == [n for n in range(EACH) for _ in range(4)]
    dead = http.dlq(written)
    assert sorted(row["data"] for row in dead) == list(range(EACH))
    assert {(row["partition"], row["consumerGroup"], row["errorMessage"]) for row in dead} == {(SLOW, group, "no")}
    assert k.committed(wire, group, written, 0) == KEYS * EACH
