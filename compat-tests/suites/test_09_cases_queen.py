"""Faults that somebody reported about leases, duplicates, timers, state and HTTP, as small tests named by their row."""

import base64
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness import kafka as k
from harness.http import Http, ack_operation, push_operation, quote, unique
from harness.polling import eventually, stays
from harness.wire import Connection


@pytest.fixture
def queue():
    return unique("case")


def payload(value):
    return base64.b64encode(json.dumps(value).encode()).decode()


def data(messages):
    return [m["data"] for m in messages]


# --- lease --------------------------------------------------------------------------------------


def test_LE_1_nothing_overtakes_a_held_message(http, queue):
    http.push(queue, 1, 2, 3, partition="a")
    held = http.pop(queue, leaseSeconds=2)
    begun = time.monotonic()
    assert data(held) == [1, 2, 3]
    assert http.extend(held[0]["leaseId"], 4)["success"]
    # The lease is one for the run: while it lasts nothing of the lane comes out.
    stays(lambda: http.pop(queue) == [], 2.5, "a held lane gave something out")
    again = eventually(lambda: http.pop(queue), 10, "the lease ends")
    assert time.monotonic() - begun >= 3.9
    assert data(again) == [1, 2, 3] and again[0]["deliveryAttempt"] == 2


def test_LE_2_a_push_does_not_unlock_a_leased_lane(http, queue):
    http.push(queue, 1, partition="a")
    held = http.pop(queue, leaseSeconds=60)
    http.push(queue, 2, partition="a")
    assert http.pop(queue) == [] and http.pop(queue, "a") == []
    # Another group is free of it.
    assert data(http.pop(queue, consumerGroup="g", subscriptionMode="all")) == [1, 2]
    assert http.ack(held[0])["success"]
    assert data(http.pop(queue)) == [2]


@pytest.mark.parametrize("redelivered", [False, True])
def test_LE_3_a_late_ack_is_refused(http, queue, redelivered):
    http.push(queue, 1, partition="a")
    first = http.pop(queue, leaseSeconds=1)
    ended = time.monotonic() + 1.05
    if redelivered:
        second = eventually(lambda: http.pop(queue, leaseSeconds=30), 10, "the lease ends")
    else:
        eventually(lambda: time.monotonic() > ended, 5)
    for status in ("completed", "failed", "retry", "dlq"):
        result = http.ack(first[0], status)
        assert not result["success"] and "invalid or expired lease" in result["error"], status
    if redelivered:
        assert http.pop(queue) == []
        assert http.ack(second[0])["success"]
        assert http.pop(queue) == []
    else:
        assert data(http.pop(queue)) == [1]
    assert http.dlq(queue) == []


def test_LE_4_an_extension_has_effect(http, queue):
    http.push(queue, 1, partition="a")
    held = http.pop(queue, leaseSeconds=1)
    answer = http.extend(held[0]["leaseId"], 5)
    assert (answer["success"], answer["renewed"]) == (True, 1) and answer["newExpiresAt"].endswith("Z")
    stays(lambda: http.pop(queue) == [], 1.8, "the extension did not hold")
    result = http.ack(held[0])
    assert result["success"] and result["leaseReleased"]
    gone = http.extend(held[0]["leaseId"], 5)
    assert (gone["success"], gone["renewed"], gone["newExpiresAt"]) == (False, 0, None)


def test_LE_4_an_expired_lease_is_not_revived(http, queue):
    http.push(queue, 1, partition="a")
    held = http.pop(queue, leaseSeconds=1)
    ended = time.monotonic() + 1.1
    eventually(lambda: time.monotonic() > ended, 5)
    assert not http.extend(held[0]["leaseId"], 30)["success"]
    assert data(http.pop(queue)) == [1]


@pytest.mark.parametrize("what", ["group", "queue"])
def test_LE_11_deleting_a_group_or_queue_ends_its_leases(http, queue, what):
    http.push(queue, 1, 2, partition="a")
    held = http.pop(queue, consumerGroup="g", subscriptionMode="all", leaseSeconds=60)
    assert len(held) == 2
    if what == "group":
        assert http.delete("/api/v1/consumer-groups/g", params={"deleteMetadata": "true"})["success"]
        assert data(http.pop(queue, consumerGroup="g", subscriptionMode="all", leaseSeconds=60)) == [1, 2]
    else:
        assert http.drop(queue)["deleted"]
        http.push(queue, 3, partition="a")
        assert data(http.pop(queue, consumerGroup="g", subscriptionMode="all")) == [3]
    assert not http.ack(held[0])["success"]


def test_LE_12_a_nacked_message_keeps_its_place(http, queue):
    http.push(queue, *range(5), partition="a")
    first = http.pop(queue)
    assert http.ack(first[0], "failed")["success"]
    again = http.pop(queue)
    assert data(again) == [0, 1, 2, 3, 4] and {m["deliveryAttempt"] for m in again} == {2}


def test_LE_14_after_a_crash_in_the_middle(http, queue):
    http.push(queue, *range(1, 11), partition="a")
    first = http.pop(queue, leaseSeconds=1)
    assert data(first) == list(range(1, 11))
    result = http.ack(first[3])
    assert result["success"] and not result["leaseReleased"]
    again = eventually(lambda: http.pop(queue, leaseSeconds=30), 10, "the rest comes back")
    assert data(again) == list(range(5, 11)) and again[0]["deliveryAttempt"] == 2


