"""The working folder of an attempt, and the files that a task and the bot exchange.

A task reads its inputs and the checkpoint of the attempt before, and may write its result, progress and checkpoint, at
paths in its environment. What it writes is bounded here, and not trusted.

Folders are reused. Removing a folder and making another takes a file system over a millisecond, several times as long
as a short program; checking that one is unchanged takes a hundredth of that. A folder that changed is not reused.
Whether one is unchanged shows in its times, if these are older than a tick of the clock when the attempt begins. So the
folder that was given back first is taken first, and another is made while even that one is too new.
"""

import asyncio
import errno
import os
import shutil
import stat
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from taskyard.wire.bot_protocol import CHECKPOINT_MAX, NOTHING, PROGRESS_MAX, RESULT_MAX, Lease
from taskyard.wire.documents import DEPTH_MAX, is_deep

#: The largest progress file; its first `PROGRESS_MAX` bytes are shown.
PROGRESS_FILE_MAX: Final = 65_536
#: A folder with more files than this is removed in the background.
_REMOVED_INLINE_MAX: Final = 8
#: How many existing folders are skipped to find a free name.
_SKIPPED_MAX: Final = 1_000
#: Longer than one tick of the clock of any local file system: Linux moves it on at least a hundred times a second.
_TICK_NS: Final = 20_000_000
#: How many folders may be ready before one is taken that is too new to tell whether it changes.
_READY_MAX: Final = 256
#: The file of inputs, and its content if there are none.
_INPUTS: Final = "inputs"
_NO_INPUTS: Final = b"{}"
#: Inputs are read-only, so that a task does not change them by accident.
_READ_ONLY: Final = 0o444
#: The beginning of the names of folders that are moved in order to be deleted; no task knows the rest.
_FLAT: Final = f"{os.urandom(8).hex()}-"
#: Flags to create files, open folders and read files. No link is followed: it could lead to files that only the bot may
#: read.
_CREATE_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
#: What a task can put in the place of a file.
_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFLNK: "a link",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class BadTaskFile(Exception):
    """A file that a task wrote cannot be used; the text says why, for the output of the task."""


class WorkdirPool:
    """Folders that are ready to use; more are made when needed.

    Functions are called in a folder of their workers, or in one that the task names, so theirs have only the files.
    """

    def __init__(self, work: Path, *, only_files: bool = False) -> None:
        self._prefix = f"{work}/call-" if only_files else f"{work}/"
        self._only_files = only_files
        self._ready: deque[Workdir] = deque()  # the one given back first comes first
        self._made = 0

    def take(self) -> "Workdir":
        """Return a folder that is as if new."""
        if self._ready and (self._ready[0].check_clock() or len(self._ready) >= _READY_MAX):
            return self._ready.popleft()
        for _ in range(_SKIPPED_MAX):
            self._made += 1
            with suppress(FileExistsError):  # a task put something there, or the last instance could not remove it
                return Workdir(f"{self._prefix}{self._made}", self._only_files)
        raise FileExistsError(f"{self._prefix}{self._made}: no free folder up to this number")

    def give_back(self, workdir: "Workdir", untouched: bool = False) -> None:
        """Take a folder back; the caller sets `untouched` if nothing can have been written."""
        if untouched or workdir.is_unchanged():
            self._ready.append(workdir)
        elif workdir.reset():
            workdir.mark_clean()
            self._ready.append(workdir)
        else:
            asyncio.get_running_loop().run_in_executor(None, workdir.remove)


class TaskFiles(msgspec.Struct, frozen=True):
    """What an attempt left in its files, and a sentence for each file that cannot be used."""

    result: msgspec.Raw = NOTHING
    checkpoint: bytes | None = None  # None: already reported, or there is none
    faults: tuple[str, ...] = ()


NO_FILES: Final = TaskFiles()


