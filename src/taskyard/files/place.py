"""Write a tree into a folder. Neither the tree nor what is in the folder is trusted.

No step of a path is followed if it is a link. A file that may replace another is written under another name, and takes
its own when it is complete.
"""

import os
import secrets
import shutil
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import Final, Self

from taskyard.files.collect import SILENT, Meter, never
from taskyard.files.digests import CHUNK_BYTES, BadTree, Blob, Tree, TreeFile, sha256, shown

#: How many chunks are fetched in one request, and how many requests are under way at once.
BATCH_CHUNKS_MAX: Final = 1_000
FETCHERS: Final = 3
#: Disk space that is left free: a full disk stops more than this task.
FREE_BYTES_MIN: Final = 256 * 1024 * 1024
#: How many folders are kept open.
_OPEN_MAX: Final = 64
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
#: A function that returns the content of chunks, by digest.
Fetch = Callable[[Sequence[str]], Mapping[str, Blob]]


class Damaged(Exception):
    """What was fetched is not what the tree names."""


def place(
    tree: Tree,
    root: str,
    fetch: Fetch,
    *,
    fresh: bool = True,
    stop: Callable[[], bool] = never,
    meter: Meter = SILENT,
) -> None:
    """Write a tree into a folder; raise BadTree if it does not fit, and `InterruptedError` if `stop` becomes true.

    `fresh` says that nothing else is in the folder; otherwise files of the same names are replaced.
    """
    os.makedirs(root, exist_ok=True)
    _check_space(tree, root)
    with _Folders(root) as folders:
        for folder in tree.folders:
            folders.make(folder)
        _write_files(tree, _Writer(folders, fresh), fetch, stop, meter)
        for link in tree.links:
            _link(folders, link.path, link.target, fresh)


def _check_space(tree: Tree, root: str) -> None:
    free = shutil.disk_usage(root).free - FREE_BYTES_MIN
    if tree.size > max(0, free):
        raise BadTree([f"the files have {tree.size} bytes together, and {max(0, free)} are free on the disk of {root}"])


def _write_files(tree: Tree, writer: "_Writer", fetch: Fetch, stop: Callable[[], bool], meter: Meter) -> None:
    """Fetch each chunk once, and write it wherever it belongs."""
    uses, chunks = _uses_of(tree), tree.chunks()
    meter.begin("receiving", sum(chunks.values()))

    def move(batch: Sequence[str]) -> None:
        if stop():
            raise InterruptedError
        bodies = fetch(batch)
        for chunk in batch:
            for one, start in uses[chunk]:
                writer.write(one, start, _verified(bodies.get(chunk), chunk, one, start))
            meter.add(chunks[chunk])

    try:
        for empty in (one for one in tree.files if not one.chunks):
            writer.write(empty, 0, b"")
        _for_each(move, batches(chunks))
    except BaseException:
        writer.drop()
        raise


def _uses_of(tree: Tree) -> dict[str, list[tuple[TreeFile, int]]]:
    """Return the files and the offsets at which each chunk belongs."""
    uses: defaultdict[str, list[tuple[TreeFile, int]]] = defaultdict(list)
    for one in tree.files:
        for chunk, start, _ in one.parts():
            uses[chunk].append((one, start))
    return uses


def _for_each(move: Callable[[Sequence[str]], None], batches: Sequence[Sequence[str]]) -> None:
    """Call `move` with each batch, several at once; after an error, with no more."""
    if len(batches) < 2:
        for batch in batches:
            move(batch)
        return
    with ThreadPoolExecutor(FETCHERS, "taskyard-files") as pool:
        try:
            for _ in pool.map(move, batches):
                pass
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _verified(body: Blob | None, chunk: str, one: TreeFile, start: int) -> Blob:
    if body is None or sha256(body) != chunk or len(body) != min(CHUNK_BYTES, one.size - start):
        raise Damaged(f"a chunk of {shown(one.path)} is missing or damaged: {chunk}")
    return body


