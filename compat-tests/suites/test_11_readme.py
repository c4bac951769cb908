"""The README as a newcomer follows it: every command of the five-minute guide, word by word, against a fresh broker."""

import json
import re
import subprocess
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"^```sh guide\n(.*?)^```$", README, re.S | re.M)


def test_the_five_minute_guide(queen, tmp_path):
    outputs = []
    for block in BLOCKS:
        script = block.replace("127.0.0.1:9092", queen.kafka).replace("127.0.0.1:6632", queen.http.removeprefix("http://"))
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (block, done.stdout, done.stderr)
        outputs.append(done.stdout)
    listed, popped, step, left = outputs
    assert listed == 'alice {"order":1}\nalice {"order":3}\nbob {"order":2}\n'
    first, second = (json.loads((tmp_path / name).read_text()) for name in ("first.json", "second.json"))
    assert {first["partition"], second["partition"]} == {"alice", "bob"}
    assert first["leaseId"] in popped and second["leaseId"] in popped
    assert json.loads(step)["success"] is True
    owner = first["partition"]
    paid = json.dumps({"paid": first["messages"][-1]["data"]}, separators=(",", ":"))
    state, receipt, reminder = left.split("\n")[0], left, left
    if owner == "alice":
        assert json.loads(re.match(r"\{.*?\}(?=alice )", state).group())["value"] == {"last": {"order": 3}}
    assert re.search(rf"^.*{owner} {re.escape(paid)}$", receipt.replace('{"paid": ', '{"paid":').replace('"order": ', '"order":'), re.M)
    assert '"data":{"again":true}' in reminder


def test_the_commands_it_names_exist():
    root = Path(__file__).parents[2]
    for command in re.findall(r"^\./(\S+)$", README, re.M):
        path = root / command
        assert path.exists() and path.stat().st_mode & 0o111, command
    for link in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (root / link).exists(), link
