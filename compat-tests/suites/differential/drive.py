"""Sends the cases to one broker and brings its answers into a form that two brokers can be compared in."""

import re
import socket
import struct
import time
import uuid
from dataclasses import dataclass

from harness.polling import eventually
from harness.wire import address

from .rows import Batch, Epoch, Kept, TopicId
from .schema import NIL

CLOSED = "the connection is closed"
SILENT = "no answer"

# Names by which rows of an array are matched, whatever their order.
IDENTITY = (
    "Name", "Topic", "TopicName", "TopicId", "GroupId", "Group", "Key", "ApiKey", "ResourceType", "ResourceName", "ConfigName",
    "PartitionIndex", "Partition", "Index", "BatchIndex", "NodeId", "BrokerId", "MemberId", "GroupInstanceId", "LogDir",
)
TEXTS = {"ErrorMessage", "BatchIndexErrorMessage", "Message"}
UUID_TAIL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$|[A-Za-z0-9_-]{22}$")


@dataclass(frozen=True)
class Text:
    """An error text. Two brokers say the same thing in their own words; what counts is that it is there, and the names in it."""

    words: str


@dataclass
class Seen:
    """What became of one step."""

    api: str
    version: int
    tree: object  # nested dicts of plain values, or CLOSED or SILENT
    subjects: frozenset  # names in the request, which a text may have to name
    raw: object = None