def batches(chunks: Mapping[str, int], batch_bytes: int = CHUNK_BYTES) -> list[list[str]]:
    """Divide chunks, given with their sizes, into requests."""
    found: list[list[str]] = []
    size = batch_bytes + 1
    for chunk, more in chunks.items():
        if size + more > batch_bytes or len(found[-1]) >= BATCH_CHUNKS_MAX:
            found.append([])
            size = 0
        found[-1].append(chunk)
        size += more
    return found


class _Folders:
    """Folders below a root, opened one step at a time, so that no link is followed; the last ones are kept open."""

    def __init__(self, root: str) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._open: OrderedDict[str, int] = OrderedDict()
        self.lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in (*self._open.values(), self._root):
            os.close(handle)

    def make(self, path: str) -> int:
        """Open a folder, made if it is missing. Valid until the lock is released."""
        if not path:
            return self._root
        if path in self._open:
            self._open.move_to_end(path)
            return self._open[path]
        parent, _, name = path.rpartition("/")
        place = self.make(parent)
        with suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=place)
        try:
            handle = os.open(name, _FOLDER, dir_fd=place)
        except OSError as error:
            raise BadTree([f"{shown(path)} is not a folder: {error.strerror}"]) from error
        self._open[path] = handle
        if len(self._open) > _OPEN_MAX:
            os.close(self._open.popitem(last=False)[1])
        return handle


class _Writer:
    """Writes files piece by piece, in any order."""

    def __init__(self, folders: _Folders, fresh: bool) -> None:
        self._folders = folders
        self._fresh = fresh
        self._begun: dict[str, tuple[str, int]] = {}  # path -> the name that it has meanwhile, and the chunks to come

    def write(self, one: TreeFile, start: int, body: Blob) -> None:
        """Write a piece of a file; with the last one the file is complete."""
        folder, _, name = one.path.rpartition("/")
        with self._folders.lock:
            place = self._folders.make(folder)
            known = self._begun.get(one.path)
            used = known[0] if known else name if self._fresh else f".{secrets.token_hex(8)}.part"
            how = _FILE if known else _FILE | os.O_EXCL
            try:
                file = os.open(used, how, 0o755 if one.executable else 0o644, dir_fd=place)
            except FileExistsError:
                raise BadTree([f"{shown(one.path)} is there already"]) from None
            self._begun[one.path] = (used, known[1] if known else max(1, len(one.chunks)))
        try:
            _write_at(file, body, start)
        finally:
            os.close(file)
        with self._folders.lock:
            left = self._begun[one.path][1] - 1
            self._begun[one.path] = (used, left)
            if left == 0:
                del self._begun[one.path]
                self._finish(one, folder, used, name)

    def drop(self) -> None:
        """Remove what is not complete."""
        with self._folders.lock:
            for path, (used, _) in self._begun.items():
                with suppress(OSError):
                    os.unlink(used, dir_fd=self._folders.make(path.rpartition("/")[0]))

    def _finish(self, one: TreeFile, folder: str, used: str, name: str) -> None:
        if used == name:
            return
        place = self._folders.make(folder)
        try:
            os.rename(used, name, src_dir_fd=place, dst_dir_fd=place)
        except OSError as error:
            with suppress(OSError):
                os.unlink(used, dir_fd=place)
            raise BadTree([f"{shown(one.path)} cannot be written: {error.strerror}"]) from error


def _write_at(file: int, body: Blob, start: int) -> None:
    rest = memoryview(body)
    while rest:
        count = os.pwrite(file, rest, start)
        rest, start = rest[count:], start + count


def _link(folders: _Folders, path: str, target: str, fresh: bool) -> None:
    folder, _, name = path.rpartition("/")
    with folders.lock:
        place = folders.make(folder)
        used = name if fresh else f".{secrets.token_hex(8)}.part"
        try:
            os.symlink(target, used, dir_fd=place)
            if not fresh:
                os.rename(used, name, src_dir_fd=place, dst_dir_fd=place)
        except OSError as error:
            if not fresh:
                with suppress(OSError):
                    os.unlink(used, dir_fd=place)
            raise BadTree([f"{shown(path)} cannot be written: {error.strerror}"]) from error
