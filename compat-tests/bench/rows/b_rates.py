"""b: end-to-end latency at fixed rates, from the moment a message is due to the moment it is read."""

from figures import NAMES, Table, Verdict, distinct, mid, ratio, show, span

TITLE = "Latency at fixed rates"
KEYS = ("p50_ms", "p99_ms", "p999_ms")


def run(bench):
    scale = bench.scale["b"]
    with bench.against() as servers:
        bench.warm(servers)
        # A JVM is not warm for a slow trickle after a flood: a little of what is measured, not counted.
        for kind, server in servers.items():
            count = int(scale["rates"][0] * scale["seconds"])
            bench.load(server, kind, -1, "both", count, topic="b-warm", messages=count, rate=scale["rates"][0], linger_ms=1, op="warm")
        for rate in scale["rates"]:
            for turn, kind, server in bench.by_run(servers):
                count = int(rate * scale["seconds"])
                bench.load(server, kind, turn, "both", count, {"rate": rate}, topic=f"b-{rate}-{turn}", messages=count, rate=rate, linger_ms=1)


def tables(records):
    table = Table("End to end, ms; 256 B, client linger 1 ms", ["Rate/s", "Broker", "p50", "p99", "p99.9", "Queen / it: p50", "p99", "p99.9", "CPU µs/message", "Max"])
    for rate in distinct(records, "rate"):
        for kind in distinct(records, "server"):
            here = {"server": kind, "rate": rate}
            table.rows.append([rate, NAMES[kind], *(span(records, f"e2e.{key}", **here) for key in KEYS),
                               *(show(ratio(mid(records, f"e2e.{key}", server="ours", rate=rate), mid(records, f"e2e.{key}", **here))) for key in KEYS),
                               span(records, "cpu_us", **here), show(mid(records, "e2e.max_ms", **here))])
    return [table]


def verdicts(records):
    found = []
    for rate in distinct(records, "rate"):
        for kind, limit, words in (("kafka", 1.0, "at most Kafka's"), ("kafka-flush", 1 / 3, "at most a third of Kafka's with flush 1")):
            for key in KEYS[:2]:
                ours, its = (mid(records, f"e2e.{key}", server=one, rate=rate) for one in ("ours", kind))
                found.append(Verdict(f"{key[:3]} at {rate}/s: {words}", f"{show(ours)} / {show(its)} ms", ratio(ours, its), limit))
    return found


def plots(records):
    series = {f"{NAMES[kind]} {key[:-3]}": [(rate, mid(records, f"e2e.{key}", server=kind, rate=rate)) for rate in distinct(records, "rate")]
              for kind in distinct(records, "server") for key in KEYS[:2]}
    return [("latency-rate", "End-to-end latency against rate", "messages per second", "ms", series, True, True)]
