"""The place of one attempt: a fresh folder to run in, and beside it one for the files by which task and bot speak.

A task reads its inputs and the checkpoint of the attempt before, and may write its result, progress and checkpoint, at
paths that its surroundings name. What it writes is bounded here and believed nowhere.

Places are used again. To remove a folder and make another takes a file system over a millisecond, several times what a
short program takes; to see that one is as it was made takes a hundredth of that. One that is not is never used again.
"""

import asyncio
import errno
import os
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from taskyard.bot.payloads import Unfit
from taskyard.wire.bot_protocol import CHECKPOINT_MAX, NOTHING, PROGRESS_MAX, Lease
from taskyard.wire.documents import DEPTH_MAX, is_deep

#: What a task may publish.
RESULT_MAX: Final = 262_144
#: How large the file may become in which a task writes its progress; the first `PROGRESS_MAX` bytes of it are shown.
PROGRESS_FILE_MAX: Final = 65_536
#: A place that an attempt filled with more than this is removed in the background.
_CLEARED_MAX: Final = 8
#: How many places that are somebody else's are passed over for one that is free.
_TAKEN_MAX: Final = 1_000
#: Longer than any file system's clock takes for a step.
_TICK_NS: Final = 100_000_000
#: The file of inputs, and what is in it if there are none.
_INPUTS: Final = "inputs"
_NO_INPUTS: Final = b"{}"
#: Inputs can only be read: nothing but the attempt that they are for would notice that they were changed.
_READ_ONLY: Final = 0o444
#: How files are made, folders entered and files read. No link is followed: it could lead to what only the bot may see.
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_PLACE: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TRUE_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
#: What a task can put in the place of a file.
_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFLNK: "a link",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class Rooms:
    """Places that are ready, and more when these are taken."""

    def __init__(self, work: Path) -> None:
        self._work = str(work)
        self._ready: list[Room] = []
        self._made = 0

    def take(self) -> "Room":
        """Give a place that is as if nobody had been there."""
        if self._ready:
            room = self._ready.pop()
            room.settle()
            return room
        for _ in range(_TAKEN_MAX):
            self._made += 1
            with suppress(FileExistsError):  # a task put something there, or the last life could not remove it
                return Room(self._work, self._made)
        raise FileExistsError(f"{self._work}: all places from {self._made} downwards are taken")

    def give_back(self, room: "Room", untouched: bool = False) -> None:
        """Take a place back, with whatever is in it; `untouched` is for who knows that nothing is."""
        if untouched or room.is_still():
            self._ready.append(room)
        elif room.is_clear():
            room.rest()
            self._ready.append(room)
        else:
            asyncio.get_running_loop().run_in_executor(None, room.remove)


class Left(msgspec.Struct, frozen=True):
    """What an attempt left in its files, and a sentence for each thing there that cannot be taken."""

    result: msgspec.Raw = NOTHING
    checkpoint: bytes | None = None  # None: it was told already, or there is none
    faults: tuple[str, ...] = ()


NOTHING_LEFT: Final = Left()


