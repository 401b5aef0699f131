"""A new SQLite file, made from the stored schema text instead of by the migrations, which take half a second to load.

It is for files that live as long as one program. A test writes `blank.sql` and checks that it equals what the
migrations make; nothing here brings an existing file to another version.
"""

import sqlite3
from contextlib import closing
from importlib import resources
from pathlib import Path

from taskyard.store.sqlite import make_private


def create(path: Path) -> None:
    """Create a database file with the newest schema; there must be none."""
    make_private(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(resources.files("taskyard.store").joinpath("blank.sql").read_text(encoding="utf-8"))


def dump(path: Path) -> str:
    """Return the SQL text that `blank.sql` has for a database file."""
    with closing(sqlite3.connect(path)) as connection:
        lines = "\n".join(connection.iterdump()).splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines if line.strip())
