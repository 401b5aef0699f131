"""The migrations add up to the declared schema, on both databases, with any number of servers that migrate."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, NullPool, create_engine, inspect, select, text

from taskyard.store import migrate, schema
from taskyard.store.migrations import apply
from taskyard.store.migrations.apply import LOCK
from taskyard.store.queries import StoreUnavailable
from tests.cli.waiting import until
from tests.postgres import Postgres

#: What a server does when it starts.
START = "import sys; from taskyard.store import migrate; migrate.upgrade(sys.argv[1])"

#: The catalog of PostgreSQL: columns, constraints and indexes.
SHAPE = """
SELECT relname, 'column', attname, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid)
  FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
  LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
 WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND attnum > 0
UNION ALL
SELECT conrelid::regclass::text, 'constraint', conname, pg_get_constraintdef(oid), NULL, NULL
  FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND contype <> 'n'
UNION ALL
SELECT tablename, 'index', indexname, indexdef, NULL, NULL FROM pg_indexes WHERE schemaname = 'public'
"""


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Makes new databases with nothing in them."""
    if request.param == "sqlite":
        numbers = count()
        yield lambda: f"sqlite:///{tmp_path / f'empty{next(numbers)}.db'}"
        return
    server: Postgres = request.getfixturevalue("postgres")
    with ExitStack() as made:
        yield lambda: made.enter_context(emptied(server))


@contextmanager
def emptied(server: Postgres) -> Iterator[str]:
    url = server.empty()
    try:
        yield url
    finally:
        server.drop(url)


@pytest.fixture
def empty_url(empty: Callable[[], str]) -> str:
    """A new database with nothing in it."""
    return empty()


def engine(url: str) -> Engine:
    return create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)


def test_the_migrations_add_up_to_the_schema(database_url: str) -> None:
    with engine(database_url).connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []


def test_the_databases_describe_migrated_and_declared_tables_alike(empty: Callable[[], str]) -> None:
    migrated, declared = empty(), empty()
    apply.migrate(migrated)
    schema.metadata.create_all(engine(declared))
    assert shape(migrated) == shape(declared)
    assert len(shape(declared)) > len(schema.metadata.tables)


def shape(url: str) -> set[tuple[object, ...]]:
    """The catalog of a database."""
    asked = "SELECT tbl_name, type, name, sql FROM sqlite_master" if url.startswith("sqlite") else SHAPE
    with engine(url).connect() as connection:
        found = [tuple(plain(value) for value in row) for row in connection.execute(text(asked))]
    return {row for row in found if row[0] != "alembic_version"}


def plain(value: object) -> object:
    return re.sub(r"\s+", " ", value) if isinstance(value, str) else value


def test_the_first_rows_are_there(database_url: str) -> None:
    with engine(database_url).connect() as connection:
        filled = {table.name: connection.execute(select(table)).all() for table in schema.metadata.sorted_tables}
    assert {name: sorted(map(tuple, rows)) for name, rows in filled.items() if rows} == {
        "admission_lock": [(1, 0, None, None)],
        "catalogue_lock": [(1, 0)],
        "event_stream": [(1, 0, 0, 0, 0, 0)],
        "service": [(1, 0)],
        "queue": [(0, 0, 0, "server", "", "", 0)],
    }


def test_an_upgrade_is_idempotent(empty_url: str) -> None:
    assert migrate.current_version(empty_url) is None
    for _ in range(2):
        migrate.upgrade(empty_url)
        assert migrate.current_version(empty_url) == migrate.NEWEST


def test_reading_the_version_does_not_create_the_file(tmp_path: Path) -> None:
    assert migrate.current_version(f"sqlite:///{tmp_path / 'none.db'}") is None
    assert not (tmp_path / "none.db").exists()


