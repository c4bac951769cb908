"""Compares what two brokers answered, and holds it against the list of accepted differences."""

import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase

from .drive import CLOSED, SILENT, Text
from .schema import versions

ABSENT = "absent"


@dataclass(frozen=True)
class Difference:
    api: str
    version: int
    case: str
    field: str  # without the keys of array rows
    where: str  # with them
    queen: str
    kafka: str

    def __str__(self):
        return f"{self.api} v{self.version}, {self.case}: {self.where}: queen {self.queen}, kafka {self.kafka}"


def differences(case, ours, theirs):
    """All differences between two lists of seen steps."""
    out = []
    for queen, kafka in zip(ours, theirs, strict=True):

        def note(field, where, q, k, seen=kafka):
            out.append(Difference(seen.api, seen.version, case.title, field, where, str(q), str(k)))

        if queen.tree == kafka.tree and kafka.tree in (CLOSED, SILENT):
            # Nothing was compared: as likely a fault of the case as of both brokers.
            note("", "", queen.tree, kafka.tree)
        _walk(queen.tree, kafka.tree, "", "", kafka.subjects, note)
    return out


def _walk(queen, kafka, field, where, subjects, note):
    if isinstance(queen, dict) and isinstance(kafka, dict):
        if "[]" in queen or "[]" in kafka:
            # An empty array is a list.
            ours, theirs = queen.get("[]", {}), kafka.get("[]", {})
            for key in sorted(ours.keys() | theirs.keys()):
                at = f"{where}[{key}]"
                if key not in ours or key not in theirs:
                    note(field, at, "present" if key in ours else ABSENT, "present" if key in theirs else ABSENT)
                else:
                    _walk(ours[key], theirs[key], field, at, subjects, note)
            return
        for name in sorted(queen.keys() | kafka.keys()):
            dot = "." if field else ""
            _walk(queen.get(name, ABSENT), kafka.get(name, ABSENT), f"{field}{dot}{name}", f"{where}{dot}{name}", subjects, note)
    elif isinstance(queen, dict) and kafka == [] and "[]" in queen:
        _walk(queen, {"[]": {}}, field, where, subjects, note)
    elif isinstance(kafka, dict) and queen == [] and "[]" in kafka:
        _walk({"[]": {}}, kafka, field, where, subjects, note)
    elif isinstance(queen, Text) and isinstance(kafka, Text):
        missing = sorted(s for s in subjects if len(s) > 2 and s in kafka.words and s not in queen.words)
        if missing:
            note(field, where, queen.words, f"{kafka.words} (names {', '.join(missing)})")
    elif queen != kafka:
        note(field, where, _shown(queen), _shown(kafka))


def _shown(value):
    return value.words if isinstance(value, Text) else value if isinstance(value, str) else repr(value)


@dataclass
class Accepted:
    """One entry of differences.toml."""

    api: str
    case: str
    field: str
    versions: range
    queen: str
    kafka: str
    reason: str
    met: int = 0

    def covers(self, d):
        return (
            fnmatchcase(d.api, self.api) and fnmatchcase(d.case, self.case) and fnmatchcase(d.field, self.field)
            and d.version in self.versions and fnmatchcase(d.queen, self.queen) and fnmatchcase(d.kafka, self.kafka)
        )

    def __str__(self):
        return f"api {self.api}, case {self.case!r}, field {self.field}"


def accepted(path):
    """The accepted differences of a file; each must have a reason."""
    out = []
    for row in tomllib.loads(path.read_text())["difference"]:
        assert row.get("reason", "").strip(), f"no reason given for {row}"
        unknown = set(row) - {"api", "case", "field", "versions", "queen", "kafka", "reason"}
        assert not unknown, f"{path.name} knows no {sorted(unknown)}"
        out.append(Accepted(
            row["api"], row.get("case", "*"), row["field"], versions(row.get("versions", "0+")),
            row.get("queen", "*"), row.get("kafka", "*"), row["reason"],
        ))
    return out
