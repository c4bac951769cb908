"""The two brokers as processes: started the same way, pinned the same way, measured the same way."""

import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
REPO = BENCH.parents[1]
CACHE = REPO / "compat-tests" / ".cache"
LIBS = Path(os.environ.get("KAFKA_LIBS") or CACHE / "kafka-libs")
QUIET = REPO / "compat-tests" / "java" / "log4j2-quiet.properties"
QUEEN = Path(os.environ.get("QUEEN_BIN") or Path(os.environ.get("CARGO_TARGET_DIR") or REPO / "target") / "release" / "queen")
READY = re.compile(r"^ready kafka=(\S+) http=(\S+) ")
# What Kafka's own kafka-server-start.sh sets, word for word (a smoke run takes a smaller heap and says so).
JVM = ("-Xmx1G -Xms1G -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 "
       "-XX:+ExplicitGCInvokesConcurrent -Djava.awt.headless=true").split()
PARTITIONS = 16


def pinned(cores, command):
    return command if cores is None else ["taskset", "-c", cores, *command]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    http = None

    def __init__(self, home, cores):
        self.home, self.cores = Path(home), cores
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        self.process = None

    # --- what the kernel says about it ---

    def _proc(self, name):
        return Path(f"/proc/{self.process.pid}/{name}").read_text()

    def cpu(self):
        fields = self._proc("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self):
        """Peak, now, and the part of now that is not mapped files, in bytes."""
        found = dict(re.findall(r"^(VmHWM|VmRSS|RssAnon):\s+(\d+) kB", self._proc("status"), re.M))
        return {name: int(kb) * 1024 for name, kb in found.items()}

    def written(self):
        """Bytes the process has sent towards the disk, and bytes it asked to write (sockets included)."""
        found = dict(re.findall(r"^(\w+): (\d+)$", self._proc("io"), re.M))
        return int(found["write_bytes"])

    def fsyncs(self):
        return None

    def begin(self):
        """What has been used so far; asking for it is not counted, see `used`."""
        fsyncs = self.fsyncs()
        return {"fsyncs": fsyncs, "written": self.written(), "cpu": self.cpu(), "at": time.monotonic()}

    def used(self, since):
        """What has been used since `begin`."""
        now = {"at": time.monotonic(), "cpu": self.cpu(), "written": self.written(), "fsyncs": self.fsyncs()}
        return {name: None if now[name] is None else now[name] - since[name] for name in now}

    def stop(self, how=signal.SIGTERM, limit=60):
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)

    def remove(self):
        self.stop(signal.SIGKILL)
        shutil.rmtree(self.home, ignore_errors=True)


class Ours(Server):
    def __init__(self, home, cores, fsync="always"):
        super().__init__(home, cores)
        self.fsync = fsync

    def start(self):
        command = [str(QUEEN), "serve", "--data-dir", str(self.home / "data"), "--kafka-listen", "127.0.0.1:0",
                   "--http-listen", "127.0.0.1:0", "--fsync", self.fsync, "--default-partitions", str(PARTITIONS)]
        with open(self.home / "stderr.log", "ab") as log:
            self.process = subprocess.Popen(
                pinned(self.cores, command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        began = time.monotonic()
        limit = threading.Timer(120, self.process.kill)
        limit.start()
        for line in self.process.stdout:
            match = READY.match(line)
            if match:
                break
        else:
            raise RuntimeError(f"queen did not start, see {self.home / 'stderr.log'}")
        limit.cancel()
        self.ready_seconds = time.monotonic() - began
        self.kafka, self.http = match[1], match[2]
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        return self

    def metrics(self):
        with urllib.request.urlopen(f"http://{self.http}/metrics/prometheus", timeout=20) as answer:
            text = answer.read().decode()
        return {m[1]: float(m[2]) for m in re.finditer(r"^([a-z_0-9]+) ([0-9.e+-]+)$", text, re.M)}

    def fsyncs(self):
        return next((int(v) for name, v in self.metrics().items() if re.search(r"fsyncs?(_total)?$", name)), None)


class Peer(Server):
    def __init__(self, home, cores, flush=False, heap="1G"):
        super().__init__(home, cores)
        self.options = [f"{option[:4]}{heap}" if option[:4] in ("-Xmx", "-Xms") else option for option in JVM]
        self.flush = flush
        self.port, self.controller = free_port(), free_port()
        self.kafka = f"127.0.0.1:{self.port}"

    def _java(self, main, *arguments, options=("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")):
        return ["java", *options, f"-Dlog4j2.configurationFile={QUIET}", "-cp", f"{LIBS}/*", main, *arguments]

    def start(self):
        config = self.home / "server.properties"
        if not config.exists():
            lines = {
                "process.roles": "broker,controller", "node.id": 1,
                "controller.quorum.voters": f"1@127.0.0.1:{self.controller}",
                "listeners": f"PLAINTEXT://{self.kafka},CONTROLLER://127.0.0.1:{self.controller}",
                "advertised.listeners": f"PLAINTEXT://{self.kafka}",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "log.dirs": self.home / "data", "num.partitions": PARTITIONS,
                "offsets.topic.replication.factor": 1, "transaction.state.log.replication.factor": 1,
                "transaction.state.log.min.isr": 1, "share.coordinator.state.topic.replication.factor": 1,
                "share.coordinator.state.topic.min.isr": 1, "group.initial.rebalance.delay.ms": 0,
            }
            if self.flush:
                lines["log.flush.interval.messages"] = 1
            config.write_text("".join(f"{k}={v}\n" for k, v in lines.items()))
            identity = subprocess.run(self._java("kafka.tools.StorageTool", "random-uuid"), capture_output=True, text=True, timeout=60).stdout.strip()
            subprocess.run(self._java("kafka.tools.StorageTool", "format", "-t", identity, "-c", str(config)),
                           check=True, capture_output=True, timeout=60)
        began = time.monotonic()
        with open(self.home / "peer.log", "ab") as log:
            self.process = subprocess.Popen(
                pinned(self.cores, self._java("kafka.Kafka", str(config), options=self.options)),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        # ApiVersions v0: length, key 18, version 0, correlation 1, no client id.
        ask = bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", ""))
        while True:
            if self.process.poll() is not None or time.monotonic() - began > 120:
                raise RuntimeError(f"the peer did not start, see {self.home / 'peer.log'}")
            try:
                with socket.create_connection(("127.0.0.1", self.port), 2) as probe:
                    probe.sendall(ask)
                    if probe.recv(64)[8:10] == b"\0\0":
                        break
            except OSError:
                pass
            time.sleep(0.05)
        self.ready_seconds = time.monotonic() - began
        return self
