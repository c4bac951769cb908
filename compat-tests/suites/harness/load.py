"""Load from every kind of client, and the book that each of them keeps of what the broker promised.

Each writer notes a thing before it asks for it and marks it when the broker has acknowledged it. A broken connection leaves
the outcome unknown; what happens then is the writer's own rule (see each class). The checks compare the books with the broker.
"""

import itertools
import json
import threading
import time

import confluent_kafka as ck
import requests

from . import kafka as k
from . import records
from .http import Http, Unexpected, ack_operation
from .polling import eventually
from .wire import Closed, Connection

NOT_LEADER = 6
GONE = (OSError, Closed, EOFError, requests.RequestException)


class Worker(threading.Thread):
    """A thread that repeats `step` until told to stop. A lost broker is expected; anything else ends it and fails the test."""

    def __init__(self, broker):
        super().__init__(daemon=True)
        self.broker = broker
        self.halt = threading.Event()
        self.trouble = None
        self.acknowledged = 0

    def run(self):
        while not self.halt.is_set():
            try:
                self.session()
            except GONE:
                self.halt.wait(0.05)
            except Unexpected as error:
                # 503 says "not now, or unknown"; every other status would be a wrong answer.
                if ": 503 " not in str(error):
                    self.trouble = error
                    return
                self.halt.wait(0.05)
            except BaseException as error:  # noqa: BLE001 - handed to the test
                self.trouble = error
                return

    def stop(self):
        self.halt.set()

    def session(self):
        raise NotImplementedError


class IdempotentWriter(Worker):
    """librdkafka with idempotence: goes on by itself over a restart; everything is stored exactly once in the end."""

    def __init__(self, broker, topic, keys=40):
        super().__init__(broker)
        self.topic, self.keys, self.sent, self.done = topic, keys, 0, set()
        self.client = ck.Producer({
            "bootstrap.servers": getattr(broker, "bootstrap", broker.kafka), "enable.idempotence": True, "linger.ms": 2, "message.timeout.ms": 120_000,
            "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20, "retry.backoff.max.ms": 100,
            "socket.timeout.ms": 5000, "log_level": 2,
        })

    def delivered(self, error, message):
        if error is not None:
            self.trouble = ck.KafkaException(error)
        else:
            self.done.add(int(json.loads(message.value())["n"]))
            self.acknowledged += 1

    def session(self):
        while not self.halt.is_set():
            while self.sent - len(self.done) < 400:
                n = self.sent
                self.sent += 1
                self.client.produce(
                    self.topic, key=f"idem-{n % self.keys}", value=json.dumps({"by": "idem", "n": n}), on_delivery=self.delivered)
            self.client.poll(0.02)
        assert self.client.flush(90) == 0, "the idempotent producer could not deliver everything"

    def check(self, found):
        assert self.done == set(range(self.sent))
        numbers = [v["n"] for v in found if v["by"] == "idem"]
        assert len(numbers) == len(set(numbers)), "an idempotent record is stored twice"
        assert set(numbers) == set(range(self.sent)), f"{self.sent - len(set(numbers))} idempotent records are missing"


class PlainWriter(Worker):
    """Raw produces without idempotence and without a second try: acknowledged is once, unknown is at most once."""

    def __init__(self, broker, topic, partitions):
        super().__init__(broker)
        self.topic, self.partitions, self.asked, self.done = topic, partitions, 0, {}

    def session(self):
        with Connection(self.broker.kafka, 10) as wire:
            while not self.halt.is_set():
                n, partition = self.asked, self.asked % self.partitions
                self.asked += 5
                batch = [(b"plain-%d" % ((n + i) % 20), json.dumps({"by": "plain", "n": n + i}).encode()) for i in range(5)]
                got = k.produce(wire, self.topic, partition, records.batch(batch, n % 5))
                if got.error == NOT_LEADER:
                    # Certainly not stored. Whoever leads now is found by connecting again.
                    raise Closed("another node leads")
                if got.error == 0:
                    self.done[n] = (partition, got.base_offset)
                    self.acknowledged += 1

    def check(self, found, places):
        numbers = [v["n"] for v in found if v["by"] == "plain"]
        assert len(numbers) == len(set(numbers)), "a plain record is stored twice"
        for n, (partition, base) in self.done.items():
            for i in range(5):
                assert places.get(("plain", n + i)) == (partition, base + i), f"record {n + i} is not where it was acknowledged"