class Side:
    """One broker under the driver."""

    def __init__(self, broker, apis):
        self.broker, self.apis = broker, apis
        self.socket = None
        self.correlation = 0
        self.served = {}
        self.newest = {}
        self.kept = {}
        self.number = 0
        self.ids = {}  # topic id -> name
        self.epochs = {}  # topic -> the leader epochs it has had
        self.producers = {}  # producer id -> how many were seen before it
        self.started_ms = int(time.time() * 1000)

    def advertised(self):
        """What ApiVersions lists: {key: range}."""
        answer = self.call("ApiVersions", 3, {"ClientSoftwareName": "queen-suite", "ClientSoftwareVersion": "1"})
        self.served = {row["ApiKey"]: range(row["MinVersion"], row["MaxVersion"] + 1) for row in answer["ApiKeys"]}
        return self.served

    # --- the wire ---

    def close(self):
        if self.socket:
            self.socket.close()
        self.socket = None

    def _take(self, n):
        out = bytearray()
        while len(out) < n:
            piece = self.socket.recv(n - len(out))
            if not piece:
                raise ConnectionResetError
            out += piece
        return bytes(out)

    def exchange(self, api, version, body, limit=15.0):
        """The decoded answer to an encoded body, or CLOSED or SILENT."""
        if self.socket is None:
            self.socket = socket.create_connection(address(self.broker.kafka), timeout=limit)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(limit)
        self.correlation += 1
        try:
            self.socket.sendall(api.frame(version, self.correlation, body))
            frame = self._take(struct.unpack(">i", self._take(4))[0])
        except TimeoutError:
            self.close()
            return SILENT
        except (ConnectionResetError, BrokenPipeError):
            self.close()
            return CLOSED
        got, decoded = api.answer(version, frame)
        assert got == self.correlation, f"{api.name}: answer to {got} where {self.correlation} was due"
        return decoded

    def call(self, name, version, body):
        """An exchange of the driver's own, which must be answered."""
        api = self.apis[name]
        version = self.newest[api.key] if version is None else version
        answer = self.exchange(api, version, api.request.encode(version, self.resolve(body)))
        assert isinstance(answer, dict), f"{name} v{version}: {answer}"
        return answer

    # --- requests ---

    def resolve(self, value):
        """The value with everything in it that only this broker knows."""
        if isinstance(value, dict):
            return {name: self.resolve(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.resolve(inner) for inner in value]
        if isinstance(value, str):
            return value.replace("{n}", str(self.number))
        if isinstance(value, Kept):
            kept = self.kept.get(value.name, -1)
            return kept + value.add if value.add else kept
        if isinstance(value, Epoch):
            return self.epochs[self.resolve(value.topic)][-1] + value.add
        if isinstance(value, TopicId):
            name = self.resolve(value.topic)
            return next(id for id, known in reversed(self.ids.items()) if known == name)
        if isinstance(value, Batch):
            return value.build(self.resolve)
        return value

    def run(self, case, version, number):
        """All steps of a case; what was seen of each."""
        self.number, self.kept, self.producers = number, {}, {}
        seen = []
        for at, step in enumerate(case.steps):
            name, _, fixed = step.api.partition("@")
            api = self.apis[name]
            is_subject = at == len(case.steps) - 1 or step.sweep
            v = int(fixed) if fixed else version if is_subject and version is not None else self.newest[api.key]
            body = self.resolve(step.body)
            answer = self.exchange(api, v, api.request.encode(v, body), step.limit)
            if isinstance(answer, dict):
                for label, path in step.keep.items():
                    self.kept[label] = _at(answer, path)
                self.settle(name, body, answer)
            subjects = frozenset(_strings(body))
            seen.append(Seen(name, v, self.normal(answer, None, subjects), subjects, answer))
        return seen

    # --- waiting until the broker has done what it said ---

    def settle(self, name, body, answer):
        """Kafka answers before its metadata is in force everywhere; the next request must not meet that."""
        if body.get("ValidateOnly") or body.get("validateOnly"):
            return
        if name == "CreateTopics":
            for row in answer["Topics"]:
                if row["ErrorCode"] == 0:
                    self.learn(row["Name"])
        elif name == "CreatePartitions":
            for row, asked in zip(answer["Results"], body.get("Topics", ())):
                if row["ErrorCode"] == 0:
                    self.learn(row["Name"], asked["Count"])
        elif name == "DeleteTopics":
            for row in answer["Responses"]:
                if row["ErrorCode"] == 0 and row["Name"]:
                    eventually(lambda row=row: self.metadata(row["Name"])["ErrorCode"] == 3, 20, f"{row['Name']} is gone")
        elif name in ("AlterConfigs", "IncrementalAlterConfigs") and self.broker.is_peer:
            # Metadata is applied in order: once a new topic is there, the change is too.
            barrier = f"barrier-{uuid.uuid4()}"
            topic = {"Name": barrier, "NumPartitions": 1, "ReplicationFactor": 1}
            self.call("CreateTopics", None, {"Topics": [topic], "timeoutMs": 10000})
            self.learn(barrier)
            self.call("DeleteTopics", None, {"Topics": [{"Name": barrier}], "TimeoutMs": 10000})

    def metadata(self, topic):
        # v12: by name, with ids, and no creation.
        answer = self.call("Metadata", 12, {"Topics": [{"Name": topic}], "AllowAutoTopicCreation": False})
        return answer["Topics"][0]

    def learn(self, topic, width=None):
        """Waits until a topic can be used, and remembers its id and leader epoch."""

        def usable():
            row = self.metadata(topic)
            parts = row["Partitions"]
            if row["ErrorCode"] or not parts or any(p["ErrorCode"] for p in parts) or (width and len(parts) != width):
                return None
            asked = [{"PartitionIndex": p["PartitionIndex"], "CurrentLeaderEpoch": -1, "Timestamp": -1} for p in parts]
            answer = self.call("ListOffsets", 7, {"ReplicaId": -1, "Topics": [{"Name": topic, "Partitions": asked}]})
            return row if all(p["ErrorCode"] == 0 for p in answer["Topics"][0]["Partitions"]) else None

        row = eventually(usable, 20, f"{topic} can be used", every=0.005)
        known = self.ids.get(row["TopicId"])
        self.ids[row["TopicId"]] = topic
        epochs = self.epochs.setdefault(topic, []) if known else self.epochs.__setitem__(topic, []) or self.epochs[topic]
        epoch = row["Partitions"][0]["LeaderEpoch"]
        if epoch not in epochs:
            epochs.append(epoch)
        return row

    # --- answers ---

    def normal(self, value, topic, subjects, name=""):
        """The value without what differs between any two brokers: ids, ports, the present time, order of rows."""
        if isinstance(value, dict):
            here = value.get("Name") or value.get("Topic") or value.get("TopicName") or self.ids.get(value.get("TopicId"))
            topic = here if isinstance(here, str) and here in self.epochs else topic
            return {k: self.normal(v, topic, subjects, k) for k, v in value.items() if k != "ThrottleTimeMs"}
        if isinstance(value, list):
            rows = [self.normal(v, topic, subjects, name) for v in value]
            if not rows or not isinstance(rows[0], dict):
                return rows
            return _by_identity(rows)
        return self.leaf(name, value, topic)

    def leaf(self, name, value, topic):
        if isinstance(value, uuid.UUID):
            return "nil" if value == NIL else self.ids.get(value, str(value) if value.int < 1 << 32 else "a new id")
        if value is None:
            return None
        if name in TEXTS:
            return Text(value) if value else value
        if name == "Records":
            return _batches(value)
        if name in ("LeaderEpoch", "CurrentLeaderEpoch") and value >= 0:
            epochs = self.epochs.get(topic) or []
            return f"epoch {epochs.index(value) - len(epochs)}" if value in epochs else f"epoch {value} of none"
        if name == "Port" and value == int(self.broker.kafka.rpartition(":")[2]):
            return "its port"
        if name == "ProducerId" and value >= 0:
            return f"producer {self.producers.setdefault(value, len(self.producers))}"
        if name in ("SessionId",) and value > 0:
            return "a session"
        if name == "LogDir":
            return "a directory"
        if name == "ClusterId":
            return "an id"
        if isinstance(value, int) and ("Time" in name) and value >= self.started_ms - 60_000:
            return "now"
        if name in ("MemberId", "Leader") and isinstance(value, str):
            return UUID_TAIL.sub("(made)", value)
        if isinstance(value, bytes):
            return value.hex()
        return value


def codes(answer):
    """All error codes in an answer; {None} when there is no answer."""
    if not isinstance(answer, (dict, list)):
        return {None}
    out, inner = set(), [answer]
    while inner:
        value = inner.pop()
        if isinstance(value, dict):
            out |= {value["ErrorCode"]} if "ErrorCode" in value else set()
            inner.extend(value.values())
        elif isinstance(value, list):
            inner.extend(value)
    return out


def _at(answer, path):
    for part in path.split("."):
        answer = answer[int(part)] if part.isdigit() else answer[part]
    return answer


def _strings(value):
    if isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
    elif isinstance(value, str) and value:
        yield value


def _by_identity(rows):
    out = {}
    for row in rows:
        if any(str(row.get(k, "")).startswith("__") for k in ("Name", "TopicName", "Topic")):
            continue  # Kafka's own topics
        parts = [k for k in IDENTITY if k in row and row[k] not in (None, "nil") and not isinstance(row[k], dict)]
        # An id is new in one answer and none in the other; the name is the same in both.
        parts = [k for k in parts if k != "TopicId" or len(parts) == 1]
        key = label = ",".join(str(row[k]) for k in parts)
        count = 1
        while label in out:
            count += 1
            label = f"{key}#{count}"
        out[label] = row
    return {"[]": out}


def _batches(data):
    """Whole batches without their leader epoch, which each broker writes for itself."""
    out, pos = [], 0
    while pos + 16 <= len(data):
        size = 12 + struct.unpack_from(">i", data, pos + 8)[0]
        raw = data[pos : pos + size]
        out.append((raw[:12] + raw[16:]).hex())
        pos += size
    return out
