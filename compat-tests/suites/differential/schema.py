"""Every Kafka message by the schemas inside Apache Kafka's own jar: encodes requests, decodes answers.

A message is a dict with the schemas' field names (`TopicData`, `ErrorCode`). What a version does not have is left out when
encoding, so one description serves all versions; a name that no version has is an error. Fields that are not given have the
schema's default.
"""

import json
import re
import struct
import uuid
import zipfile
from dataclasses import dataclass, field

from harness.java import LIBS
from harness.wire import Reader, Writer

FOREVER = 1 << 15
NUMBERS = {"bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d"}
NIL = uuid.UUID(int=0)


def versions(text):
    """`3+`, `3-5`, `3` or `none` as a range."""
    if text in (None, "none"):
        return range(0)
    low, plus, _ = text.partition("+")
    if plus:
        return range(int(low), FOREVER)
    low, _, high = text.partition("-")
    return range(int(low), int(high or low) + 1)


@dataclass
class Field:
    name: str
    kind: str
    is_array: bool
    at: range
    nullable: range
    tagged: range
    tag: int | None
    default: object
    flexible: range | None = None
    fields: list = field(default_factory=list)

    def empty(self, version):
        """The value of a field that is not given."""
        if self.default == "null" and version in self.nullable:
            return None
        if self.is_array:
            return []
        if self.fields:
            return {}
        if self.kind == "uuid":
            return NIL
        if self.kind == "string":
            return self.default or ""
        if self.kind in ("bytes", "records"):
            return None if version in self.nullable else b""
        if self.kind == "bool":
            return str(self.default).lower() == "true"
        if self.kind == "float64":
            return float(self.default or 0)
        return int(str(self.default or 0), 0)


def read_fields(rows, shared):
    out = []
    for row in rows:
        kind = row["type"]
        is_array = kind.startswith("[]")
        kind = kind[2:] if is_array else kind
        inner = row.get("fields") or shared.get(kind)
        out.append(Field(
            row["name"], kind, is_array, versions(row.get("versions", "0+")), versions(row.get("nullableVersions")),
            versions(row.get("taggedVersions")), row.get("tag"), row.get("default"),
            versions(row["flexibleVersions"]) if "flexibleVersions" in row else None,
            read_fields(inner, shared) if inner else [],
        ))
    return out


