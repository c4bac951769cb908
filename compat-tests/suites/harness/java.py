"""Apache Kafka from Maven Central: its shell tools, and one KRaft node as the peer."""

import os
import signal
import socket
import subprocess
import threading
from pathlib import Path

from .broker import REPO
from .polling import eventually
from .wire import ApiVersions, Connection

CACHE = REPO / "compat-tests" / ".cache"
LIBS = CACHE / "kafka-libs"
QUIET = Path(__file__).resolve().parents[2] / "java" / "log4j2-quiet.properties"
TOOLS = "org.apache.kafka.tools."


def command(main, *arguments, heap="256m", options=()):
    # One small, quickly started JVM: tools live for seconds and share two cores with the broker.
    return [
        "java", f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
        f"-Dlog4j2.configurationFile={QUIET}", *options, "-cp", f"{LIBS}/*", main, *arguments,
    ]


def tool(name, *arguments, stdin=b"", timeout=60, check=True, heap="256m"):
    """Runs a tool to its end and answers its standard output as text."""
    main = name if name.startswith(("kafka.", "org.")) else TOOLS + name
    done = subprocess.run(command(main, *arguments, heap=heap), input=stdin, capture_output=True, timeout=timeout)
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    if check:
        assert done.returncode == 0, f"{name} {' '.join(arguments)} ended with {done.returncode}\n{out}\n{err}"
    return out if check else (done.returncode, out, err)


class Running:
    """A tool that goes on until it is stopped; its output lines are collected."""

    def __init__(self, name, *arguments):
        main = name if name.startswith(("kafka.", "org.")) else TOOLS + name
        self.process = subprocess.Popen(
            command(main, *arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.lines = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.decode(errors="replace").rstrip("\n"))

    def wait(self, timeout):
        code = self.process.wait(timeout)
        self.reader.join(5)
        return code

    def stop(self, how=signal.SIGTERM, timeout=20):
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
        self.reader.join(5)
        self.process.stdout.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Peer:
    """One Apache Kafka 4.3.1 node with the defaults that the suites rely on."""

    is_peer = True
    http = None

    def __init__(self, home):
        self.home = Path(home)
        self.process = None
        self.port, self.controller = free_port(), free_port()
        self.kafka = f"127.0.0.1:{self.port}"
        self.node = 1

    def start(self):
        self.home.mkdir(parents=True, exist_ok=True)
        config = self.home / "server.properties"
        if not config.exists():
            lines = {
                "process.roles": "broker,controller",
                "node.id": 1,
                "controller.quorum.voters": f"1@127.0.0.1:{self.controller}",
                "listeners": f"PLAINTEXT://{self.kafka},CONTROLLER://127.0.0.1:{self.controller}",
                "advertised.listeners": f"PLAINTEXT://{self.kafka}",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "log.dirs": self.home / "data",
                "num.partitions": 16,
                "offsets.topic.replication.factor": 1,
                "offsets.topic.num.partitions": 4,
                "transaction.state.log.replication.factor": 1,
                "transaction.state.log.min.isr": 1,
                "transaction.state.log.num.partitions": 4,
                "share.coordinator.state.topic.replication.factor": 1,
                "share.coordinator.state.topic.min.isr": 1,
                "share.coordinator.state.topic.num.partitions": 1,
                "group.initial.rebalance.delay.ms": 0,
            }
            config.write_text("".join(f"{k}={v}\n" for k, v in lines.items()))
            identity = tool("kafka.tools.StorageTool", "random-uuid").strip()
            tool("kafka.tools.StorageTool", "format", "-t", identity, "-c", str(config))
        with open(self.home / "peer.log", "ab") as log:
            self.process = subprocess.Popen(
                command("kafka.Kafka", str(config), heap="512m", options=("-Xms256m",)),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ},
            )
        eventually(self._answers, 90, "the peer answers ApiVersions", every=0.2)
        return self

    def _answers(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the peer ended with {self.process.returncode}, see {self.home / 'peer.log'}")
        try:
            with Connection(self.kafka, 2) as connection:
                return connection.call(ApiVersions, 0).error == 0
        except OSError:
            return False

    def alive(self):
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self):
        return self.process.pid

    def stop(self, how=signal.SIGTERM, limit=60):
        process, self.process = self.process, None
        if process is None:
            return None
        process.send_signal(how)
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait(10)

    def kill(self):
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait(10)

    def restart(self, clean=True):
        if clean:
            self.stop()
        else:
            self.kill()
        return self.start()
