"""Medians of records, tables, and verdicts against the budgets of the design."""

from dataclasses import dataclass, field
from statistics import median

NAMES = {"ours": "Queen", "kafka": "Kafka", "kafka-flush": "Kafka, flush 1"}


@dataclass
class Table:
    title: str
    head: list
    rows: list = field(default_factory=list)
    words: str = ""


@dataclass
class Verdict:
    """`value` is reached when it is at most `limit` (or at least, when `least`); None is not measured. `only` says how
    much less was measured than the budget asks for."""
    budget: str
    shown: str
    value: float | None
    limit: float
    least: bool = False
    only: str = ""

    @property
    def reached(self):
        if self.value is None:
            return "not measured"
        answer = "yes" if (self.value >= self.limit if self.least else self.value <= self.limit) else "**no**"
        return f"{answer}, but measured {self.only}" if self.only else answer


def values(records, key, **where):
    """The key's values (a dotted key looks inside) of the records that are as said and counted right."""
    found = []
    for record in records:
        if record.get("ok", True) and all(record.get(name) == value for name, value in where.items()):
            value = record
            for part in key.split("."):
                value = value.get(part) if isinstance(value, dict) else None
            if value is not None:
                found.append(value)
    return found


def mid(records, key, **where):
    found = values(records, key, **where)
    return median(found) if found else None


def distinct(records, key):
    return list(dict.fromkeys(record[key] for record in records if key in record))


def ratio(a, b):
    return None if a is None or not b else a / b


def show(value, digits=2):
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}f}" if abs(value) < 100 else f"{value:.0f}"


def span(records, key, digits=2, **where):
    """Median and, in brackets, smallest and largest."""
    found = values(records, key, **where)
    if not found:
        return "-"
    if len(found) == 1:
        return show(found[0], digits)
    return f"{show(median(found), digits)} ({show(min(found), digits)}..{show(max(found), digits)})"


def mb(value):
    return "-" if value is None else f"{value / 1e6:.0f} MB"


def peak(records, key, **where):
    found = values(records, key, **where)
    return max(found) if found else None
