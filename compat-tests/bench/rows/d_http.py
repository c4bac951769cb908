"""d: HTTP push, then pop and ack, over few lanes and with every message in its own lane."""

from figures import Table, Verdict, distinct, mid, ratio, show, span

TITLE = "HTTP: push, pop, ack"


def run(bench):
    scale = bench.scale["d"]
    count = scale["messages"]
    with bench.servers("ours") as servers:
        server = servers["ours"]
        for turn in range(bench.runs):
            for lanes in [*scale["lanes"], count]:
                variant, common = {"lanes": lanes}, {"topic": f"d-{lanes}-{turn}", "messages": count, "lanes": lanes}
                bench.load(server, "ours", turn, "push", count, variant, **common)
                bench.load(server, "ours", turn, "drain", count, variant, **common)
        bench.memory(server, "ours")


def tables(records):
    table = Table("256 B, batches of 100, 10 connections push, 4 pop and ack",
                  ["Lanes", "Push, CPU µs/message", "Push/s", "Push p99 ms", "Pop and ack, CPU µs/message", "Drained/s", "Pop-and-ack step p99 ms"])
    for lanes in distinct(records, "lanes"):
        here = {"lanes": lanes}
        table.rows.append([f"{lanes:,}", span(records, "cpu_us", op="push", **here), show(mid(records, "per_second", op="push", **here)), show(mid(records, "push.p99_ms", op="push", **here)),
                           span(records, "cpu_us", op="drain", **here), show(mid(records, "per_second", op="drain", **here)), show(mid(records, "step.p99_ms", op="drain", **here))])
    return [table]


def verdicts(records):
    lanes = distinct(records, "lanes")
    if not lanes:
        return []
    few, own = min(lanes), max(lanes)

    def seconds(lanes):
        parts = [mid(records, "seconds", op=op, lanes=lanes) for op in ("push", "drain")]
        return None if None in parts else sum(parts)
    drain = mid(records, "cpu_us", op="drain", lanes=few)
    return [Verdict("Every message its own lane: no slower than few lanes, within 20 %", f"{show(seconds(own))} / {show(seconds(few))} s", ratio(seconds(own), seconds(few)), 1.2),
            Verdict("Pop and ack over few lanes: about 6 µs of CPU per message (our aim, not in the design)", f"{show(drain)} µs", drain, 6)]


def plots(records):
    return []
