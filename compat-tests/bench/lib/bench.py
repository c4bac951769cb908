"""One benchmark: its servers, the loader beside them, and everything that was measured, one record per load."""

import json
import os
import resource
import subprocess
import time
from contextlib import contextmanager

from servers import BENCH, CACHE, Ours, Peer, pinned

LOADER = BENCH / "loader" / "target" / "release" / "bench-loader"
PEERS = {"kafka": False, "kafka-flush": True}


class OutOfTime(Exception):
    pass


def cores():
    """The broker's half of the cores and the loader's; no pinning on a single core."""
    all_of_them = sorted(os.sched_getaffinity(0))
    if len(all_of_them) < 2:
        return None, None
    half = len(all_of_them) // 2
    return ",".join(map(str, all_of_them[:half])), ",".join(map(str, all_of_them[half:]))


def raise_limit():
    """As many open files as we may have; the brokers and the loader inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (65_536, hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
            return wanted
        except (ValueError, OSError):
            pass
    return soft


class Bench:
    def __init__(self, scale, peers, say):
        self.scale, self.peers, self.say = scale, peers, say
        self.runs = scale["runs"]
        self.began = time.monotonic()
        self.broker_cores, self.loader_cores = cores()
        self.files = raise_limit()
        self.records, self.troubles, self.notes, self.commands = [], [], [], {}
        self.alive, self.row = [], None

    def left(self):
        return self.scale["minutes"] * 60 - (time.monotonic() - self.began)

    # --- servers ---

    def _make(self, kind):
        home = CACHE / "bench" / f"{kind}-{os.getpid()}"
        if kind == "ours":
            return Ours(home, self.broker_cores)
        return Peer(home, self.broker_cores, flush=PEERS[kind], heap=self.scale["heap"])

    @contextmanager
    def servers(self, *kinds):
        """These servers, started; gone with everything they keep at the end."""
        mine = {}
        try:
            for kind in kinds:
                server = self._make(kind)
                self.alive.append(server)
                mine[kind] = server
                server.start()
            yield mine
        finally:
            for server in mine.values():
                server.remove()
                self.alive.remove(server)

    def against(self):
        """Ours and the peers that this benchmark has."""
        return self.servers("ours", *self.peers)

    def stop_all(self):
        for server in self.alive:
            server.remove()

    def warm(self, servers):
        for server in servers.values():
            self._run([str(LOADER), "produce", "--brokers", server.kafka, "--topic", "warm", "--messages", str(self.scale["warm"])])
            self._run([str(LOADER), "consume", "--brokers", server.kafka, "--topic", "warm", "--messages", str(self.scale["warm"])])

    # --- loads ---

    def _run(self, command):
        if self.left() < 1:
            raise OutOfTime()
        command = pinned(self.loader_cores, command)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=self.left() + 10,
                                  env={**os.environ, "RUST_BACKTRACE": "0"})
        except subprocess.TimeoutExpired:
            raise OutOfTime() from None
        answer = json.loads(done.stdout) if done.stdout.strip() else {"ok": False}
        if done.returncode or not answer.get("ok"):
            answer["ok"] = False
            answer["said"] = done.stderr.strip()[:400]
        return answer

    def load(self, server, kind, run, what, count, variant=None, op=None, **options):
        """Runs one load; what the broker used meanwhile stands beside what the loader found. Every load checks its counts."""
        command = [str(LOADER), what]
        command += ["--http", server.http] if what in ("push", "drain", "flow", "steps") else ["--brokers", server.kafka]
        for name, value in options.items():
            option = "--" + name.replace("_", "-")
            command += [option] if value is True else [option, str(value)]
        op = op or what
        self.commands.setdefault(f"{self.row} {op}", " ".join(["bench-loader", *command[1:]]))
        before = server.begin()
        answer = self._run(command)
        used = server.used(before)
        record = {"row": self.row, "server": kind, "op": op, "run": run, **(variant or {}), "count": count,
                  "cpu_us": used["cpu"] / count * 1e6, "written_per_message": used["written"] / count,
                  "fsyncs": used["fsyncs"], **answer}
        self.note(record)
        return record

    def note(self, record):
        record.setdefault("row", self.row)
        self.records.append(record)
        if not record.get("ok", True):
            self.troubles.append(f"row {record['row']}: {record['server']} {record['op']}: {json.dumps(record)[:600]}")
            self.say(f"  FAILED {self.troubles[-1]}")

    def memory(self, server, kind, run=0, **variant):
        self.note({"row": self.row, "server": kind, "op": "memory", "run": run, **variant, **server.memory()})

    def by_run(self, servers):
        """Interleaved: every server once, then every server again, each round beginning with another one."""
        kinds = list(servers)
        for run in range(self.runs):
            turn = run % len(kinds)
            for kind in kinds[turn:] + kinds[:turn]:
                yield run, kind, servers[kind]
