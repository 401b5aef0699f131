"""Functions that the tasks of these tests run in warm workers, and a program that tasks run.

They know of their task only what is in the environment.
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
from tests.e2e.task_log import write


def logged(file: str, seconds: float = 0.0) -> None:
    """Log the start and the end of the task, with some work between."""
    write(file, "start")
    time.sleep(seconds)
    write(file, "end")


def logged_until(file: str, gate: str) -> None:
    """Log the start of the task, and its end when a file exists."""
    write(file, "start")
    until(Path(gate).exists, "the gate")
    write(file, "end")


def total() -> int:
    """Add the results of all prerequisites."""
    return int(sum(current.inputs().values()))


def same(value: Any) -> Any:
    """Return the argument."""
    return value


def return_variable(name: str) -> str:
    """Return a variable of the environment."""
    return os.environ[name]


def raise_variable(name: str) -> None:
    """Print a variable of the environment, and fail with it."""
    sys.stdout.write(f"{os.environ[name]}\n")
    raise ValueError(os.environ[name])


def hang(file: str) -> None:
    """Start a child, write both process ids, and never return."""
    with subprocess.Popen(["sleep", "600"]) as child:
        Path(file).write_text(f"{os.getpid()} {child.pid}\n")
        signal.pause()


def grow(generations: int) -> None:
    """Extend the own graph by a task that does the same, publish, and submit a child graph."""
    with Client.from_environment() as client:
        client.publish_progress(f"{generations} to go")
        if generations > 1:
            program = [sys.executable, "-m", "tests.e2e.task_functions", str(generations - 1)]
            own = os.environ["TASKYARD_LABEL"]
            client.extend(None, {f"{own}+": {"requires": [own], "task": {"payload": {"command": program}}}})
        child = client.submit({"name": f"child {generations}", "tasks": {"one": {"task": {"payload": {"noop": True}}}}})
        client.publish_result({"left": generations - 1, "child": child.graph_id, "inputs": client.inputs()})


def list_files(made: str) -> list[str]:
    """Write a file, and return the paths of all files below the current folder."""
    Path(made).parent.mkdir(parents=True, exist_ok=True)
    Path(made).write_text("made")
    return sorted(str(path) for path in Path().rglob("*") if path.is_file())


def allocate(mb: int) -> int:
    """Use so much memory."""
    return len(bytearray(mb << 20))


def environment(names: list[str]) -> list[str | None]:
    """Say what some variables are."""
    return [os.environ.get(name) for name in names]


if __name__ == "__main__":
    grow(int(sys.argv[1]))
    sys.stdout.write(json.dumps(sorted(os.environ.keys() & {"TASKYARD_URL", "TASKYARD_TOKEN"})))
