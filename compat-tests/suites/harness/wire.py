"""A small Kafka wire codec: just the messages the suites send by hand.

A message is described by one line of text, `name:type` fields with an optional version range:

    name:str           since always            name:i32@4+     from version 4
    name:str?@2-5      nullable, 2 to 5        list[ ... ]?    array of structs, nullable
    ids[i32]           array of a primitive

Types: bool i8 i16 i32 i64 uuid str bytes. From `flexible` on, strings and arrays are compact and every
struct ends in tagged fields, which come back under the key `_tags` as {number: bytes}.
"""

import re
import socket
import struct
import uuid as uuidlib
from dataclasses import dataclass, field

_TOKEN = re.compile(r"\s*([\w]+)(:(\w+)(\??)(@[\d+-]+)?|\[)|\s*(\])(\??)(@[\d+-]+)?")
_PRIMITIVE_ARRAY = re.compile(r"\s*(bool|i8|i16|i32|i64|uuid|str|bytes)\s*\]")
FOREVER = 1 << 15


def _range(text):
    if not text:
        return 0, FOREVER
    text = text[1:]
    if text.endswith("+"):
        return int(text[:-1]), FOREVER
    low, _, high = text.partition("-")
    return int(low), int(high or low)


@dataclass
class Field:
    name: str
    kind: object  # a primitive's name, or ("array", primitive or [Field])
    nullable: bool = False
    low: int = 0
    high: int = FOREVER

    def at(self, version):
        return self.low <= version <= self.high


def parse(text, pos=0, top=True):
    """The fields of a description, and where it ended."""
    fields = []
    while pos < len(text) and text[pos:].strip():
        match = _TOKEN.match(text, pos)
        if not match:
            raise ValueError(f"cannot read {text[pos:pos + 40]!r}")
        pos = match.end()
        if match[6]:
            if top:
                raise ValueError(f"unbalanced ] in {text!r}")
            return fields, match[7] == "?", _range(match[8]), pos
        if match[2] == "[":
            primitive = _PRIMITIVE_ARRAY.match(text, pos)
            if primitive:
                inner = primitive[1]
                tail = re.compile(r"(\??)(@[\d+-]+)?").match(text, primitive.end())
                nullable, (low, high), pos = tail[1] == "?", _range(tail[2]), tail.end()
            else:
                inner, nullable, (low, high), pos = parse(text, pos, False)
            fields.append(Field(match[1], ("array", inner), nullable, low, high))
        else:
            low, high = _range(match[5])
            fields.append(Field(match[1], match[3], match[4] == "?", low, high))
    if not top:
        raise ValueError(f"missing ] in {text!r}")
    return fields


