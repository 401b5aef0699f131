"""Named statements: SQL as text of its own, translated for each database.

A statement stands in a file of `statements/`, under one line that gives its name, its parameters with their types, and
a sentence:

    -- each carry(id: int, source: text, target: text): take tasks along an arrow, if they are still at its source.
    UPDATE task SET was = state, state = :target WHERE id = :id AND state = :source;

`each` marks a statement that is carried out for every row it is given, each for another row of the table. SQLite runs
it row by row, or for some dozen rows at once; PostgreSQL gets it as one statement over arrays, in one round trip. A
list stands as `IN (:ids)`. Where one text cannot serve both, the name carries the database: `candidates@sqlite`.
Nothing else is translated, and nothing here runs anything.
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
#: What each type of a parameter is in PostgreSQL.
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
    """One statement as its file has it."""

    name: str
    each: bool
    parameters: tuple[tuple[str, str], ...]  # names and types, in order
    sentence: str
    text: str
    database: str | None = None

    @property
    def lists(self) -> tuple[int, ...]:
        """The places of the parameters that are lists."""
        return tuple(
            place for place, (_, type_) in enumerate(self.parameters) if type_.endswith("s") and type_ != "bytes"
        )


@cache
def statements(database: str) -> Mapping[str, Statement]:
    """Read every statement that `database` uses, by name."""
    found: dict[str, Statement] = {}
    for statement in _all():
        if statement.database in {None, database}:
            assert statement.name not in found, f"two statements are called {statement.name}"
            found[statement.name] = statement
    return found


def for_sqlite(statement: Statement, single: bool = False) -> str:
    """Translate: numbered parameters, lists as JSON or, if `single`, as one value; no locks: there is one writer."""
    text = lockless(statement.text)
    text = text if single else _LISTED.sub(r"IN (SELECT value FROM json_each(:\1))", text)
    places = {name: place for place, (name, _) in enumerate(statement.parameters, 1)}
    return _PARAMETER.sub(lambda found: f"?{places[found[1]]}", text)


def for_sqlite_many(statement: Statement, count: int) -> str:
    """Translate a statement that updates, or only inserts its parameters, to take `count` rows; others to nothing."""
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
    """Translate: numbered parameters, lists as arrays, rows as one relation of arrays."""
    if statement.each:
        return _over_arrays(statement)
    text = _LISTED.sub(r"= ANY(:\1)", statement.text)
    places = {name: f"${place}::{_TYPES[type_]}" for place, (name, type_) in enumerate(statement.parameters, 1)}
    return _PARAMETER.sub(lambda found: places[found[1]], text)


def lockless(text: str) -> str:
    """Leave out the locks, for who only looks."""
    return _LOCK.sub("", text)


def _over_arrays(statement: Statement) -> str:
    arrays = ", ".join(f"${place}::{_TYPES[type_]}[]" for place, (_, type_) in enumerate(statement.parameters, 1))
    names = ", ".join(f"_{name}" for name, _ in statement.parameters)
    rows = f"unnest({arrays}) AS r({names})"
    text = _PARAMETER.sub(r"r._\1", statement.text)
    match text.split(maxsplit=1)[0]:
        case "INSERT":
            return _VALUES.sub(lambda found: f"SELECT {found[1]} FROM {rows}", text, count=1)  # noqa: S608 - our own texts
        case "UPDATE":
            return text.replace("WHERE", f"FROM {rows} WHERE", 1)
        case verb:
            assert verb == "DELETE", f"{statement.name} begins with {verb}: only INSERT, UPDATE and DELETE take rows"
            return text.replace("WHERE", f"USING {rows} WHERE", 1)


def _all() -> Iterable[Statement]:
    folder = resources.files(__package__) / "statements"
    for file in sorted(folder.iterdir(), key=lambda one: one.name):
        if file.name.endswith(".sql"):
            yield from _read(file.read_text(encoding="utf-8"))


def _read(text: str) -> Iterable[Statement]:
    for part in re.split(r"\n(?=-- (?:each )?\w+(?:@\w+)?\()", "\n" + text)[1:]:
        head, _, body = part.partition("\n")
        found = _HEAD.fullmatch(head)
        assert found, f"this is no head of a statement: {head}"
        sql = " ".join(
            line.strip() for line in body.splitlines() if line.strip() and not line.lstrip().startswith("--")
        )
        yield Statement(found[2], bool(found[1]), _parameters(found[4]), found[5], sql.removesuffix(";"), found[3])


def _parameters(text: str) -> tuple[tuple[str, str], ...]:
    pairs = (part.split(":") for part in text.split(",") if part.strip())
    return tuple((name.strip(), type_.strip()) for name, type_ in pairs)


# What a database has to offer to the verbs: run a named statement. Four ways, and a hint; no more.


#: A row as the database gives it, or as a statement takes it.
Row: TypeAlias = tuple[Any, ...]


class Session(Protocol):
    """One open transaction of one database."""

    def fetch(self, name: str, *values: object) -> list[Row]:
        """Ask: the rows that statement `name` finds."""

    def prefetch(self, name: str, *values: object) -> None:
        """Hint: just this will be asked, and nothing that is written until then changes the answer."""

    def execute(self, name: str, *values: object) -> int:
        """Carry out statement `name` once; say how many rows it changed."""

    def execute_many(self, name: str, rows: Sequence[Row]) -> None:
        """Carry out statement `name` for each of `rows`."""

    def update_all(self, name: str, rows: Sequence[Row]) -> None:
        """Carry out statement `name` for each of `rows`; raise `TransactionConflict` if one of them changes none."""


class TransactionConflict(Exception):
    """The database asks to try the whole transaction again: a deadlock, or a lost race."""


class DuplicateKey(Exception):
    """A key is in use already: make another one."""


class StoreUnavailable(Exception):
    """The database cannot be reached, or cannot write. What was sent may or may not have been done."""