def test_LE_14_a_nack_is_not_hidden_by_later_acks(http, queue):
    http.push(queue, *range(1, 11), partition="a")
    first = http.pop(queue)
    words = ["completed"] * 4 + ["failed"] + ["completed"] * 5
    assert all(r["success"] for r in http.ack_all(first, words))
    assert data(http.pop(queue)) == list(range(5, 11))


@pytest.mark.parametrize("words, rest, dead", [
    (["completed", "failed", "completed", "completed", "completed"], [2, 3, 4, 5], []),
    (["completed", "retry", "completed"], [2, 3], []),
    (["failed"] * 4, [1, 2, 3, 4], []),
    (["completed", "dlq", "failed"], [3], [2]),
], ids=str)
def test_mixed_batches(http, queue, words, rest, dead):
    http.push(queue, *range(1, len(words) + 1), partition="a")
    messages = http.pop(queue)
    results = http.ack_all(messages, words)
    assert all(r["success"] for r in results) and [r["index"] for r in results] == list(range(len(words)))
    assert data(http.pop(queue)) == rest
    assert sorted(row["data"] for row in http.dlq(queue)) == dead


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_the_retry_budget(http, queue, limit):
    http.configure(queue, retryLimit=limit)
    http.push(queue, "poison", "next", partition="a")
    for attempt in range(1, limit + 2):
        messages = http.pop(queue)
        assert data(messages) == ["poison", "next"] and messages[0]["deliveryAttempt"] == attempt
        result = http.ack(messages[0], "failed", error=f"try {attempt}")
        assert result["success"] and result["dlq"] is (attempt == limit + 1)
    assert data(http.pop(queue)) == ["next"]
    [row] = http.dlq(queue)
    assert (row["data"], row["errorMessage"], row["partition"], row["queue"]) == ("poison", f"try {limit + 1}", "a", queue)


def test_a_handback_never_spends_the_budget(http, queue):
    http.configure(queue, retryLimit=1)
    http.push(queue, 1, partition="a")
    for _ in range(6):
        assert http.ack(http.pop(queue)[0], "retry")["success"]
    assert http.dlq(queue) == []
    assert not http.ack(http.pop(queue)[0], "failed")["dlq"]
    assert http.ack(http.pop(queue)[0], "failed")["dlq"]


def test_expiry_never_spends_the_budget(http, queue):
    http.configure(queue, retryLimit=0)
    http.push(queue, 1, partition="a")
    for attempt in range(1, 4):
        [message] = eventually(lambda: http.pop(queue, leaseSeconds=1), 10, "the message comes")
        assert message["deliveryAttempt"] == attempt
    assert http.dlq(queue) == []


def test_LE_20_a_bundle_with_one_dead_lease_does_nothing(http, queue):
    other = unique("case")
    for partition in "ab":
        http.push(queue, 1, partition=partition)
    dead = http.pop(queue, "a", leaseSeconds=1)
    alive = http.pop(queue, "b", leaseSeconds=60)
    ended = time.monotonic() + 1.1
    eventually(lambda: time.monotonic() > ended, 5)
    taken = http.pop(queue, "a", leaseSeconds=60)
    assert data(taken) == [1]
    refused = http.transaction([ack_operation(alive[0]), ack_operation(dead[0]), push_operation(other, 1)])
    assert refused["success"] is False and refused["reason"] == "rejected_ack" and refused["results"] == []
    assert "lease" in refused["error"] and "rolled back" in refused["error"]
    assert http.pop(other) == []
    assert http.ack(alive[0])["success"] and http.ack(taken[0])["success"]


def test_an_ack_that_is_sent_twice_is_answered_as_the_first(http, queue):
    http.push(queue, 1, partition="a")
    held = http.pop(queue)
    first = http.ack(held[0])
    assert first["success"] and first["leaseReleased"]
    assert http.ack(held[0])["success"]
    http.push(queue, 2, partition="a")
    assert data(http.pop(queue)) == [2]


def test_an_ack_of_the_unknown_changes_nothing(http, queue):
    http.push(queue, 1, partition="a")
    held = http.pop(queue)
    for status in ("completed", "failed"):
        result = http.ack({**held[0], "transactionId": "nobody"}, status)
        assert not result["success"] and "unresolv" in result["error"].lower()
        result = http.ack({**held[0], "partitionId": "not-a-number"}, status)
        assert not result["success"]
    assert http.ack(held[0])["success"]


def test_one_live_lease_for_a_lane_under_many_workers(queen, http, queue):
    """Twelve workers, four lanes: never two at one lane, and everything is done once, in order."""
    for lane in range(4):
        http.push(queue, *range(40), partition=f"lane-{lane}")
    held, done, trouble, lock = {}, {}, [], threading.Lock()

    def work():
        try:
            with Http(queen.http) as client:
                while messages := client.pop(queue, batch=5, wait=True, timeout=700, leaseSeconds=30):
                    lane = messages[0]["partition"]
                    with lock:
                        assert lane not in held, "two leases of one lane"
                        held[lane] = True
                        done.setdefault(lane, []).extend(data(messages))
                    with lock:
                        del held[lane]
                    assert client.ack(messages[-1])["success"]
        except BaseException as error:  # noqa: BLE001 - reported below
            trouble.append(error)

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not trouble, trouble
    assert done == {f"lane-{lane}": list(range(40)) for lane in range(4)}


