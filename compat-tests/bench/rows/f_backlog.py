"""f: a backlog is read: by a Kafka client that checks every message, and over a plain socket that only counts."""

from figures import NAMES, Table, distinct, mid, ratio, show, span

TITLE = "Backlog"


def run(bench):
    scale = bench.scale["f"]
    count, size = scale["messages"], scale["size"]
    with bench.servers("ours", *bench.peers[:1]) as servers:
        bench.warm(servers)
        for kind, server in servers.items():
            bench.load(server, kind, 0, "produce", count, topic="f", messages=count, size=size)
        for turn, kind, server in bench.by_run(servers):
            bench.load(server, kind, turn, "consume", count, topic="f", messages=count, size=size)
            bench.load(server, kind, turn, "fetch", count, topic="f", messages=count)


def tables(records):
    table = Table("Reading what is there (page cache warm), 1 KB", ["Reader", "Broker", "CPU µs/message", "Queen / it", "Messages/s", "GB/s"])
    for op, name in (("consume", "librdkafka"), ("fetch", "plain socket")):
        for kind in distinct(records, "server"):
            here = {"op": op, "server": kind}
            table.rows.append([name, NAMES[kind], span(records, "cpu_us", 3, **here), show(ratio(mid(records, "cpu_us", op=op, server="ours"), mid(records, "cpu_us", **here))),
                               show(mid(records, "per_second", **here)), show(mid(records, "gb_per_second", **here))])
    return [table]


def verdicts(records):
    return []


def plots(records):
    return []
