"""librdkafka's own test runner (2.15.1, out of the npm package of Confluent's Node client): one process per test, against one broker.

`compat-tests/run librdkafka -- -k "0012 or 0081"` runs some of them. What cannot pass yet stands in expected.toml, each with what the
runner says; an entry that has come to pass, or fails otherwise, is red.
"""

import os
import re
import subprocess
import tomllib

import pytest
from harness.broker import REPO

HERE = REPO / "compat-tests"
SOURCE = HERE / ".cache" / "librdkafka" / "package" / "deps" / "librdkafka"
LIMIT = 150
# Runs with its subtests one by one, because those behind the first that is not served would not be reached.
IN_PARTS = "0081"
# What has to pass as a whole, and may not be passed over by the runner either.
MUST = set(
    "0001 0002 0003 0005 0007 0008 0011 0012 0013 0014 0015 0017 0018 0019 0020 0021 0022 0026 0029 0030 0031 0033 0035 0036 0040 0041 0042 0044"
    " 0048 0049 0050 0051 0054 0056 0059 0061 0063 0064 0067 0070 0073 0085 0086 0089 0090 0091 0099 0102 0110 0113 0118 0130 0137 0140".split())

pytestmark = pytest.mark.timeout(LIMIT + 60)


def _read(path):
    return path.read_text() if path.exists() else ""


def numbers():
    """Numbers of the runner's tests that want a broker, by reading its table."""
    found = set()
    for number, flags in re.findall(r"_TEST\((\d{4})\w*,\s*([\w| ]+)", _read(SOURCE / "tests" / "test.c")):
        flags = {flag.strip() for flag in flags.split("|")}
        if number < "8000" and not flags & {"TEST_F_LOCAL", "TEST_F_MANUAL", "TEST_F_KNOWN_ISSUE"}:
            found.add(number)
    return found


def parts():
    """Subtests of the test that runs in parts, in their order."""
    body = re.search(r"^static void do_test_apis.*?^}", _read(SOURCE / "tests" / f"{IN_PARTS}-admin.c"), re.M | re.S)
    names = re.findall(r"^\s+do_test_(\w+)\(", body[0], re.M) if body else []
    return list(dict.fromkeys(names))


def expected():
    """{case: the entry of expected.toml}"""
    listed = tomllib.loads((HERE / "expected.toml").read_text()).get("fails", [])
    return {entry["case"]: entry for entry in listed if entry["suite"] == "librdkafka"}


CASES = sorted(numbers() - {IN_PARTS} | {f"{IN_PARTS}/{name}" for name in parts()})


@pytest.fixture(scope="module")
def broker_options():
    return ("--default-partitions", "4")


def run(case, broker, home):
    """The runner's exit code, how its summary calls each test, and its output."""
    number, _, part = case.partition("/")
    config = home / "test.conf"
    config.write_text(f"metadata.broker.list={broker.kafka}\ntest.topic.random=true\ntest.timeout.multiplier=2.0\n")
    env = {name: value for name, value in os.environ.items() if not re.match("TEST|KAFKA|BROKERS$|CI$", name)}
    env |= {
        "LD_LIBRARY_PATH": f"{SOURCE / 'src'}:{SOURCE / 'src-cpp'}", "RDKAFKA_TEST_CONF": str(config), "TESTS": number,
        # The tests of share groups begin at 4.2.
        "TEST_KAFKA_VERSION": "3.9.0",
    }
    command = [SOURCE / "tests" / "test-runner", "-p1", "-L"]
    if part:
        env["SUBTESTS"] = f"do_test_{part}:"
    else:
        command.append("-Q")
    with open(home / "output.txt", "w+b") as output:
        try:
            code = subprocess.run(command, cwd=home, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=LIMIT).returncode
        except subprocess.TimeoutExpired:
            code = f"none within {LIMIT} s"
        output.seek(0)
        text = re.sub(r"\x1b\[\d*m", "", output.read().decode(errors="replace"))
    states = re.findall(r"^\|\s+(\d{4}\w*)\s+\|\s+(\w+)\s+\|", text, re.M)
    return code, [state for _, state in states], text


def what_failed(text):
    at = text.find("### Test ")
    return text[at:][:1500] if at >= 0 else text[-1500:]


@pytest.mark.parametrize("case", CASES)
def test_of_librdkafka(broker, tmp_path, case):
    code, states, text = run(case, broker, tmp_path)
    entry = None if broker.is_peer else expected().get(case)
    if entry:
        assert code != 0, f"passes now: its line in expected.toml is stale ({entry['reason']})"
        assert entry["says"] in what_failed(text), f"fails otherwise than expected.toml says\n{what_failed(text)}"
        return
    assert code == 0, f"exit code {code}\n{what_failed(text)}"
    if "/" in case:
        assert "[ do_test_" in text, "the subtest was not run"
    if "PASSED" not in states:
        assert case not in MUST, f"passed over: {states}"
        reasons = re.findall(r"(?:SKIPPING|SKIPPED|Skipping)[^\n]*", text)
        pytest.skip(reasons[0] if reasons else "passed over by the runner")


def test_the_runner_is_there_and_every_expected_failure_names_a_case_of_it():
    assert len(CASES) > 90 and MUST <= set(CASES), "run `compat-tests/run librdkafka`, which builds it"
    assert set(expected()) <= set(CASES)
    assert not MUST & set(expected())
