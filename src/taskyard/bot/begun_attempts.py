"""Which attempts a life of a bot has begun, in a file that outlives it: the next life tells the server.

Each life has a file of its own, with a line for each attempt that begins, written before it does, and one for each that
was handed to a worker and taken back unbegun. An end needs no line: the server knows of it, or counts the attempt as
lost. The file is mapped into memory and not synced: it has to survive processes, after a restart of the machine nobody
asks for it, and a line costs no system call.
"""

import mmap
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

from taskyard.wire.bot_protocol import Begun

#: How large a file is, for its whole life.
FILE_BYTES: Final = 262_144
#: From so many bytes on a file is emptied when nothing is in hand.
EMPTIED_BYTES: Final = 4_096
#: How a file is called until it is whole.
SPARE: Final = ".new"
#: More than any bot has in hand.
TOLD_MAX: Final = 1_000

Ref = tuple[str, int, int]  # task, attempt, fence


class BegunFile:
    """The file of one life. Without room on the disk there is none, and the next life says that it does not know."""

    def __init__(
        self, folder: Path, life: str, own_files: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / life
        self._own_files = own_files  # the folder is the bot's, and the agent may look at files as the user of the tasks
        self._map = _mapped(self._path)
        self._size = 0

    def add(self, begun: Iterable[Ref], others: Callable[[], Iterable[Ref]]) -> None:
        """Write that attempts begin; if the file is full it begins anew, with the others that have."""
        if not self._write("+", begun):
            self._renew([*others(), *begun])

    def drop(self, unbegun: Iterable[Ref], others: Callable[[], Iterable[Ref]]) -> None:
        """Write that attempts did not begin after all."""
        if not self._write("-", unbegun):
            self._renew(list(others()))

    def empty(self) -> None:
        """Forget everything: nothing is in hand."""
        if self._size > EMPTIED_BYTES and self._map is not None:
            self._size = 0
            self._map[0] = 0

    def close(self) -> None:
        """Write nothing more."""
        if self._map is not None:
            self._map.close()
            self._map = None

    def remove(self) -> None:
        """Leave nothing: this life had nothing in hand when it ended."""
        with self._own_files():
            self._path.unlink(missing_ok=True)

    def _write(self, sign: str, refs: Iterable[Ref]) -> bool:
        """Add lines; the file ends at its first zero. False: they do not fit."""
        if self._map is None:
            return True
        body = "".join(f"{sign}{task} {attempt} {fence}\n" for task, attempt, fence in refs).encode() + b"\0"
        end = self._size + len(body)
        if end > FILE_BYTES:
            return False
        self._map[self._size : end] = body
        self._size = end - 1
        return True

    def _renew(self, begun: Sequence[Ref]) -> None:
        """Begin another file, and put it in the place of this one once it is whole."""
        spare = self._path.with_name(self._path.name + SPARE)
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
    """Map a new file that has all of its room from the start: a full disk would end the process later."""
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


def earlier(folder: Path) -> list[Begun] | None:
    """Say what earlier lives had begun; None if nobody knows."""
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
    return [Begun(*ref) for ref in found] if files and len(found) <= TOLD_MAX else None


def forget(folder: Path, life: str) -> None:
    """Remove the files of earlier lives: the server has heard of them."""
    for file in _files(folder):
        if file.name != life:
            file.unlink(missing_ok=True)


def _files(folder: Path) -> list[Path]:
    return [one for one in folder.iterdir() if one.is_file() and one.suffix != SPARE] if folder.is_dir() else []


def _read(body: bytes, found: dict[Ref, None]) -> None:
    """Read whole lines; what was not written to its end was not begun."""
    for line in body.partition(b"\0")[0].decode(errors="replace").split("\n")[:-1]:
        words = line[1:].split(" ")
        if len(words) != 3 or not (words[1].isdecimal() and words[2].isdecimal()):
            continue
        ref = (words[0], int(words[1]), int(words[2]))
        if line[0] == "+":
            found[ref] = None
        else:
            found.pop(ref, None)
