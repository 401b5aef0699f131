"""The place of one attempt: a fresh folder to run in, and beside it the files by which task and bot speak.

A task reads its inputs and the checkpoint of the attempt before, and may write its result, progress and checkpoint, at
paths that its surroundings name. What it writes is bounded here and believed nowhere. All of it is removed at the end.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from taskyard.bot.kinds import Unfit
from taskyard.wire.bots import CHECKPOINT_MAX, NOTHING, PROGRESS_MAX, Lease

#: What a task may publish.
RESULT_MAX: Final = 262_144
#: All attempts without inputs share one file that says so.
NO_INPUTS: Final = "no-inputs.json"
_WRITTEN: Final = ("result", "inputs", "checkpoint", "progress", "script", "output")


class Room:
    """The folder and the files of one run."""

    def __init__(self, work: Path, run: int) -> None:
        self._stem = str(work / str(run))
        self.folder = self._stem
        self._inputs = str(work / NO_INPUTS)
        self._seen: dict[str, tuple[int, int]] = {}  # which writing of a file was told already
        self.complaints: list[str] = []

    def file(self, name: str) -> str:
        """Name the file for `result`, `inputs`, `checkpoint`, `progress`, `script` or `output`."""
        return f"{self._stem}.{name}"

    def furnish(self, lease: Lease, inputs: bytes | None, script: str | None = None) -> None:
        """Make the folder and put in place what the attempt is given."""
        os.mkdir(self.folder, 0o700)
        if inputs is not None:
            self._inputs = self.file("inputs")
            _write(self._inputs, inputs)
        if lease.checkpoint is not None:
            _write(self.file("checkpoint"), lease.checkpoint)
            self._is_new("checkpoint")
        if script is not None:
            _write(self.file("script"), script.encode())

    def env(self) -> dict[str, str]:
        """Tell the attempt where its files are."""
        return {
            "TASKYARD_INPUTS": self._inputs,
            "TASKYARD_RESULT": self.file("result"),
            "TASKYARD_CHECKPOINT": self.file("checkpoint"),
            "TASKYARD_PROGRESS": self.file("progress"),
        }

    def result(self) -> msgspec.Raw:
        """Read what the attempt published, or `NOTHING`; Unfit when it is no result."""
        body = _read(self.file("result"), RESULT_MAX + 1)
        if not body:
            return NOTHING
        if len(body) > RESULT_MAX:
            raise Unfit(f"the result is larger than {RESULT_MAX} bytes; publish where it is instead")
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

    def clear(self) -> None:
        """Remove all of it."""
        try:
            os.rmdir(self.folder)  # most attempts leave nothing in it
        except FileNotFoundError:
            pass
        except OSError:
            shutil.rmtree(self.folder, ignore_errors=True)
        for name in _WRITTEN:
            with suppress(OSError):
                os.unlink(self.file(name))

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
