"""PostgreSQL is cut off, locked, read-only, full or lost: clear errors, no false answer, and work goes on after it."""

import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest

from taskyard.engine import offline_doctor, writer
from taskyard.engine.engine import Engine
from taskyard.engine.errors import Full, Unavailable
from taskyard.lifecycle.submit import Submitted
from taskyard.store import postgres, postgres_sessions
from taskyard.store.postgres_sessions import TRANSACTION_SETTINGS, Connection
from tests.debian import NOT_TESTED
from tests.engine.harness import WAIT_S, graph, task, wait_until
from tests.postgres import Postgres
from tests.servers.wire import wire_to_database

_KEYS = count(1)


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that pass while a test waits."""
    monkeypatch.setattr(writer, "GONE_MAX_MS", 500)
    monkeypatch.setattr(postgres, "CONNECT_MAX_S", 1)
    monkeypatch.setattr(postgres, "RECONNECT_MAX_S", 1)
    monkeypatch.setattr(postgres_sessions, "CONNECT_MAX_S", 2)
    monkeypatch.setattr(postgres, "WRITE_MAX_MS", 1_000)
    monkeypatch.setattr(postgres_sessions, "SEND_MAX_MS", 1_000)
    monkeypatch.setattr(Connection, "wait_max_s", 1.0)
    monkeypatch.setitem(TRANSACTION_SETTINGS, "lock_timeout", 50)
    monkeypatch.setitem(TRANSACTION_SETTINGS, "statement_timeout", 500)


def submit(engine: Engine, key: str = "") -> Submitted:
    answer = engine.submit(graph(a=task()), key=key or f"k{next(_KEYS)}")
    assert isinstance(answer, Submitted), answer
    return answer


def graphs(engine: Engine) -> int:
    """How many graphs there are."""
    return len(_ids(engine))


def _ids(engine: Engine) -> list[tuple[int]]:
    with psycopg.connect(engine.store.url, autocommit=True) as connection:
        return connection.execute("SELECT id FROM graph").fetchall()


def succeeds(act: Callable[[], object]) -> bool:
    try:
        act()
    except Unavailable:
        return False
    return True


@pytest.mark.usefixtures("short_waits")
def test_a_database_that_is_cut_off_without_a_word_is_given_up_and_found_again(postgres_url: str) -> None:
    with wire_to_database(postgres_url) as (wire, url), Engine.open(url) as engine:
        submit(engine, "before")
        wire.hold()
        with pytest.raises(Unavailable, match="cannot be used"):
            submit(engine, "meanwhile")
        with pytest.raises(Unavailable):
            engine.doctor()
        wire.release()
        wait_until(lambda: succeeds(lambda: submit(engine, "meanwhile")))
        submit(engine, "before")
        assert graphs(engine) == 2, "each is stored once"


def test_connections_that_are_cut_are_opened_again_without_an_error(postgres_url: str) -> None:
    with wire_to_database(postgres_url) as (wire, url), Engine.open(url) as engine:
        for number in range(1, 6):
            wire.cut()
            submit(engine)
            assert graphs(engine) == number
        hints = engine.hints
        assert hints is not None
        wait_until(lambda: hints.connected)


@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize("lock_timeout", [50, 0])
def test_a_lock_that_is_held_for_too_long_is_an_outage_that_ends_with_it(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, lock_timeout: int
) -> None:
    # Without a time-out of its own for locks, the one for statements ends the wait.
    monkeypatch.setitem(TRANSACTION_SETTINGS, "lock_timeout", lock_timeout)
    monkeypatch.setattr(postgres, "WRITE_MAX_MS", 60_000)
    with Engine.open(postgres_url) as engine, psycopg.connect(postgres_url) as other:
        submit(engine)
        other.execute("LOCK TABLE graph IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(Unavailable):
            submit(engine, "locked out")
        other.rollback()
        wait_until(lambda: succeeds(lambda: submit(engine, "locked out")))
        assert graphs(engine) == 2


@pytest.mark.usefixtures("short_waits")
def test_a_database_that_becomes_read_only_is_left_for_one_that_can_be_written_to(postgres_url: str) -> None:
    name = psycopg.conninfo.conninfo_to_dict(postgres_url)["dbname"]
    with Engine.open(postgres_url) as engine, psycopg.connect(postgres_url, autocommit=True) as other:
        submit(engine)
        other.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        with pytest.raises(Unavailable):
            submit(engine, "refused")
        other.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        wait_until(lambda: succeeds(lambda: submit(engine, "refused")))
        assert graphs(engine) == 2


@contextmanager
def small_disk(server: Postgres) -> Iterator[Path]:
    """A file system of 32 MB as a place for tables."""
    if os.geteuid():
        pytest.skip(f"{NOT_TESTED}a full disk, which needs root to mount a small one")
    place = server.home / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "none", place], check=False)
    if mounted.returncode:
        pytest.skip(f"{NOT_TESTED}a full disk: nothing can be mounted here")
    try:
        tables = place / "tables"
        tables.mkdir()
        os.chown(tables, server.home.stat().st_uid, server.home.stat().st_gid)
        yield tables
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.usefixtures("short_waits")
def test_a_full_disk_refuses_what_it_cannot_store_and_goes_on_once_there_is_space() -> None:
    document = graph(**{f"t{number}": task(payload={"script": "x" * 4_000}) for number in range(500)})
    with Postgres() as server, small_disk(server) as place:
        server.tell(f"CREATE TABLESPACE small LOCATION '{place}'")
        url = server.fresh("small")
        filler = place.parent / "filler"
        with Engine.open(url) as engine:
            acknowledged = [submit(engine).graph]
            filler.write_bytes(bytes(_free(place) - 200_000))
            with pytest.raises(Full, match="No space left"):
                acknowledged.extend(stored_for_ever(engine, document))
            assert {one[0] for one in _ids(engine)} >= set(acknowledged), "reads go on, and nothing is lost"
            filler.unlink()
            wait_until(lambda: succeeds(lambda: submit(engine, "later")))
            assert engine.doctor() == []


def stored_for_ever(engine: Engine, document: object) -> Iterator[int]:
    """Store graphs; give the id of each."""
    while True:
        stored = engine.submit(document, key=f"k{next(_KEYS)}")
        assert isinstance(stored, Submitted), stored
        yield stored.graph


def _free(place: Path) -> int:
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


def test_a_promoted_standby_has_everything_that_was_acknowledged() -> None:
    with Postgres() as primary, ThreadPoolExecutor(1) as threads:
        name = psycopg.conninfo.conninfo_to_dict(primary.fresh())["dbname"]
        with primary.standby() as standby:
            wait_until(lambda: "asynchronous" in notes(primary, name))
            primary.tell("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
            wait_until(lambda: "is synchronous: what" in notes(primary, name))
            url = f"postgresql://postgres@/{name}?host={standby.home},{primary.home}&port=5432,5432"
            with Engine.open(url) as engine:
                acknowledged: list[int] = []

                def go_on() -> None:
                    for number in range(60):
                        wait_until(lambda number=number: succeeds(lambda: note(number)))  # type: ignore[misc]

                def note(number: int) -> None:
                    acknowledged.append(submit(engine, f"n{number}").graph)

                running = threads.submit(go_on)
                wait_until(lambda: len(acknowledged) >= 20 or running.done())
                primary.kill()
                standby.promote()
                running.result(WAIT_S)
                hints = engine.hints
                assert hints is not None
                wait_until(lambda: hints.connected)
                promoted = f"postgresql://postgres@/{name}?host={standby.home}&port=5432"
                with psycopg.connect(promoted, autocommit=True) as connection:
                    found = {row[0] for row in connection.execute("SELECT id FROM graph")}
                assert found == set(acknowledged)
                assert len(found) == 60
                assert engine.doctor() == []
            assert notes(standby, name) == ""


def notes(server: Postgres, name: object) -> str:
    """What the doctor says of a database beside its findings."""
    checkup = offline_doctor.check(f"postgresql://postgres@/{name}?host={server.home}&port=5432")
    assert checkup.found == ()
    return " ".join(checkup.notes)


def test_a_standby_alone_is_refused() -> None:
    with Postgres() as primary:
        name = psycopg.conninfo.conninfo_to_dict(primary.fresh())["dbname"]
        with primary.standby() as standby, pytest.raises(Unavailable, match="read-only"):
            Engine.open(f"postgresql://postgres@/{name}?host={standby.home}&port=5432")
