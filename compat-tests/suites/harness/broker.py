"""The broker under test as a process: started, asked, stopped, killed, started again."""

import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[3]
BINARY = Path(os.environ.get("QUEEN_BIN") or REPO / "target" / "ci" / "queen")
READY = re.compile(r"^ready kafka=(\S+) http=(\S+) node=(\d+) data=(.*)$")
START_LIMIT = 30.0
STOP_LIMIT = 5.0


class Refused(Exception):
    """The broker ended instead of becoming ready."""

    def __init__(self, code, stderr):
        super().__init__(f"queen ended with {code} before it was ready:\n{stderr[-4000:]}")
        self.code, self.stderr = code, stderr


class Queen:
    """One `queen serve` on its own data directory. Addresses stay the same over restarts."""

    is_peer = False

    def __init__(self, home, *options, env=None):
        self.home = Path(home)
        self.home.mkdir(parents=True, exist_ok=True)
        self.data = self.home / "data"
        self.options = list(options)
        self.env = env or {}
        self.log = self.home / "stderr.log"
        self.process = None
        self.kafka = self.http = None
        self.node = None

    # --- life ---

    def start(self, *extra, limit=START_LIMIT):
        assert self.process is None, "already started"
        command = [
            str(BINARY), "serve", "--data-dir", str(self.data),
            "--kafka-listen", self.kafka or "127.0.0.1:0",
            "--http-listen", self.http or "127.0.0.1:0",
            *self.options, *extra,
        ]
        with open(self.log, "ab") as log:
            self.log_start = log.tell()
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env={**os.environ, **self.env}
            )
        found = {}
        done = threading.Event()

        def read(pipe):
            for line in pipe:
                match = READY.match(line.decode(errors="replace").rstrip("\n"))
                if match and not done.is_set():
                    found["ready"] = match
                    done.set()
            done.set()

        threading.Thread(target=read, args=(self.process.stdout,), daemon=True).start()
        if not done.wait(limit):
            self.kill()
            raise AssertionError(f"queen printed no ready line within {limit:g} s:\n{self.stderr()[-4000:]}")
        if "ready" not in found:
            process, self.process = self.process, None
            code = process.wait(10)
            raise Refused(code, self.stderr())
        self.kafka, self.http, self.node = found["ready"][1], found["ready"][2], int(found["ready"][3])
        self.reported_data = found["ready"][4]
        return self

    def stderr(self):
        with open(self.log, "rb") as log:
            log.seek(self.log_start)
            return log.read().decode(errors="replace")

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def stop(self, how=signal.SIGTERM, limit=STOP_LIMIT):
        """Asks the broker to end and answers its exit code; longer than `limit` is a failure."""
        process, self.process = self.process, None
        if process is None:
            return None
        process.send_signal(how)
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
            raise AssertionError(f"queen did not stop within {limit:g} s of {signal.Signals(how).name}") from None
        finally:
            process.stdout.close()

    def kill(self):
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait(10)
            process.stdout.close()

    def restart(self, clean=True):
        if clean:
            assert self.stop() == 0
        else:
            self.kill()
        return self.start()

    def wait_exit(self, limit):
        return self.process.wait(limit)

    # --- looking at it ---

    def rss(self):
        """Resident memory in bytes."""
        return self._status("VmRSS") * 1024

    def peak_rss(self):
        return self._status("VmHWM") * 1024

    def _status(self, name):
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1])
        raise AssertionError(f"no {name}")

    def cpu_seconds(self):
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def segments(self):
        return sorted((self.data / "log" / "segments").glob("*.seg"))


def run(*arguments, timeout=20, env=None):
    """`queen ARGUMENTS` to its end: (exit code, stdout, stderr)."""
    done = subprocess.run(
        [str(BINARY), *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, env={**os.environ, **(env or {})}
    )
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def wait_gone(pid, within):
    deadline = time.monotonic() + within
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.01)
