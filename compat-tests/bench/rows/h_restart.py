"""h: restart with a full log: after a clean stop and after a kill. Nothing may be missing afterwards."""

import shutil
import signal

from figures import NAMES, Table, Verdict, distinct, mid, show, span
from servers import CACHE

TITLE = "Restart"
SIZE = 10_000


def run(bench):
    scale = bench.scale["h"]
    room = shutil.disk_usage(CACHE).free / 3e9
    if room < scale["gigabytes"]:
        bench.notes.append(f"Row h retains {room:.1f} GB instead of {scale['gigabytes']}: the disk has no more room.")
        scale["gigabytes"] = round(room, 1)
    more = max(int(scale["gigabytes"] * 1e9 / SIZE / 20), 1)
    filled = 20 * more - scale["starts"] * more
    for kind in ["ours", *bench.peers[:1]]:
        with bench.servers(kind) as servers:
            server = servers[kind]
            bench.load(server, kind, 0, "produce", filled, topic="h", messages=filled, size=SIZE, limit_s=400)
            count = filled
            for turn in range(scale["starts"]):
                # So that a kill always leaves something that no checkpoint has.
                bench.load(server, kind, turn, "produce", more, op="more", topic="h", messages=more, first=count, size=SIZE)
                count += more
                for how, name in ((signal.SIGKILL, "kill"), (signal.SIGTERM, "clean stop")):
                    server.stop(how)
                    server.start()
                    bench.note({"server": kind, "op": "start", "how": name, "run": turn, "seconds": server.ready_seconds, "gigabytes": scale["gigabytes"]})
            bench.load(server, kind, 0, "fetch", count, topic="h", messages=count)


def tables(records):
    table = Table(f"Seconds until it serves, {show(max(distinct(records, 'gigabytes'), default=None), 2)} GB retained (page cache warm)", ["Broker", "After a clean stop", "After kill -9 with fresh writes"])
    for kind in distinct(records, "server"):
        table.rows.append([NAMES[kind], *(span(records, "seconds", op="start", server=kind, how=how) for how in ("clean stop", "kill"))])
    return [table]


def verdicts(records):
    gigabytes = max(distinct(records, "gigabytes"), default=0)
    return [Verdict(f"Restart after {how}: under 2 s with 10 GB retained", f"{show(value)} s", value, 2,
                    only="" if gigabytes >= 10 else f"with {show(gigabytes)} GB")
            for how in ("clean stop", "kill") for value in [mid(records, "seconds", op="start", server="ours", how=how)]]


def plots(records):
    return []
