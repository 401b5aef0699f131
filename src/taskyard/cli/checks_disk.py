"""Checks of where things are kept: SQLite on that disk, how fast it is, how much is free, and who can read what.

What is tried out is tried in the folder itself, or in the nearest one above it that exists, and removed again.
"""

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Final

from taskyard.cli import kept, text
from taskyard.cli.check import Check, fault, ok, warning
from taskyard.private_files import OTHERS

#: The first that has all that is used: `RETURNING`, and updates from other rows.
SQLITE_MIN: Final = (3, 35, 0)
#: How often the disk is asked to keep something, and how long it may take: every commit waits for it.
SYNCS: Final = 9
SYNC_MAX_MS: Final = 50.0
#: Below these a server should not be left alone, or does not start any more work.
FREE_MIN: Final = 1 << 30
FREE_LEAST: Final = 100 << 20
#: Files with secrets, and files with everything that tasks do and with the key of their tokens.
_SECRETS: Final = ("admin.token",)
_DATABASES: Final = ("taskyard.db", "taskyard.db-wal", "taskyard.db-shm")


def sqlite(data: Path) -> Iterator[Check]:
    """Try SQLite's log on the disk of a folder, and measure how long the disk takes to keep something."""
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < SQLITE_MIN:
        needed = ".".join(map(str, SQLITE_MIN))
        yield fault("sqlite", f"SQLite {version} is here, and {needed} is needed", "use a Python with a newer SQLite")
        return
    folder = nearest(data)
    try:
        with tempfile.TemporaryDirectory(prefix=".taskyard-doctor-", dir=folder) as place:
            yield _log_works(version, folder, Path(place))
            yield _speed(folder, Path(place))
    except OSError as error:
        yield fault("sqlite", f"nothing can be written to {folder}: {error.strerror}", "choose a folder that is yours")


def disk(data: Path) -> Iterator[Check]:
    """See how much is free where things are kept."""
    folder = nearest(data)
    free = shutil.disk_usage(folder).free
    said = f"{free / (1 << 30):.1f} GiB free at {folder}"
    if free < FREE_LEAST:
        yield fault("disk", said, "make room: a full disk stops everything")
    elif free < FREE_MIN:
        yield warning("disk", said, "make room soon")
    else:
        yield ok("disk", said)


def files(data: Path) -> Iterator[Check]:
    """See who can read what is secret, and whether we can."""
    settings = sorted(kept.path().parent.glob("*.toml"))
    secrets = [path for path in (*settings, *(data / name for name in _SECRETS)) if path.exists()]
    others = [path for path in (data, *(data / name for name in _DATABASES), data / "bots") if path.exists()]
    found = [*map(_secret, secrets), *map(_kept, others)]
    wrong = [one for one in found if one is not None]
    yield from wrong
    if not wrong:
        looked = f"{text.many(len(secrets), 'file')} with secrets and {text.many(len(others), 'other place')}"
        yield ok("files", f"{looked} are for your eyes only" if secrets or others else "nothing is kept here yet")


def nearest(folder: Path) -> Path:
    """Give a folder, or the nearest one above it that exists."""
    absolute = folder.absolute()
    return next(one for one in (absolute, *absolute.parents) if one.is_dir())


def _log_works(version: str, folder: Path, place: Path) -> Check:
    """Write by one connection and read by another, as a server does."""
    file = place / "trial.db"
    try:
        with closing(sqlite3.connect(file, timeout=5)) as writer, closing(sqlite3.connect(file, timeout=5)) as reader:
            (mode,) = writer.execute("PRAGMA journal_mode = WAL").fetchone()
            writer.execute("CREATE TABLE trial (number INTEGER)")
            writer.execute("INSERT INTO trial VALUES (7)")
            writer.commit()
            seen = reader.execute("SELECT number FROM trial").fetchall()
    except sqlite3.Error as error:
        mode, seen = str(error), []
    if mode == "wal" and seen == [(7,)]:
        return ok("sqlite", f"SQLite {version}, its log works on {folder}")
    return fault("sqlite", f"SQLite's log does not work on {folder} ({mode})", "keep the data on a local disk: --data")


def _speed(folder: Path, place: Path) -> Check:
    took_ms = median(_sync_ms(place / "sync") for _ in range(SYNCS))
    said = f"the disk of {folder} keeps a write in {took_ms:.1f} ms"
    if took_ms > SYNC_MAX_MS:
        return warning("fsync", said, "every commit waits for that: a faster disk makes everything faster")
    return ok("fsync", said)


def _sync_ms(file: Path) -> float:
    with file.open("wb") as out:
        out.write(b"x" * 4096)
        out.flush()
        began = time.perf_counter()
        os.fsync(out.fileno())
        return (time.perf_counter() - began) * 1000


def _secret(path: Path) -> Check | None:
    """Say what is wrong with a file that holds a secret."""
    if not os.access(path, os.R_OK):
        return fault("files", f"{path} cannot be read", f"make it yours: chown {_me()} {path}")
    if path.stat().st_mode & OTHERS:
        return fault("files", f"{path} holds a secret and others can read it", f"chmod 600 {path}")
    return None


def _kept(path: Path) -> Check | None:
    """Say what is wrong with what is kept."""
    if not os.access(path, os.R_OK | os.W_OK):
        return fault("files", f"{path} cannot be read and written", f"make it yours: chown {_me()} {path}")
    if not path.stat().st_mode & OTHERS:
        return None
    if path.is_dir():
        return warning("files", f"others can look into {path}", f"chmod 700 {path}")
    return fault("files", f"others can use {path}", f"chmod 600 {path}")


def _me() -> str:
    return str(os.geteuid())
