"""Make a tree of what is in a folder: all of it, or what some patterns name.

What is in the folder is not trusted: a task has written it. No link is followed, only regular files are read, and
everything is counted before it is read.
"""

import hashlib
import os
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from taskyard.files.digests import (
    CHUNK_BYTES,
    DEPTH_MAX,
    ENTRIES_MAX,
    TREE_BYTES_MAX,
    BadTree,
    Tree,
    TreeFile,
    TreeLink,
    make_tree,
    shown,
)

#: How many entries of a folder are looked at to find those that patterns name, and how often one is compared with one.
SCANNED_MAX: Final = 1_000_000
COMPARED_MAX: Final = 10_000_000
#: How many parts of files are read at once: hashing uses one processor each.
_READERS: Final = 2
#: How much is read at once: it stays in the cache of the processor until it is hashed.
_BUFFER_BYTES: Final = 262_144
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
_KINDS: Final = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_MAGIC: Final = re.compile(r"[*?[]")


class Entry(NamedTuple):
    """Something in a folder."""

    path: str
    found: os.stat_result

    @property
    def kind(self) -> int:
        """What it is."""
        return stat.S_IFMT(self.found.st_mode)


class Changed(Exception):
    """A file was changed while it was read; the text says which."""


def never() -> bool:
    """Never stop."""
    return False


class Meter:
    """Counts the bytes that were read or moved; a subclass shows them. Any thread may use it."""

    def begin(self, what: str, total: int) -> None:
        """Begin to do something with this many bytes."""

    def add(self, count: int) -> None:
        """Count more bytes as done."""


SILENT: Final = Meter()


def collect(
    root: str, patterns: Iterable[str] | None = None, stop: Callable[[], bool] = never, meter: Meter = SILENT
) -> Tree:
    """Make a tree of a folder, or of what patterns name in it; raise BadTree if something in it cannot be in one.

    A pattern that names nothing adds nothing; see `missing`. If `stop` becomes true, `InterruptedError` is raised.
    """
    scanner = _Scanner(root, stop)
    entries = scanner.below() if patterns is None else scanner.named(patterns)
    faults = [
        f"{shown(one.path)} is {_KINDS.get(one.kind, 'no file')}; only files, folders and links can be kept"
        for one in entries
        if one.kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
    ]
    files = [one for one in entries if one.kind == stat.S_IFREG]
    size = sum(one.found.st_size for one in files)
    if len(entries) > ENTRIES_MAX * 2 or len(files) > ENTRIES_MAX:
        faults.append(f"there are {len(entries)} entries; at most {ENTRIES_MAX}")
    if size > TREE_BYTES_MAX:
        faults.append(f"the files have {size} bytes together; at most {TREE_BYTES_MAX}")
    if faults:
        raise BadTree(faults[:20])
    links = [TreeLink(one.path, _target(root, one.path)) for one in entries if one.kind == stat.S_IFLNK]
    folders = _empty_folders(entries)
    # The paths and the links are checked before anything is read.
    make_tree((TreeFile(one.path, 0) for one in files), links, folders)
    meter.begin("reading", size)
    return make_tree(_read_all(root, files, stop, meter), links, folders)


def missing(root: str, paths: Iterable[str]) -> list[str]:
    """Return those paths that name nothing; one with a wildcard may."""
    return [path for path in paths if not _MAGIC.search(path) and not _look(root, path.strip("/"))]


def read_part(root: str, path: str, start: int, size: int) -> bytes:
    """Read a part of a file in a folder, without following links."""
    with _open_file(root, path) as file:
        return os.pread(file, size, start)


