"""Three nodes as real processes with real clients: forming, any node serves, a leader that is killed or stopped, coming back."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from harness import kafka as k
from harness import load
from harness.broker import BINARY, REPO, run
from harness.http import Http, unique
from harness.kafka import create_topic
from harness.polling import eventually
from harness.wire import Connection, DeleteTopics

SMALL = ("--segment-bytes", "1048576", "--default-partitions", "4")
KILLS = int(os.environ.get("CLUSTER_KILLS", "9"))


@pytest.fixture
def trio(cluster_factory):
    return cluster_factory(*SMALL).start()


def test_a_node_alone_says_what_it_waits_for_and_the_last_one_completes_the_cluster(cluster_factory):
    cluster = cluster_factory(*SMALL)
    # Its address has to be known before it is ready.
    for id, node in cluster.nodes.items():
        host = cluster.peers[id].rpartition(":")[0]
        node.http, node.kafka = f"{host}:6632", f"{host}:9092"
    waiting = threading.Thread(target=cluster.start, args=(1, 2))
    waiting.start()
    try:
        view = eventually(lambda: (v := cluster.view(1)) and v["waitsFor"] and "peer 2" not in v["waitsFor"] and v, 20, "node 1 is up")
        assert view["waitsFor"].startswith(f"peer 3 at {cluster.peers[3]}"), view
        assert not cluster.healthy(1)
        code, out, err = cluster.command("status", at=1)
        assert code == 1 and "waits for peer 3" in out and "quorum NO" in out, (code, out, err)
        with Http(cluster.nodes[1].http) as http:
            refused = http.request("POST", "/api/v1/push", {"items": [{"queue": "q", "payload": 1}]}, status=None)
            assert refused.status_code == 503
        cluster.start(3)
    finally:
        waiting.join()
    cluster.in_sync()
    for id in cluster.nodes:
        code, out, err = cluster.command("status", at=id)
        rows = [line for line in out.splitlines() if " yes " in line]
        assert code == 0 and len(rows) == 3 and "quorum yes" in out, (code, out, err)


def test_two_nodes_with_one_number_and_other_mistakes_are_told(cluster_factory, tmp_path):
    for options, told in [
        (("--peers", "2=127.0.0.1:7001"), "does not name this node"),
        (("--peers", "1=127.0.0.1:7001,2=192.0.2.7:7001"), "--cluster-secret"),
        (("--raft-listen", "0.0.0.0:7001"), "wildcard"),
    ]:
        code, out, err = run("serve", "--data-dir", str(tmp_path / "x"), "--node-id", "1", *options)
        assert code == 2 and told in err, (options, err)


def test_kafka_clients_find_the_leader_from_any_node(trio):
    trio.in_sync()
    topic = unique("found")
    follower, leader = trio.follower(), trio.leader()
    admin = AdminClient({"bootstrap.servers": trio.nodes[follower].kafka})
    admin.create_topics([NewTopic(topic, 3, 3)])[topic].result(20)
    seen = admin.list_topics(topic, timeout=10)
    assert set(seen.brokers) == {1, 2, 3} and seen.controller_id == leader
    for partition in seen.topics[topic].partitions.values():
        assert partition.leader == leader and sorted(partition.replicas) == sorted(partition.isrs) == [1, 2, 3]
    for id, node in trio.nodes.items():
        client = ck.Producer({"bootstrap.servers": node.kafka, "enable.idempotence": True})
        got = []
        client.produce(topic, key=f"key-{id}", value=str(id), on_delivery=lambda error, message: got.append((error, message.offset())))
        assert client.flush(20) == 0 and got[0][0] is None, got
    reader = ck.Consumer({"bootstrap.servers": trio.nodes[follower].kafka, "group.id": unique("g"), "auto.offset.reset": "earliest"})
    reader.subscribe([topic])
    values = set()
    eventually(lambda: (m := reader.poll(0.2)) and not m.error() and values.add(m.value()) or len(values) == 3, 30, "all is read")
    reader.commit(asynchronous=False)
    reader.close()
    # Made on demand through a node that does not lead.
    auto = unique("auto")
    client = ck.Producer({"bootstrap.servers": trio.nodes[follower].kafka})
    client.produce(auto, value="x")
    assert client.flush(20) == 0
    # A request that a follower must not answer gets Kafka's retriable error.
    with Connection(trio.nodes[follower].kafka) as wire:
        assert k.list_offset(wire, topic, 0, k.LATEST).error == 6


def test_a_consumer_reads_from_the_replica_in_its_rack(cluster_factory):
    trio = cluster_factory(*SMALL, rack=True).start()
    trio.in_sync()
    topic, leader, follower = unique("rack"), trio.leader(), trio.follower()
    with Connection(trio.kafka) as wire:
        create_topic(wire, topic, 1)
        for n in range(50):
            k.append(wire, topic, 0, [(b"k", b"%d" % n)])

    def fetched(id):
        with Http(trio.nodes[id].http) as http:
            text = http.request("GET", "/metrics/prometheus", status=None).text
        rows = [line for line in text.splitlines() if line.startswith("queen_kafka_fetched_bytes_total")]
        return sum(float(row.split()[-1]) for row in rows)

    def read_in(rack):
        before = {id: fetched(id) for id in trio.nodes}
        reader = ck.Consumer({"bootstrap.servers": trio.bootstrap, "group.id": unique("g"), "client.rack": rack, "auto.offset.reset": "earliest"})
        reader.assign([ck.TopicPartition(topic, 0, 0)])
        values = []
        eventually(lambda: (m := reader.poll(0.2)) and not m.error() and values.append(int(m.value())) or len(values) >= 50, 30, "all is read")
        assert values == list(range(50))
        # Also what is written while it waits.
        with Connection(trio.kafka) as wire:
            k.append(wire, topic, 0, [(b"k", b"late")])
        eventually(lambda: (m := reader.poll(0.2)) and not m.error() and m.value() == b"late", 10, "the late one is read")
        reader.close()
        return {id for id in trio.nodes if fetched(id) > before[id]}

    assert read_in(f"rack-{follower}") == {follower}
    with Connection(trio.kafka) as wire:
        assert k.list_offset(wire, topic, 0, k.LATEST).offset == 51


def test_any_node_serves_http(trio):
    queue = unique("any")
    for id, node in trio.nodes.items():
        with Http(node.http) as http:
            [pushed] = http.push(queue, items=[{"partition": f"p{id}", "transactionId": f"t{id}", "payload": {"by": id}}])
            assert pushed["status"] == "queued"
    seen = []
    for node in trio.nodes.values():
        with Http(node.http) as http:
            [message] = http.pop(queue, batch=1, partitions=1)
            seen.append(message["data"]["by"])
            assert http.ack(message)["success"]
    assert sorted(seen) == [1, 2, 3]
    with Http(trio.nodes[trio.follower()].http) as http:
        assert http.kv_put("ns", "k", 1)["applied"]
        assert http.kv_get("ns", "k")["value"] == 1


def test_a_parked_pop_lives_through_an_election(trio):
    queue = unique("parked")
    leader = trio.leader()
    follower = trio.follower()
    got = []

    def wait():
        with Http(trio.nodes[follower].http, 40) as http:
            got.extend(http.pop(queue, wait=True, timeout=25000))

    with Http(trio.nodes[leader].http) as http:
        http.configure(queue)
    parked = threading.Thread(target=wait)
    parked.start()
    with Http(trio.nodes[leader].http) as http:
        eventually(lambda: http.request("GET", "/metrics/prometheus", status=None).text.count("queen_parked_pops 1"), 10, "it is parked")
    trio.nodes[leader].kill()
    with Http(trio.nodes[follower].http) as http:
        [pushed] = http.push(queue, items=[{"partition": "p", "transactionId": "t", "payload": 7}])
        assert pushed["status"] == "queued"
    parked.join(30)
    assert [m["data"] for m in got] == [7]


@pytest.mark.timeout(60 + 30 * KILLS)
def test_leaders_are_killed_under_load(cluster_factory):
    """kill -9, an orderly stop, or a pause of the leader, again and again, under every kind of load."""
    cluster = cluster_factory(*SMALL).start()
    with Connection(cluster.kafka) as wire:
        create_topic(wire, "three-kafka", 4)
    crew = load.Crew(cluster, "three", 4)
    dice, gaps = random.Random(4), []
    crew.start()
    try:
        for turn in range(KILLS):
            crew.all_progress(60, f"all clients are at work in turn {turn}")
            leader = cluster.leader()
            how = ("kill", "stop", "follower")[turn % 3]
            victim = leader if how != "follower" else dice.choice([id for id in cluster.nodes if id != leader])
            node = cluster.nodes[victim]
            if how == "stop":
                assert node.stop(limit=10) == 0
            else:
                node.kill()
            begun = time.monotonic()
            before = crew.pusher.acknowledged
            eventually(lambda: crew.pusher.acknowledged > before + 1, 30, f"writes flow again after {how} in turn {turn}", every=0.005)
            gaps.append((how, time.monotonic() - begun))
            cluster.start(victim)
        crew.all_progress(60, "all clients are at work at the end")
    finally:
        crew.stop()
    assert all(count > 2 * KILLS for count in crew.acknowledged())
    slowest = max(gap for _, gap in gaps)
    assert slowest < 10, gaps
    load.check_grants(crew.grants)
    cluster.in_sync()
    crew.examine(cluster)
    # What one leader holds, all hold: each takes its turn.
    for id in cluster.nodes:
        if id != cluster.leader():
            code, out, err = cluster.command("transfer", str(id))
            assert code == 0, (out, err)
        eventually(lambda: cluster.leader() == id, 20, f"node {id} leads")
        crew.examine(cluster)


@pytest.mark.timeout(180)
def test_a_wiped_node_is_taken_in_again_by_command(trio):
    topic = unique("wiped")
    with Connection(trio.kafka) as wire:
        create_topic(wire, topic, 1)
        for n in range(20):
            k.append(wire, topic, 0, [(b"k%d" % n, os.urandom(100_000))])
    victim = trio.follower()
    node = trio.nodes[victim]
    assert node.stop(limit=10) == 0
    shutil.rmtree(node.data)
    back = threading.Thread(target=trio.start, args=(victim,), kwargs={"limit": 120})
    back.start()
    try:
        eventually(lambda: (v := trio.view(victim)) and "queen cluster add" in (v["waitsFor"] or ""), 20, "it says what to do")
        leader = trio.leader()
        code, out, err = trio.command("remove", str(victim), at=leader)
        assert code == 0, (out, err)
        code, out, err = trio.command("add", str(victim), trio.peers[victim], at=leader)
        assert code == 0, (out, err)
    finally:
        back.join()
    trio.in_sync()
    code, out, err = trio.command("transfer", str(victim), at=trio.leader())
    assert code == 0, (out, err)
    eventually(lambda: trio.leader() == victim, 20, "it leads")
    with Connection(trio.kafka) as wire:
        assert len(k.read_all(wire, topic, 0)) == 20


@pytest.mark.timeout(300)
def test_a_node_that_lacks_what_is_gone_fetches_files_and_starts_again(cluster_factory):
    """The others write, delete and purge while one is away; it comes back by itself, in one start."""
    trio = cluster_factory("--segment-bytes", "16777216").start()
    away = trio.follower()
    node, noise = trio.nodes[away], os.urandom(1_000_000)
    assert node.stop(limit=10) == 0
    kept = unique("kept")
    with Connection(trio.kafka, 60) as wire:

        def first_index():
            with Http(trio.nodes[trio.leader()].http) as http:
                text = http.request("GET", "/metrics/prometheus", status=None).text
            return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith("queen_log_first_index "))

        for turn in range(12):
            bulk = create_topic(wire, unique("bulk"), 1)
            for n in range(300):
                k.append(wire, bulk, 0, [(b"k%d" % n, noise)])
            wire.call(DeleteTopics, 4, names=[bulk], timeout=30000)
            if first_index() > 500:
                break
        assert first_index() > 500, "nothing was ever purged"
        create_topic(wire, kept, 1)
        for n in range(20):
            k.append(wire, kept, 0, [(b"k%d" % n, b"%d" % n)])
    node.start(limit=90)
    assert "starts again with the files" in node.stderr()
    trio.in_sync()
    code, out, err = trio.command("transfer", str(away), at=trio.leader())
    assert code == 0, (out, err)
    eventually(lambda: trio.leader() == away, 20, "it leads")
    with Connection(trio.kafka) as wire:
        assert [int(r.value) for r in k.read_all(wire, kept, 0)] == list(range(20))


def free_ports():
    """The first of three free ports in a row."""
    for base in random.sample(range(20_000, 32_000, 3), 200):
        taken = []
        try:
            for port in range(base, base + 3):
                taken.append(socket.create_server(("127.0.0.1", port)))
            return base
        except OSError:
            continue
        finally:
            for server in taken:
                server.close()
    raise AssertionError("no free ports")


def test_the_local_cluster_starts_shows_itself_and_stops(binary, tmp_path):
    env = {**os.environ, "QUEEN_BIN": str(BINARY), **{name: str(free_ports()) for name in ("KAFKA_PORT", "HTTP_PORT", "RAFT_PORT")}}
    script = subprocess.Popen(
        [str(REPO / "docker" / "local-cluster"), str(tmp_path / "three")], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        shown = []
        for line in script.stdout:
            shown.append(line)
            if "Ctrl-C" in line:
                break
        rows = [line for line in shown if " yes " in line]
        assert len(rows) == 3 and "quorum yes" in "".join(shown), shown
        seen = AdminClient({"bootstrap.servers": f"127.0.0.1:{env['KAFKA_PORT']}"}).list_topics(timeout=10)
        assert set(seen.brokers) == {1, 2, 3}
        script.send_signal(signal.SIGTERM)
        script.wait(20)
        pattern = str(tmp_path / "three")
        assert subprocess.run(["pgrep", "-f", pattern], capture_output=True).stdout == b"", "a node is still there"
    finally:
        script.kill()
        subprocess.run(["pkill", "-9", "-f", str(tmp_path / "three")])
        script.stdout.close()
