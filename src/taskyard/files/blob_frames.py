"""How blobs travel: each behind its length, one after another, so that thousands of small ones are one request."""

from collections.abc import Iterable, Iterator
from typing import Final

from taskyard.files.digests import CHUNK_BYTES, Blob

#: The most blobs of one request.
BLOBS_MAX: Final = 1_000
_LENGTH_BYTES: Final = 4
#: A blob up to this size is rather copied than sent by itself.
_SMALL_BYTES_MAX: Final = 65_536
#: Stands for a blob that is not there, in an answer.
_MISSING: Final = b"\xff" * _LENGTH_BYTES
#: The longest body with blobs: the content of one chunk, and the lengths.
BODY_MAX: Final = CHUNK_BYTES + _LENGTH_BYTES * BLOBS_MAX


class BadFrames(ValueError):
    """A body that does not hold blobs."""


def frame(blob: Blob | None) -> bytes:
    """Return what stands before a blob."""
    return _MISSING if blob is None else len(blob).to_bytes(_LENGTH_BYTES, "big")


def join(blobs: Iterable[Blob | None]) -> bytes:
    """Write blobs."""
    return b"".join(part for blob in blobs for part in (frame(blob), blob or b""))


def pieces(blobs: Iterable[bytes | None]) -> list[bytes]:
    """Write blobs as few pieces: small ones together, and no large one is copied."""
    found: list[bytes] = []
    small: list[bytes] = []
    for blob in blobs:
        small.append(frame(blob))
        if blob is not None and len(blob) > _SMALL_BYTES_MAX:
            found += (b"".join(small), blob)
            small.clear()
        elif blob is not None:
            small.append(blob)
    return [*found, b"".join(small)] if small else found


def split(body: bytes | bytearray) -> Iterator[memoryview | None]:
    """Read blobs; None stands for one that is not there."""
    start, view = 0, memoryview(body)
    while start < len(body):
        head = bytes(view[start : start + _LENGTH_BYTES])
        start += _LENGTH_BYTES
        if head == _MISSING:
            yield None
            continue
        size = int.from_bytes(head, "big")
        if len(head) < _LENGTH_BYTES or start + size > len(body):
            raise BadFrames("the body ends in the middle of a blob")
        yield view[start : start + size]
        start += size