@contextmanager
def _open_folder(root: str, path: str) -> Iterator[int]:
    """Open a folder below a root, one step at a time."""
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for step in filter(None, path.split("/")):
            inner = os.open(step, _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


@contextmanager
def _open_file(root: str, path: str) -> Iterator[int]:
    folder, _, name = path.rpartition("/")
    with _open_folder(root, folder) as place:
        file = os.open(name, _FILE, dir_fd=place)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise Changed(f"{shown(path)} is no longer a file")
        yield file
    finally:
        os.close(file)


# Finding entries.


class _Scanner:
    """Finds entries below a folder, each folder once, and not more than is reasonable."""

    def __init__(self, root: str, stop: Callable[[], bool]) -> None:
        self._root, self._stop = root, stop
        self._scanned: dict[str, list[Entry]] = {}
        self._count = self._compared = 0

    def below(self, folder: str = "") -> list[Entry]:
        """List everything below a folder, folders included."""
        if folder not in self._scanned:
            self._scanned[folder] = self._scan(folder)
        return self._scanned[folder]

    def named(self, patterns: Iterable[str]) -> list[Entry]:
        """List what patterns name, and what is below the folders among it."""
        found: dict[str, Entry] = {}
        for pattern in patterns:
            for one in self._with_pattern(pattern.strip("/")):
                found[one.path] = one
        return list(found.values())

    def _with_pattern(self, text: str) -> Iterator[Entry]:
        steps = text.split("/")
        plain = next((place for place, step in enumerate(steps) if _MAGIC.search(step)), len(steps))
        base = "/".join(steps[:plain])
        entry = _look(self._root, base) if base else None
        if base and entry is None:
            return
        if plain == len(steps) and entry is not None:
            yield entry
            if entry.kind == stat.S_IFDIR:
                yield from self.below(base)
            return
        if entry is None or entry.kind == stat.S_IFDIR:
            pattern, entries = Pattern(text), self.below(base)
            self._compared += len(entries)
            if self._compared > COMPARED_MAX:
                raise BadTree([f"there are too many patterns for the {len(entries)} entries in the folder"])
            yield from (one for one in entries if pattern.matches(one.path))

    def _scan(self, folder: str) -> list[Entry]:
        found: list[Entry] = []
        waiting = [folder]
        while waiting:
            if self._stop():
                raise InterruptedError
            path = waiting.pop()
            with _open_folder(self._root, path) as place:
                for name in os.listdir(place):
                    entry = Entry(
                        f"{path}/{name}" if path else name, os.stat(name, dir_fd=place, follow_symlinks=False)
                    )
                    found.append(entry)
                    if entry.kind == stat.S_IFDIR:
                        waiting.append(entry.path)
            if self._count + len(found) > SCANNED_MAX:
                raise BadTree([f"there are more than {SCANNED_MAX} entries in the folder"])
            if path.count("/") > DEPTH_MAX:
                raise BadTree([f"{shown(path)} is in more than {DEPTH_MAX} folders"])
        self._count += len(found)
        return found


def _look(root: str, path: str) -> Entry | None:
    folder, _, name = path.rpartition("/")
    with suppress(FileNotFoundError, NotADirectoryError, OSError), _open_folder(root, folder) as place:
        return Entry(path, os.stat(name, dir_fd=place, follow_symlinks=False))
    return None


class Pattern:
    """Paths with wildcards: `*` and `?` stay in one name, `**` stands for any folders; folders mean what they hold.

    A task writes both the pattern and the names, so the time for a comparison is bounded: neither backtracks.
    """

    def __init__(self, text: str) -> None:
        steps = text.split("/")
        if steps[-1] == "**":
            steps.append("*")  # what is in the folders, not the first of them
        self._steps = [None if step == "**" else re.compile(_step_form(step), re.DOTALL) for step in steps]

    def matches(self, path: str) -> bool:
        """Whether it names a path, or a folder around it."""
        last = len(self._steps)
        places = self._passed({0})
        for name in path.split("/"):
            places = self._passed({after for place in places if (after := self._after(place, name)) is not None})
            if last in places:
                return True
        return False

    def _after(self, place: int, name: str) -> int | None:
        step = self._steps[place]
        if step is None:
            return place
        return place + 1 if step.fullmatch(name) else None

    def _passed(self, places: set[int]) -> set[int]:
        """Add the places behind `**`, which may stand for no folder."""
        for place, step in enumerate(self._steps):
            if step is None and place in places:
                places.add(place + 1)
        return places


def _step_form(step: str) -> str:
    """Translate the pattern of one name. The first place where a part fits is as good as any: no other is tried."""
    first, *rest = _fixed_parts(step)
    if not rest:
        return first
    *middle, last = rest
    return first + "".join(f"(?>.*?{part})" for part in middle if part) + f".*{last}"


def _fixed_parts(step: str) -> list[str]:
    """Translate what stands between the stars of a pattern: each part has a fixed length."""
    parts = [""]
    place = 0
    while place < len(step):
        one = step[place]
        place += 1
        end = step.find("]", place + 1) if one == "[" else -1
        if one == "*":
            parts.append("")
        elif one == "?":
            parts[-1] += "."
        elif end > 0:
            parts[-1] += _set_form(step[place:end])
            place = end + 1
        else:
            parts[-1] += re.escape(one)
    return parts


def _set_form(written: str) -> str:
    """Translate what stands between brackets; what is no set of characters means itself."""
    inner = written.replace("\\", r"\\").replace("[", r"\[")
    form = f"[{'^' + inner[1:] if inner[0] in '!^' else inner}]"
    try:
        re.compile(form)
    except re.error:
        return re.escape(f"[{written}]")
    return form


def _target(root: str, path: str) -> str:
    folder, _, name = path.rpartition("/")
    with _open_folder(root, folder) as place:
        target = os.readlink(name, dir_fd=place)
    if target.startswith("/"):
        return target
    return "/".join(step for step in target.split("/") if step not in ("", ".")) or "."


def _empty_folders(entries: Sequence[Entry]) -> list[str]:
    filled = {one.path.rpartition("/")[0] for one in entries}
    return [one.path for one in entries if one.kind == stat.S_IFDIR and one.path not in filled]


# Reading files.


class _Part(NamedTuple):
    """A part of a file that becomes a chunk."""

    entry: Entry
    start: int

    @property
    def size(self) -> int:
        return min(CHUNK_BYTES, self.entry.found.st_size - self.start)

    @property
    def is_last(self) -> bool:
        return self.start + self.size == self.entry.found.st_size


def _read_all(root: str, files: Sequence[Entry], stop: Callable[[], bool], meter: Meter) -> list[TreeFile]:
    """Hash files, several parts at once."""
    parts = [_Part(one, start) for one in files for start in range(0, max(1, one.found.st_size), CHUNK_BYTES)]

    def read(part: _Part) -> str:
        if stop():
            raise InterruptedError
        digest = _digest(root, part)
        meter.add(part.size)
        return digest

    chunks: defaultdict[str, list[str]] = defaultdict(list)
    for part, digest in zip(parts, _map(read, parts), strict=True):
        chunks[part.entry.path] += [digest] if part.size else []
    return [
        TreeFile(one.path, one.found.st_size, tuple(chunks[one.path]), bool(one.found.st_mode & stat.S_IXUSR))
        for one in files
    ]


def _map(read: Callable[[_Part], str], parts: Sequence[_Part]) -> list[str]:
    if sum(one.size for one in parts) < CHUNK_BYTES:
        return list(map(read, parts))
    with ThreadPoolExecutor(_READERS, "taskyard-hash") as pool:
        try:
            return list(pool.map(read, parts))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _digest(root: str, part: _Part) -> str:
    """Hash a part of a file; raise `Changed` if the file does not end where it did."""
    # One byte more than there should be shows that the file has grown.
    left = part.size + part.is_last
    found, place = hashlib.sha256(), part.start
    buffer = memoryview(bytearray(min(_BUFFER_BYTES, left)))
    with _open_file(root, part.entry.path) as file:
        while left and (count := os.preadv(file, [buffer[:left]], place)):
            found.update(buffer[:count])
            place += count
            left -= count
    if left != part.is_last:
        raise Changed(f"{shown(part.entry.path)} was changed while it was read")
    return found.hexdigest()
