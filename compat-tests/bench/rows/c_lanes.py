"""c: what lanes cost. Twice the same keys: the first pass makes the lanes, the second finds them."""

from figures import NAMES, Table, Verdict, distinct, mb, mid, ratio, show, span

TITLE = "Lanes"


def run(bench):
    scale = bench.scale["c"]
    ends = (min(scale["lanes"]), max(scale["lanes"]))
    for turn in range(bench.runs):
        for lanes in scale["lanes"]:
            count = max(lanes, scale["messages"])
            # Kafka knows no lanes: a few keys and many keys are enough. Row c is about ours, Kafka's own defaults stand beside it.
            kinds = ["ours"] + [kind for kind in bench.peers[:1] if lanes in ends]
            for kind in kinds:
                with bench.servers(kind) as servers:
                    bench.warm(servers)
                    server, variant = servers[kind], {"lanes": lanes}
                    common = {"topic": "c", "lanes": lanes}
                    bench.memory(server, kind, turn, lanes=lanes, when="before")
                    bench.load(server, kind, turn, "produce", count, variant, op="create", messages=count, **common)
                    bench.memory(server, kind, turn, lanes=lanes, when="after")
                    bench.load(server, kind, turn, "produce", count, variant, op="again", messages=count, first=count, **common)
                    bench.load(server, kind, turn, "consume", 2 * count, variant, messages=2 * count, **common)


def per_lane(records, lanes):
    before, after = (mid(records, "RssAnon", server="ours", op="memory", lanes=lanes, when=when) for when in ("before", "after"))
    return None if before is None or after is None else (after - before) / lanes


def tables(records):
    table = Table("Produce, 256 B", ["Lanes", "Broker", "New lanes, CPU µs/message", "Again, CPU µs/message", "Read, CPU µs/message", "Again, sent/s", "VmHWM", "RssAnon", "RssAnon B/new lane"],
                  words="RssAnon per lane contains the index of the messages that made the lanes; below 100,000 lanes it is noise and not shown.")
    for lanes in distinct(records, "lanes"):
        for kind in distinct(records, "server"):
            here = {"server": kind, "lanes": lanes}
            if mid(records, "cpu_us", op="create", **here) is None:
                continue
            table.rows.append([f"{lanes:,}", NAMES[kind], *(span(records, "cpu_us", op=op, **here) for op in ("create", "again", "consume")),
                               show(mid(records, "per_second", op="again", **here)), mb(mid(records, "VmHWM", op="memory", when="after", **here)),
                               mb(mid(records, "RssAnon", op="memory", when="after", **here)),
                               show(per_lane(records, lanes)) if kind == "ours" and lanes >= 100_000 else "-"])
    return [table]


def verdicts(records):
    all_lanes = distinct(records, "lanes")
    if not all_lanes:
        return []
    few, many = min(all_lanes), max(all_lanes)
    many_rate, few_rate = (mid(records, "per_second", op="again", server="ours", lanes=lanes) for lanes in (many, few))
    found = [Verdict(f"Throughput at {many:,} lanes / at {few}: at least 0.9", f"{show(many_rate)} / {show(few_rate)} /s", ratio(many_rate, few_rate), 0.9, least=True,
                     only="" if many >= 10_000_000 else f"at {many:,} lanes instead of 10,000,000")]
    if many >= 100_000:
        found.append(Verdict(f"Memory per new lane at {many:,}: at most 100 B", f"{show(per_lane(records, many))} B RssAnon", per_lane(records, many), 100))
    return found


def plots(records):
    names = {"create": "new lanes", "again": "again"}
    series = {f"{NAMES[kind]}, {names[op]}": [(lanes, mid(records, "cpu_us", server=kind, op=op, lanes=lanes)) for lanes in distinct(records, "lanes")]
              for kind in distinct(records, "server") for op in names}
    return [("cost-lanes", "Broker CPU per produced message against lanes", "lanes", "µs per message", series, True, False)]
