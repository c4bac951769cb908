"""The suites inside the official Queen clients, run unmodified, each file against a broker of its own."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from .broker import REPO

HERE = REPO / "compat-tests"
CACHE = HERE / ".cache"
PYTHON_TESTS = CACHE / "sdist" / "queen_mq-2.6.0" / "tests"
RUST_CRATE = CACHE / "rust" / "queen-mq-2.7.0"
LIMIT = 400

REQUIRED = {
    "python": ["test_push", "test_pop", "test_queue", "test_consume", "test_subscription", "test_dlq", "test_kv", "test_docs"],
    "rust": ["core", "kv_timers", "reads", "docs"],
}
BEYOND = {
    "python": [
        "test_ack_commit", "test_ack_window", "test_complete", "test_locks", "test_reads", "test_timers", "test_transaction",
        "test_transaction_kv_timers", "test_transaction_lease_fencing",
    ],
    "rust": ["semantics", "locks", "admin", "coverage", "streams"],
}


def skipped():
    """{(suite, case): reason} from expected.toml."""
    listed = tomllib.loads((HERE / "expected.toml").read_text()).get("skip", [])
    return {(entry["suite"], entry["case"]): entry["reason"] for entry in listed}


def cases(language, name):
    """The tests in a file of a suite, by reading it."""
    if language == "python":
        return re.findall(r"^(?:async )?def (test_\w+)", (PYTHON_TESTS / f"{name}.py").read_text(), re.M)
    source = (RUST_CRATE / "tests" / f"{name}.rs").read_text()
    return re.findall(r"#\[tokio::test[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:pub )?async fn (\w+)", source)


@dataclass
class Result:
    passed: set = field(default_factory=set)
    failed: dict = field(default_factory=dict)
    output: str = ""


def run(language, name, url, home, leave_out):
    """Runs one file against the broker at `url`."""
    home = Path(home)
    home.mkdir(parents=True, exist_ok=True)
    return (_run_python if language == "python" else _run_rust)(name, url, home, leave_out)


def _output(command, cwd, env):
    try:
        done = subprocess.run(
            command, cwd=cwd, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=LIMIT,
        )
        return done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as error:
        return (error.output or b"").decode(errors="replace") + f"\n[not done within {LIMIT} s]"


def _run_python(name, url, home, leave_out):
    shutil.copy(PYTHON_TESTS / f"{name}.py", home)
    for ours in ("conftest.py", "pytest.ini"):
        shutil.copy(HERE / "official" / ours, home)
    report = home / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", f"{name}.py", f"--junitxml={report}"]
    command += [f"--deselect={name}.py::{case}" for case in leave_out]
    result = Result(output=_output(command, home, {"QUEEN_SERVER_URL": url}))
    if report.exists():
        for case in ElementTree.parse(report).iter("testcase"):
            trouble = [child for child in case if child.tag in ("failure", "error")]
            if trouble:
                result.failed[case.get("name")] = "\n".join(t.text or t.get("message") or "" for t in trouble)
            elif case.find("skipped") is None:
                result.passed.add(case.get("name"))
    return result


def rust_command(name):
    return ["cargo", "test", "-q", "--locked", "--offline", "-p", "queen-mq", "--test", name]


def rust_environment():
    # The repository's own target folder and flags are no business of the crate's.
    return {"CARGO_TARGET_DIR": str(CACHE / "rust" / "target"), "CARGO_PROFILE_DEV_DEBUG": "0"}


def _run_rust(name, url, home, leave_out):
    command = ["cargo", "test", "--locked", "--offline", "-p", "queen-mq", "--test", name, "--", "--test-threads=4"]
    for case in leave_out:
        command += ["--skip", case]
    output = _output(command, RUST_CRATE.parent, {**rust_environment(), "QUEEN_TEST_URL": url, "QUEEN_TEST_STRICT": "1"})
    result = Result(output=output)
    for case, verdict in re.findall(r"^test (\S+) \.\.\. (ok|FAILED|ignored)", output, re.M):
        if verdict == "ok":
            result.passed.add(case)
        else:
            detail = re.search(rf"^---- {re.escape(case)} stdout ----\n(.*?)(?=^---- |^failures:)", output, re.M | re.S)
            result.failed[case] = detail[1] if detail else verdict
    return result
