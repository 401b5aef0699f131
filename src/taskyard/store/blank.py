"""The tables of a new SQLite file, made from the stored text of the schema instead of by the migrations.

A test writes `blank.sql` and checks that it equals what the migrations make; nothing here brings an existing database
to another version.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib import resources
from pathlib import Path

from taskyard.store.sqlite import make_private


def create(path: Path) -> None:
    """Create a database file with the newest schema; there must be none."""
    make_private(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        fill(connection)
        connection.execute("COMMIT")


def fill(connection: sqlite3.Connection) -> None:
    """Create all tables in an empty database, inside the transaction that the caller has begun."""
    for statement in _statements():
        connection.execute(statement)


def dump(path: Path) -> str:
    """Return the SQL text that `blank.sql` has for a database file."""
    with closing(sqlite3.connect(path)) as connection:
        lines = "\n".join(connection.iterdump()).splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines if line.strip())


def _statements() -> Iterator[str]:
    text = resources.files("taskyard.store").joinpath("blank.sql").read_text(encoding="utf-8")
    statement = ""
    for line in text.removeprefix("BEGIN TRANSACTION;\n").removesuffix("COMMIT;\n").splitlines(keepends=True):
        statement += line
        if line.endswith(";\n") and sqlite3.complete_statement(statement):
            yield statement
            statement = ""