class Workdir:
    """The working folder of one attempt, and its exchange files."""

    def __init__(self, path: str, only_files: bool = False) -> None:
        self._path = path
        self.folder = f"{path}/folder"
        self._files = f"{path}/files"
        self._folders = (self._files,) if only_files else (self.folder, self._files)
        self._reported: dict[str, tuple[int, int]] = {}  # modification time and size of what was read last
        for folder in (path, *self._folders):
            os.mkdir(folder, 0o700)
        _write(self.file(_INPUTS), _NO_INPUTS, _READ_ONLY)
        self._watched = (*self._folders, self.file(_INPUTS))
        self._clean_identity = self._identity()
        self._clean_times = self._change_times()
        self._is_clock_past = False
        self._env = {
            f"TASKYARD_{name.upper()}": self.file(name) for name in (_INPUTS, "result", "checkpoint", "progress")
        }

    def file(self, name: str) -> str:
        """Return the path of `result`, `inputs`, `checkpoint`, `progress` or `script`."""
        return f"{self._files}/{name}"

    def prepare(self, lease: Lease, inputs: bytes | None, script: str | None = None) -> None:
        """Write what the attempt is given."""
        if inputs is not None:
            os.unlink(self.file(_INPUTS))
            _write(self.file(_INPUTS), inputs, _READ_ONLY)
        if lease.checkpoint is not None:
            _write(self.file("checkpoint"), lease.checkpoint)
            self._has_changed("checkpoint")
        if script is not None:
            _write(self.file("script"), script.encode())

    def check_clock(self) -> bool:
        """Return whether the last change is more than a clock tick ago: two changes within one tick look like one."""
        if not self._is_clock_past:
            self._is_clock_past = time.time_ns() - max(self._clean_times) > _TICK_NS
        return self._is_clock_past

    def is_unchanged(self) -> bool:
        """Whether certainly nothing was changed since it was clean; False if that is not certain."""
        try:
            if not self._is_clock_past:
                return False
            for path, before in zip(self._watched, self._clean_times, strict=True):  # benchmarks.endtoend, no-ops
                if os.lstat(path).st_ctime_ns != before:
                    return False
        except OSError:
            return False
        return True

    def env(self) -> dict[str, str]:
        """Return the variables with the paths of the files."""
        return self._env

    def read_files(self, *, succeeded: bool) -> TaskFiles:
        """Read what an ended attempt left; only a successful one has a result."""
        result, checkpoint, faults = NOTHING, None, []
        try:
            result = self._read_result() if succeeded else NOTHING
        except BadTaskFile as error:
            faults.append(str(error))
        try:
            checkpoint = self._read_file("checkpoint", CHECKPOINT_MAX)
        except BadTaskFile as error:
            faults.append(str(error))
        try:
            self._read_file("progress", PROGRESS_FILE_MAX)
        except BadTaskFile as error:
            faults.append(str(error))
        return TaskFiles(result, checkpoint if self._has_changed("checkpoint") else None, tuple(faults))

    def new_checkpoint(self) -> bytes | None:
        """Return the checkpoint if it was written since the last look."""
        try:
            return self._read_file("checkpoint", CHECKPOINT_MAX) if self._has_changed("checkpoint") else None
        except BadTaskFile:
            return None  # reported at the end, if it is still wrong

    def new_progress(self) -> str | None:
        """Return the progress text if it was written since the last look."""
        try:
            body = self._read_file("progress", PROGRESS_FILE_MAX) if self._has_changed("progress") else None
        except BadTaskFile:
            return None
        # The server takes no empty text, and none with a NUL.
        return (body or b"")[:PROGRESS_MAX].replace(b"\0", b"").decode(errors="ignore").strip() or None

    def reset(self) -> bool:
        """Clean the folder for reuse, if that is little work; False if it is not."""
        try:
            if self._identity() != self._clean_identity or any(map(os.listdir, self._folders[:-1])):
                return False
            is_kept = self._is_clock_past and self._change_times()[-1] == self._clean_times[-1]
            for name in os.listdir(self._files)[:_REMOVED_INLINE_MAX]:
                if name != _INPUTS or not is_kept:
                    os.unlink(self.file(name))
            if not is_kept:
                _write(self.file(_INPUTS), _NO_INPUTS, _READ_ONLY)
            return os.listdir(self._files) == [_INPUTS]
        except OSError:
            return False

    def mark_clean(self) -> None:
        """Make this state the clean one."""
        self._reported = {}
        self._clean_times, self._is_clock_past = self._change_times(), False

    def remove(self) -> None:
        """Delete the folder."""
        remove_tree(self._path)

    def _identity(self) -> list[tuple[object, ...]]:
        """Return what tells a replaced folder, or one with other rights, from ours."""
        found = [(os.lstat(path), _xattrs(path)) for path in self._folders]
        return [(one.st_ino, one.st_mode, one.st_uid, *extras) for one, extras in found]

    def _change_times(self) -> list[int]:
        """Return the ctime of each folder and of the inputs, which no program can set."""
        return [os.lstat(path).st_ctime_ns for path in self._watched]

    def _read_result(self) -> msgspec.Raw:
        body = self._read_file("result", RESULT_MAX)
        if not body:
            return NOTHING
        if is_deep(body):
            raise BadTaskFile(f"the result is nested more than {DEPTH_MAX} deep")
        try:
            msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadTaskFile(f"the result is not JSON: {error}") from error
        return msgspec.Raw(body.strip())

    def _read_file(self, name: str, size_max: int) -> bytes | None:
        """Read a file of the task, None if there is none; raise BadTaskFile if it is not a file, or too large."""
        if not os.path.lexists(self.file(name)):
            return None  # the usual case, and cheaper than to open it
        try:
            body = _read_start(self._files, name, size_max + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadTaskFile(f"the {name} cannot be read: {error.strerror}") from error
        if len(body) > size_max:
            hint = "; publish where it is instead" if name == "result" else ""
            raise BadTaskFile(f"the {name} is larger than {size_max} bytes{hint}")
        return body

    def _has_changed(self, name: str) -> bool:
        try:
            found = os.lstat(self.file(name))
        except OSError:
            return False
        seen, now = self._reported.get(name), (found.st_mtime_ns, found.st_size)
        self._reported[name] = now
        return seen != now


def remove_tree(path: str) -> None:
    """Delete a folder with its content, including folders without access rights, however deep they are nested."""
    with suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    if os.path.isdir(path) and not os.path.islink(path):
        with suppress(OSError):
            _remove_flat(path)


def _remove_flat(top: str) -> None:
    """Delete a folder, moving each inner folder to its top first: paths stay short, and nothing recurses."""
    _make_accessible(top)
    moved = 0
    while folders := _remove_files(top):
        for folder in folders:
            _make_accessible(folder)
            for inner in _remove_files(folder):
                moved += 1
                _make_accessible(inner)  # a read-only folder cannot be moved
                os.rename(inner, f"{top}/{_FLAT}{moved}")
            os.rmdir(folder)
    os.rmdir(top)


def _remove_files(folder: str) -> list[str]:
    """Delete what is no folder in a folder; return the folders in it."""
    with os.scandir(folder) as found:
        entries = list(found)
    for one in entries:
        if not one.is_dir(follow_symlinks=False):
            os.unlink(one.path)
    return [one.path for one in entries if one.is_dir(follow_symlinks=False)]


def _make_accessible(folder: str) -> None:
    with suppress(OSError):
        if stat.S_ISDIR(os.lstat(folder).st_mode):
            os.chmod(folder, 0o700)


def _xattrs(path: str) -> list[str]:
    """Return the extended attributes of a folder, such as access control lists."""
    return os.listxattr(path, follow_symlinks=False) if hasattr(os, "listxattr") else []


def _write(path: str, body: bytes, mode: int = 0o666) -> None:
    # Unbuffered: the files are small, and every attempt waits for them.
    with open(os.open(path, _CREATE_FILE, mode), "wb", buffering=0) as file, memoryview(body) as rest:
        written = file.write(rest)
        while written < len(rest):  # a full disk takes a part of the data before it refuses the rest
            written += file.write(rest[written:])


def _read_start(folder: str, name: str, size_max: int) -> bytes:
    """Read the beginning of a file. Only regular files in real folders are opened, so that nothing hangs."""
    place = os.open(folder, _OPEN_FOLDER)
    try:
        kind = stat.S_IFMT(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode)
        if kind == stat.S_IFREG:
            with open(os.open(name, _OPEN_FILE, dir_fd=place), "rb") as file:
                kind = stat.S_IFMT(os.fstat(file.fileno()).st_mode)  # it may have been replaced just now
                if kind == stat.S_IFREG:
                    return file.read(size_max)
    finally:
        os.close(place)
    raise OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'something else')}, not a file")
