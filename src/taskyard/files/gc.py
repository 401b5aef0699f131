"""The garbage collector of files: removes what nothing refers to and what was not used for a while.

A tree is kept while something refers to it, and for `UNUSED_SECONDS` after its last use: a client that was told that a
tree is stored has that long to submit what refers to it. Whether something refers to a tree is asked twice, with a
pause: one transaction may copy a reference, for a graph that reuses results, while another deletes what it copied.

A chunk is kept while a tree names it, and as long after its own last use. The chunks of trees that are removed stay
until the next pass, so that a tree which is used while a pass goes on loses nothing. Passes may overlap, and end at any
point: what is left is found by the next one.
"""

import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

from taskyard.files.digests import BadTree, read_tree
from taskyard.files.store import UNUSED_SECONDS, FileStore, Kind, Space

#: How many digests are looked up, or removed, at once.
PAGE: Final = 500
#: Temporary files of dead writers are removed after this time: no upload of a chunk takes longer.
INCOMING_SECONDS: Final = 3_600.0
#: The memory of a pass, in bits: up to ten million chunks, about one in a hundred of those to remove is kept until the
#: next pass, which has another salt.
FILTER_BITS: Final = 1 << 27
_PROBES: Final = 4
#: Longer than any transaction that writes takes.
SETTLE_SECONDS: Final = 2.0
_LOG: Final = logging.getLogger("taskyard.files")
#: A function that returns which of some trees are referred to.
UsedTrees = Callable[[Collection[str]], set[str]]
T = TypeVar("T")


@dataclass
class Removed:
    """What a pass has removed."""

    trees: int = 0
    chunks: int = 0
    bytes: int = 0


class DigestFilter:
    """A set of digests of a fixed size (a Bloom filter): what was added is in it, and little else."""

    def __init__(self, bits: int = FILTER_BITS) -> None:
        self._bits = bits
        self._bytes = bytearray(bits // 8)
        self._salt = secrets.randbits(64)

    def add(self, digest: str) -> None:
        """Add a digest."""
        for place in self._places(digest):
            self._bytes[place >> 3] |= 1 << (place & 7)

    def __contains__(self, digest: str) -> bool:
        return all(self._bytes[place >> 3] >> (place & 7) & 1 for place in self._places(digest))

    def _places(self, digest: str) -> Iterator[int]:
        # A digest is random already; the salt moves what collides in this pass apart in the next.
        for probe in range(_PROBES):
            word = int(digest[probe * 16 : probe * 16 + 16], 16)
            yield ((word ^ self._salt) * 0x9E3779B97F4A7C15 >> 20) % self._bits


def collect_garbage(
    store: FileStore,
    used_trees: UsedTrees,
    *,
    unused_seconds: float = UNUSED_SECONDS,
    settle_seconds: float = SETTLE_SECONDS,
    bits: int = FILTER_BITS,
) -> Removed:
    """Make one pass over a store."""

    def used_twice(trees: Collection[str]) -> set[str]:
        used = used_trees(trees)
        if rest := set(trees) - used:
            time.sleep(settle_seconds)
            used |= used_trees(rest)
        return used

    removed = Removed()
    unused_since = time.time() - unused_seconds
    for pool in store.pools():
        named = _chunks_named(store, Space(pool, Kind.TREE), bits)
        if named is not None:
            _drop_trees(store, Space(pool, Kind.TREE), used_twice, unused_since, removed)
            _drop_chunks(store, Space(pool, Kind.BLOB), named, unused_since, removed)
    store.clean(time.time() - max(INCOMING_SECONDS, 0))
    return removed


def _chunks_named(store: FileStore, space: Space, bits: int) -> DigestFilter | None:
    """Return the chunks of all trees that are stored now; None if one of them cannot be read."""
    named = DigestFilter(bits)
    for digest in store.digests(space):
        text = store.get(space, digest)
        try:
            for chunk in () if text is None else read_tree(text).chunks():
                named.add(chunk)
        except BadTree:
            text = None
        if text is None and digest in store.keep(space, [digest]):
            _LOG.error("tree %s cannot be read: no files of its pool are removed", digest)
            return None
    return named


def _drop_trees(store: FileStore, space: Space, used_trees: UsedTrees, unused_since: float, removed: Removed) -> None:
    for page in _pages(store.digests(space, unused_since)):
        gone = set(page) - used_trees(page)
        removed.bytes += store.drop(space, gone, unused_since)
        removed.trees += len(gone)


def _drop_chunks(store: FileStore, space: Space, named: DigestFilter, unused_since: float, removed: Removed) -> None:
    for page in _pages(one for one in store.digests(space, unused_since) if one not in named):
        removed.bytes += store.drop(space, page, unused_since)
        removed.chunks += len(page)


def _pages(items: Iterable[T]) -> Iterator[list[T]]:
    source = iter(items)
    while page := list(islice(source, PAGE)):
        yield page
