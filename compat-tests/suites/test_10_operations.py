"""The command line, starting and stopping, the full disk, and what an operator looks at."""

import json
import os
import re
import signal
import subprocess
import threading
import time

import pytest
from harness import broker as process
from harness import errors, load, records
from harness import kafka as k
from harness.broker import READY, Refused
from harness.http import Http, Unexpected, unique
from harness.java import free_port
from harness.kcat import kcat
from harness.polling import eventually
from harness.wire import Closed, Connection, Fetch, Metadata

LOOPBACK = ("--kafka-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0")


# --- the command line ---------------------------------------------------------------------------


@pytest.mark.parametrize("arguments, named", [
    (["--bogus"], "--bogus"),
    (["serve", "--no-such-option", "1"], "--no-such-option"),
    (["surve"], "surve"),
    (["serve", "extra"], "extra"),
    (["--kafka-listen", "nowhere"], "--kafka-listen"),
    (["--kafka-listen", "127.0.0.1:99999"], "--kafka-listen"),
    (["--http-listen", "127.0.0.1"], "--http-listen"),
    (["--http-listen", ":1"], "--http-listen"),
    (["--kafka-advertise", "x"], "--kafka-advertise"),
    (["--node-id", "zero"], "--node-id"),
    (["--node-id", "0"], "--node-id"),
    (["--node-id=-3"], "--node-id"),
    (["--fsync", "sometimes"], "--fsync"),
    (["--log-format", "xml"], "--log-format"),
    (["--default-partitions", "0"], "--default-partitions"),
    (["--default-partitions", "many"], "--default-partitions"),
    (["--segment-bytes", "12"], "--segment-bytes"),
    (["--fsync", "--data-dir"], "--fsync"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_a_mistake_on_the_command_line_ends_with_2_and_names_it(binary, tmp_path, arguments, named):
    rest = ["--data-dir", str(tmp_path / "data")]
    for option in ("--kafka-listen", "--http-listen"):
        if option not in arguments:
            rest += [option, "127.0.0.1:0"]
    code, out, err = process.run(*arguments, *(rest if arguments[0].startswith("--") else []))
    assert code == 2 and named in err, (code, err)
    assert "panicked" not in err and out == ""
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("name, value", [("QUEEN_FSYNC", "often"), ("QUEEN_NODE_ID", "x"), ("QUEEN_KAFKA_LISTEN", "here")])
def test_a_bad_value_in_the_environment_is_named(binary, tmp_path, name, value):
    code, _, err = process.run("serve", "--data-dir", str(tmp_path / "data"), env={name: value})
    assert code == 2 and (name in err or "--" + name[6:].lower().replace("_", "-") in err), err


def test_a_bad_key_or_value_in_the_file_is_named(binary, tmp_path):
    file = tmp_path / "queen.toml"
    for text, named in (("nodeid = 3\n", "nodeid"), ('fsync = "often"\n', "fsync"), ("node_id = \n", "queen.toml")):
        file.write_text(text)
        code, _, err = process.run("serve", "--config", str(file), "--data-dir", str(tmp_path / "data"), *LOOPBACK)
        assert code == 2 and named in err, err
    code, _, err = process.run("serve", "--config", str(tmp_path / "missing.toml"), *LOOPBACK)
    assert code == 2 and "missing.toml" in err


def test_a_wildcard_needs_an_advertised_address(binary, tmp_path):
    code, _, err = process.run("serve", "--data-dir", str(tmp_path / "data"), "--kafka-listen", "0.0.0.0:0", "--http-listen", "127.0.0.1:0")
    assert code == 2 and "--kafka-advertise" in err


def test_help_and_version(binary):
    code, out, _ = process.run("--help")
    assert code == 0
    for option in ("--data-dir", "--kafka-listen", "--kafka-advertise", "--http-listen", "--node-id", "--fsync", "--log-format", "--default-partitions"):
        assert option in out, option
    code, out, _ = process.run("--version")
    assert code == 0 and re.match(r"queen \d+\.\d+", out)


def test_queen_alone_serves_and_settings_have_their_order(binary, tmp_path):
    """No subcommand, settings from file, environment and flags: each wins over the one before."""
    (tmp_path / "queen.toml").write_text('node_id = 3\ndefault_partitions = 3\nlog_format = "json"\n')
    env = {**os.environ, "QUEEN_KAFKA_LISTEN": "127.0.0.1:0", "QUEEN_HTTP_LISTEN": "127.0.0.1:0", "QUEEN_NODE_ID": "5", "QUEEN_DEFAULT_PARTITIONS": "5"}
    with open(tmp_path / "err", "wb") as err:
        running = subprocess.Popen([str(binary), "--node-id", "7"], cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err)
    try:
        match = READY.match(running.stdout.readline().decode().rstrip("\n"))
        assert match and match[3] == "7"
        assert os.path.realpath(os.path.join(tmp_path, match[4])) == os.path.realpath(tmp_path / "queen-data")
        with Connection(match[1]) as wire:
            answer = wire.call(Metadata, 9, topics=[{"name": "t"}], allow_auto=True)
            assert answer.brokers[0].node == 7
            k.wait_topic(wire, "t", 5)
    finally:
        running.terminate()
        code = running.wait(10)
        rest = running.stdout.read()
        running.stdout.close()
    assert code == 0 and rest == b"", "one line on standard output, and no more"
    lines = (tmp_path / "err").read_text().splitlines()
    assert lines and all(json.loads(line) for line in lines)


def test_the_advertised_address_is_what_clients_are_told(queen_factory):
    node, listen = queen_factory("--kafka-advertise", "localhost:19092", "--node-id", "4"), f"127.0.0.1:{free_port()}"
    node.kafka = listen
    node.start()
    with Connection(listen) as wire:
        [told] = wire.call(Metadata, 9, topics=[]).brokers
        assert (told.node, told.host, told.port) == (4, "localhost", 19092)


# --- one data directory, one process ------------------------------------------------------------


def test_OP_1_a_second_instance_is_refused(queen_factory):
    first = queen_factory(name="first").start()
    second = queen_factory(name="second")
    second.data = first.data
    begun = time.monotonic()
    with pytest.raises(Refused) as refused:
        second.start()
    assert time.monotonic() - begun < 10
    assert refused.value.code not in (0, 101) and refused.value.code > 0
    assert str(first.data) in refused.value.stderr and "in use" in refused.value.stderr, refused.value.stderr
    with Http(first.http) as http:
        assert http.push("q", 1)[0]["status"] == "queued"
    assert first.stop() == 0
    # Free again at once, and after a kill, too.
    second.start()
    second.kill()
    second.start()
    assert second.stop() == 0


@pytest.mark.parametrize("what", ["kafka", "http"])
def test_a_port_that_is_taken_is_named(queen_factory, what):
    first = queen_factory(name="first").start()
    second = queen_factory(name="second")
    setattr(second, what, getattr(first, what))
    with pytest.raises(Refused) as refused:
        second.start()
    assert refused.value.code not in (0, 101) and getattr(first, what) in refused.value.stderr, refused.value.stderr


@pytest.mark.parametrize("kind", ["a file", "not writable"])
def test_a_data_directory_that_cannot_be_is_named(queen_factory, tmp_path, kind):
    node = queen_factory()
    if kind == "a file":
        node.data.write_text("not a directory")
    else:
        node.data = node.home / "proc"
        node.data.symlink_to("/proc/1/nothing")
    with pytest.raises(Refused) as refused:
        node.start()
    assert refused.value.code not in (0, 101) and str(node.data) in refused.value.stderr, refused.value.stderr


def test_ready_means_that_it_serves(queen_factory):
    """What comes right behind the line is answered, on the first start and on later ones, without a second try."""
    node = queen_factory()
    for n in range(6):
        node.start()
        if n % 2:
            with Connection(node.kafka) as wire, Http(node.http) as http:
                k.create_topic(wire, f"topic-{n}", 2)
                assert k.append(wire, f"topic-{n}", 0, [(b"k", b"v")]) == 0
                assert http.get("/health")["status"] == "healthy"
        else:
            with Http(node.http) as http:
                assert http.push(f"queue-{n}", n)[0]["status"] == "queued"
                assert [m["data"] for m in http.pop(f"queue-{n}")] == [n]
        node.kill() if n % 3 else node.stop()


# --- stopping -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_it_stops_at_once_when_idle(queen_factory, how):
    node = queen_factory().start()
    begun = time.monotonic()
    assert node.stop(how) == 0
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_it_stops_under_load_and_loses_nothing(queen_factory, how):
    node = queen_factory("--default-partitions", "4").start()
    with Connection(node.kafka) as wire:
        k.create_topic(wire, "stop-kafka", 4)
    plain, pusher, timers = load.PlainWriter(node, "stop-kafka", 4), load.Pusher(node, "stop-http"), load.Scheduler(node, "stop-timers")
    consumer = load.Consumer(node, "stop-http", "workers", "one", [])
    workers = [plain, pusher, timers, consumer]
    for worker in workers:
        worker.start()
    try:
        for _ in range(3):
            before = [w.acknowledged for w in workers]
            eventually(lambda: all(w.acknowledged > b + 3 for w, b in zip(workers, before)), 30, "everybody is at work")
            assert node.stop(how) == 0
            node.start()
        before = [w.acknowledged for w in workers]
        eventually(lambda: all(w.acknowledged > b for w, b in zip(workers, before)), 30, "everybody is at work again")
    finally:
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join(60)
    assert [w.trouble for w in workers] == [None] * 4
    with Connection(node.kafka) as wire, Http(node.http) as http:
        found, places = [], {}
        for partition in range(4):
            for r in k.read_all(wire, "stop-kafka", partition):
                value = json.loads(r.value)
                found.append(value)
                places[value["by"], value["n"]] = (partition, r.offset)
        plain.check(found, places)
        pusher.check(http)
        timers.check(http)
        consumer.check(http)


def test_waiting_clients_do_not_hold_up_a_stop(queen_factory):
    node = queen_factory().start()
    answers = []

    def pop():
        with Http(node.http) as http:
            try:
                answers.append(("pop", http.request("GET", "/api/v1/pop/queue/q", params={"wait": "true", "timeout": "30000"}, status=None).status_code))
            except OSError as error:
                answers.append(("pop", error))

    def fetch():
        with Connection(node.kafka) as wire:
            try:
                wire.call(Fetch, 12, **k.fetch_request("t", 0, 0, max_wait=30_000))
                answers.append(("fetch", "answered"))
            except (Closed, OSError):
                answers.append(("fetch", "closed"))

    with Connection(node.kafka) as wire:
        k.create_topic(wire, "t", 1)
    threads = [threading.Thread(target=pop) for _ in range(3)] + [threading.Thread(target=fetch) for _ in range(3)]
    for thread in threads:
        thread.start()
    # Idle connections and half a request besides.
    with Connection(node.kafka) as idle, Connection(node.kafka) as half:
        half.raw(b"\0\0\0\x40\0\3")
        with Http(node.http) as http:
            # A connection that the listener had not accepted yet would be reset.
            parked = lambda: "queen_parked_pops 3" in http.request("GET", "/metrics/prometheus", status=None).text.splitlines()
            eventually(parked, 10, "all pops are parked")
        begun = time.monotonic()
        assert node.stop() == 0
        assert time.monotonic() - begun < process.STOP_LIMIT
        assert idle.closed_by_peer(5) and half.closed_by_peer(5)
    for thread in threads:
        thread.join(10)
    assert len(answers) == 6
    # A parked pop gets an answer, because the official consumers end on a connection that is cut.
    assert [a for name, a in answers if name == "pop"] == [204] * 3 or all(a in (204, 503) for name, a in answers if name == "pop"), answers


def test_OP_5_a_signal_at_any_moment_of_the_start(queen_factory):
    node = queen_factory("--segment-bytes", "1048576").start()
    with Connection(node.kafka) as wire:
        k.create_topic(wire, "t", 1)
        for i in range(500):
            k.append(wire, "t", 0, [(b"k", b"%d" % i + b"x" * 2000)])
    node.kill()
    codes = []
    for delay in [0, 0.001, 0.003, 0.006, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3]:
        running = subprocess.Popen(
            [str(process.BINARY), "serve", "--data-dir", str(node.data), *LOOPBACK], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        try:
            running.wait(delay or 0.0001)
        except subprocess.TimeoutExpired:
            pass
        running.send_signal(signal.SIGTERM)
        codes.append(running.wait(process.STOP_LIMIT + 2))
    # Before the handler is there the signal's own default ends the process.
    assert set(codes) <= {0, -signal.SIGTERM}, codes
    node.start()
    with Connection(node.kafka) as wire:
        assert len(k.read_all(wire, "t", 0)) == 500


# --- the full disk ------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    where = tmp_path / "disk"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(where)], check=True)
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


def fill(path):
    """Takes all that is left, but for less than a page."""
    with open(path, "wb", buffering=0) as file:
        piece = b"\0" * 65536
        while piece:
            try:
                if file.write(piece) < len(piece):
                    piece = piece[: len(piece) // 2]
            except OSError:
                piece = piece[: len(piece) // 2]


@pytest.mark.parametrize("end", ["freed", "killed"])
def test_ST_17_a_full_disk(queen_factory, small_disk, end):
    node = queen_factory("--segment-bytes", "1048576", "--default-partitions", "1")
    node.data = small_disk / "data"
    node.start()
    stored, told = [], None
    with Connection(node.kafka) as wire, Http(node.http) as http:
        k.create_topic(wire, "t", 1)
        http.push("q", {"n": 0}, partition="a")
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"\0" * (16 << 20))
        # Writes until the disk is full: each is acknowledged or refused, never both.
        for n in range(4000):
            got = k.produce(wire, "t", 0, [(b"k", b"%06d" % n + os.urandom(20_000))])
            if got.error:
                told = got.error
                break
            assert got.base_offset == len(stored)
            stored.append(b"%06d" % n)
        assert told == errors.KAFKA_STORAGE_ERROR
        fill(small_disk / "rest")
        # HTTP says so, too, in its own words.
        refusal = None
        for n in range(2000):
            answer = http.request("POST", "/api/v1/push", {"items": [{"queue": "q", "partition": "a", "payload": "x" * 20_000}]}, status=None)
            if answer.status_code != 201:
                refusal = answer
                break
        assert refusal is not None and refusal.status_code == 507 and refusal.json()["code"] == "storage_full", refusal and refusal.text
        # Reads are served, the process lives, clients connect.
        assert [r.value[:6] for r in k.read_all(wire, "t", 0)] == stored
        assert http.fetch("q", "a")[0]["records"][0]["payload"] == {"n": 0}
        assert http.get("/health")["status"] == "healthy"
        assert node.alive()
        end_before = k.list_offset(wire, "t", 0, k.LATEST).offset
        if end == "killed":
            node.kill()
        ballast.unlink()
        (small_disk / "rest").unlink()
        if end == "killed":
            node.start()
    with Connection(node.kafka) as wire, Http(node.http) as http:
        # Space is there again: writes go on by themselves, after what was acknowledged.
        def writes():
            got = k.produce(wire, "t", 0, [(b"k", b"again-")])
            return got if got.error == 0 else None

        got = eventually(writes, 20, "writes resume", every=0.1)
        values = [r.value[:6] for r in k.read_all(wire, "t", 0)]
        assert values[: len(stored)] == stored and values[got.base_offset] == b"again-"
        assert end_before <= got.base_offset == len(values) - 1
        eventually(lambda: _pushed(http), 20, "pushes resume", every=0.1)
    assert node.stop() == 0


def _pushed(http):
    try:
        return http.push("q", {"n": 1}, partition="a")[0]["status"] == "queued"
    except Unexpected:
        return False


# --- what an operator looks at ------------------------------------------------------------------


def test_health(http):
    health = http.get("/health")
    assert health["status"] == "healthy" and health["version"] and health["raft"]["leader"] is True
    assert http.request("HEAD", "/health", status=None).status_code == 200
    assert http.request("GET", "/health?x=1", status=None).status_code == 200


SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(\{[^}]*\})? (-?[\d.eE+-]+|NaN|[+-]Inf)( \d+)?$")


def test_metrics_for_prometheus(queen, wire, http):
    topic = k.create_topic(wire, unique("metrics"), 1)
    k.append(wire, topic, 0, [(b"k", b"v")])
    k.read_all(wire, topic, 0)
    http.push(topic, 1, partition="a")
    assert len(http.pop(topic, consumerGroup="metrics-group", subscriptionMode="all", partitions=10)) == 2
    answer = http.request("GET", "/metrics/prometheus", status=None)
    assert answer.status_code == 200 and answer.headers["Content-Type"].startswith("text/plain")
    types, samples = {}, {}
    for line in answer.text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types and kind in ("counter", "gauge", "histogram", "summary", "untyped")
            types[name] = kind
        elif line and not line.startswith("#"):
            match = SAMPLE.match(line)
            assert match, line
            samples.setdefault(match[1], []).append((match[2] or "", float(match[3])))
    names = "\n".join(samples)
    for part in ("request", "bytes", "fsync", "lane", "lease", "lag"):
        assert part in names, f"no metric tells of {part}:\n{names}"
    for name, kind in types.items():
        if kind == "histogram":
            assert {f"{name}_bucket", f"{name}_sum", f"{name}_count"} <= set(samples), name
    assert any(kind in ("histogram", "summary") for kind in types.values())


def test_metrics_as_json(http):
    metrics = http.get("/metrics")
    assert {"uptime", "requests", "messages", "memory", "cpu"} <= set(metrics)
    for part in ("requests", "messages"):
        assert isinstance(metrics[part]["total"], int)
    assert isinstance(metrics["memory"]["rss"], int) and metrics["memory"]["rss"] > 1 << 20


def test_topics_made_here_are_listed_there(queen, wire, http):
    topic = k.create_topic(wire, unique("listed"), 2)
    queue = unique("listed")
    http.configure(queue)
    listed = {q["name"] for q in http.get("/api/v1/resources/queues")["queues"]}
    assert {topic, queue} <= listed
    out = json.loads(kcat(queen.kafka, "-L", "-J"))
    assert {topic, queue} <= {t["topic"] for t in out["topics"]}
    assert not [t for t in out["topics"] if t["topic"].startswith("metrics-missing")]


def test_it_is_quiet_when_idle(queen_factory):
    """Some topics, some connections, nothing to do: next to no processor time, and little memory."""
    node = queen_factory().start()
    with Connection(node.kafka) as wire, Http(node.http) as http:
        topic = k.create_topic(wire, "t", 16)
        k.append(wire, topic, 0, records.batch([(b"k%d" % i, b"v") for i in range(100)]))
        http.push("q", 1)
        before, begun = node.cpu_seconds(), time.monotonic()
        assert http.pop("nothing", wait=True, timeout=3000) == []
        spent, took = node.cpu_seconds() - before, time.monotonic() - begun
        assert spent / took < 0.05, f"{100 * spent / took:.1f} % of a core"
        assert node.rss() < 96 << 20