class Pusher(Worker):
    """HTTP pushes with transaction ids, sent again until they are acknowledged: each is stored exactly once."""

    def __init__(self, broker, queue, lanes=30):
        super().__init__(broker)
        self.queue, self.lanes, self.asked, self.pending = queue, lanes, 0, None

    def session(self):
        with Http(self.broker.http, 10) as http:
            while not self.halt.is_set() or self.pending is not None:
                if self.pending is None:
                    self.pending, self.asked = self.asked, self.asked + 10
                n = self.pending
                verdicts = http.push(self.queue, items=[
                    {"partition": f"lane-{(n + i) % self.lanes}", "transactionId": f"push-{n + i}", "payload": {"by": "push", "n": n + i}}
                    for i in range(10)])
                assert all(v["status"] in ("queued", "duplicate") for v in verdicts), verdicts
                self.pending = None
                self.acknowledged += 1

    def run(self):
        super().run()
        # One last, complete answer after the end of the load.
        if self.trouble is None and self.pending is not None:
            deadline = time.monotonic() + 30
            while self.pending is not None and time.monotonic() < deadline:
                try:
                    self.session()
                except GONE:
                    time.sleep(0.05)

    def check(self, http):
        for lane in range(self.lanes):
            got = http.lane(self.queue, f"lane-{lane}")
            assert [r["offset"] for r in got] == list(range(len(got))), f"lane-{lane} has gaps"
            assert [r["payload"]["n"] for r in got] == list(range(lane, self.asked, self.lanes)), f"lane-{lane}"


class Consumer(Worker):
    """Pops under a lease and acks; some acks ride in a transaction with a KV write. Notes when it may hold what."""

    LEASE = 3

    def __init__(self, broker, queue, group, name, grants):
        super().__init__(broker)
        self.queue, self.group, self.name_, self.grants = queue, group, name, grants
        self.steps, self.turn = {}, itertools.count()

    def session(self):
        with Http(self.broker.http, 10) as http:
            while not self.halt.is_set():
                asked = time.monotonic()
                messages = http.pop(self.queue, consumerGroup=self.group, subscriptionMode="all", batch=20, partitions=3,
                                    wait=True, timeout=500, leaseSeconds=self.LEASE)
                got = time.monotonic()
                lanes = {}
                for message in messages:
                    lanes.setdefault(message["partition"], []).append(message)
                held = []
                for lane, run in lanes.items():
                    grant = {"lane": lane, "from": run[0]["offset"], "to": run[-1]["offset"], "got": got,
                             "until": asked + self.LEASE, "finished": False, "by": self.name_}
                    self.grants.append(grant)
                    held.append((grant, run))
                for grant, run in held:
                    last = run[-1]
                    # From here on the broker may have ended the lease.
                    grant["until"] = min(grant["until"], time.monotonic())
                    if next(self.turn) % 3 == 0:
                        key = f"{grant['lane']}/{last['offset']}"
                        answer = http.transaction(
                            [ack_operation(last)],
                            kv=[{"op": "put", "ns": "crash", "key": key, "value": last["data"]["n"], "forever": True},
                                {"op": "incr", "ns": "crash", "key": f"count/{self.name_}", "delta": 1, "forever": True}])
                        if answer["success"]:
                            self.steps[key] = last["data"]["n"]
                            grant["finished"] = True
                    else:
                        grant["finished"] = http.ack(last)["success"]
                    self.acknowledged += 1

    def check(self, http):
        keys = list(self.steps)
        for at in range(0, len(keys), 200):
            part = keys[at : at + 200]
            rows = {r["key"]: r["value"] for r in http.kv({"op": "getMany", "ns": "crash", "keys": part})[0]["rows"]}
            assert rows == {key: self.steps[key] for key in part}
        counted = http.kv_get("crash", f"count/{self.name_}")
        # An unknown outcome may have counted, an acknowledged one must.
        assert (counted["value"] if counted["found"] else 0) >= len(self.steps)


def check_grants(grants):
    """No lane is handed out again before a lease has ended, and nothing finished comes back."""
    lanes = {}
    for grant in sorted(grants, key=lambda g: g["got"]):
        before = lanes.setdefault(grant["lane"], [])
        for other in before:
            assert grant["got"] >= other["until"], f"two leases of {grant['lane']} at once: {other} and {grant}"
            if other["finished"]:
                assert grant["from"] > other["to"], f"{grant['lane']} gave out what was finished: {other} and {grant}"
        before.append(grant)


