"""The store of files of a server, and the checks of trees against it."""

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar

from taskyard.files import store as files
from taskyard.files.digests import BadTree, Tree, entries, read_tree, sha256, tree_text
from taskyard.files.store import FileStore
from taskyard.server.errors import RequestRefused, not_found, refused

#: How many trees are kept parsed, and how many entries of them: those that are read page by page, or file by file.
TREES_CACHED: Final = 16
ENTRIES_CACHED: Final = 200_000
#: How many threads use the store. A bucket may take a minute to answer, and people must not wait for that who want
#: something else of the server.
THREADS_MAX: Final = 16
_SQLITE: Final = "sqlite:///"
T = TypeVar("T")


class ServerFiles:
    """The files of a server. The store is opened when it is first used, since many servers never use it."""

    def __init__(self, location: str, database: str) -> None:
        self.location = location or _beside(database)
        self._store: FileStore | None = None
        self._lock = Lock()
        self._trees: dict[tuple[str, str], Tree] = {}
        self._threads: ThreadPoolExecutor | None = None

    async def on_thread(self, act: Callable[[], T]) -> T:
        """Use the store, which may be slow or not available, on a thread that does nothing else."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS_MAX, "taskyard-files")

        def guarded() -> T:
            try:
                return act()
            except files.StoreBroken as error:
                raise unavailable(error) from error

        return await asyncio.get_running_loop().run_in_executor(self._threads, guarded)

    @property
    def store(self) -> FileStore:
        """The store; refuse the request if this server keeps no files."""
        with self._lock:
            if self._store is None:
                if not self.location:
                    raise refused(404, "no_files", "this server keeps no files: start it with --files")
                self._store = open_store(self.location)
            return self._store

    @property
    def is_used(self) -> bool:
        """Whether there may be files: none if the folder does not exist."""
        return bool(self.location) and (self.location.startswith("s3://") or Path(self.location).is_dir())

    def add_tree(self, pool: str, tree: Tree) -> list[str]:
        """Store a tree whose chunks are all stored; return the chunks that are missing, or have another size."""
        chunks = tree.chunks()
        found = self.store.keep(files.blobs(pool), chunks.keys())
        missing = [chunk for chunk, size in chunks.items() if found.get(chunk) != size]
        wrong = [chunk for chunk in missing if chunk in found]
        if wrong:
            raise BadTree([f"the chunk {chunk} has {found[chunk]} bytes, not {chunks[chunk]}" for chunk in wrong[:20]])
        if not missing:
            text = tree_text(tree)
            self.store.put(files.trees(pool), {sha256(text): text})
        return missing

    def stored_trees(self, pool: str, digests: Collection[str]) -> set[str]:
        """Return those of these trees that are stored, and keep them for a while."""
        return set(self.store.keep(files.trees(pool), digests))

    def missing_trees(self, wanted: frozenset[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
        """Return those trees (label, pool and digest) that are not stored."""
        try:
            return self._missing(wanted)
        except files.StoreBroken as error:
            raise unavailable(error) from error

    def _missing(self, wanted: frozenset[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
        stored = {
            (pool, tree)
            for pool in {pool for _, pool, _ in wanted}
            for tree in self.stored_trees(pool, {tree for _, other, tree in wanted if other == pool})
        }
        return [one for one in wanted if one[1:] not in stored]

    def tree(self, pool: str, digest: str) -> Tree:
        """Read a tree; refuse the request if there is none."""
        with self._lock:
            known = self._trees.get((pool, digest))
        if known is None:
            text = self.store.get(files.trees(pool), digest)
            if text is None:
                raise not_found(f"tree in pool {pool} with the digest", digest)
            known = read_tree(text)
            self._remember((pool, digest), known)
        return known

    def _remember(self, place: tuple[str, str], tree: Tree) -> None:
        """Keep a parsed tree, and no more than what fits."""
        with self._lock:
            self._trees[place] = tree
            while len(self._trees) > TREES_CACHED or sum(map(entries, self._trees.values())) > ENTRIES_CACHED:
                self._trees.pop(next(iter(self._trees)))


def open_store(location: str) -> FileStore:
    """Open a store: a folder, or `s3://BUCKET/PREFIX`."""
    if location.startswith("s3://"):
        try:
            from taskyard.files.s3 import S3Files  # noqa: PLC0415 - an extra that most servers do not have
        except ImportError as error:
            hint = 'install it with `pip install "taskyard[s3]"`'
            raise files.StoreBroken(f"a bucket needs the extra s3 of this program: {hint}") from error
        return S3Files(location)
    from taskyard.files.local import LocalFiles  # noqa: PLC0415 - only where files are used

    return LocalFiles(Path(location))


def _beside(database: str) -> str:
    """Return the folder of files beside a database file, which it shares with no other database."""
    if not database.startswith(_SQLITE):
        return ""
    return str(Path(database.removeprefix(_SQLITE)).with_suffix(".files"))


def unavailable(error: files.StoreBroken) -> RequestRefused:
    """Refuse a request because the store cannot be used now."""
    return refused(503, "unavailable", str(error), headers={"Retry-After": "5"})
