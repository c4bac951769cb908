"""kill -9 under load, again and again: nothing acknowledged is lost, nothing is there twice. Then damaged and torn files."""

import json
import os
import random
import re
import time

import pytest
from harness import kafka as k
from harness import load, segments
from harness.broker import Refused
from harness.http import Http
from harness.kafka import create_topic
from harness.polling import eventually
from harness.wire import Closed, Connection

KILLS = int(os.environ.get("KILLS", "50"))
SMALL = ("--segment-bytes", "1048576", "--default-partitions", "4")
PARTITIONS = 4


@pytest.mark.timeout(120 + 12 * KILLS)
def test_kill_9_under_load(queen_factory):
    broker = queen_factory(*SMALL).start()
    with Connection(broker.kafka) as wire:
        create_topic(wire, "crash-kafka", PARTITIONS)
    crew = load.Crew(broker, "crash", PARTITIONS)
    workers, acknowledged = crew.workers, crew.acknowledged
    dice, slowest = random.Random(6), 0.0

    crew.start()
    try:
        for kill in range(KILLS + KILLS // 10):
            before, more = acknowledged(), dice.randrange(1, 60)
            # Everybody has got something acknowledged since the start, then a random bit more: the blow falls anywhere in a write.
            eventually(lambda: all(a > b for a, b in zip(acknowledged(), before)), 40, f"all clients are at work again after kill {kill}")
            eventually(lambda: sum(acknowledged()) >= sum(before) + more, 20, "some more load", every=0.001)
            if kill % 10 == 5:
                # An orderly stop in between leaves an image of the state, so that later starts are image and log.
                assert broker.stop() == 0
                broker.start()
                continue
            broker.kill()
            begun = time.monotonic()
            broker.start()
            slowest = max(slowest, time.monotonic() - begun)
        before = acknowledged()
        eventually(lambda: all(a > b for a, b in zip(acknowledged(), before)), 40, "all clients are at work again at the end")
    finally:
        crew.stop()
    # The proof is worth what the load was.
    assert all(count > 2 * KILLS for count in acknowledged()) and len(crew.grants) > 2 * KILLS
    assert slowest < 10, f"the slowest restart took {slowest:.1f} s"

    load.check_grants(crew.grants)
    crew.examine(broker)
    # And once more after an orderly stop and start.
    broker.restart()
    crew.examine(broker)
    assert broker.stop() == 0


@pytest.mark.timeout(240)
def test_kill_9_while_an_image_of_the_state_is_written(queen_factory):
    """Enough log for an image to fall due, a hundred thousand lanes to make it large, and a kill at the sight of its file."""
    broker = queen_factory("--segment-bytes", "33554432", "--default-partitions", "4").start()
    with Connection(broker.kafka) as wire:
        create_topic(wire, "bulk", 4)
    images, noise, done, n = broker.data / "log" / "images", os.urandom(1 << 20), [0] * 4, 0
    for _ in range(2):
        before = set(images.glob("*")) if images.exists() else set()
        try:
            with Connection(broker.kafka) as wire:
                while not images.exists() or set(images.glob("*")) <= before:
                    assert sum(done) < 1_000_000, "no image was written"
                    at = n * 977 % 900_000
                    batch = [(b"key-%d" % (n * 250 + i), noise[at + i : at + i + 3000]) for i in range(250)]
                    assert k.append(wire, "bulk", n % 4, batch) == done[n % 4]
                    done[n % 4] += 250
                    n += 1
        finally:
            broker.kill()
        broker.start()
        # And again while the start is young.
        broker.kill()
        broker.start()
        with Connection(broker.kafka) as wire, Http(broker.http) as http:
            assert [k.list_offset(wire, "bulk", p, k.LATEST).offset for p in range(4)] == done
            for key in random.Random(n).sample(range(n * 250), 60):
                [record] = http.lane("bulk", f"key-{key}")
                assert record["offset"] == 0
            assert k.append(wire, "bulk", n % 4, [(b"key-%d" % (n * 250 + i), b"v") for i in range(250)]) == done[n % 4]
            done[n % 4] += 250
            n += 1
    assert broker.stop() == 0


def test_leases_and_attempts_survive_a_kill(queen_factory):
    """LE-16: kill both the worker and the broker; the lease holds to its end and then the messages come again."""
    broker = queen_factory(*SMALL).start()
    with Http(broker.http) as http:
        http.push("q", 1, 2, 3, partition="a")
        asked = time.monotonic()
        held = http.pop("q", leaseSeconds=4)
        assert [m["data"] for m in held] == [1, 2, 3]
    broker.restart(clean=False)
    with Http(broker.http) as http:
        again = eventually(lambda: http.pop("q", leaseSeconds=30), 20, "the lease ends")
        assert time.monotonic() - asked >= 4
        assert [m["data"] for m in again] == [1, 2, 3] and {m["deliveryAttempt"] for m in again} == {2}
        late = http.ack(held[0])
        assert not late["success"] and "invalid or expired lease" in late["error"]
        assert all(r["success"] for r in http.ack_all(again))
    broker.restart(clean=False)
    with Http(broker.http) as http:
        assert http.pop("q") == []


def test_a_lease_can_be_used_after_a_restart(queen_factory):
    broker = queen_factory(*SMALL).start()
    with Http(broker.http) as http:
        http.push("q", 1, 2, partition="a")
        held = http.pop("q", leaseSeconds=60)
    for clean in (True, False):
        broker.restart(clean=clean)
        with Http(broker.http) as http:
            assert http.pop("q") == []
            assert http.extend(held[0]["leaseId"], 60)["success"]
    with Http(broker.http) as http:
        assert all(r["success"] for r in http.ack_all(held))


# --- files --------------------------------------------------------------------------------------


@pytest.fixture
def filled(queen_factory):
    """A broker with several sealed segments and a stop behind it: (broker, how many records)."""
    broker = queen_factory(*SMALL).start()
    with Connection(broker.kafka) as wire:
        create_topic(wire, "files", 1)
        count = 0
        while len(segments.used(broker.segments())) < 4:
            k.append(wire, "files", 0, [(b"key-%d" % (i % 3), b"marker-%08d-" % (count + i) + b"x" * 1000) for i in range(50)])
            count += 50
            assert count < 20_000, "no segment is sealed: is --segment-bytes obeyed?"
    return broker, count


def everything(broker):
    with Connection(broker.kafka) as wire:
        return [r.value[:15] for r in k.read_all(wire, "files", 0)]


def numbered(count):
    return [b"marker-%08d" % i for i in range(count)]


@pytest.mark.parametrize("place", ["in a value", "in a frame's length", "in a frame's checksum", "in the segment's header"])
def test_a_flipped_byte_in_a_sealed_segment_is_refused(filled, place):
    broker, count = filled
    assert everything(broker) == numbered(count)
    assert broker.stop() == 0
    segment = segments.used(broker.segments())[1]
    data = segment.read_bytes()
    start, _ = segments.frames(segment)[2]
    at = {"in a value": data.index(b"marker-", start) + 9, "in a frame's length": start + 1, "in a frame's checksum": start + 5,
          "in the segment's header": 40}[place]
    damaged = bytearray(data)
    damaged[at] ^= 0x10
    segment.write_bytes(damaged)
    refused = None
    try:
        broker.start()
    except Refused as error:
        refused = error
    if refused is None:
        # It may find out when it reads, or by scrubbing, but it must not go on and never hand out the damage.
        try:
            assert len(everything(broker)) < count
        except (AssertionError, Closed, OSError):
            pass
        code = broker.wait_exit(60)
        refused = Refused(code, broker.stderr())
        broker.kill()
    assert refused.code not in (0, None) and refused.code > 0, "refused, not crashed"
    assert segment.name in refused.stderr, refused.stderr[-2000:]
    said = refused.stderr[refused.stderr.index(segment.name) + len(segment.name):]
    assert re.search(r"\d", said), "the position is named"
    assert "panicked" not in refused.stderr
    # Nothing was changed by the refusal; mended, it starts with everything.
    assert segment.read_bytes() == bytes(damaged)
    segment.write_bytes(data)
    broker.start()
    assert everything(broker) == numbered(count)


@pytest.mark.parametrize("tail", ["random bytes", "the start of an older frame", "a length and nothing", "zeros and then bytes"])
def test_a_torn_tail_is_cut(filled, tail):
    """The write in progress when the power went: behind the last whole frame there is something that is none."""
    broker, count = filled
    broker.kill()
    last = segments.used(broker.segments())[-1]
    (start, _), (_, end) = segments.frames(last)[0], segments.frames(last)[-1]
    junk = {
        "random bytes": random.Random(1).randbytes(900),
        "the start of an older frame": last.read_bytes()[start : start + 700],
        "a length and nothing": b"\x00\x04\x00\x00",
        "zeros and then bytes": bytes(512) + random.Random(2).randbytes(300),
    }[tail]
    with open(last, "r+b") as file:
        file.seek(end)
        file.write(junk[: last.stat().st_size - end])
    broker.start()
    assert everything(broker) == numbered(count)
    with Connection(broker.kafka) as wire:
        assert k.append(wire, "files", 0, [(b"key-0", b"marker-%08d" % count)]) == count
    broker.restart(clean=False)
    assert everything(broker) == numbered(count + 1)


@pytest.mark.parametrize("keep", [8, 60, 300])
def test_a_last_frame_that_was_written_in_part_is_cut(filled, keep):
    """As if the disk had lost the end of the newest write: what stood before it is there, and the node goes on."""
    broker, count = filled
    with Connection(broker.kafka) as wire:
        k.append(wire, "files", 0, [(b"key-0", b"marker-%08d-" % count + b"x" * 1000)])
    broker.kill()
    last = segments.used(broker.segments())[-1]
    start, end = segments.frames(last)[-1]
    with open(last, "r+b") as file:
        file.seek(start + keep)
        file.write(bytes(max(end - start - keep, 0)))
    broker.start()
    got = everything(broker)
    assert got in (numbered(count), numbered(count + 1))
    with Connection(broker.kafka) as wire:
        assert k.append(wire, "files", 0, [(b"key-0", b"again")]) == len(got)


def test_lost_sidecars_are_made_again(filled):
    broker, count = filled
    assert broker.stop() == 0
    derived = [f for f in (broker.data / "log").rglob("*") if f.is_file() and f.suffix != ".seg" and f.stem.isdigit()]
    for file in derived:
        file.unlink()
    broker.start()
    assert everything(broker) == numbered(count)
    with Connection(broker.kafka) as wire, Http(broker.http) as http:
        assert k.list_offset(wire, "files", 0, k.LATEST).offset == count
        assert sum(len(http.lane("files", f"key-{i}")) for i in range(3)) == count


def test_a_kill_during_recovery_is_recovered_from(queen_factory):
    """ST-12: kill -9 again and again while the start is still at work."""
    broker = queen_factory(*SMALL).start()
    with Connection(broker.kafka) as wire:
        create_topic(wire, "files", 1)
        for i in range(3000):
            k.append(wire, "files", 0, [(b"key", b"marker-%08d-" % i + b"x" * 500)])
    broker.kill()
    dice = random.Random(12)
    for _ in range(8):
        try:
            broker.start(limit=dice.uniform(0.002, 0.15))
            broker.kill()
        except AssertionError as early:
            assert "no ready line" in str(early)
    broker.start()
    assert everything(broker) == numbered(3000)


def test_a_log_that_ends_before_its_state_image_is_refused(filled):
    """The image proves how far the log had got: entries that were answered are gone, so nothing may be served or dropped."""
    broker, count = filled
    assert broker.stop() == 0
    used = segments.used(broker.segments())
    whole = {file: file.read_bytes() for file in used}
    used[-1].write_bytes(whole[used[-1]][: 8192] + bytes(len(whole[used[-1]]) - 8192))
    with pytest.raises(Refused) as refused:
        broker.start()
    assert refused.value.code > 0 and used[-1].name in refused.value.stderr
    assert all(file.read_bytes() == whole[file] for file in used[:-1]), "what is left of the log stays"
    used[-1].write_bytes(whole[used[-1]])
    broker.start()
    assert everything(broker) == numbered(count)


@pytest.mark.parametrize("loss", ["missing", "empty", "zeros"])
def test_a_lost_vote_does_not_keep_a_lone_node_down(filled, loss):
    broker, count = filled
    assert broker.stop() == 0
    vote = broker.data / "log" / "vote"
    size = vote.stat().st_size
    vote.unlink()
    if loss != "missing":
        vote.write_bytes(bytes(size if loss == "zeros" else 0))
    for clean in (False, True):
        broker.start()
        with Connection(broker.kafka) as wire:
            k.append(wire, "files", 0, [(b"key-0", b"marker-%08d" % count)])
        count += 1
        broker.kill() if not clean else broker.stop()
    broker.start()
    assert everything(broker) == numbered(count)
