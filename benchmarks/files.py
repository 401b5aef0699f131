"""Files up and down between a client and a server on this machine: one large file, and many small ones.

The floor is a plain copy: the same files written to another folder of the same disk, durably, in the same run. A second
upload of the same tree has to move nothing.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.cluster import cluster
from benchmarks.report import Case, main
from taskyard.sdk import Client
from taskyard.sdk.files import Upload
from taskyard.sdk.local_inputs import tree_of

LARGE_BYTES: Final = 1_000_000_000
SMALL_FILES: Final = 10_000
SMALL_BYTES: Final = 2_000
ROUNDS: Final = 3
#: How many times as long as a plain copy the large file may take.
MUST_TIMES: Final = 3.0


def measure(quick: bool) -> list[Case]:
    """Measure uploads, downloads and copies in turns; the best of each counts."""
    size, count, rounds = (20_000_000, 300, 1) if quick else (LARGE_BYTES, SMALL_FILES, ROUNDS)
    best: dict[str, float] = {}
    moved = 0
    with cluster("sqlite") as place, tempfile.TemporaryDirectory(dir=".") as folder:
        for _ in range(rounds):
            for name, make, amount in (("large", _make_large, size), ("small", _make_small, count)):
                make(Path(folder, name), amount)
                moved += _round(place.client, name, Path(folder, name), Path(folder), best)
    large, small = f"{size / 1e6:,.0f} MB in one file", f"{count:,} small files"
    copy = best["large copy"]
    must = None if quick else MUST_TIMES * copy  # a small file is measured against the time of a request
    return [
        Case(f"{large}, up", best["large up"], "s", "lower", must, floor=copy),
        Case(f"{large}, down", best["large down"], "s", "lower", must, floor=copy),
        Case(f"{small}, up", best["small up"], "s", "lower", floor=best["small copy"]),
        Case(f"{small}, down", best["small down"], "s", "lower", floor=best["small copy"]),
        Case(f"{large}, up again", best["large again"], "s", "lower"),
        Case(f"{small}, up again", best["small again"], "s", "lower"),
        Case("moved by second uploads", moved, "bytes", "lower", 0.0),
    ]


def _round(client: Client, name: str, source: Path, folder: Path, best: dict[str, float]) -> int:
    """Copy a folder plainly, upload it twice and download it; return what the second upload moved."""

    def timed(what: str, act: Callable[[], object]) -> object:
        os.sync()
        began = time.perf_counter()
        done = act()
        took = time.perf_counter() - began
        best[f"{name} {what}"] = min(took, best.get(f"{name} {what}", took))
        return done

    copy, back = folder / "copy", folder / "back"
    timed("copy", lambda: _copy(source, copy))
    timed("up", lambda: client.put_tree(tree_of(str(source))))
    again = timed("again", lambda: client.put_tree(tree_of(str(source))))
    assert isinstance(again, Upload)
    digest = again.tree.digest

    def down() -> None:
        client.get_tree(digest, str(back))
        _sync(back)

    timed("down", down)
    assert tree_of(str(back)).digest == again.tree.digest
    for one in (copy, back, source):
        shutil.rmtree(one)
    return again.moved_bytes


def _copy(source: Path, target: Path) -> None:
    """Copy a folder; what it holds is on the disk when this returns."""
    shutil.copytree(source, target)
    _sync(target)


def _sync(folder: Path) -> None:
    """Wait until what was written into a folder is on the disk: all that is compared here is durable."""
    for one in folder.iterdir():
        with one.open("rb") as file:
            os.fsync(file.fileno())


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