class Writer:
    def __init__(self):
        self.out = bytearray()

    def pack(self, fmt, value):
        self.out += struct.pack(">" + fmt, value)

    def uvarint(self, value):
        while value >= 0x80:
            self.out.append(value & 0x7F | 0x80)
            value >>= 7
        self.out.append(value)

    def varint(self, value):
        self.uvarint((value << 1 ^ value >> 63) & (1 << 64) - 1)

    def sized(self, data, flexible, wide):
        if flexible:
            self.uvarint(0 if data is None else len(data) + 1)
        else:
            self.pack("i" if wide else "h", -1 if data is None else len(data))
        if data is not None:
            self.out += data

    def value(self, kind, value, version, flexible):
        if isinstance(kind, tuple):
            inner = kind[1]
            if flexible:
                self.uvarint(0 if value is None else len(value) + 1)
            else:
                self.pack("i", -1 if value is None else len(value))
            for item in value or ():
                if isinstance(inner, list):
                    self.struct(inner, item, version, flexible)
                else:
                    self.value(inner, item, version, flexible)
        elif kind == "str":
            self.sized(None if value is None else value.encode(), flexible, False)
        elif kind == "bytes":
            self.sized(value, flexible, True)
        elif kind == "uuid":
            self.out += uuidlib.UUID(int=0).bytes if value is None else value.bytes
        else:
            self.pack({"bool": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q"}[kind], value)

    def struct(self, fields, values, version, flexible):
        known = {f.name for f in fields} | {"_tags"}
        unknown = set(values) - known
        if unknown:
            raise ValueError(f"unknown fields {sorted(unknown)}")
        for f in fields:
            if f.at(version):
                value = values.get(f.name, _default(f))
                self.value(f.kind, value, version, flexible)
        if flexible:
            tags = values.get("_tags", {})
            self.uvarint(len(tags))
            for number, data in sorted(tags.items()):
                self.uvarint(number)
                self.uvarint(len(data))
                self.out += data


def _default(f):
    if f.nullable:
        return None
    if isinstance(f.kind, tuple):
        return []
    return {"str": "", "bytes": b"", "uuid": None, "bool": False}.get(f.kind, 0)


class Reader:
    def __init__(self, data):
        self.data, self.pos = memoryview(data), 0

    def take(self, n):
        if n < 0 or self.pos + n > len(self.data):
            raise EOFError(f"answer ends at {len(self.data)}, wanted {n} bytes at {self.pos}")
        self.pos += n
        return bytes(self.data[self.pos - n : self.pos])

    def unpack(self, fmt):
        return struct.unpack(">" + fmt, self.take(struct.calcsize(">" + fmt)))[0]

    def uvarint(self):
        shift = value = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def varint(self):
        value = self.uvarint()
        return value >> 1 ^ -(value & 1)

    def length(self, flexible, wide):
        return self.uvarint() - 1 if flexible else self.unpack("i" if wide else "h")

    def value(self, kind, version, flexible):
        if isinstance(kind, tuple):
            count = self.length(flexible, True)
            if count < 0:
                return None
            inner = kind[1]
            if isinstance(inner, list):
                return [self.struct(inner, version, flexible) for _ in range(count)]
            return [self.value(inner, version, flexible) for _ in range(count)]
        if kind in ("str", "bytes"):
            size = self.length(flexible, kind == "bytes")
            if size < 0:
                return None
            data = self.take(size)
            return data.decode() if kind == "str" else data
        if kind == "uuid":
            return uuidlib.UUID(bytes=self.take(16))
        return self.unpack({"bool": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q"}[kind])

    def struct(self, fields, version, flexible):
        out = {f.name: self.value(f.kind, version, flexible) for f in fields if f.at(version)}
        if flexible:
            tags = self.tags()
            if tags:
                out["_tags"] = tags
        return out

    def tags(self):
        out = {}
        for _ in range(self.uvarint()):
            number = self.uvarint()
            out[number] = self.take(self.uvarint())
        return out


class Answer(dict):
    """A decoded answer; fields also read as attributes."""

    __getattr__ = dict.__getitem__


def _wrap(value):
    if isinstance(value, dict):
        return Answer({k: _wrap(v) for k, v in value.items()})
    if isinstance(value, list):
        return [_wrap(v) for v in value]
    return value


@dataclass
class Api:
    key: int
    flexible: int
    request: list
    response: list
    name: str = field(default="")

    def encode(self, version, body):
        writer = Writer()
        writer.struct(self.request, body, version, version >= self.flexible)
        return bytes(writer.out)

    def decode(self, version, data):
        reader = Reader(data)
        out = reader.struct(self.response, version, version >= self.flexible)
        if reader.pos != len(reader.data):
            raise ValueError(f"{self.name} v{version}: {len(reader.data) - reader.pos} bytes too many in the answer")
        return _wrap(out)


APIS = {}


def _api(name, key, flexible, request, response):
    api = Api(key, flexible, parse(request), parse(response), name)
    APIS[name] = APIS[key] = api
    return api


Produce = _api("Produce", 0, 9,
    "transactional_id:str?@3+ acks:i16 timeout:i32 topics[ name:str@0-12 topic_id:uuid@13+ partitions[ index:i32 records:bytes? ] ]",
    "topics[ name:str@0-12 topic_id:uuid@13+ partitions[ index:i32 error:i16 base_offset:i64 append_time:i64@2+ log_start:i64@5+"
    " record_errors[ index:i32 message:str? ]@8+ message:str?@8+ ] ] throttle:i32@1+")
Fetch = _api("Fetch", 1, 12,
    "replica:i32@0-14 max_wait:i32 min_bytes:i32 max_bytes:i32@3+ isolation:i8@4+ session:i32@7+ epoch:i32@7+"
    " topics[ name:str@0-12 topic_id:uuid@13+ partitions[ index:i32 leader_epoch:i32@9+ offset:i64 last_epoch:i32@12+"
    " log_start:i64@5+ max_bytes:i32 ] ] forgotten[ name:str@0-12 topic_id:uuid@13+ partitions[i32] ]@7+ rack:str@11+",
    "throttle:i32@1+ error:i16@7+ session:i32@7+ topics[ name:str@0-12 topic_id:uuid@13+ partitions[ index:i32 error:i16"
    " high_watermark:i64 last_stable:i64@4+ log_start:i64@5+ aborted[ producer_id:i64 first_offset:i64 ]?@4+"
    " preferred:i32@11+ records:bytes? ] ]")
ListOffsets = _api("ListOffsets", 2, 6,
    "replica:i32 isolation:i8@2+ topics[ name:str partitions[ index:i32 leader_epoch:i32@4+ timestamp:i64 ] ] timeout:i32@10+",
    "throttle:i32@2+ topics[ name:str partitions[ index:i32 error:i16 timestamp:i64 offset:i64 leader_epoch:i32@4+ ] ]")
Metadata = _api("Metadata", 3, 9,
    "topics[ topic_id:uuid@10+ name:str? ]? allow_auto:bool@4+ cluster_ops:bool@8-10 topic_ops:bool@8+",
    "throttle:i32@3+ brokers[ node:i32 host:str port:i32 rack:str?@1+ ] cluster_id:str?@2+ controller:i32@1+"
    " topics[ error:i16 name:str? topic_id:uuid@10+ internal:bool@1+ partitions[ error:i16 index:i32 leader:i32 leader_epoch:i32@7+"
    " replicas[i32] isr[i32] offline[i32]@5+ ] topic_ops:i32@8+ ] cluster_ops:i32@8-10 error:i16@13+")
OffsetCommit = _api("OffsetCommit", 8, 8,
    "group:str generation:i32@1+ member:str@1+ instance:str?@7+ retention:i64@2-4 topics[ name:str@0-9 topic_id:uuid@10+"
    " partitions[ index:i32 offset:i64 epoch:i32@6+ metadata:str? ] ]",
    "throttle:i32@3+ topics[ name:str@0-9 topic_id:uuid@10+ partitions[ index:i32 error:i16 ] ]")
OffsetFetch = _api("OffsetFetch", 9, 6,
    "group:str@0-7 topics[ name:str partitions[i32] ]?@0-7 groups[ group:str member:str?@9+ epoch:i32@9+"
    " topics[ name:str@0-9 topic_id:uuid@10+ partitions[i32] ]? ]@8+ stable:bool@7+",
    "throttle:i32@3+ topics[ name:str partitions[ index:i32 offset:i64 epoch:i32@5+ metadata:str? error:i16 ] ]@0-7 error:i16@2-7"
    " groups[ group:str topics[ name:str@0-9 topic_id:uuid@10+ partitions[ index:i32 offset:i64 epoch:i32 metadata:str? error:i16 ] ] error:i16 ]@8+")
FindCoordinator = _api("FindCoordinator", 10, 3,
    "key:str@0-3 key_type:i8@1+ keys[str]@4+",
    "throttle:i32@1+ error:i16@0-3 message:str?@1-3 node:i32@0-3 host:str@0-3 port:i32@0-3"
    " coordinators[ key:str node:i32 host:str port:i32 error:i16 message:str? ]@4+")
JoinGroup = _api("JoinGroup", 11, 6,
    "group:str session:i32 rebalance:i32@1+ member:str instance:str?@5+ protocol_type:str protocols[ name:str metadata:bytes ] reason:str?@8+",
    "throttle:i32@2+ error:i16 generation:i32 protocol_type:str?@7+ protocol:str? leader:str skip_assignment:bool@9+ member:str"
    " members[ member:str instance:str?@5+ metadata:bytes ]")
Heartbeat = _api("Heartbeat", 12, 4,
    "group:str generation:i32 member:str instance:str?@3+", "throttle:i32@1+ error:i16")
LeaveGroup = _api("LeaveGroup", 13, 4,
    "group:str member:str@0-2 members[ member:str instance:str? reason:str?@5+ ]@3+",
    "throttle:i32@1+ error:i16 members[ member:str instance:str? error:i16 ]@3+")
SyncGroup = _api("SyncGroup", 14, 4,
    "group:str generation:i32 member:str instance:str?@3+ protocol_type:str?@5+ protocol:str?@5+ assignments[ member:str assignment:bytes ]",
    "throttle:i32@1+ error:i16 protocol_type:str?@5+ protocol:str?@5+ assignment:bytes")
DescribeGroups = _api("DescribeGroups", 15, 5,
    "groups[str] ops:bool@3+",
    "throttle:i32@1+ groups[ error:i16 message:str?@6+ group:str state:str protocol_type:str protocol:str"
    " members[ member:str instance:str?@4+ client:str host:str metadata:bytes assignment:bytes ] ops:i32@3+ ]")
ListGroups = _api("ListGroups", 16, 3,
    "states[str]@4+ types[str]@5+",
    "throttle:i32@1+ error:i16 groups[ group:str protocol_type:str state:str@4+ type:str@5+ ]")
ApiVersions = _api("ApiVersions", 18, 3,
    "name:str@3+ version:str@3+", "error:i16 keys[ key:i16 low:i16 high:i16 ] throttle:i32@1+")
CreateTopics = _api("CreateTopics", 19, 5,
    "topics[ name:str partitions:i32 replication:i16 assignments[ index:i32 brokers[i32] ] configs[ name:str value:str? ] ]"
    " timeout:i32 validate:bool@1+",
    "throttle:i32@2+ topics[ name:str topic_id:uuid@7+ error:i16 message:str?@1+ partitions:i32@5+ replication:i16@5+"
    " configs[ name:str value:str? read_only:bool source:i8 sensitive:bool ]?@5+ ]")
DeleteTopics = _api("DeleteTopics", 20, 4,
    "topics[ name:str? topic_id:uuid ]@6+ names[str]@0-5 timeout:i32",
    "throttle:i32@1+ topics[ name:str? topic_id:uuid@6+ error:i16 message:str?@5+ ]")
DeleteRecords = _api("DeleteRecords", 21, 2,
    "topics[ name:str partitions[ index:i32 offset:i64 ] ] timeout:i32",
    "throttle:i32 topics[ name:str partitions[ index:i32 low_watermark:i64 error:i16 ] ]")
InitProducerId = _api("InitProducerId", 22, 2,
    "transactional_id:str? timeout:i32 producer_id:i64@3+ producer_epoch:i16@3+",
    "throttle:i32 error:i16 producer_id:i64 producer_epoch:i16")
OffsetForLeaderEpoch = _api("OffsetForLeaderEpoch", 23, 4,
    "replica:i32@3+ topics[ name:str partitions[ index:i32 current_epoch:i32@2+ epoch:i32 ] ]",
    "throttle:i32@2+ topics[ name:str partitions[ error:i16 index:i32 epoch:i32@1+ end_offset:i64 ] ]")
DescribeConfigs = _api("DescribeConfigs", 32, 4,
    "resources[ kind:i8 name:str keys[str]? ] synonyms:bool@1+ documentation:bool@3+",
    "throttle:i32 results[ error:i16 message:str? kind:i8 name:str configs[ name:str value:str? read_only:bool source:i8@1+"
    " sensitive:bool synonyms[ name:str value:str? source:i8 ]@1+ type:i8@3+ documentation:str?@3+ ] ]")
AlterConfigs = _api("AlterConfigs", 33, 2,
    "resources[ kind:i8 name:str configs[ name:str value:str? ] ] validate:bool",
    "throttle:i32 responses[ error:i16 message:str? kind:i8 name:str ]")
CreatePartitions = _api("CreatePartitions", 37, 2,
    "topics[ name:str count:i32 assignments[ brokers[i32] ]? ] timeout:i32 validate:bool",
    "throttle:i32 results[ name:str error:i16 message:str? ]")
DeleteGroups = _api("DeleteGroups", 42, 2, "groups[str]", "throttle:i32 results[ group:str error:i16 ]")
IncrementalAlterConfigs = _api("IncrementalAlterConfigs", 44, 1,
    "resources[ kind:i8 name:str configs[ name:str op:i8 value:str? ] ] validate:bool",
    "throttle:i32 responses[ error:i16 message:str? kind:i8 name:str ]")


# --- frames -------------------------------------------------------------------------------------

CLIENT_ID = "queen-suite"


def header(api, version, correlation, client_id=CLIENT_ID):
    """A request header: version 2 for flexible requests, else version 1."""
    writer = Writer()
    writer.pack("h", api.key)
    writer.pack("h", version)
    writer.pack("i", correlation)
    writer.sized(None if client_id is None else client_id.encode(), False, False)
    if version >= api.flexible:
        writer.uvarint(0)
    return bytes(writer.out)


def framed(payload):
    return struct.pack(">i", len(payload)) + payload


def address(text):
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


class Closed(Exception):
    """The broker closed the connection."""


class Connection:
    """One connection; requests may be pipelined with send() and answered with receive()."""

    def __init__(self, where, timeout=30.0):
        self.socket = socket.create_connection(address(where), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation = 0
        self.waiting = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def raw(self, data):
        self.socket.sendall(data)

    def send(self, api, version, /, answer=True, **body):
        self.correlation += 1
        self.raw(framed(header(api, version, self.correlation) + api.encode(version, body)))
        if answer:
            self.waiting.append((api, version, self.correlation))
        return self.correlation

    def read_exactly(self, n):
        out = bytearray()
        while len(out) < n:
            try:
                piece = self.socket.recv(n - len(out))
            except (ConnectionResetError, BrokenPipeError) as error:
                raise Closed(str(error)) from None
            if not piece:
                raise Closed(f"closed after {len(out)} of {n} bytes")
            out += piece
        return bytes(out)

    def frame(self):
        size = struct.unpack(">i", self.read_exactly(4))[0]
        if not 0 <= size <= 256 << 20:
            raise ValueError(f"answer claims {size} bytes")
        return self.read_exactly(size)

    def receive(self):
        api, version, correlation = self.waiting.pop(0)
        reader = Reader(self.frame())
        got = reader.unpack("i")
        if got != correlation:
            raise AssertionError(f"{api.name}: answer to {got} where {correlation} was due")
        if version >= api.flexible and api.key != 18:
            reader.tags()
        return api.decode(version, reader.data[reader.pos :])

    def call(self, api, version, /, **body):
        self.send(api, version, **body)
        return self.receive()

    def closed_by_peer(self, timeout=10.0):
        """True once the broker has closed; False when it is still open after `timeout`, or answered."""
        self.socket.settimeout(timeout)
        try:
            return self.socket.recv(1) == b""
        except (ConnectionResetError, BrokenPipeError):
            return True
        except TimeoutError:
            return False