@dataclass
class Message:
    key: int
    name: str
    versions: range
    flexible: range
    fields: list

    def encode(self, version, values):
        writer = Writer()
        self._put_struct(writer, self.fields, values, version, self.name)
        return bytes(writer.out)

    def decode(self, version, data):
        reader = Reader(data)
        out = self._take_struct(reader, self.fields, version)
        if reader.pos != len(reader.data):
            raise ValueError(f"{self.name} v{version}: {len(reader.data) - reader.pos} bytes too many")
        return out

    # --- writing ---

    def _put_struct(self, writer, fields, values, version, where):
        unknown = set(values) - {f.name for f in fields}
        if unknown:
            raise ValueError(f"{where} has no field {sorted(unknown)}")
        tags = []
        for f in fields:
            if version not in f.at:
                continue
            value = values.get(f.name, f.empty(version))
            if version in f.tagged:
                if value != f.empty(version):
                    inner = Writer()
                    self._put(inner, f, value, version, f"{where}.{f.name}")
                    tags.append((f.tag, bytes(inner.out)))
            else:
                self._put(writer, f, value, version, f"{where}.{f.name}")
        if version in self.flexible:
            writer.uvarint(len(tags))
            for tag, data in sorted(tags):
                writer.uvarint(tag)
                writer.uvarint(len(data))
                writer.out += data

    def _put(self, writer, f, value, version, where):
        flexible = version in (self.flexible if f.flexible is None else f.flexible)
        if f.is_array:
            if flexible:
                writer.uvarint(0 if value is None else len(value) + 1)
            else:
                writer.pack("i", -1 if value is None else len(value))
            for item in value or ():
                self._put_one(writer, f, item, version, flexible, where)
        else:
            if f.fields and version in f.nullable:
                writer.pack("b", -1 if value is None else 1)
                if value is None:
                    return
            self._put_one(writer, f, value, version, flexible, where)

    def _put_one(self, writer, f, value, version, flexible, where):
        if f.fields:
            self._put_struct(writer, f.fields, value, version, where)
        elif f.kind == "string":
            writer.sized(None if value is None else value.encode(), flexible, False)
        elif f.kind in ("bytes", "records"):
            writer.sized(value, flexible, True)
        elif f.kind == "uuid":
            writer.out += value.bytes
        else:
            writer.pack(NUMBERS[f.kind], value)

    # --- reading ---

    def _take_struct(self, reader, fields, version):
        out = {}
        for f in fields:
            if version in f.at:
                out[f.name] = _unsent(f, version) if version in f.tagged else self._take(reader, f, version)
        if version in self.flexible:
            known = {f.tag: f for f in fields if version in f.at and version in f.tagged}
            for tag, data in reader.tags().items():
                if tag in known:
                    inner = Reader(data)
                    out[known[tag].name] = self._take(inner, known[tag], version)
                    if inner.pos != len(inner.data):
                        raise ValueError(f"{self.name} v{version}: tag {tag} is longer than its content")
                else:
                    out.setdefault("_tags", {})[tag] = data
        return out

    def _take(self, reader, f, version):
        flexible = version in (self.flexible if f.flexible is None else f.flexible)
        if f.is_array:
            count = reader.length(flexible, True)
            if count < 0:
                if version not in f.nullable:
                    raise ValueError(f"{self.name} v{version}: {f.name} may not be null")
                return None
            return [self._take_one(reader, f, version, flexible) for _ in range(count)]
        if f.fields and version in f.nullable and reader.unpack("b") < 0:
            return None
        return self._take_one(reader, f, version, flexible)

    def _take_one(self, reader, f, version, flexible):
        if f.fields:
            return self._take_struct(reader, f.fields, version)
        if f.kind in ("string", "bytes", "records"):
            size = reader.length(flexible, f.kind != "string")
            if size < 0:
                if version not in f.nullable:
                    raise ValueError(f"{self.name} v{version}: {f.name} may not be null")
                return None
            data = reader.take(size)
            return data.decode() if f.kind == "string" else data
        if f.kind == "uuid":
            return uuid.UUID(bytes=reader.take(16))
        return reader.unpack(NUMBERS[f.kind])


def _unsent(f, version):
    """What a tagged field reads as that was not sent."""
    value = f.empty(version)
    return {inner.name: _unsent(inner, version) for inner in f.fields if version in inner.at} if value == {} else value


@dataclass
class Api:
    """One request kind: what goes out and what comes back."""

    key: int
    name: str
    request: Message
    response: Message

    def frame(self, version, correlation, body, client_id="queen-suite"):
        """A whole request with its length, given its encoded body."""
        flexible = version in self.request.flexible
        head = struct.pack(">hhih", self.key, version, correlation, len(client_id)) + client_id.encode() + (b"\0" if flexible else b"")
        return struct.pack(">i", len(head) + len(body)) + head + body

    def answer(self, version, data):
        """Correlation id and decoded body of an answer frame."""
        reader = Reader(data)
        correlation = reader.unpack("i")
        # ApiVersions answers keep the old header, so that any client can read them (KIP-511).
        if version in self.response.flexible and self.key != 18:
            reader.tags()
        return correlation, self.response.decode(version, bytes(reader.data[reader.pos :]))


_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)


def load():
    """All APIs by name and by key."""
    jar = next(LIBS.glob("kafka-clients-*.jar"))
    halves = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if not re.fullmatch(r"common/message/\w+\.json", name):
                continue
            raw = json.loads(_COMMENT.sub("", archive.read(name).decode()))
            if raw["type"] not in ("request", "response") or raw["validVersions"] == "none":
                continue
            shared = {s["name"]: s["fields"] for s in raw.get("commonStructs", ())}
            halves[raw["apiKey"], raw["type"]] = Message(
                raw["apiKey"], raw["name"], versions(raw["validVersions"]), versions(raw["flexibleVersions"]),
                read_fields(raw["fields"], shared),
            )
    apis = {}
    for (key, half), message in sorted(halves.items()):
        if half == "request":
            api = Api(key, message.name.removesuffix("Request"), message, halves[key, "response"])
            apis[key] = apis[api.name] = api
    return apis
