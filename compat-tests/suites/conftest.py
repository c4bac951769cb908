"""One broker per test file, on its own data directory; with --peer, one Apache Kafka node for the Kafka tests."""

import shutil

import pytest
from harness.broker import BINARY, Queen
from harness.cluster import Cluster
from harness.http import Http
from harness.java import Peer
from harness.wire import Connection

QUEEN_ONLY = {"queen", "http", "queen_factory"}


def pytest_addoption(parser):
    parser.addoption("--peer", action="store_true", help="run what is Kafka's against Apache Kafka 4.3.1 instead")
    parser.addoption("--official-all", action="store_true", help="also the official clients' suites beyond those that must pass")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--peer"):
        return
    ours = [i for i in items if QUEEN_ONLY & set(i.fixturenames) or "broker" not in i.fixturenames]
    config.hook.pytest_deselected(items=ours)
    items[:] = [i for i in items if i not in ours]


@pytest.fixture(scope="session")
def peer(request, tmp_path_factory):
    node = Peer(tmp_path_factory.mktemp("peer"))
    try:
        yield node.start()
    finally:
        node.stop()


@pytest.fixture(scope="session")
def binary():
    assert BINARY.exists(), f"no broker at {BINARY}: build it (cargo build --profile ci) or set QUEEN_BIN"
    return BINARY


@pytest.fixture(scope="module")
def broker_options():
    """Options of this file's broker; a file overrides it."""
    return ()


@pytest.fixture(scope="module")
def _broker(request, tmp_path_factory, broker_options):
    if request.config.getoption("--peer"):
        yield request.getfixturevalue("peer")
        return
    request.getfixturevalue("binary")
    node = Queen(tmp_path_factory.mktemp("queen"), *broker_options)
    try:
        yield node.start()
    finally:
        node.kill()
        shutil.rmtree(node.data, ignore_errors=True)


@pytest.fixture
def broker(_broker):
    """The running broker. A test that leaves it dead fails by name, and the next one gets it restarted."""
    if not _broker.alive():
        _broker.kill()
        _broker.start()
    yield _broker
    assert _broker.alive(), f"the broker is gone after this test:\n{'' if _broker.is_peer else _broker.stderr()[-4000:]}"


@pytest.fixture
def queen(broker):
    """As `broker`, for what Apache Kafka has no equal of."""
    return broker


@pytest.fixture
def kafka(broker):
    return broker.kafka


@pytest.fixture
def wire(broker):
    """One Kafka connection for frames made by hand."""
    with Connection(broker.kafka) as connection:
        yield connection


@pytest.fixture
def http(queen):
    with Http(queen.http) as client:
        yield client


@pytest.fixture
def queen_factory(binary, tmp_path):
    """Makes brokers of a test's own; all are gone at its end."""
    made = []

    def make(*options, name=None, env=None):
        node = Queen(tmp_path / (name or f"node{len(made)}"), *options, env=env)
        made.append(node)
        return node

    yield make
    for node in made:
        node.kill()
        shutil.rmtree(node.data, ignore_errors=True)


@pytest.fixture
def cluster_factory(binary, tmp_path):
    """Makes clusters of a test's own; all are gone at its end."""
    made = []

    def make(*options, **more):
        cluster = Cluster(tmp_path / f"cluster{len(made)}", *options, **more)
        made.append(cluster)
        return cluster

    yield make
    for cluster in made:
        cluster.kill()
        for node in cluster.nodes.values():
            shutil.rmtree(node.data, ignore_errors=True)
