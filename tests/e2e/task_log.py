"""A file to which tasks append a line when they start and when they end: evidence that does not depend on the server.

A line is `label attempt start|end pid moment`. It is appended in one write, so the order of the lines is the order of
events for all processes of the machine.
"""

import os
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple


class Line(NamedTuple):
    """A start or end of an attempt."""

    label: str
    attempt: int
    what: str
    pid: int
    moment: float


def write(file: str, what: str) -> None:
    """Append a line about the task that this process runs."""
    label, attempt = os.environ["TASKYARD_LABEL"], os.environ["TASKYARD_ATTEMPT"]
    line = f"{label} {attempt} {what} {os.getpid()} {time.monotonic():.6f}\n"
    target = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        assert os.write(target, line.encode()) == len(line)
    finally:
        os.close(target)


def lines(file: Path) -> list[Line]:
    """Read all lines."""
    if not file.exists():
        return []
    read = (line.split() for line in file.read_text().splitlines())
    return [Line(label, int(attempt), what, int(pid), float(moment)) for label, attempt, what, pid, moment in read]


def attempts_by_label(file: Path) -> dict[str, list[tuple[int, str]]]:
    """The starts and ends of each label's attempts, in order."""
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for line in lines(file):
        found[line.label].append((line.attempt, line.what))
    return dict(found)
