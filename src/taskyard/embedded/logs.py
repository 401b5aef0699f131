"""A folder with everything that attempts print, a file for each; written while they print.

Whether a log can be kept is no matter of the task: one that cannot is given up, and said where the output is shown.
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from taskyard.embedded.printed import pieces
from taskyard.store.txn import Txn

#: File systems take 255 bytes; this leaves room for the numbers.
NAME_MAX: Final = 200
LOST: Final = "\ntaskyard: the rest of this could not be written to its log\n"


@dataclass(slots=True)
class _Log:
    """The file of one attempt, and how much of its output is in it."""

    path: Path
    size: int = 0
    is_lost: bool = False


class Logs:
    """The logs of a run; without a folder there are none."""

    def __init__(self, folder: Path | None, numbers: dict[str, int]) -> None:
        """Take the folder, which is there, and the number of each label: it tells labels apart that look alike."""
        self._folder = folder
        self._numbers = numbers
        self._open: dict[tuple[int, int], _Log] = {}

    def begin(self, task: int, label: str, attempt: int) -> None:
        """Have a file for an attempt."""
        if self._folder is None or (task, attempt) in self._open:
            return
        number = self._numbers.setdefault(label, len(self._numbers) + 1)
        path = self._folder / f"{number:03}-{quote(label, safe='[],=+@')[:NAME_MAX]}-{attempt}.log"
        with suppress(OSError):
            path.unlink()  # that of an earlier run
        self._open[task, attempt] = _Log(path)

    def write(self, txn: Txn) -> None:
        """Write what attempts have printed since."""
        for (task, attempt), log in self._open.items():
            _extend(log, txn, task, attempt)

    def end(self, txn: Txn, task: int, attempt: int) -> str:
        """Write the rest of an attempt; say what has to be said about its log."""
        log = self._open.pop((task, attempt), None)
        if log is None:
            return ""
        _extend(log, txn, task, attempt)
        return LOST if log.is_lost else ""


def _extend(log: _Log, txn: Txn, task: int, attempt: int) -> None:
    if log.is_lost:
        return
    for piece in pieces(txn, task, attempt, log.size):
        log.size += len(piece)
        try:
            with log.path.open("ab") as file:
                file.write(piece)
        except OSError:
            log.is_lost = True
            return