class Keeper(Worker):
    """KV: puts under rising numbers, each checked to be the newest after every restart."""

    def __init__(self, broker):
        super().__init__(broker)
        self.asked, self.done, self.versions = {}, {}, {}

    def session(self):
        with Http(self.broker.http, 10) as http:
            while not self.halt.is_set():
                key = f"row-{self.acknowledged % 25}"
                # Read first: the last acknowledged value, or the one whose answer was lost.
                row = http.kv_get("keeper", key)
                known, unsure = self.done.get(key), self.asked.get(key)
                if row["found"]:
                    assert row["value"] in (known, unsure), f"{key} is {row['value']}, acknowledged {known}, asked {unsure}"
                    assert row["version"] >= self.versions.get(key, 0)
                else:
                    assert known is None, f"{key} is gone, acknowledged {known}"
                self.asked[key] = (known or 0) + 1 if row.get("value") in (None, known) else row["value"] + 1
                written = http.kv_put("keeper", key, self.asked[key])
                assert written["applied"]
                self.done[key], self.versions[key] = self.asked[key], written["version"]
                self.acknowledged += 1


class Scheduler(Worker):
    """Timers: short ones must arrive once each, long ones must be there at the end."""

    def __init__(self, broker, queue):
        super().__init__(broker)
        self.queue, self.short, self.long, self.asked = queue, {}, {}, 0

    def session(self):
        with Http(self.broker.http, 10) as http:
            while not self.halt.is_set():
                n = self.asked
                self.asked += 1
                long = n % 4 == 0
                result = http.timers({
                    "op": "schedule", "queue": self.queue, "timerKey": f"timer-{n}", "delayMs": 3_600_000 if long else 150 + n % 7 * 200,
                    "txn": f"timer-{n}", "partition": f"lane-{n % 5}", "payload": "eyJ0IjoxfQ=="})[0]
                assert result["ok"], result
                (self.long if long else self.short)[f"timer-{n}"] = result["messageId"]
                self.acknowledged += 1
                self.halt.wait(0.02)

    def arrived(self, http):
        return [r["transactionId"] for lane in range(5) for r in http.lane(self.queue, f"lane-{lane}")]

    def check(self, http):
        eventually(lambda: set(self.short) <= set(self.arrived(http)), 30, "every short timer has fired", every=0.2)
        seen = self.arrived(http)
        assert len(seen) == len(set(seen)), "a timer fired twice"
        assert not set(self.long) & set(seen), "a timer of an hour fired"
        for key, message in self.long.items():
            row = http.get(f"/api/v1/timers/{self.queue}/{key}")
            assert row["found"] and row["messageId"] == message, row


class Crew:
    """One of everybody at work on one broker (or cluster), and what must hold of their books afterwards."""

    def __init__(self, broker, name, partitions):
        self.name, self.partitions, self.grants = name, partitions, []
        self.topic, queue = f"{name}-kafka", f"{name}-http"
        self.idem, self.plain = IdempotentWriter(broker, self.topic), PlainWriter(broker, self.topic, partitions)
        self.pusher, self.keeper, self.timers = Pusher(broker, queue), Keeper(broker), Scheduler(broker, f"{name}-timers")
        self.consumers = [Consumer(broker, queue, "workers", f"worker-{i}", self.grants) for i in range(2)]
        self.workers = [self.idem, self.plain, self.pusher, self.keeper, self.timers, *self.consumers]

    def start(self):
        for worker in self.workers:
            worker.start()

    def acknowledged(self):
        """How much each has got acknowledged; a worker in trouble fails here."""
        for worker in self.workers:
            assert worker.trouble is None, f"{type(worker).__name__}: {worker.trouble!r}"
        return [worker.acknowledged for worker in self.workers]

    def all_progress(self, within, what):
        """Waits until each has got something more acknowledged."""
        before = self.acknowledged()
        return eventually(lambda: all(a > b for a, b in zip(self.acknowledged(), before)), within, what)

    def stop(self):
        for worker in self.workers:
            worker.stop()
        for worker in self.workers:
            worker.join(100)
        assert not [type(w).__name__ for w in self.workers if w.is_alive()]

    def examine(self, broker):
        """Everything acknowledged is there once, in order, and nothing else is."""
        with Connection(broker.kafka) as wire, Http(broker.http) as http:
            found, places = [], {}
            for partition in range(self.partitions):
                got = k.read_all(wire, self.topic, partition)
                assert [r.offset for r in got] == list(range(len(got))), f"partition {partition} has gaps"
                for r in got:
                    value = json.loads(r.value)
                    found.append(value)
                    places[value["by"], value["n"]] = (partition, r.offset)
            self.idem.check(found)
            self.plain.check(found, places)
            self.pusher.check(http)
            for consumer in self.consumers:
                consumer.check(http)
            self.timers.check(http)
            # The lanes of what came over Kafka: dense, in order.
            for key in range(self.idem.keys):
                lane = http.lane(self.topic, f"idem-{key}")
                assert [r["offset"] for r in lane] == list(range(len(lane)))
                assert [r["payload"]["n"] for r in lane] == list(range(key, self.idem.sent, self.idem.keys))