# --- pop ----------------------------------------------------------------------------------------


def test_batch_is_a_cap_over_all_partitions(http, queue):
    for lane in range(5):
        http.push(queue, *range(100), partition=f"lane-{lane}")
    messages = http.pop(queue, batch=10, partitions=5)
    assert len(messages) == 10
    messages = http.pop(queue, batch=250, partitions=5)
    lanes = {}
    for message in messages:
        lanes.setdefault(message["partition"], []).append(message)
    assert len(messages) == 250 and 3 <= len(lanes) <= 5
    assert len({m["leaseId"] for m in messages}) == 1 and len({m["partitionId"] for m in messages}) == len(lanes)
    for lane in lanes.values():
        assert data(lane) == list(range(len(lane)))


def test_without_partitions_one_lane_is_claimed(http, queue):
    for lane in range(3):
        http.push(queue, 1, 2, partition=f"lane-{lane}")
    assert len({m["partition"] for m in http.pop(queue, batch=100)}) == 1


def test_a_lease_runs_over_all_lanes_of_its_pop(http, queue):
    for lane in "abc":
        http.push(queue, 1, 2, partition=lane)
    messages = http.pop(queue, batch=100, partitions=3)
    assert len(messages) == 6
    assert http.extend(messages[0]["leaseId"], 30)["renewed"] == 3
    of = {lane: [m for m in messages if m["partition"] == lane] for lane in "abc"}
    # A nack gives back its own lane; the others stay leased.
    assert http.ack(of["a"][0], "failed")["leaseReleased"]
    assert http.extend(messages[0]["leaseId"], 30)["renewed"] == 2
    assert {m["partition"] for m in http.pop(queue, partitions=10)} == {"a"}
    assert all(r["success"] for r in http.ack_all(of["b"] + of["c"]))


def test_a_group_starts_at_new_or_all_and_keeps_that(http, queue):
    http.push(queue, "old", partition="a")
    assert http.pop(queue, consumerGroup="new") == []
    http.push(queue, "fresh", partition="a")
    http.push(queue, "other lane", partition="b")
    got = http.pop(queue, consumerGroup="new", partitions=10, subscriptionMode="all")
    assert sorted(data(got)) == ["fresh", "other lane"]
    got = http.pop(queue, consumerGroup="all", partitions=10, subscriptionMode="from_beginning")
    assert sorted(data(got)) == ["fresh", "old", "other lane"]
    # Without a group everything is there, whatever the mode says.
    assert sorted(data(http.pop(queue, partitions=10, subscriptionMode="new"))) == ["fresh", "old", "other lane"]


def test_commit_on_delivery(http, queue):
    for lane in "abc":
        http.push(queue, 1, 2, partition=lane)
    answer = http.pop_answer(queue, consumerGroup="g", subscriptionMode="all", autoAck=True, partitions=10)
    assert answer["leaseId"] == "" and len(answer["messages"]) == 6
    assert http.pop(queue, consumerGroup="g", partitions=10) == []


def test_delayed_processing(http, queue):
    http.configure(queue, delayedProcessing=1)
    begun = time.monotonic()
    http.push(queue, 1, partition="a")
    assert http.pop(queue) == []
    got = http.pop(queue, wait=True, timeout=10_000)
    assert data(got) == [1] and time.monotonic() - begun >= 0.95


def test_names_with_everything_in_them(http):
    for name in ("plain", "with space", "a/b/c", "ü ✓", "q?x=1&y=2#z", "100%", "a:b", "dot.ted.name", "+plus+"):
        queue = unique(name)
        http.push(queue, name, partition=name + "/p")
        got = http.pop(queue, name + "/p")
        assert data(got) == [name] and got[0]["partition"] == name + "/p"
        assert http.ack(got[0])["success"]
        assert http.drop(queue)["deleted"]
    long = "p" * 200
    queue = unique("long")
    http.push(queue, 1, partition=long)
    assert http.pop(queue, long)[0]["partition"] == long


# --- dedup --------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_DD_1_the_window_survives_a_restart(queen, queue, clean):
    with Http(queen.http) as http:
        first = http.push(queue, 1, partition="a", txn="x")[0]
        http.push(queue, 2, partition="a", txn="y")
    queen.restart(clean=clean)
    with Http(queen.http) as http:
        again = http.push(queue, 1, partition="a", txn="x")[0]
        assert (again["status"], again["offset"], again["message_id"]) == ("duplicate", 0, first["message_id"])
        assert http.push(queue, 3, partition="a", txn="z")[0]["offset"] == 2


def test_DD_2_a_deduplicated_message_is_acked_once(http, queue):
    for _ in range(2):
        http.push(queue, 1, partition="a", txn="x")
    http.push(queue, 2, partition="a", txn="y")
    got = http.pop(queue)
    assert data(got) == [1, 2] and [m["offset"] for m in got] == [0, 1]
    assert all(r["success"] for r in http.ack_all(got))
    assert http.pop(queue) == []


def test_DD_3_the_producer_is_told(http, queue):
    first = http.push(queue, 1, partition="a", txn="x")[0]
    second = http.push(queue, "changed", partition="a", txn="x")[0]
    assert (first["status"], second["status"]) == ("queued", "duplicate")
    assert (second["message_id"], second["offset"], second["transaction_id"]) == (first["message_id"], first["offset"], "x")


