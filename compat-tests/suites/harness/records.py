"""Record batches of format 2: built and read here, byte by byte, with every codec."""

import gzip
import struct
import time
from dataclasses import dataclass, field

import crc32c
import lz4.frame
import snappy
import zstandard

from .wire import Reader, Writer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
HEADER = 61
XERIAL = b"\x82SNAPPY\x00"


@dataclass
class Record:
    key: bytes | None = None
    value: bytes | None = None
    headers: list = field(default_factory=list)
    timestamp: int | None = None
    offset: int = 0


def now_ms():
    return int(time.time() * 1000)


def compress(codec, data):
    if codec == GZIP:
        # Without the time, so that the same records are the same bytes.
        return gzip.compress(data, mtime=0)
    if codec == SNAPPY:
        return snappy.compress(data)
    if codec == LZ4:
        return lz4.frame.compress(data)
    if codec == ZSTD:
        return zstandard.ZstdCompressor().compress(data)
    return data


def decompress(codec, data):
    if codec == GZIP:
        return gzip.decompress(data)
    if codec == SNAPPY:
        if not data.startswith(XERIAL):
            return snappy.decompress(data)
        out, pos = b"", 16
        while pos < len(data):
            size = struct.unpack_from(">i", data, pos)[0]
            out += snappy.decompress(data[pos + 4 : pos + 4 + size])
            pos += 4 + size
        return out
    if codec == LZ4:
        return lz4.frame.decompress(data)
    if codec == ZSTD:
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return data


def encode_records(records, first_timestamp):
    out = Writer()
    for delta, record in enumerate(records):
        body = Writer()
        body.pack("b", 0)
        body.varint((first_timestamp if record.timestamp is None else record.timestamp) - first_timestamp)
        body.varint(delta)
        for data in (record.key, record.value):
            body.varint(-1 if data is None else len(data))
            body.out += data or b""
        body.varint(len(record.headers))
        for name, data in record.headers:
            body.varint(len(name.encode()))
            body.out += name.encode()
            body.varint(-1 if data is None else len(data))
            body.out += data or b""
        out.varint(len(body.out))
        out.out += body.out
    return bytes(out.out)


def seal(attributes, last_delta, first_timestamp, max_timestamp, producer, count, payload, base_offset=0, epoch=-1):
    producer_id, producer_epoch, sequence = producer
    tail = struct.pack(">hiqqqhii", attributes, last_delta, first_timestamp, max_timestamp, producer_id, producer_epoch, sequence, count)
    tail += payload
    return struct.pack(">qiibI", base_offset, len(tail) + 9, epoch, 2, crc32c.crc32c(tail)) + tail


def batch(records, codec=NONE, producer=(-1, -1, -1), base_offset=0, attributes=0):
    """One batch of `records` (Record, or a (key, value) pair)."""
    records = [r if isinstance(r, Record) else Record(*r) for r in records]
    stamps = [r.timestamp for r in records if r.timestamp is not None]
    first = records[0].timestamp if records and records[0].timestamp is not None else (stamps[0] if stamps else now_ms())
    payload = compress(codec, encode_records(records, first))
    return seal(attributes | codec, len(records) - 1, first, max(stamps, default=first), producer, len(records), payload, base_offset)


@dataclass
class Batch:
    base_offset: int
    attributes: int
    last_delta: int
    first_timestamp: int
    max_timestamp: int
    producer: tuple
    records: list
    leader_epoch: int
    raw: bytes

    @property
    def codec(self):
        return self.attributes & 7

    @property
    def control(self):
        return bool(self.attributes & 0x20)

    @property
    def transactional(self):
        return bool(self.attributes & 0x10)

    @property
    def next_offset(self):
        return self.base_offset + self.last_delta + 1


def read_batches(data):
    """Every whole batch in a fetch answer, its CRC checked. A cut batch at the end is left out, as clients do."""
    out, pos, data = [], 0, data or b""
    while pos + HEADER <= len(data):
        base, size, epoch, magic, crc = struct.unpack_from(">qiibI", data, pos)
        end = pos + 12 + size
        if end > len(data):
            break
        assert magic == 2, f"magic {magic}"
        raw = data[pos:end]
        assert crc32c.crc32c(raw[21:]) == crc, f"CRC of the batch at offset {base} does not match its bytes"
        attributes, last, first_ts, max_ts, pid, pepoch, seq, count = struct.unpack_from(">hiqqqhii", raw, 21)
        reader = Reader(decompress(attributes & 7, raw[HEADER:]))
        records = []
        for _ in range(count):
            reader.varint()
            reader.take(1)
            stamp = first_ts + reader.varint()
            if attributes & 8:
                stamp = max_ts
            offset = base + reader.varint()
            fields = []
            for _ in range(2):
                n = reader.varint()
                fields.append(None if n < 0 else reader.take(n))
            headers = []
            for _ in range(reader.varint()):
                name = reader.take(reader.varint()).decode()
                n = reader.varint()
                headers.append((name, None if n < 0 else reader.take(n)))
            records.append(Record(fields[0], fields[1], headers, stamp, offset))
        assert reader.pos == len(reader.data), f"{len(reader.data) - reader.pos} bytes behind the records of offset {base}"
        out.append(Batch(base, attributes, last, first_ts, max_ts, (pid, pepoch, seq), records, epoch, raw))
        pos = end
    return out
