"""The place of one attempt: a fresh folder to run in, and beside it one for the files by which task and bot speak.

A task reads its inputs and the checkpoint of the attempt before, and may write its result, progress and checkpoint, at
paths that its surroundings name. What it writes is bounded here and believed nowhere.

Places are used again. To remove a folder and make another takes a file system over a millisecond, several times what a
short program takes; to see that one is as it was made takes a hundredth of that. One that is not is never used again.
"""

import asyncio
import os
import shutil
import time
from pathlib import Path
from typing import Final

import msgspec

from taskyard.bot.kinds import Unfit
from taskyard.wire.bots import CHECKPOINT_MAX, NOTHING, PROGRESS_MAX, Lease
from taskyard.wire.depth import is_deep
from taskyard.wire.scalars import DEPTH_MAX

#: What a task may publish.
RESULT_MAX: Final = 262_144
#: All attempts without inputs share one file that says so.
NO_INPUTS: Final = "no-inputs.json"
#: A place that an attempt filled with more than this is removed in the background.
_CLEARED_MAX: Final = 8
#: Longer than any file system's clock takes for a step.
_TICK_NS: Final = 100_000_000


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
        self._made += 1
        return Room(self._work, self._made)

    def give_back(self, room: "Room", untouched: bool = False) -> None:
        """Take a place back, with whatever is in it; `untouched` is for who knows that nothing is."""
        if untouched or room.is_still():
            self._ready.append(room)
        elif room.is_clear():
            room.rest()
            self._ready.append(room)
        else:
            asyncio.get_running_loop().run_in_executor(None, room.remove)


class Room:
    """The folder of one attempt, and its files."""

    def __init__(self, work: str, number: int) -> None:
        self._place = f"{work}/{number}"
        self.folder = f"{self._place}/folder"
        self._talk = f"{self._place}/talk"
        self.complaints: list[str] = []
        self._seen: dict[str, tuple[int, int]] = {}  # which writing of a file was told already
        for path in (self._place, self.folder, self._talk):
            os.mkdir(path, 0o700)
        self._made = self._look()
        self._still = self._ages()
        self._settled = False
        self._env = {
            "TASKYARD_INPUTS": f"{work}/{NO_INPUTS}",
            "TASKYARD_RESULT": self.file("result"),
            "TASKYARD_CHECKPOINT": self.file("checkpoint"),
            "TASKYARD_PROGRESS": self.file("progress"),
        }
        self._inputs = False

    def file(self, name: str) -> str:
        """Name the file for `result`, `inputs`, `checkpoint`, `progress` or `script`."""
        return f"{self._talk}/{name}"

    def furnish(self, lease: Lease, inputs: bytes | None, script: str | None = None) -> None:
        """Put in place what the attempt is given."""
        if inputs is not None:
            self._inputs = True
            _write(self.file("inputs"), inputs)
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
        return {**self._env, "TASKYARD_INPUTS": self.file("inputs")} if self._inputs else self._env

    def result(self) -> msgspec.Raw:
        """Read what the attempt published, or `NOTHING`; Unfit when it is no result."""
        body = _read(self.file("result"), RESULT_MAX + 1)
        if not body:
            return NOTHING
        if len(body) > RESULT_MAX:
            raise Unfit(f"the result is larger than {RESULT_MAX} bytes; publish where it is instead")
        if is_deep(body):
            raise Unfit(f"the result is nested more than {DEPTH_MAX} deep")
        try:
            msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unfit(f"the result is no JSON: {error}") from error
        return msgspec.Raw(body.strip())

    def new_checkpoint(self) -> bytes | None:
        """Read what the next attempt should get, if that was written since the last look."""
        if not self._is_new("checkpoint"):
            return None
        body = _read(self.file("checkpoint"), CHECKPOINT_MAX + 1)
        if body is not None and len(body) > CHECKPOINT_MAX:
            self.complaints.append(f"the checkpoint is larger than {CHECKPOINT_MAX} bytes; it is not kept")
            return None
        return body

    def new_progress(self) -> str | None:
        """Read what the task says of its progress, if that was written since the last look."""
        if not self._is_new("progress"):
            return None
        body = _read(self.file("progress"), PROGRESS_MAX)
        return None if body is None else body.decode(errors="ignore").strip()

    def is_clear(self) -> bool:
        """Make it as it was made, if that is little work; False if it is not."""
        try:
            if self._look() != self._made or os.listdir(self.folder):
                return False
            for name in os.listdir(self._talk)[:_CLEARED_MAX]:
                os.unlink(f"{self._talk}/{name}")
            return not os.listdir(self._talk)
        except OSError:
            return False

    def rest(self) -> None:
        """Forget who was there."""
        self.complaints, self._seen, self._inputs = [], {}, False
        self._still, self._settled = self._ages(), False

    def remove(self) -> None:
        """Remove all of it."""
        shutil.rmtree(self._place, ignore_errors=True)

    def _look(self) -> list[tuple[int, int, int]]:
        """See what would be another folder in the place of ours, or one that not everybody may use alike."""
        found = [os.lstat(path) for path in (self.folder, self._talk)]
        return [(one.st_ino, one.st_mode, one.st_uid) for one in found]

    def _ages(self) -> tuple[int, int]:
        """When each folder, its name or what it holds was last changed. No program can set that."""
        return os.lstat(self.folder).st_ctime_ns, os.lstat(self._talk).st_ctime_ns

    def _is_new(self, name: str) -> bool:
        try:
            found = os.stat(self.file(name))
        except OSError:
            return False
        seen, now = self._seen.get(name), (found.st_mtime_ns, found.st_size)
        self._seen[name] = now
        return seen != now


def _write(path: str, body: bytes) -> None:
    # Unbuffered: one write, for these are small and every attempt waits for them.
    with open(path, "wb", buffering=0) as file:
        file.write(body)


def _read(path: str, size_max: int) -> bytes | None:
    try:
        # A named pipe or a device in its place would hang us: no waiting, and only true files.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        if not os.path.isfile(path):
            return None
        try:
            return file.read(size_max)
        except OSError:
            return None
