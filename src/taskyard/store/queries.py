"""Named SQL statements: read from `sql/*.sql` and translated for each database.

A statement follows one comment line that gives its name, its parameters with their types, and a sentence:

    -- each move_tasks(id: int, source: text, target: text): move tasks along an arrow, if they are still at its source.
    UPDATE task SET previous_state = state, state = :target WHERE id = :id AND state = :source;

`each` marks a statement that runs once for every row it is given; each row changes a different row of the table.
SQLite runs it row by row, or for some dozen rows at once; PostgreSQL gets one statement over arrays, in one round trip.
A list is written `IN (:ids)`. A statement whose text differs between the databases has one version for each, with the
database in the name: `claim_candidates@sqlite`. This module translates statements and runs none.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final, Protocol, TypeAlias

SQLITE: Final = "sqlite"
POSTGRES: Final = "postgres"

_HEAD = re.compile(r"-- (each )?(\w+)(?:@(\w+))?\((.*?)\): (.+)")
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)\b")
_LISTED = re.compile(r"IN \(:([a-z_]+)\)")
_LOCK = re.compile(r"\s+FOR (?:NO KEY )?UPDATE(?: OF \w+)?(?: SKIP LOCKED)?")
_VALUES = re.compile(r"VALUES \((.*?)\)(?= ON CONFLICT|;|$)", re.DOTALL)
#: The PostgreSQL type of each parameter type.
_TYPES: Mapping[str, str] = {
    "int": "bigint",
    "text": "text",
    "bytes": "bytea",
    "float": "double precision",
    "ints": "bigint[]",
    "texts": "text[]",
}


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement as written in its file."""

    name: str
    each: bool
    parameters: tuple[tuple[str, str], ...]  # names and types, in order
    sentence: str
    text: str
    database: str | None = None

    @property
    def lists(self) -> tuple[int, ...]:
        """The indexes of the parameters that are lists."""
        return tuple(
            place for place, (_, type_) in enumerate(self.parameters) if type_.endswith("s") and type_ != "bytes"
        )


@cache
def statements(database: str) -> Mapping[str, Statement]:
    """Read all statements for `database`, by name."""
    found: dict[str, Statement] = {}
    for statement in _all():
        if statement.database in {None, database}:
            assert statement.name not in found, f"two statements have the name {statement.name}"
            found[statement.name] = statement
    return found


def for_sqlite(statement: Statement, single: bool = False) -> str:
    """Number the parameters, pass lists as JSON (one value if `single`), and drop locks: there is one writer."""
    text = without_locks(statement.text)
    text = text if single else _LISTED.sub(r"IN (SELECT value FROM json_each(:\1))", text)
    places = {name: place for place, (name, _) in enumerate(statement.parameters, 1)}
    return _PARAMETER.sub(lambda found: f"?{places[found[1]]}", text)


def for_sqlite_many(statement: Statement, count: int) -> str:
    """Make an `each` statement take `count` rows at once; return nothing for a statement that cannot."""
    names = [name for name, _ in statement.parameters]
    row = f"({', '.join('?' for _ in names)})"
    values = f"VALUES {', '.join([row] * count)}"
    plain = f"VALUES ({', '.join(f':{name}' for name in names)})"
    if not statement.each:
        return ""
    if statement.text.startswith("UPDATE"):
        places = {name: place for place, name in enumerate(names, 1)}
        text = _PARAMETER.sub(lambda found: f"r.column{places[found[1]]}", statement.text)
        return text.replace("WHERE", f"FROM ({values}) r WHERE", 1)
    return statement.text.replace(plain, values) if statement.text.endswith(plain) else ""


def for_postgres(statement: Statement) -> str:
    """Number the parameters, pass lists as arrays, and pass the rows of an `each` statement as arrays, too."""
    if statement.each:
        return _over_arrays(statement)
    text = _LISTED.sub(r"= ANY(:\1)", statement.text)
    places = {name: f"${place}::{_TYPES[type_]}" for place, (name, type_) in enumerate(statement.parameters, 1)}
    return _PARAMETER.sub(lambda found: places[found[1]], text)


