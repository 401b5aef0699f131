"""What attempts print, while they print it: kept in a folder with a file for each, passed on to be shown, or both.

Whether a log can be kept is no matter of the task: one that cannot is given up, and said where the output is shown.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from taskyard.bot.output_spool import head_size, rest_file_name
from taskyard.core.ids import Key, text_of
from taskyard.embedded.companion import REST
from taskyard.embedded.printed import pieces
from taskyard.store.connection import Repo
from taskyard.wire.bot_protocol import OUTPUT_MAX
from taskyard.wire.progress import Printed

#: File systems take 255 bytes; this leaves room for the numbers.
NAME_MAX: Final = 200
LOST: Final = "\ntaskyard: the rest of this could not be written to its log\n"


@dataclass(slots=True)
class _Log:
    """The file of one attempt, and how much of its output is in it."""

    label: str
    path: Path | None
    size: int = 0
    is_lost: bool = False

    def keep(self, piece: bytes) -> None:
        """Write a piece to the file, as long as that goes well."""
        if self.path is None or self.is_lost:
            return
        try:
            with self.path.open("ab") as file:
                file.write(piece)
        except OSError:
            self.is_lost = True

    def complete(self, rest: Path) -> None:
        """Put all that was printed behind the head, which the bot has kept in a file, in the place of the tail."""
        if self.path is None or self.is_lost or not rest.exists():
            return
        try:
            with rest.open("rb") as source, self.path.open("r+b") as file:
                file.truncate(head_size(OUTPUT_MAX))
                file.seek(0, os.SEEK_END)
                shutil.copyfileobj(source, file)
            rest.unlink()
        except OSError:
            self.is_lost = True


class Logs:
    """The logs of a run; without a folder nothing is kept, and unless it is to be shown nothing is passed on."""

    def __init__(self, folder: Path | None, numbers: dict[str, int], shown: bool = False) -> None:
        """Take the folder, which is there, and the number of each label: it tells labels apart that look alike."""
        self._folder = folder
        self._numbers = numbers
        self._shown = shown
        self._open: dict[tuple[int, int], _Log] = {}

    def begin(self, task: int, label: str, attempt: int) -> None:
        """Follow an attempt, if it is to be kept or shown."""
        if (self._folder or self._shown) and (task, attempt) not in self._open:
            self._open[task, attempt] = _Log(label, self._file(label, attempt))

    def write(self, repo: Repo) -> Iterator[Printed]:
        """Keep what attempts have printed since, and give it to be shown."""
        for (task, attempt), log in self._open.items():
            yield from self._extend(log, repo, task, attempt)

    def end(self, repo: Repo, task: int, attempt: int) -> Iterator[Printed]:
        """Keep the rest of an attempt, and give it to be shown."""
        log = self._open.get((task, attempt))
        if log is not None:
            yield from self._extend(log, repo, task, attempt)

    def close(self, task: int, attempt: int) -> str:
        """Leave an attempt that has ended; say what has to be said about its log."""
        log = self._open.pop((task, attempt), None)
        if log is not None and self._folder is not None:
            log.complete(self._folder / REST / rest_file_name(text_of(Key(task)), attempt))
        return LOST if log is not None and log.is_lost else ""

    def _file(self, label: str, attempt: int) -> Path | None:
        if self._folder is None:
            return None
        number = self._numbers.setdefault(label, len(self._numbers) + 1)
        path = self._folder / f"{number:03}-{quote(label, safe='[],=+@')[:NAME_MAX]}-{attempt}.log"
        with suppress(OSError):
            path.unlink()  # that of an earlier run
        return path

    def _extend(self, log: _Log, repo: Repo, task: int, attempt: int) -> Iterator[Printed]:
        if log.is_lost and not self._shown:
            return
        for piece in pieces(repo, task, attempt, log.size):
            log.size += len(piece)
            log.keep(piece)
            if self._shown:
                yield Printed(log.label, piece)
