"""A task that holds a file lock while it runs: evidence of overlapping attempts that no server knows of."""

import fcntl
import os
import time
from pathlib import Path


def witnessed(folder: str, span_s: float) -> None:
    """Hold the lock of this task for some time; note it if another attempt has it."""
    task, attempt = os.environ["TASKYARD_TASK_ID"], os.environ["TASKYARD_ATTEMPT"]
    with (Path(folder) / task).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            (Path(folder) / f"overlap-{task}-{attempt}").touch()
            raise
        file.write(f"{attempt}\n")
        file.flush()
        time.sleep(span_s)


def overlaps(folder: Path) -> list[str]:
    """The attempts that ran beside another one of their task."""
    return sorted(path.name for path in folder.glob("overlap-*"))


def attempts(folder: Path) -> dict[str, list[int]]:
    """The attempts of each task, in order."""
    return {
        path.name: [int(line) for line in path.read_text().split()]
        for path in folder.iterdir()
        if not path.name.startswith("overlap-")
    }