class Room:
    """The folder of one attempt, and its files."""

    def __init__(self, work: str, number: int) -> None:
        self._place = f"{work}/{number}"
        self.folder = f"{self._place}/folder"
        self._talk = f"{self._place}/talk"
        self._seen: dict[str, tuple[int, int]] = {}  # which writing of a file was told already
        for path in (self._place, self.folder, self._talk):
            os.mkdir(path, 0o700)
        _write(self.file(_INPUTS), _NO_INPUTS, _READ_ONLY)
        self._made = self._look()
        self._still = self._ages()
        self._settled = False
        self._env = {
            f"TASKYARD_{name.upper()}": self.file(name) for name in (_INPUTS, "result", "checkpoint", "progress")
        }

    def file(self, name: str) -> str:
        """Name the file for `result`, `inputs`, `checkpoint`, `progress` or `script`."""
        return f"{self._talk}/{name}"

    def furnish(self, lease: Lease, inputs: bytes | None, script: str | None = None) -> None:
        """Put in place what the attempt is given."""
        if inputs is not None:
            os.unlink(self.file(_INPUTS))
            _write(self.file(_INPUTS), inputs, _READ_ONLY)
        if lease.checkpoint is not None:
            _write(self.file("checkpoint"), lease.checkpoint)
            self._is_new("checkpoint")
        if script is not None:
            _write(self.file("script"), script.encode())

    def settle(self) -> None:
        """Note how still it is before somebody comes; two changes within one tick of a file system look like one."""
        if not self._settled:
            self._settled = time.time_ns() - max(self._still) > _TICK_NS

    def is_still(self) -> bool:
        """Whether certainly nothing was put there, taken away or changed since; False is for who has to look."""
        try:
            return self._settled and self._ages() == self._still
        except OSError:
            return False

    def env(self) -> dict[str, str]:
        """Tell the attempt where its files are."""
        return self._env

    def left(self, *, succeeded: bool) -> Left:
        """Read what an attempt left that has ended; only one that succeeded has a result."""
        result, checkpoint, faults = NOTHING, None, []
        try:
            result = self._result() if succeeded else NOTHING
        except Unfit as error:
            faults.append(str(error))
        try:
            checkpoint = self._content("checkpoint", CHECKPOINT_MAX)
        except Unfit as error:
            faults.append(str(error))
        try:
            self._content("progress", PROGRESS_FILE_MAX)
        except Unfit as error:
            faults.append(str(error))
        return Left(result, checkpoint if self._is_new("checkpoint") else None, tuple(faults))

    def new_checkpoint(self) -> bytes | None:
        """Read what the next attempt should get, if that was written since the last look."""
        try:
            return self._content("checkpoint", CHECKPOINT_MAX) if self._is_new("checkpoint") else None
        except Unfit:
            return None  # it is told at the end, if it is still so

    def new_progress(self) -> str | None:
        """Read what the task says of its progress, if that was written since the last look."""
        try:
            body = self._content("progress", PROGRESS_FILE_MAX) if self._is_new("progress") else None
        except Unfit:
            return None
        # No text that a server takes is empty or has a NUL in it.
        return (body or b"")[:PROGRESS_MAX].replace(b"\0", b"").decode(errors="ignore").strip() or None

    def is_clear(self) -> bool:
        """Make it as it was made, if that is little work; False if it is not."""
        try:
            if self._look() != self._made or os.listdir(self.folder):
                return False
            is_kept = self._settled and self._ages()[-1] == self._still[-1]
            for name in os.listdir(self._talk)[:_CLEARED_MAX]:
                if name != _INPUTS or not is_kept:
                    os.unlink(self.file(name))
            if not is_kept:
                _write(self.file(_INPUTS), _NO_INPUTS, _READ_ONLY)
            return os.listdir(self._talk) == [_INPUTS]
        except OSError:
            return False

    def rest(self) -> None:
        """Forget who was there."""
        self._seen = {}
        self._still, self._settled = self._ages(), False

    def remove(self) -> None:
        """Remove all of it."""
        remove_tree(self._place)

    def _look(self) -> list[tuple[object, ...]]:
        """See what would be another folder in the place of ours, or one that not everybody may use alike."""
        found = [(os.lstat(path), _extras(path)) for path in (self.folder, self._talk)]
        return [(one.st_ino, one.st_mode, one.st_uid, *extras) for one, extras in found]

    def _ages(self) -> tuple[int, int, int]:
        """When each folder, and the file of inputs, or what it holds was last changed. No program can set that."""
        inputs = os.lstat(self.file(_INPUTS)).st_ctime_ns
        return os.lstat(self.folder).st_ctime_ns, os.lstat(self._talk).st_ctime_ns, inputs

    def _result(self) -> msgspec.Raw:
        body = self._content("result", RESULT_MAX)
        if not body:
            return NOTHING
        if is_deep(body):
            raise Unfit(f"the result is nested more than {DEPTH_MAX} deep")
        try:
            msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unfit(f"the result is no JSON: {error}") from error
        return msgspec.Raw(body.strip())

    def _content(self, name: str, size_max: int) -> bytes | None:
        """Read what a task wrote, None if it is not there; Unfit for anything but a file of at most that size."""
        if not os.path.lexists(self.file(name)):
            return None  # as it is most often, and cheaper to see like this
        try:
            body = _read(self._talk, name, size_max + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unfit(f"the {name} cannot be read: {error.strerror}") from error
        if len(body) > size_max:
            hint = "; publish where it is instead" if name == "result" else ""
            raise Unfit(f"the {name} is larger than {size_max} bytes{hint}")
        return body

    def _is_new(self, name: str) -> bool:
        try:
            found = os.lstat(self.file(name))
        except OSError:
            return False
        seen, now = self._seen.get(name), (found.st_mtime_ns, found.st_size)
        self._seen[name] = now
        return seen != now


def remove_tree(path: str) -> None:
    """Remove a folder and all that is in it, folders that their maker may not enter included."""
    shutil.rmtree(path, ignore_errors=True)
    if not os.path.isdir(path):
        return
    owner = os.lstat(path).st_uid
    for folder, inner, _ in os.walk(path):
        for one in [folder, *(f"{folder}/{name}" for name in inner)]:
            _open_up(one, owner)
    shutil.rmtree(path, ignore_errors=True)


def _open_up(folder: str, owner: int) -> None:
    with suppress(OSError):
        found = os.lstat(folder)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == owner:
            os.chmod(folder, 0o700)


def _extras(path: str) -> list[str]:
    """Name what a folder has beside its mode, such as other people's rights in it."""
    return os.listxattr(path, follow_symlinks=False) if hasattr(os, "listxattr") else []


def _write(path: str, body: bytes, mode: int = 0o666) -> None:
    # Unbuffered: these are small and every attempt waits for them.
    with open(os.open(path, _NEW, mode), "wb", buffering=0) as file, memoryview(body) as rest:
        written = file.write(rest)
        while written < len(rest):  # a disk that is full takes a part, and refuses the rest
            written += file.write(rest[written:])


def _read(folder: str, name: str, size_max: int) -> bytes:
    """Read the beginning of a file; nothing but a true file in a true folder is ever opened, so that nothing hangs."""
    place = os.open(folder, _PLACE)
    try:
        kind = stat.S_IFMT(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode)
        if kind == stat.S_IFREG:
            with open(os.open(name, _TRUE_FILE, dir_fd=place), "rb") as file:
                kind = stat.S_IFMT(os.fstat(file.fileno()).st_mode)  # it may have been replaced just now
                if kind == stat.S_IFREG:
                    return file.read(size_max)
    finally:
        os.close(place)
    raise OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'something else')}, not a file")
