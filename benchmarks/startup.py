"""How long a person waits for a plain command, from the shell's view: start, ask a server on this machine, print, end.

The cases take turns, and the best of each counts: whatever else the machine does can only make one slower. The floor is
an empty Python, which every command starts with.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.cluster import cluster
from benchmarks.report import Case, main

RUNS: Final = 20
#: What a person does not notice.
MUST_MS: Final = 150.0
GOAL_MS: Final = 100.0
NOOP: Final = {"task": {"payload": {"noop": True}}}
EMPTY: Final = "an empty Python"


def measure(quick: bool) -> list[Case]:
    """Measure commands against a server with one graph of some tasks."""
    with cluster("sqlite") as place, tempfile.TemporaryDirectory() as home:
        token = place.client.new_token("user", "startup", scopes=["admin"]).token
        graph = place.client.submit({"name": "startup", "tasks": {f"t{number}": NOOP for number in range(50)}}).graph_id
        place.client.wait(graph, 60)
        _keep_profile(Path(home), place.url, token)
        commands = {
            EMPTY: ["-c", "pass"],
            "--version": ["-m", "taskyard", "--version"],
            "graphs --help": ["-m", "taskyard", "graphs", "--help"],
            "config": ["-m", "taskyard", "config"],
            "graphs": ["-m", "taskyard", "graphs"],
            "tasks, 50 of them": ["-m", "taskyard", "tasks", graph],
            "show": ["-m", "taskyard", "show", graph],
            "show GRAPH/LABEL -o json": ["-m", "taskyard", "show", f"{graph}/t1", "-o", "json"],
            "bots": ["-m", "taskyard", "bots"],
            "pools set": ["-m", "taskyard", "pools", "set", "lab", "--capacity", "1"],
        }
        best = _best(commands, Path(home), 1 if quick else RUNS)
    floor = best.pop(EMPTY)
    return [Case(name, took, "ms", "lower", MUST_MS, GOAL_MS, floor) for name, took in best.items()]


def _best(commands: Mapping[str, list[str]], home: Path, runs: int) -> dict[str, float]:
    """Run the commands in turns; give the shortest time of each, in milliseconds."""
    unsaid = ("TASKYARD_URL", "TASKYARD_TOKEN", "TASKYARD_PROFILE")
    env = {key: value for key, value in os.environ.items() if key not in unsaid}
    env |= {"XDG_CONFIG_HOME": str(home), "HOME": str(home)}
    best: dict[str, float] = {}
    for _ in range(runs + 1):  # the first one may have to compile
        for name, words in commands.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, *words], env=env, capture_output=True, check=True)
            took = (time.perf_counter() - began) * 1000
            best[name] = min(took, best.get(name, took))
    return best


def _keep_profile(home: Path, url: str, token: str) -> None:
    """Write a file of profiles, as `taskyard login` does."""
    file = home / "taskyard" / "config.toml"
    file.parent.mkdir()
    file.write_text(f'profile = "bench"\n\n[profiles.bench]\nurl = "{url}"\ntoken = "{token}"\n', encoding="utf-8")
    file.chmod(0o600)


if __name__ == "__main__":
    sys.exit(main("startup", measure))
