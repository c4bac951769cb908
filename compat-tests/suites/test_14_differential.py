"""The same raw requests, every key and version that both brokers advertise, to this broker and to Apache Kafka 4.3.1: the decoded
answers are the same field by field, but for what stands in differences.toml with its reason."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from differential import compare, drive, schema, tables
from differential.rows import Case
from differential.tables import common, data
from harness.polling import eventually

FILE = Path(__file__).resolve().parents[1] / "differences.toml"
# The partition count of a topic that names none, as the peer has it.
PARTITIONS = 16

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def broker_options():
    return ("--default-partitions", str(PARTITIONS))


def warm(side):
    """The coordinators of all kinds are there: Kafka makes their topics when first asked."""
    for kind in (0, 1):
        def found(kind=kind):
            answer = side.call("FindCoordinator", 4, {"KeyType": kind, "CoordinatorKeys": [f"warm-{i}" for i in range(16)]})
            return all(row["ErrorCode"] == 0 for row in answer["Coordinators"])
        eventually(found, 60, f"coordinators of kind {kind}", every=0.1)

    def loaded():
        codes = [side.call("Heartbeat", 4, {"GroupId": f"warm-{i}", "MemberId": "x"})["ErrorCode"] for i in range(16)]
        return not {14, 15, 16} & set(codes)
    eventually(loaded, 60, "group coordinators have loaded", every=0.1)

    def numbered():
        return side.call("InitProducerId", 4, {"TransactionalId": None, "TransactionTimeoutMs": 1000, "ProducerId": -1, "ProducerEpoch": -1})["ErrorCode"] == 0
    eventually(numbered, 60, "producer ids are given out", every=0.1)


def play(side, runs):
    """All runs on one broker, and how the things were made that stand before them."""
    warm(side)
    setup = Case("what stands before", [*common.SETUP, *data.SETUP])
    seen = [side.run(setup, None, 0)]
    bad = [f"{s.api} v{s.version}: {s.raw}" for s in seen[0] if drive.codes(s.raw) != {0}]
    assert not bad, f"what stands before is not there: {bad}"
    for number, (case, version) in enumerate(runs, 1):
        try:
            seen.append(side.run(case, version, number))
        except Exception as error:
            raise AssertionError(f"{case.subject} v{version}, {case.title}, on {'kafka' if side.broker.is_peer else 'queen'}: {error!r}") from error
    side.close()
    return seen


@pytest.fixture(scope="module")
def outcome(_broker, peer):
    apis = schema.load()
    queen, kafka = drive.Side(_broker, apis), drive.Side(peer, apis)
    ours, theirs = queen.advertised(), kafka.advertised()
    common_versions = {}
    for key in sorted(ours.keys() & theirs.keys()):
        both = set(ours[key]) & set(theirs[key]) & set(apis[key].request.versions)
        common_versions[key] = range(min(both), max(both) + 1)
    for side in (queen, kafka):
        side.newest = {key: both[-1] for key, both in common_versions.items()}
    runs = [
        (case, version)
        for case in tables.cases(apis, common_versions)
        for version in common_versions[apis[case.subject].key] if version in case.versions
    ]
    with ThreadPoolExecutor(2) as pool:
        played = [pool.submit(play, side, runs) for side in (queen, kafka)]
        ours, theirs = (p.result() for p in played)
    found = []
    for (case, _), q, k in zip([(Case("what stands before", []), 0), *runs], ours, theirs, strict=True):
        found.extend(compare.differences(case, q, k))
    return apis, common_versions, runs, found


def test_every_common_key_and_version_is_asked(outcome):
    apis, versions, runs, _ = outcome
    asked = Counter((apis[case.subject].key, version) for case, version in runs)
    missing = [f"{apis[key].name} v{v}" for key, both in versions.items() for v in both if not asked[key, v]]
    assert not missing
    assert len(versions) >= 30, "the brokers have hardly anything in common"


def test_no_difference_is_new_and_none_listed_is_stale(outcome):
    *_, runs, found = outcome
    entries = compare.accepted(FILE)
    new = []
    for d in found:
        covering = [e for e in entries if e.covers(d)]
        for e in covering:
            e.met += 1
        if not covering:
            new.append(str(d))
    stale = [str(e) for e in entries if not e.met]
    print(f"{len(runs)} requests, {len(found)} differences, {len(found) - len(new)} of them accepted by {len(entries)} entries")
    assert not new and not stale, "\n".join(["new differences:", *new, "entries that nothing meets:", *stale])
