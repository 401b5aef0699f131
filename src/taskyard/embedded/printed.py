"""What an attempt printed, as the store has it: all of it in pieces, or the last of it as text. Nothing here writes."""

from collections.abc import Iterator
from typing import Final

from taskyard.store.connection import Repo
from taskyard.views import tasks

#: Some screens full: enough to see why a task failed, little enough to keep for every task.
TAIL_BYTES_MAX: Final = 64 * 1024


def pieces(repo: Repo, task: int, attempt: int, start: int = 0) -> Iterator[bytes]:
    """Give output from `start` on, as far as it is there."""
    size = tasks.output_size(repo, task, attempt)
    while start < size and (piece := tasks.read_output(repo, task, attempt, start, size)):
        yield piece
        start += len(piece)


def tail(repo: Repo, task: int, attempt: int) -> str:
    """Give the last of what an attempt printed."""
    start = max(0, tasks.output_size(repo, task, attempt) - TAIL_BYTES_MAX)
    return b"".join(pieces(repo, task, attempt, start)).decode(errors="replace")
