"""A store of files in a bucket of S3, or of something that speaks like it. Needs the extra `s3`.

An object is never used again under its name: to store a body, or to use one that is old, makes a new generation of it.
So what the garbage collector removes, by its full name, cannot have been used in between, although S3 has no way to
remove an object only if it is old. The address of the service and the credentials come from the usual variables, such
as AWS_ENDPOINT_URL and AWS_ACCESS_KEY_ID.
"""

import os
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from typing import Final, NamedTuple, TypeVar

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from taskyard.files.digests import DIGEST, Blob, sha256
from taskyard.files.store import UNUSED_SECONDS, FileStore, Kind, Space, StoreBroken

#: How many requests are under way at once.
REQUESTS_MAX: Final = 16
#: After what part of the time that something unused is kept a use makes a new generation.
RENEW_PART: Final = 1 / 4
#: How many objects one request lists, and removes.
PAGE: Final = 1_000
T = TypeVar("T")
U = TypeVar("U")


class _Generation(NamedTuple):
    """One object with a body."""

    name: str
    size: int
    used: float


class S3Files(FileStore):
    """A store of files in a bucket, below a prefix."""

    def __init__(self, location: str) -> None:
        """Open `s3://BUCKET/PREFIX`."""
        bucket, _, prefix = location.removeprefix("s3://").partition("/")
        if not bucket:
            raise StoreBroken(f"{location!r} names no bucket: write s3://BUCKET/PREFIX")
        self._prefix = prefix.strip("/")
        is_plain = os.environ.get("AWS_ENDPOINT_URL", os.environ.get("AWS_ENDPOINT", "")).startswith("http://")
        with _errors():
            self._store = S3Store(
                bucket,
                client_options={
                    "timeout": "60s",
                    "connect_timeout": "10s",
                    **({"allow_http": True} if is_plain else {}),
                },
                retry_config={"max_retries": 4},
            )

    def keep(self, space: Space, digests: Collection[str]) -> dict[str, int]:
        renew_before = time.time() - UNUSED_SECONDS * RENEW_PART

        def keep(digest: str) -> tuple[str, int | None]:
            found = self._generations(space, digest)
            if not found:
                return digest, None
            newest = max(found, key=lambda one: one.used)
            if newest.used < renew_before:
                try:
                    obstore.copy(self._store, newest.name, self._new_name(space, digest))
                except FileNotFoundError:
                    return digest, None
            return digest, newest.size

        return {digest: size for digest, size in _all(keep, digests) if size is not None}

    def put(self, space: Space, bodies: Mapping[str, Blob]) -> None:
        known = self.keep(space, bodies.keys())

        def put(digest: str) -> None:
            obstore.put(self._store, self._new_name(space, digest), bodies[digest], use_multipart=False)

        _all(put, [digest for digest, body in bodies.items() if known.get(digest) != len(body)])

    def get(self, space: Space, digest: str) -> bytes | None:
        found = self._generations(space, digest)
        body, has_gone = self._first_good(found, digest)
        if has_gone:  # one was removed in between, because there is a newer one
            body = self._first_good(self._generations(space, digest), digest)[0]
        return body

    def _first_good(self, found: Iterable[_Generation], digest: str) -> tuple[bytes | None, bool]:
        """Return the newest body that is not damaged; without one, whether some of these are no longer there."""
        has_gone = False
        with _errors():
            for one in sorted(found, key=lambda one: -one.used):
                try:
                    body = bytes(obstore.get(self._store, one.name).bytes())
                except FileNotFoundError:
                    has_gone = True
                    continue
                if sha256(body) == digest:
                    return body, False
        return None, has_gone

    def pools(self) -> list[str]:
        with _errors():
            found = obstore.list_with_delimiter(self._store, self._prefix or None)
            return [one.rstrip("/").rpartition("/")[2] for one in found["common_prefixes"]]

    def digests(self, space: Space, unused_since: float | None = None) -> Iterator[str]:
        for digest, found in self._all_generations(space):
            if unused_since is None or max(one.used for one in found) < unused_since:
                yield digest

    def drop(self, space: Space, digests: Collection[str], unused_since: float) -> int:
        def old(digest: str) -> list[_Generation]:
            return [one for one in self._generations(space, digest) if one.used < unused_since]

        gone = [one for found in _all(old, digests) for one in found]
        self._remove(gone)
        return sum(one.size for one in gone)

    def clean(self, before: float) -> None:
        """Remove generations that a newer one has replaced."""
        for pool in self.pools():
            for kind in Kind:
                for _, found in self._all_generations(Space(pool, kind)):
                    newest = max(found, key=lambda one: one.used)
                    self._remove([one for one in found if one.used < before and one != newest])

    def _remove(self, gone: Iterable[_Generation]) -> None:
        names = [one.name for one in gone]
        with _errors():
            for first in range(0, len(names), PAGE):
                obstore.delete(self._store, names[first : first + PAGE])

    def _generations(self, space: Space, digest: str) -> list[_Generation]:
        with _errors():
            pages = obstore.list(self._store, prefix=f"{self._folder(space)}/{digest}", chunk_size=PAGE)
            return [_generation(one["path"], one["size"], one["last_modified"]) for page in pages for one in page]

    def _all_generations(self, space: Space) -> Iterator[tuple[str, list[_Generation]]]:
        """Yield everything that is stored, by digest; objects are listed in the order of their names."""
        with _errors():
            pages = obstore.list(self._store, prefix=self._folder(space), chunk_size=PAGE)
            found = (_generation(one["path"], one["size"], one["last_modified"]) for page in pages for one in page)
            for digest, some in groupby(found, key=lambda one: one.name.split("/")[-2]):
                if DIGEST.fullmatch(digest):
                    yield digest, list(some)

    def _folder(self, space: Space) -> str:
        parts = (self._prefix, space.pool, space.kind.value)
        return "/".join(part for part in parts if part)

    def _new_name(self, space: Space, digest: str) -> str:
        assert DIGEST.fullmatch(digest), "only digests are names"
        return f"{self._folder(space)}/{digest}/{time.time_ns()}-{secrets.token_hex(4)}"


def _generation(name: str, size: int, modified: datetime) -> _Generation:
    return _Generation(name, size, modified.astimezone(UTC).timestamp())


def _all(act: Callable[[T], U], items: Collection[T]) -> list[U]:
    """Call a function for each item, several at once."""
    if len(items) < 2:
        with _errors():
            return [act(one) for one in items]
    with _errors(), ThreadPoolExecutor(min(REQUESTS_MAX, len(items)), "taskyard-s3") as pool:
        return list(pool.map(act, items))


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:  # not of an object, which is asked for by the name that a list gave
        raise StoreBroken(f"the bucket of the files cannot be used: {_short(error)}") from error
    except BaseError as error:
        raise StoreBroken(f"the bucket of the files cannot be used: {_short(error)}") from error


def _short(error: Exception) -> str:
    return (str(error).partition("\n")[0])[:300]
