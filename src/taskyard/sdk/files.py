"""Moving trees of files between a folder and a server: only what is missing, verified at both ends.

An upload that was cut off goes on where it was, since the server keeps each chunk that arrived. `stop` is asked between
chunks, so that a transfer can be ended from another thread.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from taskyard.files import blob_frames
from taskyard.files.collect import SILENT, Changed, Meter, collect, never, read_part
from taskyard.files.digests import Blob, FileDigest, FilesRef, Tree, read_tree, sha256, shown, tree_text
from taskyard.files.place import Damaged, batches, place
from taskyard.sdk.errors import ClientError
from taskyard.sdk.http import HttpResponse
from taskyard.sdk.routes import ApiSession, segment
from taskyard.wire.api import StoredBlobs, StoredTree

#: How many requests with chunks are under way at once.
SENDERS: Final = 2
#: How often a tree is offered: what is missing after the second upload changes on this machine all the time.
OFFERS_MAX: Final = 3
_BYTES: Final = "application/octet-stream"


class TransferFailed(ClientError):
    """Files could not be moved; the text says why."""


class Upload(msgspec.Struct):
    """What an upload did."""

    tree: FilesRef
    moved_chunks: int = 0
    moved_bytes: int = 0


def upload_folder(
    session: ApiSession,
    pool: str,
    root: str,
    patterns: Sequence[str] | None = None,
    stop: Callable[[], bool] = never,
) -> Upload:
    """Store a folder, or what patterns name in it, for a pool."""
    return upload(session, pool, collect(root, patterns, stop), root, stop)


def upload(
    session: ApiSession,
    pool: str,
    tree: Tree,
    root: str,
    stop: Callable[[], bool] = never,
    meter: Meter = SILENT,
) -> Upload:
    """Store a tree that was made of a folder."""
    uploader = _Uploader(session, pool, root, stop, meter)
    text = tree_text(tree)
    done = Upload(tree.ref())
    for _ in range(OFFERS_MAX):
        answer = session.send_bytes(f"/pools/{segment(pool)}/trees", text, "application/json")
        stored = msgspec.json.decode(answer, type=StoredTree)
        if stored.digest != done.tree.digest:
            raise TransferFailed(f"the server stored another tree: {stored.digest}")
        if not stored.missing:
            return done
        uploader.send(tree, set(stored.missing), done)
    raise TransferFailed("the server still misses chunks that were sent")


def download(  # noqa: PLR0913 - the last three say how, not what
    session: ApiSession,
    pools: Mapping[str, str],
    tree: Tree,
    root: str,
    *,
    fresh: bool = True,
    stop: Callable[[], bool] = never,
    meter: Meter = SILENT,
) -> None:
    """Write a tree into a folder; `pools` names, for each chunk, the pool that has it."""

    def fetch(chunks: Sequence[str]) -> dict[str, Blob]:
        found: dict[str, Blob] = {}
        for pool in {pools[chunk] for chunk in chunks}:
            found |= read_blobs(session, pool, [chunk for chunk in chunks if pools[chunk] == pool])
        return found

    try:
        place(tree, root, fetch, fresh=fresh, stop=stop, meter=meter)
    except Damaged as error:
        raise TransferFailed(str(error)) from error


def read_stored_tree(session: ApiSession, pool: str, digest: str) -> Tree:
    """Read a tree, verified."""
    text = session.raw(f"/pools/{segment(pool)}/trees/{digest}", {})
    if sha256(text) != digest:
        raise TransferFailed(f"the tree {digest} is damaged")
    return read_tree(text)


def read_blobs(session: ApiSession, pool: str, digests: Sequence[str]) -> dict[str, Blob]:
    """Read chunks; those that are not there are left out."""
    body = msgspec.json.encode(digests)
    answer = session.send_bytes(f"/pools/{segment(pool)}/blobs/read", body, "application/json")
    try:
        blobs = list(blob_frames.split(answer))
    except blob_frames.BadFrames as error:
        raise TransferFailed(f"an answer was cut off: {error}") from error
    return {digest: blob for digest, blob in zip(digests, blobs, strict=False) if blob is not None}


def verified(pieces: Iterator[HttpResponse | bytes], path: str) -> Iterator[bytes]:
    """Pass the pieces of a file on; raise `TransferFailed` behind the last one if they are not what was named."""
    wanted, found = "", FileDigest()
    for piece in pieces:
        if isinstance(piece, bytes):
            found.add(piece)
            yield piece
        else:
            wanted = piece.headers.get("etag", "").strip('"')
            yield b""
    if found.digest() != wanted:
        raise TransferFailed(f"{shown(path)} is damaged, or was cut off")


class _Uploader:
    """Sends chunks of files in a folder."""

    def __init__(self, session: ApiSession, pool: str, root: str, stop: Callable[[], bool], meter: Meter) -> None:
        self._session = session
        self._path = f"/pools/{segment(pool)}/blobs"
        self._root = root
        self._stop = stop
        self._meter = meter
        self._where: dict[str, tuple[str, int, int]] = {}  # path, offset and size by digest

    def send(self, tree: Tree, missing: AbstractSet[str], done: Upload) -> None:
        """Send chunks, several requests at once, and count them."""
        for one in tree.files:
            for chunk, start, size in one.parts():
                if chunk in missing:
                    self._where.setdefault(chunk, (one.path, start, size))
        sizes = {one: self._where[one][2] for one in missing}
        self._meter.begin("sending", sum(sizes.values()))
        with ThreadPoolExecutor(SENDERS, "taskyard-send") as senders:
            try:
                for count in senders.map(self._send, batches(sizes)):
                    done.moved_chunks += count[0]
                    done.moved_bytes += count[1]
            except BaseException:
                senders.shutdown(wait=True, cancel_futures=True)
                raise

    def _send(self, batch: Sequence[str]) -> tuple[int, int]:
        if self._stop():
            raise InterruptedError
        bodies = [read_part(self._root, *self._where[chunk]) for chunk in batch]
        answer = self._session.send_bytes(self._path, blob_frames.join(bodies), _BYTES)
        for chunk, digest in zip(batch, msgspec.json.decode(answer, type=StoredBlobs).digests, strict=True):
            if chunk != digest:
                raise Changed(f"{shown(self._where[chunk][0])} was changed while it was read, or damaged on its way")
        size = sum(map(len, bodies))
        self._meter.add(size)
        return len(bodies), size
