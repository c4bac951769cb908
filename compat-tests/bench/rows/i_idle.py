"""i: a node that nobody asks anything, and one that holds many connections which ask nothing."""

import json
import subprocess
import threading
import time

from bench import LOADER
from figures import NAMES, Table, Verdict, distinct, mb, mid, show
from servers import pinned

TITLE = "Idle"
SPARE_FILES = 500


def watch(bench, server, kind, seconds, state, connections=0):
    time.sleep(1)
    before = server.begin()
    time.sleep(seconds)
    used = server.used(before)
    bench.note({"server": kind, "op": "idle", "run": 0, "state": state, "connections": connections,
                "core_percent": used["cpu"] / used["at"] * 100, **server.memory()})


def run(bench):
    scale = bench.scale["i"]
    room = bench.files - SPARE_FILES
    wanted = scale["kafka"] + scale["pops"]
    share = min(1.0, room / wanted)
    if share < 1:
        bench.notes.append(f"Row i holds {int(wanted * share):,} connections instead of {wanted:,}: a process may open {bench.files:,} files here.")
    kafka, pops = int(scale["kafka"] * share), int(scale["pops"] * share)
    for kind in ["ours", *bench.peers[:1]]:
        with bench.servers(kind) as servers:
            server = servers[kind]
            watch(bench, server, kind, scale["seconds"], "alone")
            command = [str(LOADER), "idle", "--brokers", server.kafka, "--kafka-connections", str(kafka), "--seconds", str(scale["seconds"] + 3)]
            held = kafka
            if server.http:
                command += ["--http", server.http, "--pops", str(pops), "--topics", "10"]
                held += pops
            bench.commands.setdefault("i idle", " ".join(["bench-loader", *command[1:]]))
            holder = subprocess.Popen(pinned(bench.loader_cores, command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            limit = threading.Timer(scale["seconds"] * 2 + 60, holder.kill)
            limit.start()
            try:
                if holder.stderr.readline().strip() == "holding":
                    watch(bench, server, kind, scale["seconds"], "holding", held)
                out, said = holder.communicate(timeout=scale["seconds"] + 60)
            finally:
                limit.cancel()
                if holder.poll() is None:
                    holder.kill()
                    holder.wait()
            answer = json.loads(out) if out.strip() else {"ok": False, "said": said[-400:]}
            bench.note({"server": kind, "op": "hold", "run": 0, **answer})


def tables(records):
    table = Table("Doing nothing", ["State", "Broker", "Connections", "% of a core", "VmRSS", "RssAnon", "RssAnon B/connection"])
    for state in ("alone", "holding"):
        for kind in distinct(records, "server"):
            here = {"op": "idle", "server": kind, "state": state}
            count = mid(records, "connections", **here)
            before, now = mid(records, "RssAnon", op="idle", server=kind, state="alone"), mid(records, "RssAnon", **here)
            table.rows.append([state, NAMES[kind], show(count, 0), show(mid(records, "core_percent", **here)), mb(mid(records, "VmRSS", **here)), mb(now),
                               show((now - before) / count) if count and now is not None and before is not None else "-"])
    return [table]


def verdicts(records):
    here = {"op": "idle", "server": "ours", "state": "alone"}
    memory, cpu = mid(records, "VmRSS", **here), mid(records, "core_percent", **here)
    return [Verdict("Idle node: under 30 MB resident", mb(memory), memory, 30e6), Verdict("Idle node: under 0.5 % of a core", f"{show(cpu)} %", cpu, 0.5)]


def plots(records):
    return []
