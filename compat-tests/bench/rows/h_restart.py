"""h: restart with a full log: after a clean stop and after a kill. Nothing may be missing afterwards."""

import signal

from figures import NAMES, Table, Verdict, distinct, show, span

TITLE = "Restart"
SIZE = 10_000


def run(bench):
    scale = bench.scale["h"]
    count = int(scale["gigabytes"] * 1e9 / SIZE)
    for kind in ["ours", *bench.peers[:1]]:
        with bench.servers(kind) as servers:
            server = servers[kind]
            bench.load(server, kind, 0, "produce", count, topic="h", messages=count, size=SIZE, limit_s=400)
            for turn in range(scale["starts"]):
                for how, name in ((signal.SIGTERM, "clean stop"), (signal.SIGKILL, "kill")):
                    server.stop(how)
                    server.start()
                    bench.note({"server": kind, "op": "start", "how": name, "run": turn, "seconds": server.ready_seconds, "gigabytes": scale["gigabytes"]})
            bench.load(server, kind, 0, "fetch", count, topic="h", messages=count)


def tables(records):
    table = Table(f"Seconds until it serves, {show(max(distinct(records, 'gigabytes'), default=None), 2)} GB retained (page cache warm)", ["Broker", "After a clean stop", "After kill -9"])
    for kind in distinct(records, "server"):
        table.rows.append([NAMES[kind], *(span(records, "seconds", op="start", server=kind, how=how) for how in ("clean stop", "kill"))])
    return [table]


def verdicts(records):
    from figures import mid
    gigabytes = max(distinct(records, "gigabytes"), default=None)
    return [Verdict(f"Restart after {how}: under 2 s with 10 GB retained (here {show(gigabytes)} GB)", f"{show(value)} s", value, 2)
            for how in ("clean stop", "kill") for value in [mid(records, "seconds", op="start", server="ours", how=how)]]


def plots(records):
    return []
