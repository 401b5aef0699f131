"""Files that record which attempts an instance of a bot has begun, so that the next instance can tell the server.

Each instance has its own file. It gets a line for each attempt before the attempt begins, and a line for each one that
was handed to a worker and taken back unbegun. Ends need no line: the server knows of them, or counts the attempt as
lost. The file is mapped into memory and not synced: it has to survive processes, not a restart of the machine, and so a
line costs no system call.
"""

import mmap
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

from taskyard.wire.bot_protocol import Begun

#: The size of a file, from its creation on.
FILE_BYTES: Final = 262_144
#: A file with at least this many bytes is emptied when nothing is in hand.
EMPTY_FROM_BYTES: Final = 4_096
#: The suffix of a file until it is whole.
NEW_SUFFIX: Final = ".new"
#: More attempts than any bot has in hand.
REPORTED_MAX: Final = 1_000

Ref = tuple[str, int, int]  # task, attempt, fence


class BegunFile:
    """The file of one instance. A full disk leaves no file, and the next instance reports that it does not know."""

    def __init__(
        self, folder: Path, instance: str, as_bot_user: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / instance
        self._own_files = as_bot_user  # gives access to the bot's folder while file access is that of the tasks' user
        self._map = _mapped(self._path)
        self._size = 0

    def add(self, begun: Iterable[Ref], others: Callable[[], Iterable[Ref]]) -> None:
        """Record that attempts begin. A full file is rewritten with the `others` that have begun, and these."""
        if not self._write("+", begun):
            self._rewrite([*others(), *begun])

    def drop(self, unbegun: Iterable[Ref], others: Callable[[], Iterable[Ref]]) -> None:
        """Record that attempts did not begin after all."""
        if not self._write("-", unbegun):
            self._rewrite(list(others()))

    def empty(self) -> None:
        """Remove all lines: nothing is in hand."""
        if self._size > EMPTY_FROM_BYTES and self._map is not None:
            self._size = 0
            self._map[0] = 0

    def close(self) -> None:
        """Unmap the file."""
        if self._map is not None:
            self._map.close()
            self._map = None

    def remove(self) -> None:
        """Delete the file: this instance ended with nothing in hand."""
        with self._own_files():
            self._path.unlink(missing_ok=True)

    def _write(self, sign: str, refs: Iterable[Ref]) -> bool:
        """Append lines; the file ends at its first zero byte. False if they do not fit."""
        if self._map is None:
            return True
        body = "".join([f"{sign}{task} {attempt} {fence}\n" for task, attempt, fence in refs]).encode() + b"\0"
        end = self._size + len(body)
        if end > FILE_BYTES:
            return False
        self._map[self._size : end] = body
        self._size = end - 1
        return True

    def _rewrite(self, begun: Sequence[Ref]) -> None:
        """Write a new file, and replace this one once it is whole."""
        spare = self._path.with_name(self._path.name + NEW_SUFFIX)
        self.close()
        with self._own_files():
            self._map, self._size = _mapped(spare), 0
        if self._map is None or not self._write("+", begun):
            self.close()
            self.remove()
            return
        with self._own_files():
            spare.replace(self._path)


def _mapped(path: Path) -> mmap.mmap | None:
    """Create and map a file with all blocks allocated: otherwise a full disk would kill the process later."""
    try:
        end = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            allocate = getattr(os, "posix_fallocate", None)  # not on every system
            allocate(end, 0, FILE_BYTES) if allocate is not None else os.ftruncate(end, FILE_BYTES)
            return mmap.mmap(end, FILE_BYTES)
        finally:
            os.close(end)
    except OSError:
        path.unlink(missing_ok=True)
        return None


def read_earlier(folder: Path) -> list[Begun] | None:
    """Read what earlier instances had begun; None if that is unknown."""
    found: dict[Ref, None] = {}
    files = _files(folder)
    for file in files:
        try:
            body = file.read_bytes() if file.stat().st_size <= FILE_BYTES else None
        except OSError:
            body = None
        if body is None:
            return None
        _read(body, found)
    return [Begun(*ref) for ref in found] if files and len(found) <= REPORTED_MAX else None


def remove_earlier(folder: Path, instance: str) -> None:
    """Delete the files of earlier instances: the server knows their content."""
    for file in _files(folder):
        if file.name != instance:
            file.unlink(missing_ok=True)


def _files(folder: Path) -> list[Path]:
    return [one for one in folder.iterdir() if one.is_file() and one.suffix != NEW_SUFFIX] if folder.is_dir() else []


def _read(body: bytes, found: dict[Ref, None]) -> None:
    """Read complete lines only: an attempt whose line is incomplete has not begun."""
    for line in body.partition(b"\0")[0].decode(errors="replace").split("\n")[:-1]:
        words = line[1:].split(" ")
        if len(words) != 3 or not (words[1].isdecimal() and words[2].isdecimal()):
            continue
        ref = (words[0], int(words[1]), int(words[2]))
        if line[0] == "+":
            found[ref] = None
        else:
            found.pop(ref, None)
