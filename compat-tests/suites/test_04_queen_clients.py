"""The official Queen clients, unmodified: the five-minute guide with both, and the suites inside their packages."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import pytest
from harness import official
from harness.broker import Queen
from harness.http import unique


# --- the guide ----------------------------------------------------------------------------------


async def test_the_guide_with_the_python_client(http, queen):
    from queen import Queen as Client

    name = unique("guide")
    orders, receipts, reminders = f"{name}-orders", f"{name}-receipts", f"{name}-reminders"
    assert http.get("/health")["status"] == "healthy"
    async with Client(f"http://{queen.http}") as client:
        # Configure.
        made = await client.queue(orders).config({"leaseTime": 30, "retryLimit": 2}).create()
        assert made["configured"] is True
        assert made["options"]["leaseTime"] == 30 and made["options"]["retryLimit"] == 2

        # The same transaction id twice: the second is a duplicate and names the first.
        item = {"transactionId": "order-8891-placed", "data": {"order": 8891, "total": 42.5}}
        first = await client.queue(orders).partition("customer-7").push([item])
        again = await client.queue(orders).partition("customer-7").push([item])
        assert first[0]["status"] == "queued" and first[0]["offset"] == 0
        assert again[0]["status"] == "duplicate"
        assert again[0]["message_id"] == first[0]["message_id"] and again[0]["offset"] == 0

        # Consume: handed over, acked, done at the limit.
        seen = []

        async def handle(message):
            seen.append(message)

        await client.queue(orders).limit(1).each().consume(handle)
        assert [m["data"] for m in seen] == [{"order": 8891, "total": 42.5}]
        assert seen[0]["partition"] == "customer-7" and seen[0]["transactionId"] == "order-8891-placed"
        assert seen[0]["deliveryAttempt"] == 1
        assert await client.queue(orders).batch(1).wait(False).pop() == []

        # The transaction: ack, state with a lifetime, the next event, tomorrow's reminder.
        await client.queue(orders).partition("customer-7").push([{"data": {"order": 8892}}])
        popped = await client.queue(orders).batch(1).wait(True).pop()
        assert len(popped) == 1
        done = await (
            client.transaction()
            .ack(popped[0])
            .queue(receipts).partition("customer-7").push([{"transactionId": "receipt-8892", "data": {"receipt": 8892}}])
            .kv.put("orders", f"{name}/8892", {"state": "paid"}, ttl_seconds=3600)
            .timer(reminders).key("order-8892").payload({"remind": 8892}).after_ms(300).schedule()
            .commit()
        )
        assert done["success"] is True
        assert [r["type"] for r in done["results"]] == ["ack", "push", "kv", "timer"]
        state = await client.kv.get("orders", f"{name}/8892")
        assert state["found"] and state["value"] == {"state": "paid"} and state["expiresAt"]
        receipt = await client.queue(receipts).batch(1).wait(True).pop()
        assert receipt[0]["data"] == {"receipt": 8892} and receipt[0]["partition"] == "customer-7"
        reminder = await client.queue(reminders).batch(1).wait(True).timeout_millis(20_000).pop()
        assert [m["data"] for m in reminder] == [{"remind": 8892}]
        assert await client.queue(orders).batch(1).wait(False).pop() == []

        # A receipt that is there already undoes the whole step, and the message is still leased.
        await client.queue(orders).partition("customer-7").push([{"data": {"order": 8893}}])
        popped = await client.queue(orders).batch(1).wait(True).pop()

        def step(receipt_id):
            return (
                client.transaction()
                .ack(popped[0])
                .queue(receipts).partition("customer-7").push([{"transactionId": receipt_id, "data": {"receipt": 8893}}])
                .kv.put("orders", f"{name}/8893", {"state": "paid"}, ttl_seconds=3600)
            )

        with pytest.raises(Exception, match="QDUP"):
            await step("receipt-8892").commit()
        assert not (await client.kv.get("orders", f"{name}/8893"))["found"]
        assert await client.queue(orders).batch(1).wait(False).pop() == []
        assert (await step("receipt-8893").commit())["success"] is True
        assert (await client.kv.get("orders", f"{name}/8893"))["found"]

        # A second group with a start of its own.
        hour_ago = (datetime.now(timezone.utc) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        audit = await client.queue(orders).group("audit").subscription_from(hour_ago).batch(10).wait(True).pop()
        assert [m["data"]["order"] for m in audit] == [8891, 8892, 8893]
        assert await client.queue(orders).group("late").subscription_from("now").wait(False).pop() == []
        await client.queue(orders).partition("customer-7").push([{"data": {"order": 8894}}])
        late = await client.queue(orders).group("late").batch(10).wait(True).pop()
        assert [m["data"]["order"] for m in late] == [8894]

        # Reads by offset: no lease, no cursor.
        read = await client.queue(orders).fetch(["customer-7", "nobody"])
        lane = read["customer-7"]
        assert [r["offset"] for r in lane["records"]] == [0, 1, 2, 3]
        assert [r["payload"]["order"] for r in lane["records"]] == [8891, 8892, 8893, 8894]
        assert lane["records"][0]["transactionId"] == "order-8891-placed"
        assert lane["highWatermark"] == lane["nextOffset"] == 4
        assert read["nobody"]["records"] == []
        later = await client.queue(orders).fetch(["customer-7"], offsets={"customer-7": 3})
        assert len(later["customer-7"]["records"]) == 1
        changed = await client.queue(orders).changed_since(datetime.now(timezone.utc) - timedelta(minutes=10))
        assert "customer-7" in [p["name"] for p in changed["partitions"]]


def test_the_guide_with_the_rust_client(queen):
    binary = official.CACHE / "rust" / "target" / "debug" / "guide"
    done = subprocess.run([binary, f"http://{queen.http}", unique("guide")], capture_output=True, timeout=90)
    out, err = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == 0, f"{out}\n{err[-4000:]}"
    assert out.splitlines() == ["configured", "pushed", "consumed", "committed", "refused", "second group", "read by offset", "done"]


def test_the_guide_over_plain_http(http):
    """The minimal conversation, as curl would have it."""
    name = unique("guide")
    assert http.configure(name, leaseTime=30)["options"]["leaseTime"] == 30
    first = http.push(name, items=[{"payload": {"n": 1}, "transactionId": "t1"}])[0]
    assert (first["status"], first["offset"], first["index"], first["queueName"]) == ("queued", 0, 0, name)
    again = http.push(name, items=[{"payload": {"n": 1}, "transactionId": "t1"}])[0]
    assert (again["status"], again["offset"], again["message_id"]) == ("duplicate", 0, first["message_id"])
    answer = http.pop_answer(name, batch=1, wait=True, timeout=5000)
    assert answer["success"] is True and answer["leaseId"] and answer["queue"] == name and answer["partitionsClaimed"] == 1
    message = answer["messages"][0]
    assert (message["offset"], message["deliveryAttempt"], message["data"], message["partition"]) == (0, 1, {"n": 1}, "Default")
    assert message["id"] == first["message_id"] and message["traceId"] is None and message["producerSub"] is None
    assert http.ack(message) == {
        "index": 0, "transactionId": "t1", "success": True, "error": None, "leaseReleased": True, "dlq": False, "noop": False}
    assert http.pop_answer(name) is None


# --- the suites in the packages -----------------------------------------------------------------


def _wanted(config):
    lists = [official.REQUIRED] + ([official.BEYOND] if config.getoption("--official-all") else [])
    return [(language, name) for chosen in lists for language, names in chosen.items() for name in names]


def pytest_generate_tests(metafunc):
    if "official_case" not in metafunc.fixturenames:
        return
    leave_out, parameters = official.skipped(), []
    for language, name in _wanted(metafunc.config):
        for case in official.cases(language, name):
            reason = leave_out.get((f"{language}/{name}", case))
            marks = [pytest.mark.skip(reason=f"expected.toml: {reason}")] if reason else []
            parameters.append(pytest.param((language, name, case), id=f"{language}-{name}-{case}", marks=marks))
    metafunc.parametrize("official_case", parameters)


@pytest.fixture(scope="module")
def official_results(request, binary, tmp_path_factory):
    """Every wanted file runs beside the guide's tests, two at a time, each against a fresh broker."""
    leave_out = official.skipped()
    wanted = {item.callspec.params["official_case"][:2] for item in request.session.items if hasattr(item, "callspec")
              and "official_case" in item.callspec.params}

    def one(language, name):
        home = tmp_path_factory.mktemp(f"official-{language}-{name}")
        broker = Queen(home / "broker")
        try:
            broker.start()
            skip = [case for suite, case in leave_out if suite == f"{language}/{name}"]
            return official.run(language, name, f"http://{broker.http}", home / "run", skip)
        finally:
            broker.kill()
            shutil.rmtree(broker.data, ignore_errors=True)

    with ThreadPoolExecutor(int(os.environ.get("OFFICIAL_JOBS", "2"))) as pool:
        # The longest first.
        order = sorted(wanted, key=lambda w: w not in [("python", "test_subscription"), ("rust", "core"), ("python", "test_consume")])
        yield {which: pool.submit(one, *which) for which in order}


@pytest.mark.timeout(900)
def test_official(official_results, official_case):
    language, name, case = official_case
    result = official_results[language, name].result()
    assert case not in result.failed, result.failed[case][-3000:]
    assert case in result.passed, f"{case} did not run:\n{result.output[-3000:]}"


def test_the_list_of_left_out_cases_names_real_ones():
    known = {(f"{language}/{name}", case)
             for lists in (official.REQUIRED, official.BEYOND) for language, names in lists.items() for name in names
             for case in official.cases(language, name)}
    for entry, reason in official.skipped().items():
        assert entry in known and len(reason) > 10, entry