def test_the_key_of_a_duplicate_is_queue_lane_and_id(http, queue):
    other = unique("case")
    assert [http.push(q, 1, partition=p, txn="x")[0]["status"] for q in (queue, other) for p in "ab"] == ["queued"] * 4
    assert {http.push(q, 1, partition=p, txn="x")[0]["status"] for q in (queue, other) for p in "ab"} == {"duplicate"}
    assert [http.push(queue, 1, partition="a")[0]["status"] for _ in range(2)] == ["queued", "queued"]


def test_repeats_inside_one_request(http, queue):
    items = [{"payload": n, "transactionId": t, "partition": "a"} for n, t in enumerate("xyxxz")]
    got = http.push(queue, items=items)
    assert [r["status"] for r in got] == ["queued", "queued", "duplicate", "duplicate", "queued"]
    assert {r["message_id"] for r in got if r["transaction_id"] == "x"} == {got[0]["message_id"]}
    assert [r["offset"] for r in got] == [0, 1, 0, 0, 2]
    assert data(http.pop(queue)) == [0, 1, 4]


def test_racing_pushes_of_one_id(queen, queue):
    def push(_):
        with Http(queen.http) as http:
            return http.push(queue, 1, partition="a", txn="x")[0]

    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(push, range(8)))
    assert sorted(r["status"] for r in got) == ["duplicate"] * 7 + ["queued"]
    assert len({r["message_id"] for r in got}) == 1 and {r["offset"] for r in got} == {0}


def test_a_window_of_zero_and_a_window_that_ends(http, queue):
    http.configure(queue, dedupWindowSeconds=0)
    assert [http.push(queue, 1, partition="a", txn="x")[0]["status"] for _ in range(2)] == ["queued", "queued"]
    other = unique("case")
    http.configure(other, dedupWindowSeconds=1)
    assert http.push(other, 1, partition="a", txn="x")[0]["status"] == "queued"
    assert http.push(other, 1, partition="a", txn="x")[0]["status"] == "duplicate"
    eventually(lambda: http.push(other, 1, partition="a", txn="x")[0]["status"] == "queued", 10, "the window ends", every=0.2)


def test_DD_12_a_duplicate_of_a_dead_message(http, queue):
    http.push(queue, 1, partition="a", txn="x")
    assert http.ack(http.pop(queue)[0], "dlq", error="no")["dlq"]
    assert http.push(queue, 1, partition="a", txn="x")[0]["status"] == "duplicate"
    http.push(queue, 2, partition="a", txn="y")
    assert data(http.pop(queue)) == [2]


# --- timers -------------------------------------------------------------------------------------


def schedule(queue, key, delay, **more):
    return {"op": "schedule", "queue": queue, "timerKey": key, "delayMs": delay, "txn": more.pop("txn", key), "payload": payload(key), **more}


def peek(http, queue, key):
    return http.get(f"/api/v1/timers/{quote(queue)}/{quote(key)}")


def cancel(http, queue, key):
    return http.delete(f"/api/v1/timers/{quote(queue)}/{quote(key)}")


@pytest.mark.parametrize("delay", [(1 << 63) - 1, 1 << 62, 91 * 86_400_000, 1e300, "soon", None], ids=str)
def test_TM_1_an_impossible_delay_is_refused(http, queue, delay):
    answer = http.request("POST", "/api/v1/timers", {"operations": [schedule(queue, "k", delay)]}, status=None)
    assert answer.status_code in (400, 403), answer.text
    assert answer.json()["error"]
    assert not peek(http, queue, "k")["found"]
    assert http.pop(queue, wait=True, timeout=500) == []


