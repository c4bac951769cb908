"""Builds what is needed: the broker unless QUEEN_BIN names one, the loader, and the peer's jars."""

import os
import subprocess

from bench import LOADER
from servers import BENCH, LIBS, QUEEN, REPO


def prepare(peers, say):
    if "QUEEN_BIN" not in os.environ:
        say("the broker (release)")
        subprocess.run(["cargo", "build", "-q", "--locked", "--release", "--bin", "queen"], cwd=REPO, check=True)
    say("the loader")
    environment = {**os.environ, "CARGO_TARGET_DIR": str(BENCH / "loader" / "target")}
    subprocess.run(["cargo", "build", "-q", "--locked", "--release"], cwd=BENCH / "loader", env=environment, check=True)
    if peers and not any(LIBS.glob("kafka-server-4*.jar")):
        say("Apache Kafka")
        # The suites' own driver knows how; its Java suite needs the same jars.
        subprocess.run([REPO / "compat-tests" / "run", "--peer", "--prepare", "1"], check=True)
    missing = [str(path) for path in (QUEEN, LOADER) if not path.exists()]
    if missing:
        raise SystemExit(f"bench: missing {', '.join(missing)}")
