"""What a store of files is: bytes by digest, apart for each pool, and kept for a while after their last use."""

import hashlib
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from taskyard.files.digests import Blob

#: How long what is stored is kept after its last use, although nothing refers to it: longer than any client takes from
#: asking what is missing to submitting what refers to it.
UNUSED_SECONDS: Final = 48 * 3_600.0


class Kind(StrEnum):
    """What is stored."""

    BLOB = "blobs"  # chunks of files
    TREE = "trees"  # texts of trees


class Space(NamedTuple):
    """Where a digest is looked up: what is stored for one pool is not there for another."""

    pool: str  # see `pool_key`
    kind: Kind


class StoreBroken(Exception):
    """The store cannot be read or written now; the text says why."""


class FileStore(Protocol):
    """Keeps files. Any thread may use it, and several servers may share what is behind it."""

    def keep(self, space: Space, digests: Collection[str]) -> dict[str, int]:
        """Return the size of each of these that is stored, and keep those for `UNUSED_SECONDS` from now on."""

    def put(self, space: Space, bodies: Mapping[str, Blob]) -> None:
        """Store bodies under their digests, which were verified; all are durable when this returns."""

    def get(self, space: Space, digest: str) -> bytes | None:
        """Return a body, verified; None if it is not there, or damaged."""

    def pools(self) -> list[str]:
        """Return the pools, as `Space.pool`, for which something is stored."""

    def digests(self, space: Space, unused_since: float | None = None) -> Iterator[str]:
        """Yield what is stored; with a time, only what was last used before it."""

    def drop(self, space: Space, digests: Collection[str], unused_since: float) -> int:
        """Remove those of these that were last used before a time; return how many bytes that freed."""

    def clean(self, before: float) -> None:
        """Remove the temporary files of writers that died before a time."""


def pool_key(pool: str) -> str:
    """Return the name of a pool as a part of a path: no two pools share one, whatever they are called."""
    return hashlib.sha256(pool.encode()).hexdigest()[:32]


def blobs(pool: str) -> Space:
    """Return where the chunks of a pool are."""
    return Space(pool_key(pool), Kind.BLOB)


def trees(pool: str) -> Space:
    """Return where the trees of a pool are."""
    return Space(pool_key(pool), Kind.TREE)
