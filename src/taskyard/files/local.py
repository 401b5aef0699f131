"""A store of files in a local folder, or in one that servers share over a network file system.

A body is written to a file of its own under `incoming`, and renamed when it is complete and durable. So a killed writer
leaves nothing under a digest, and a reader finds all of a body or nothing. The modification time of a file is when it
was last used.

What is to be removed is first moved aside, to a name that follows from its own, and then looked at again: a client may
have used it in between. Whoever misses a file looks there, too, and moves it back. So a collector that is killed has
taken nothing away, and a client that was told that a file is there finds it.
"""

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final

from taskyard.files.digests import DIGEST, Blob, sha256
from taskyard.files.store import FileStore, Space, StoreBroken
from taskyard.private_files import FILE_MODE, make_folder

_INCOMING: Final = "incoming"
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_NUMBERS: Final = count()
#: How many files are written at once: far below how many a process may have open.
_OPEN_MAX: Final = 128
#: Disk space that is left free: the database is often on the same disk, and nothing works if it cannot write.
FREE_BYTES_MIN: Final = 256 * 1024 * 1024
#: What follows the name of a file that is about to be removed.
_ASIDE: Final = ".aside"
_LOCK: Final = "collector.lock"


class LocalFiles(FileStore):
    """A store of files below one folder."""

    def __init__(self, root: Path) -> None:
        try:
            make_folder(root)
            (root / _INCOMING).mkdir(exist_ok=True)
        except OSError as error:
            raise StoreBroken(f"cannot keep files in {root}: {error.strerror}") from error
        self._root = str(root)

    def keep(self, space: Space, digests: Collection[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for digest in digests:
            path = self._path(space, digest)
            with _errors():
                size = _use(path)
                if size is None:
                    _take_back(path)
                    size = _use(path)
            if size is not None:
                found[digest] = size
        return found

    def put(self, space: Space, bodies: Mapping[str, Blob]) -> None:
        with _errors():
            self._put(space, bodies)

    def get(self, space: Space, digest: str) -> bytes | None:
        path = self._path(space, digest)
        with _errors():
            body = _read(path)
            if body is None:
                _take_back(path)
                body = _read(path)
        return body if body is not None and sha256(body) == digest else None

    def pools(self) -> list[str]:
        with _errors():
            return [name for name in _names(self._root) if name != _INCOMING]

    def digests(self, space: Space, unused_since: float | None = None) -> Iterator[str]:
        with _errors():
            folders = sorted(_names(f"{self._root}/{space.pool}/{space.kind}"))
        for folder in folders:
            with _errors(), _entries(f"{self._root}/{space.pool}/{space.kind}/{folder}") as entries:
                for entry in entries:
                    digest = entry.name.removesuffix(_ASIDE)
                    if DIGEST.fullmatch(digest) and (unused_since is None or _used(entry) < unused_since):
                        yield digest

    def drop(self, space: Space, digests: Collection[str], unused_since: float) -> int:
        with _errors(), self._one_collector():
            return sum(_drop(self._path(space, digest), unused_since) for digest in digests)

    @contextmanager
    def _one_collector(self) -> Iterator[None]:
        """Let no other server remove files meanwhile: both would use the same names."""
        handle = os.open(f"{self._root}/{_INCOMING}/{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def clean(self, before: float) -> None:
        with _errors(), _entries(f"{self._root}/{_INCOMING}") as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.name != _LOCK and entry.stat(follow_symlinks=False).st_ctime < before:
                        os.unlink(entry.path)

    def _put(self, space: Space, bodies: Mapping[str, Blob]) -> None:
        missing = [digest for digest, body in bodies.items() if not self._is_whole(space, digest, len(body))]
        if missing and shutil.disk_usage(self._root).free < FREE_BYTES_MIN + sum(len(bodies[one]) for one in missing):
            raise OSError(errno.ENOSPC, "the rest of the disk is for the database")
        for first in range(0, len(missing), _OPEN_MAX):
            self._write_all(space, {digest: bodies[digest] for digest in missing[first : first + _OPEN_MAX]})

    def _write_all(self, space: Space, bodies: Mapping[str, Blob]) -> None:
        written: list[tuple[str, str]] = []
        files: list[int] = []
        try:
            for digest, body in bodies.items():
                name = self._new_name()
                files.append(os.open(name, _CREATE, FILE_MODE))
                written.append((name, self._path(space, digest)))
                _write(files[-1], body)
            # All are written before the first is waited for: the system writes them to the disk together.
            for file in files:
                os.fsync(file)
            _publish(written)
        except BaseException:
            for name, _ in written:
                with suppress(OSError):
                    os.unlink(name)
            raise
        finally:
            for file in files:
                os.close(file)

    def _is_whole(self, space: Space, digest: str, size: int) -> bool:
        """Whether a body is there, and keep it; one that is damaged is written again."""
        if self.keep(space, [digest]).get(digest) != size:
            return False
        return self.get(space, digest) is not None

    def _path(self, space: Space, digest: str) -> str:
        assert DIGEST.fullmatch(digest), "only digests are paths"
        return f"{self._root}/{space.pool}/{space.kind}/{digest[:2]}/{digest}"

    def _new_name(self) -> str:
        return f"{self._root}/{_INCOMING}/{os.getpid()}-{time.time_ns()}-{next(_NUMBERS)}"


def _use(path: str) -> int | None:
    """Note that a file is used now; return its size, None if there is none."""
    try:
        size = os.stat(path).st_size
        os.utime(path)
    except FileNotFoundError:
        return None
    return size


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except FileNotFoundError:
        return None


def _take_back(path: str) -> None:
    """Move a file back if a collector has moved it aside."""
    with suppress(FileNotFoundError):
        os.rename(path + _ASIDE, path)


def _drop(path: str, unused_since: float) -> int:
    """Remove a file that was last used before a time; return its size, 0 if it stays."""
    aside = path + _ASIDE
    with suppress(FileNotFoundError):  # a collector that was killed has moved it already
        os.rename(path, aside)
    try:
        found = os.stat(aside)
        if found.st_mtime < unused_since:
            os.unlink(aside)
            return found.st_size
        os.rename(aside, path)
    except FileNotFoundError:
        pass  # it was used in between, and moved back
    return 0


def _publish(written: Iterable[tuple[str, str]]) -> None:
    """Give files their names, durably."""
    folders: set[str] = set()
    for name, path in written:
        folder = os.path.dirname(path)
        if folder not in folders and not os.path.isdir(folder):
            os.makedirs(folder, 0o700, exist_ok=True)
            folders.update((os.path.dirname(folder), os.path.dirname(os.path.dirname(folder))))
        folders.add(folder)
        os.rename(name, path)
    for folder in folders:
        _sync_folder(folder)


def _write(file: int, body: Blob) -> None:
    rest = memoryview(body)
    while rest:
        rest = rest[os.write(file, rest) :]


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


@contextmanager
def _entries(folder: str) -> Iterator[Iterable["os.DirEntry[str]"]]:
    """Yield the entries of a folder; none, if it is not there."""
    try:
        found = os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        yield ()
        return
    with found:
        yield found


def _used(entry: "os.DirEntry[str]") -> float:
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return time.time()


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = "the disk of the files is full" if full else f"the files cannot be used: {error.strerror}"
        raise StoreBroken(why) from error