def without_locks(text: str) -> str:
    """Drop the locking clauses, for read-only transactions."""
    return _LOCK.sub("", text)


def _over_arrays(statement: Statement) -> str:
    arrays = ", ".join(f"${place}::{_TYPES[type_]}[]" for place, (_, type_) in enumerate(statement.parameters, 1))
    names = ", ".join(f"_{name}" for name, _ in statement.parameters)
    rows = f"unnest({arrays}) AS r({names})"
    text = _PARAMETER.sub(r"r._\1", statement.text)
    match text.split(maxsplit=1)[0]:
        case "INSERT":
            return _VALUES.sub(lambda found: f"SELECT {found[1]} FROM {rows}", text, count=1)  # noqa: S608 - our own SQL
        case "UPDATE":
            return text.replace("WHERE", f"FROM {rows} WHERE", 1)
        case command:
            assert command == "DELETE", f"{statement.name} is {command}: only INSERT, UPDATE and DELETE take rows"
            return text.replace("WHERE", f"USING {rows} WHERE", 1)


def _all() -> Iterable[Statement]:
    folder = resources.files(__package__) / "sql"
    for file in sorted(folder.iterdir(), key=lambda one: one.name):
        if file.name.endswith(".sql"):
            yield from _read(file.read_text(encoding="utf-8"))


def _read(text: str) -> Iterable[Statement]:
    for part in re.split(r"\n(?=-- (?:each )?\w+(?:@\w+)?\()", "\n" + text)[1:]:
        head, _, body = part.partition("\n")
        found = _HEAD.fullmatch(head)
        assert found, f"not the first line of a statement: {head}"
        sql = " ".join(
            line.strip() for line in body.splitlines() if line.strip() and not line.lstrip().startswith("--")
        )
        yield Statement(found[2], bool(found[1]), _parameters(found[4]), found[5], sql.removesuffix(";"), found[3])


def _parameters(text: str) -> tuple[tuple[str, str], ...]:
    pairs = (part.split(":") for part in text.split(",") if part.strip())
    return tuple((name.strip(), type_.strip()) for name, type_ in pairs)


#: A row as the database returns it, or as a statement takes it.
Row: TypeAlias = tuple[Any, ...]


class Session(Protocol):
    """One open transaction. It runs named statements."""

    def fetch(self, name: str, *values: object) -> list[Row]:
        """Return the rows that a query finds."""

    def prefetch(self, name: str, *values: object) -> None:
        """Hint that this query follows with these values, and that no write before it changes its result."""

    def execute(self, name: str, *values: object) -> int:
        """Run a statement once; return how many rows it changed."""

    def execute_many(self, name: str, rows: Sequence[Row]) -> None:
        """Run a statement once for each of `rows`."""

    def update_all(self, name: str, rows: Sequence[Row]) -> None:
        """Run a statement once for each of `rows`; raise `TransactionConflict` unless each changes one row."""


class TransactionConflict(Exception):
    """The transaction lost a race or a deadlock: run all of it again."""


class DuplicateKey(Exception):
    """The key of a new row is in use: choose another one."""


class StoreUnavailable(Exception):
    """The database cannot be reached or written. A commit that was under way may have succeeded."""


class StoreFull(StoreUnavailable):
    """The database has no space left for what is to be written."""


class PoolerInTheWay(Exception):
    """The address leads to a pooler that gives one session of PostgreSQL to several clients in turn."""

    def __init__(self) -> None:
        super().__init__(
            "the address of the database leads to a connection pooler in transaction or statement mode, such as "
            "pgbouncer, which gives one session to several clients in turn, and a server needs sessions of its own: "
            "give --database the address of PostgreSQL itself (its port is 5432 by default), or set pool_mode = session"
        )