@pytest.mark.parametrize("delay", [1 << 31, (1 << 31) + 1, 1 << 32, (1 << 32) + 1])
def test_TM_3_a_large_delay_is_not_cut(http, queue, delay):
    before = time.time()
    assert http.timers(schedule(queue, "k", delay))[0]["status"] == "scheduled"
    row = peek(http, queue, "k")
    due = time.mktime(time.strptime(row["deliverAt"][:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone
    assert abs(due - before - delay / 1000) < 5
    assert http.pop(queue, wait=True, timeout=700) == []
    assert cancel(http, queue, "k")["ok"]


def test_a_timer_fires_with_what_it_promised(http, queue):
    promised = http.timers(schedule(queue, "a/b:c", 400, partition="lane", txn="t1"))[0]
    begun = time.monotonic()
    assert promised["ok"] and promised["deliverAt"]
    assert peek(http, queue, "a/b:c")["messageId"] == promised["messageId"]
    assert http.pop(queue) == []
    [message] = http.pop(queue, wait=True, timeout=20_000)
    assert 0.35 <= time.monotonic() - begun < 10
    assert (message["id"], message["transactionId"], message["data"], message["partition"]) == (promised["messageId"], "t1", "a/b:c", "lane")
    assert not peek(http, queue, "a/b:c")["found"]
    assert cancel(http, queue, "a/b:c")["status"] == "absent"
    assert http.timers(schedule(queue, "past", -5000))[0]["ok"]
    assert data(http.pop(queue, wait=True, timeout=20_000)) == ["past"]


def test_TM_6_cancelled_and_set_again_is_one_message(http, queue):
    http.timers(schedule(queue, "k", 500, txn="first"))
    assert cancel(http, queue, "k")["status"] == "cancelled"
    assert http.timers(schedule(queue, "k", 500, txn="second"))[0]["status"] == "scheduled"
    assert [m["transactionId"] for m in http.pop(queue, wait=True, timeout=20_000)] == ["second"]
    assert http.pop(queue, "Default", wait=True, timeout=1200) == []


def test_TM_10_a_replaced_timer_fires_once(http, queue):
    """Replaced again and again around its due time: every fired generation once, none twice, and the last one surely."""
    http.configure(queue)
    promised = {}
    for n in range(60):
        result = http.timers(schedule(queue, "k", 20, txn=f"t{n}"))[0]
        if result["ok"]:
            promised[f"t{n}"] = result["messageId"]
    last = list(promised)[-1]
    # A firing appends and removes in one entry, and the queue begins with the first.
    eventually(lambda: not peek(http, queue, "k")["found"], 30, "the last one fires")
    fired = [r["transactionId"] for r in http.lane(queue, "Default")]
    assert last in fired
    assert len(fired) == len(set(fired)) and set(fired) <= set(promised)
    assert fired == sorted(fired, key=lambda t: int(t[1:]))


def test_TM_9_a_thousand_timers_survive_a_crash(queen, queue):
    names = [f"{i}/ü {i % 7}:{'long-' * (i % 60)}" for i in range(1000)]
    with Http(queen.http) as http:
        for at in range(0, 1000, 250):
            assert all(r["ok"] for r in http.timers(*(schedule(queue, name, 3_600_000 + i, txn=f"t{i}") for i, name in enumerate(names[at : at + 250], at))))
    queen.restart(clean=False)
    with Http(queen.http) as http:
        listed, after = [], None
        while True:
            page = http.get(f"/api/v1/timers/{queue}", params={"limit": 300, **({"after": after} if after else {})})
            listed += [row["timerKey"] for row in page["rows"]]
            after = page["nextAfter"]
            if not page["truncated"]:
                break
        assert listed == sorted(names, key=str.encode)
        assert peek(http, queue, names[777])["txn"] == "t777"
        for name in names[::10]:
            assert cancel(http, queue, name)["status"] == "cancelled"
            assert cancel(http, queue, name)["status"] == "absent"
        results = http.timers(*({"op": "cancel", "queue": queue, "timerKey": name} for name in names[1::5]))
        assert {r["status"] for r in results} == {"cancelled"}
        assert http.pop(queue) == []


def test_TM_13_a_timer_of_a_refused_transaction_does_not_exist(http, queue):
    http.kv_put("case", queue, "there")
    refused = http.transaction(
        [push_operation(queue, 1)], timers=[schedule(queue, "k", 0)],
        kv=[{"op": "putIfAbsent", "ns": "case", "key": queue, "value": 1, "forever": True, "required": True}])
    assert refused["success"] is False and refused["reason"] == "kv_precondition" and refused["kvReason"] == "exists"
    assert refused["failedIndex"] == 1
    assert not peek(http, queue, "k")["found"]
    assert http.pop(queue, wait=True, timeout=800) == []


# --- kv -----------------------------------------------------------------------------------------


def test_KV_1_an_expired_value_is_not_served_after_a_restart(queen):
    key = unique("key")
    with Http(queen.http) as http:
        http.kv_put("case", key, 1, ttlSeconds=1)
        http.kv_put("case", key + "-stays", 1, ttlSeconds=600)
        ended = time.monotonic() + 1.05
    assert queen.stop() == 0
    eventually(lambda: time.monotonic() > ended, 5)
    queen.start()
    with Http(queen.http) as http:
        assert not http.kv_get("case", key)["found"]
        assert http.kv_get("case", key + "-stays")["found"]


def test_KV_2_an_expired_entry_is_absent_everywhere(http):
    key = unique("key")
    first = http.kv_put("case", key, "text", ttlSeconds=1)
    assert http.kv_get("case", key)["expiresAt"]
    eventually(lambda: not http.kv_get("case", key)["found"], 5, "the entry ends")
    assert http.kv({"op": "getPrefix", "ns": "case", "prefix": key})[0]["rows"] == []
    assert http.kv({"op": "getMany", "ns": "case", "keys": [key]})[0]["missing"] == [key]
    assert http.kv({"op": "check", "ns": "case", "key": key, "expect": first["version"]})[0]["applied"] is False
    # Absent for a counter, too, whatever it held.
    assert http.kv({"op": "incr", "ns": "case", "key": key, "delta": 2, "max": 5, "forever": True})[0]["value"] == 2
    other = unique("key")
    http.kv_put("case", other, 1, ttlSeconds=1)
    eventually(lambda: not http.kv_get("case", other)["found"], 5, "the entry ends")
    won = http.kv({"op": "putIfAbsent", "ns": "case", "key": other, "value": 2, "forever": True})[0]
    assert won["applied"] and http.kv_get("case", other)["value"] == 2


def test_KV_5_remaining_time_is_never_negative(http):
    key = unique("key")
    http.kv_put("case", key, 1, ttlSeconds=1)
    deadline = time.monotonic() + 5
    while (row := http.kv_get("case", key))["found"]:
        due = time.mktime(time.strptime(row["expiresAt"][:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone
        assert due >= int(time.time()) - 1
        assert time.monotonic() < deadline


def test_KV_8_a_refused_bundle_does_not_count(http, queue):
    counter, gate = unique("key"), unique("key")
    http.kv_put("case", gate, 1)
    incr = {"op": "incr", "ns": "case", "key": counter, "delta": 5, "forever": True}
    lost = {"op": "putIfAbsent", "ns": "case", "key": gate, "value": 1, "forever": True, "required": True}
    assert http.kv(incr, lost)["reason"] == "kv_precondition"
    assert http.kv(lost, incr)["ok"] is False
    assert http.transaction([push_operation(queue, 1)], kv=[incr, lost])["success"] is False
    assert http.transaction([], kv=[incr])["success"] is True
    assert http.kv(incr)[0]["value"] == 10


def test_values_come_back_as_they_were(http):
    key = unique("key")
    for value in (None, 0, -1, 1.5, "", "ü", [], {}, {"a": [1, {"b": None}]}, 9007199254740993, True):
        put = http.kv_put("case", key, value)
        row = http.kv_get("case", key)
        assert row["found"] and row["value"] == value and row["version"] == put["version"] and row["expiresAt"] is None


def test_versions_rise_over_deletes_and_restarts(queen):
    key, seen = unique("key"), []
    for round_ in range(3):
        with Http(queen.http) as http:
            seen.append(http.kv_put("case", key, round_)["version"])
            assert http.kv({"op": "delete", "ns": "case", "key": key})[0]["applied"]
            assert http.kv({"op": "delete", "ns": "case", "key": key})[0]["reason"] == "absent"
            seen.append(http.kv_put("case", key, round_)["version"])
        queen.restart(clean=round_ == 0)
    assert seen == sorted(set(seen))


def test_expect_fences(http):
    key = unique("key")
    lost = http.kv({"op": "put", "ns": "case", "key": key, "value": 1, "forever": True, "expect": 7})[0]
    assert (lost["applied"], lost["reason"]) == (False, "absent") and not http.kv_get("case", key)["found"]
    first = http.kv({"op": "put", "ns": "case", "key": key, "value": 1, "forever": True, "expect": 0})[0]
    assert first["applied"]
    second = http.kv({"op": "put", "ns": "case", "key": key, "value": 2, "forever": True, "expect": first["version"]})[0]
    stale = http.kv({"op": "put", "ns": "case", "key": key, "value": 3, "forever": True, "expect": first["version"]})[0]
    assert second["applied"] and not stale["applied"]
    assert (stale["reason"], stale["value"], stale["version"]) == ("version", 2, second["version"])
    for bad in ({}, {"ttlSeconds": 1, "forever": True}, {"ttlSeconds": 0}, {"ttlSeconds": -1}):
        answer = http.request("POST", "/api/v1/kv", {"operations": [{"op": "put", "ns": "case", "key": key, "value": 1, **bad}]}, status=None)
        assert answer.status_code == 400 and answer.json()["error"] == "kv_bad_request", bad


def test_racing_counters(queen):
    key = unique("key")

    def count(_):
        with Http(queen.http) as http:
            return [http.kv({"op": "incr", "ns": "case", "key": key, "delta": 1, "max": 50, "forever": True})[0] for _ in range(10)]

    with ThreadPoolExecutor(8) as pool:
        got = [r for part in pool.map(count, range(8)) for r in part]
    assert sorted(r["value"] for r in got if r["applied"]) == list(range(1, 51))
    assert all(r["reason"] == "limit" and r["value"] == 50 for r in got if not r["applied"])


def test_KV_11_a_stale_fencing_token_commits_nothing(http, queue):
    """The permit of a lock as a row: held for a second, taken by another, then used with the old token."""
    key = unique("lock")
    old = http.kv({"op": "putIfAbsent", "ns": "case", "key": key, "value": {"owner": "one"}, "ttlSeconds": 1})[0]
    assert old["applied"]
    new = eventually(lambda: (r := http.kv({"op": "putIfAbsent", "ns": "case", "key": key, "value": {"owner": "two"}, "ttlSeconds": 60})[0])["applied"] and r,
                     10, "the permit is free")
    assert new["version"] > old["version"]

    def guarded(token):
        return http.transaction([push_operation(queue, token)], kv=[{"op": "check", "ns": "case", "key": key, "expect": token, "required": True}])

    refused = guarded(old["version"])
    assert refused["success"] is False and refused["kvReason"] == "version"
    assert refused["value"] == {"owner": "two"} and refused["version"] == new["version"]
    assert http.pop(queue) == []
    assert guarded(new["version"])["success"]
    assert data(http.pop(queue)) == [new["version"]]


# --- transactions -------------------------------------------------------------------------------


def test_a_transaction_is_all_or_nothing_over_queues(http, queue):
    other = unique("case")
    http.push(queue, 1, partition="a", txn="known")
    refused = http.transaction([push_operation(other, 1), push_operation(queue, 2, partition="a", transactionId="known")],
                               kv=[{"op": "put", "ns": "case", "key": other, "value": 1, "forever": True}])
    assert refused["success"] is False and refused["reason"] == "duplicate" and "rolled back" in refused["error"]
    assert http.pop(other) == [] and not http.kv_get("case", other)["found"]
    done = http.transaction([push_operation(other, 1, transactionId="t"), push_operation(other, 2, transactionId="t")])
    assert done["success"] and [r.get("duplicate", False) for r in done["results"]] == [False, True]
    assert data(http.pop(other)) == [1]


def test_a_repeated_transaction_has_no_second_effect(http, queue):
    other = unique("case")
    http.push(queue, 1, partition="a")
    [message] = http.pop(queue)
    operations = [ack_operation(message), push_operation(other, 1, transactionId="t")]
    assert http.transaction(operations)["success"]
    again = http.transaction(operations)
    assert again["success"] is False and again["reason"] in ("rejected_ack", "duplicate")
    assert data(http.pop(other)) == [1] and http.pop(other) == []


# --- http ---------------------------------------------------------------------------------------


def test_HT_1_each_poll_is_answered_on_its_own_connection(queen, http, queue):
    http.configure(queue)
    got = {}

    def poll(name, timeout):
        with Http(queen.http) as client:
            begun = time.monotonic()
            got[name] = (data(client.pop(queue, name, wait=True, timeout=timeout)), time.monotonic() - begun)

    threads = [threading.Thread(target=poll, args=a) for a in (("long", 8000), ("short", 1000))]
    for thread in threads:
        thread.start()
    threads[1].join(20)
    assert got["short"][0] == [] and 0.9 <= got["short"][1] < 4 and "long" not in got
    http.push(queue, "for long", partition="long")
    threads[0].join(20)
    assert got["long"][0] == ["for long"] and got["long"][1] < 7


def test_HT_2_a_query_parameter_does_not_stick(http, queue):
    http.push(queue, 1, 2, 3, partition="a")
    [one] = http.pop(queue, batch=1, wait=True, timeout=5000, leaseSeconds=60)
    assert http.ack(one)["success"]
    rest = http.pop(queue)
    assert data(rest) == [2, 3]
    begun = time.monotonic()
    assert http.pop(queue) == []
    assert time.monotonic() - begun < 1


@pytest.mark.parametrize("held", [True, False], ids=["a held lane", "no lane"])
def test_HT_3_a_poll_keeps_its_timeout(http, queue, held):
    if held:
        http.push(queue, 1, partition="a")
        assert http.pop(queue, leaseSeconds=60)
    begun = time.monotonic()
    assert http.pop(queue, wait=True, timeout=1500) == []
    assert 1.4 <= time.monotonic() - begun < 4


@pytest.mark.parametrize("event", ["push", "nack", "ack", "expiry", "transaction", "timer"])
def test_a_parked_poll_wakes(queen, http, queue, event):
    http.push(queue, "first", "second", partition="a")
    messages = http.pop(queue, leaseSeconds=1 if event == "expiry" else 60, batch=1)
    got = []

    def poll():
        with Http(queen.http) as client:
            got.extend(client.pop(queue, wait=True, timeout=15_000))
            got.append(time.monotonic())

    waiter = threading.Thread(target=poll)
    waiter.start()
    if event == "push":
        http.push(queue, "x", partition="b")
    elif event == "nack":
        assert http.ack(messages[0], "retry")["success"]
    elif event == "ack":
        assert http.ack(messages[0])["leaseReleased"]
    elif event == "transaction":
        assert http.transaction([push_operation(queue, "x", partition="b")])["success"]
    elif event == "timer":
        assert http.timers(schedule(queue, "x", 50, partition="b"))[0]["ok"]
    sent = time.monotonic()
    waiter.join(25)
    assert got[-1] - sent < 4, f"woken {got[-1] - sent:.1f} s after the {event}"
    assert got[0]["data"] == {"nack": "first", "ack": "second", "expiry": "first"}.get(event, "x")


def test_a_poller_that_left_takes_nothing(queen, queue):
    with Http(queen.http) as http:
        http.configure(queue)
        for _ in range(3):
            with pytest.raises(Exception, match="[Tt]imed out"):
                http.request("GET", f"/api/v1/pop/queue/{queue}", params={"wait": "true", "timeout": "30000"}, timeout=0.3)
        http.push(queue, 1, partition="a")
        [message] = eventually(lambda: http.pop(queue), 5, "the message is free")
        assert message["deliveryAttempt"] == 1


def test_HT_7_a_refused_ack_is_told_item_by_item(http, queue):
    http.push(queue, 1, 2, partition="a")
    messages = http.pop(queue, leaseSeconds=60)
    bad = dict(messages[0], leaseId="00000000-0000-0000-0000-000000000000")
    results = http.ack_all([bad, messages[1]])
    assert [r["success"] for r in results] == [False, True]
    assert "invalid or expired lease" in results[0]["error"] and results[1]["error"] is None
    for result in results:
        assert {"index", "transactionId", "success", "error", "leaseReleased", "dlq", "noop"} <= set(result)


def test_HT_12_the_window_belongs_to_the_life_of_the_queue(http, queue):
    assert http.push(queue, 1, partition="a", txn="x")[0]["status"] == "queued"
    assert http.drop(queue) == {"deleted": True, "queue": queue, "existed": True}
    assert http.drop(queue)["existed"] is False
    http.configure(queue)
    again = http.push(queue, 2, partition="a", txn="x")[0]
    assert (again["status"], again["offset"]) == ("queued", 0)
    assert data(http.pop(queue)) == [2]


def test_routes_that_are_none(http):
    for method, path in (("GET", "/api/v1/nothing"), ("POST", "/api/v1/messages/1/2/dlq"), ("DELETE", "/api/v1/queues/q/clear"), ("PUT", "/what")):
        answer = http.request(method, path, status=None)
        assert answer.status_code == 404 and answer.json()["code"] == "no_such_route", path


def test_parameters_that_are_wrong(http, queue):
    for params in ({"batch": "abc"}, {"wait": "maybe"}, {"timeout": "1s"}, {"partitions": "x"}, {"leaseSeconds": "x"}):
        answer = http.request("GET", f"/api/v1/pop/queue/{queue}", params=params, status=None)
        assert answer.status_code == 400, params
    answer = http.request("GET", "/api/v1/pop", status=None)
    refused = answer.json()
    assert answer.status_code == 400 and (refused["success"], refused["messages"]) == (False, [])
    assert refused["error"] == "namespace or task is required"
    assert http.request("POST", "/api/v1/configure", {"options": {}}, status=None).status_code == 400
    assert http.request("POST", "/api/v1/configure", {"queue": queue, "mode": "other"}, status=None).status_code == 400
    assert http.post("/api/v1/push", {"items": []}, status=(201,)) == []
    assert http.post("/api/v1/ack/batch", {"acknowledgments": []}) == []


def test_explicit_nulls_and_empty_bodies(http, queue):
    http.push(queue, 1, partition="a")
    [message] = http.pop(queue)
    assert http.request("POST", f"/api/v1/lease/{message['leaseId']}/extend", raw=b"")["success"]
    assert http.request("POST", f"/api/v1/lease/{message['leaseId']}/extend", raw=b"{}")["success"]
    body = {"transactionId": message["transactionId"], "partitionId": message["partitionId"], "leaseId": message["leaseId"],
            "status": None, "error": None, "consumerGroup": None}
    assert http.post("/api/v1/ack", body)[0]["success"]


def test_a_strange_authorization_is_ignored(http, queue):
    answer = http.request("POST", "/api/v1/push", {"items": [{"queue": queue, "payload": 1}]}, status=(201,), headers={"Authorization": "Bearer nonsense"})
    assert answer[0]["status"] == "queued"


def test_configure_merges(http, queue):
    assert http.push(queue, 1, partition="a")[0]["status"] == "queued"
    made = http.configure(queue, retryDelay=500, ttl=60, minPopWaitTime=90_000)["options"]
    assert (made["retryDelay"], made["ttl"], made["minPopWaitTime"], made["leaseTime"]) == (500, 60, 60_000, 60)
    made = http.configure(queue, minPopWaitTime=-5, retryDelay=None)["options"]
    assert (made["retryDelay"], made["ttl"], made["minPopWaitTime"]) == (1000, 60, 0)
    made = http.post("/api/v1/configure", {"queue": queue, "mode": "replace", "options": {"retryLimit": 7}})["options"]
    assert (made["retryLimit"], made["ttl"]) == (7, 3600)
    assert http.configure(unique("case"))["options"]["leaseTime"] == 300
    assert data(http.pop(queue)) == [1]


def test_large_documents_and_batches(http, queue):
    large = {"text": "x" * 1_500_000, "n": 1}
    assert http.push(queue, large, partition="large")[0]["status"] == "queued"
    assert http.pop(queue, "large")[0]["data"] == large
    for at in range(0, 5000, 1000):
        http.push(queue, *range(at, at + 1000), partition="many")
    seen = []
    while messages := http.pop(queue, "many", batch=1000):
        seen += data(messages)
        assert all(r["success"] for r in http.ack_all(messages))
    assert seen == list(range(5000))


def test_offset_reads_in_every_state(http, queue):
    missing = http.fetch(queue, "a")[0]
    assert missing["error"] == "UNKNOWN_TOPIC_OR_PARTITION"
    http.push(queue, *range(10), partition="a")
    full, nobody = http.fetch(queue, "a", "nobody")
    assert [r["payload"] for r in full["records"]] == list(range(10)) and (full["highWatermark"], full["logStartOffset"]) == (10, 0)
    assert nobody["records"] == [] and (nobody["highWatermark"], nobody.get("error")) == (0, None)
    assert http.fetch(queue, "a", offset=10)[0]["records"] == []
    beyond = http.fetch(queue, "a", offset=11)[0]
    assert beyond["error"] == "OFFSET_OUT_OF_RANGE" and beyond["highWatermark"] == 10
    begun = time.monotonic()
    assert http.fetch(queue, "a", offset=10, maxWaitMs=700)[0]["records"] == []
    assert time.monotonic() - begun >= 0.6
    answer = http.request("POST", "/api/v1/fetch", {"entries": [{"queue": queue, "partition": "a", "offset": -1}]}, status=None)
    assert answer.status_code == 400


def test_a_kafka_client_and_an_http_client_share_one_lane_store(queen, http, queue):
    """The smallest proof that both suites talk to one log."""
    http.push(queue, {"n": 1}, partition="key")
    with Connection(queen.kafka) as wire:
        home = k.murmur2_partition(b"key", 16)
        assert k.read_all(wire, queue, home)[0].value == b'{"n": 1}'
