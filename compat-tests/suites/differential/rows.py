"""What a row of the tables is made of: cases, their steps, and values that only a broker at hand can give."""

from dataclasses import dataclass, field

from harness import records


@dataclass(frozen=True)
class TopicId:
    """The id of a topic by name."""

    topic: str


@dataclass(frozen=True)
class Epoch:
    """The leader epoch of a topic's partitions, plus `add`. (Stale ones need a restart of both brokers, which this does not do.)"""

    topic: str
    add: int = 0


@dataclass(frozen=True)
class Kept:
    """A value kept from an earlier answer of the case, plus `add`."""

    name: str
    add: int = 0


@dataclass(frozen=True)
class Batch:
    """A record batch; `bend` changes its bytes (a function of bytes)."""

    values: tuple = (b"one",)
    key: bytes | None = b"k"
    codec: int = records.NONE
    producer: tuple = (-1, -1, -1)
    attributes: int = 0
    base_offset: int = 0
    timestamp: object = 1_700_000_000_000
    bend: object = None

    def build(self, resolve):
        stamp = resolve(self.timestamp)
        rows = [records.Record(self.key, value, [], stamp + i) for i, value in enumerate(self.values)]
        producer = tuple(resolve(part) for part in self.producer)
        data = records.batch(rows, self.codec, producer, self.base_offset, self.attributes)
        return self.bend(data) if self.bend else data


@dataclass(frozen=True)
class Step:
    """One request. `api` may name a version (`Produce@9`), else the newest that both have, or the case's when it is the subject.

    `keep` names paths into the answer whose values later steps use: {"id": "ProducerId", "first": "Topics.0.TopicId"}.
    """

    api: str
    body: dict = field(default_factory=dict)
    keep: dict = field(default_factory=dict)
    sweep: bool = False
    # Seconds to wait for an answer; less where one of the brokers is known to give none.
    limit: float = 15.0


@dataclass(frozen=True)
class Case:
    """Steps on both brokers, once for each common version of the last step's API (its subject) within `versions`.

    `{n}` in any string becomes a number of the run's own, so that runs do not meet.
    """

    title: str
    steps: list
    versions: object = range(0, 1 << 15)  # a range, or any collection

    @property
    def subject(self):
        return self.steps[-1].api.partition("@")[0]


def case(api, title, body, before=(), versions=None, **step):
    """A case of one request, after the steps `before`."""
    return Case(title, [*before, Step(api, body, **step)], versions or range(0, 1 << 15))
