"""What the tasks of these tests do: functions for warm workers, and a program for those who start one.

They know of their task only what is in their environment.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from taskyard.bot import current
from taskyard.sdk import Client
from tests.cli.waiting import until
from tests.e2e.witness import tell


def witnessed(file: str, seconds: float = 0.0) -> None:
    """Start and end before a witness, with some work between."""
    tell(file, "start")
    time.sleep(seconds)
    tell(file, "end")


def witnessed_until(file: str, gate: str) -> None:
    """Start before a witness, and end when a gate is there."""
    tell(file, "start")
    until(Path(gate).exists, "the gate")
    tell(file, "end")


def total() -> int:
    """Add the results of all prerequisites."""
    return int(sum(current.inputs().values()))


def same(value: Any) -> Any:
    """Give back what is given."""
    return value


def hang(file: str) -> None:
    """Have a child, say both numbers, and do not come back."""
    with subprocess.Popen(["sleep", "600"]) as child:
        Path(file).write_text(f"{os.getpid()} {child.pid}\n")
        signal.pause()


def grow(generations: int) -> None:
    """Add a task that grows on to the own graph, publish, and submit a child."""
    with Client.from_environment() as client:
        client.publish_progress(f"{generations} to go")
        if generations > 1:
            program = [sys.executable, "-m", "tests.e2e.deeds", str(generations - 1)]
            own = os.environ["TASKYARD_LABEL"]
            client.extend(None, {f"{own}+": {"requires": [own], "task": {"payload": {"command": program}}}})
        child = client.submit({"name": f"child {generations}", "tasks": {"one": {"task": {"payload": {"noop": True}}}}})
        client.publish_result({"left": generations - 1, "child": child.graph_id, "inputs": client.inputs()})


if __name__ == "__main__":
    grow(int(sys.argv[1]))
    sys.stdout.write(json.dumps(sorted(os.environ.keys() & {"TASKYARD_URL", "TASKYARD_TOKEN"})))