def test_a_database_of_a_newer_program_is_refused_and_left_alone(database_url: str) -> None:
    with engine(database_url).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(migrate.TooNew) as refusal:
        migrate.upgrade(database_url)
    assert str(refusal.value) == (
        f"the database has version 9999 of the schema and this program knows versions up to "
        f"{migrate.NEWEST}: "
        "run the newer taskyard that made it, or restore a backup from before it"
    )
    assert migrate.current_version(database_url) == "9999"


def test_a_migration_that_fails_leaves_nothing_behind(empty_url: str) -> None:
    with engine(empty_url).begin() as connection:
        connection.execute(
            text("CREATE TABLE idempotency_key (mine INTEGER)")
        )  # the last table that version 1 makes of its kind
    with pytest.raises(Exception, match="already exists"):
        migrate.upgrade(empty_url)
    with engine(empty_url).connect() as connection:
        assert inspect(connection).get_table_names() == ["idempotency_key"]


def test_a_missing_database_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"some\.db cannot be opened: there is no folder .*: create it"):
        migrate.upgrade(f"sqlite:///{tmp_path / 'no folder' / 'some.db'}")
    with pytest.raises(StoreUnavailable, match="the database some at this machine cannot be used: connection is bad"):
        migrate.upgrade(f"postgresql://postgres@/some?host={tmp_path}")


def test_servers_that_start_at_once_take_turns_in_postgresql(postgres: Postgres) -> None:
    with emptied(postgres) as url:
        with psycopg.connect(url) as holder:
            holder.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
            servers = [start(url) for _ in range(2)]
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            until(lambda: holder.execute(waiting).fetchone() == (2,), "both to wait for their turn")
        waits = b"another server upgrades the database: waiting for it, up to 60 s\n"
        assert [ended(server) for server in servers] == [(0, waits)] * 2
        assert migrate.current_version(url) == migrate.NEWEST


def test_servers_that_start_at_once_take_turns_in_sqlite(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    codes, said = zip(*(ended(server) for server in [start(url) for _ in range(2)]), strict=True)
    assert codes == (0, 0)
    assert all(not one or b"has locked the database" in one for one in said)  # on a slow machine one sees the other
    assert migrate.current_version(url) == migrate.NEWEST


def start(url: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", START, url], stderr=subprocess.PIPE)


def ended(server: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    said = server.communicate(timeout=60)[1]
    return server.returncode, said


def test_the_newest_version_is_that_of_the_last_migration() -> None:
    assert ScriptDirectory.from_config(apply.alembic_settings()).get_current_head() == migrate.NEWEST


@pytest.mark.parametrize("state", ["empty", "current"])
def test_a_start_without_migrations_does_not_import_the_migration_tools(
    sqlite_url: str, tmp_path: Path, state: str
) -> None:
    url = sqlite_url if state == "current" else f"sqlite:///{tmp_path / 'empty.db'}"
    code = f"{START}; print({{'alembic', 'sqlalchemy'}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
    assert migrate.current_version(url) == migrate.NEWEST


@pytest.mark.parametrize(
    ("version", "said"), [(149_999, "14.9999"), (140_011, "14.11"), (90_624, "9.624"), (150_000, ""), (180_001, "")]
)
def test_a_server_that_is_too_old_is_refused(version: int, said: str) -> None:
    if not said:
        migrate.check_server_version(version)
        return
    with pytest.raises(migrate.TooOld) as refusal:
        migrate.check_server_version(version)
    assert str(refusal.value) == (
        f"the server is PostgreSQL {said} and Taskyard needs PostgreSQL 15 or newer: "
        "upgrade the server, or use a file of SQLite"
    )


@pytest.mark.parametrize("act", [migrate.upgrade, migrate.current_version])
def test_the_version_of_a_server_is_checked_first(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, act: Callable[[str], object]
) -> None:
    monkeypatch.setattr(migrate, "POSTGRES_MIN", 99)
    with pytest.raises(migrate.TooOld, match="needs PostgreSQL 99 or newer"):
        act(postgres_url)
