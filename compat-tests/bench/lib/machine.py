"""Where the figures come from: the machine and the versions."""

import os
import platform
import re
import subprocess
from pathlib import Path

from servers import LIBS, QUEEN, REPO


def _said(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=REPO)
        return (done.stdout or done.stderr).strip()
    except OSError:
        return ""


def load():
    return os.getloadavg()[0]


def describe(peers):
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    memory = int(re.search(r"^MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(), re.M)[1]) * 1024
    device = _said("findmnt", "-no", "SOURCE,FSTYPE", "-T", str(REPO))
    machine = {
        "cpu": model[1] if model else platform.machine(), "cores": len(os.sched_getaffinity(0)), "memory_gb": round(memory / 1e9, 1),
        "disk": device, "kernel": platform.release(), "load_before": round(load(), 2),
        "commit": _said("git", "rev-parse", "--short", "HEAD") + (" with changes" if _said("git", "status", "--porcelain", "-uno") else ""),
        "queen": f"{_said(str(QUEEN), '--version')} ({QUEEN.name if QUEEN.parent.name != 'release' else 'release profile'})",
        "rustc": _said("rustc", "--version"),
    }
    if peers:
        jar = next((re.sub(r"^kafka_[\d.]+-(.*)\.jar$", r"\1", path.name) for path in LIBS.glob("kafka_2*.jar")), "?")
        machine["kafka"], machine["java"] = f"Apache Kafka {jar}", _said("java", "-version").splitlines()[0]
    return machine
