"""g: the worker's step as one transaction: an ack, ten pushes, a key, a timer. Counted in what the steps left."""

import json
import urllib.request

from figures import Table, Verdict, mid, show, span

TITLE = "Transactions"
WORKERS = 4


def ask(server, path):
    with urllib.request.urlopen(f"http://{server.http}/api/v1/{path}", timeout=20) as answer:
        return json.load(answer)


def run(bench):
    steps = bench.scale["g"]["steps"]
    with bench.servers("ours") as servers:
        server = servers["ours"]
        for turn in range(bench.runs):
            topic = f"g-{turn}"
            bench.load(server, "ours", turn, "push", steps, topic=topic, messages=steps, lanes=steps)
            done = bench.load(server, "ours", turn, "steps", steps, topic=topic, messages=steps, lanes=steps, readers=WORKERS)
            # Every run uses the same lanes, so the same keys.
            depth = ask(server, f"resources/queues/{topic}/depth?consumerGroup=bench")
            keys = {row["namespace"]: row["keys"] for row in ask(server, "resources/kv/namespaces")["namespaces"]}
            left = {"steps": done.get("steps"), "timers": ask(server, f"timers/{topic}-later?mode=count&prefix=t-")["count"], "keys": keys.get("bench"),
                    "acked": steps - depth["pending"] - depth["processing"]}
            bench.note({"server": "ours", "op": "count", "run": turn, **left, "wanted": steps, "ok": set(left.values()) == {steps}})
            bench.load(server, "ours", turn, "drain", 10 * steps, topic=f"{topic}-out", messages=10 * steps, lanes=steps, writers=1, unordered=True)


def tables(records):
    for record in records:
        if record["op"] == "steps" and record.get("fsyncs") is not None and record.get("steps"):
            record["fsyncs_per_step"] = record["fsyncs"] / record["steps"]
    table = Table(f"{WORKERS} workers, each one step at a time", ["Steps/s", "p50 ms", "p99 ms", "CPU µs/step", "CPU µs/message pushed", "fsyncs/step"])
    cost = mid(records, "cpu_us", op="steps")
    table.rows.append([span(records, "per_second", op="steps"), show(mid(records, "step.p50_ms", op="steps")), show(mid(records, "step.p99_ms", op="steps")),
                       span(records, "cpu_us", op="steps"), show(None if cost is None else cost / 10), show(mid(records, "fsyncs_per_step", op="steps"))])
    return [table]


def verdicts(records):
    per_step = mid(records, "fsyncs_per_step", op="steps")
    # The clock tick of a scheduler may flush once more now and then.
    return [Verdict("Transaction of ten messages: one fsync (or less, shared)", f"{show(per_step)} fsyncs/step", per_step, 1.02)]


def plots(records):
    return []
