"""Files up and down between a client and a server on this machine: one large file, and many small ones.

What counts as plain copying of the large file is the same bytes sent over a loopback connection to another process,
which writes them to a file of the same disk, durably: no transfer between two programs does less. What the least copy
on one machine takes, by the kernel and durable, is printed beside it. Transfers and copies take turns, and the best of
each counts. A second upload of the same tree has to move nothing.
"""

import multiprocessing
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from benchmarks.cluster import cluster
from benchmarks.report import Case, Peer, main
from taskyard.sdk import Client
from taskyard.sdk.local_inputs import tree_of

LARGE_BYTES: Final = 1_000_000_000
SMALL_FILES: Final = 10_000
SMALL_BYTES: Final = 2_000
ROUNDS: Final = 3
#: How many times as long as a plain copy the large file may take.
MUST_TIMES: Final = 3.0
_BUFFER: Final = 1_048_576
#: What the kernel's copy is called in the report.
_KERNEL: Final = "cp and fsync"
T = TypeVar("T")


class _Stopwatch:
    """Keeps the best time of each thing that was done."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.best: dict[str, float] = {}

    def timed(self, what: str, act: Callable[[], T]) -> T:
        os.sync()
        _touch_memory(self._size)
        began = time.perf_counter()
        done = act()
        took = time.perf_counter() - began
        self.best[what] = min(took, self.best.get(what, took))
        return done


def measure(quick: bool) -> list[Case]:
    """Measure uploads, downloads and copies in turns; the best of each counts."""
    size, count, rounds = (20_000_000, 300, 1) if quick else (LARGE_BYTES, SMALL_FILES, ROUNDS)
    large, small = _Stopwatch(size), _Stopwatch(count * SMALL_BYTES)
    moved = 0
    with cluster("sqlite") as place:
        for _ in range(rounds):
            moved += _round(place.client, large, lambda folder: _make_large(folder, size))
            moved += _round(place.client, small, lambda folder: _make_small(folder, count))
    # A file of the small version is measured against the time of a request.
    must = None if quick else MUST_TIMES
    return [
        *_cases(f"{size / 1e6:,.0f} MB in one file", large.best, must),
        *_cases(f"{count:,} small files", small.best, None),
        Case("moved by second uploads", moved, "bytes", "lower", 0.0),
    ]


def _cases(name: str, best: dict[str, float], must: float | None) -> list[Case]:
    floor, kernel = best["sent"], Peer(_KERNEL, best["copied"])
    return [
        Case(f"{name}, up", best["up"], "s", "lower", floor=floor, peer=kernel),
        Case(f"{name}, down", best["down"], "s", "lower", floor=floor, peer=kernel),
        Case(f"{name}, up, to a plain copy", best["up"] / floor, "times", "lower", must),
        Case(f"{name}, down, to a plain copy", best["down"] / floor, "times", "lower", must),
        Case(f"{name}, up again", best["again"], "s", "lower"),
    ]


def _round(client: Client, watch: _Stopwatch, make: Callable[[Path], None]) -> int:
    """Copy a folder plainly, upload it twice and download it; return what the second upload moved."""
    with tempfile.TemporaryDirectory(dir=".") as place:
        source, back = Path(place, "source"), Path(place, "back")
        make(source)
        watch.timed("copied", lambda: _copy(source, Path(place, "copy")))
        watch.timed("sent", lambda: _send(source, Path(place, "sent")))
        watch.timed("up", lambda: client.put_tree(tree_of(str(source))))
        again = watch.timed("again", lambda: client.put_tree(tree_of(str(source))))

        def down() -> None:
            client.get_tree(again.tree.digest, str(back))
            _sync(back)

        watch.timed("down", down)
        assert tree_of(str(back)).digest == again.tree.digest
        return again.moved_bytes


def _copy(source: Path, target: Path) -> None:
    """Copy a folder; what it holds is on the disk when this returns."""
    shutil.copytree(source, target)
    _sync(target)


def _send(source: Path, target: Path) -> None:
    """Send the files of a folder to another process, which writes them; they are on the disk when this returns."""
    target.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        receiver = multiprocessing.get_context("fork").Process(target=_receive, args=(listener, target))
        receiver.start()
        with socket.create_connection(listener.getsockname()) as connection:
            for one in source.iterdir():
                connection.sendall(f"{one.stat().st_size:20}{one.name:20}".encode())
                with one.open("rb", buffering=0) as file:
                    while piece := file.read(_BUFFER):
                        connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b"."
        receiver.join()


def _receive(listener: socket.socket, target: Path) -> None:
    connection, _ = listener.accept()
    buffer = memoryview(bytearray(_BUFFER))
    while head := connection.recv(40, socket.MSG_WAITALL):
        left = int(head[:20])
        with (target / head[20:].decode().strip()).open("wb", buffering=0) as file:
            while left:
                count = connection.recv_into(buffer[:left])
                file.write(buffer[:count])
                left -= count
    _sync(target)
    connection.sendall(b".")


def _sync(folder: Path) -> None:
    """Wait until what was written into a folder is on the disk: all that is compared here is durable."""
    for one in folder.iterdir():
        with one.open("rb") as file:
            os.fsync(file.fileno())


def _touch_memory(size: int) -> None:
    """Let there be free memory that the machine really has: a virtual one gets what it has not used of late slowly."""
    touched = bytearray(size)
    touched[::4096] = b"." * len(range(0, size, 4096))


def _make_large(folder: Path, size: int) -> None:
    folder.mkdir()
    with (folder / "large").open("wb") as file:
        for _ in range(size // 1_000_000):
            file.write(os.urandom(1_000_000))


def _make_small(folder: Path, count: int) -> None:
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:05}").write_bytes(os.urandom(SMALL_BYTES))


if __name__ == "__main__":
    sys.exit(main("files", measure))
