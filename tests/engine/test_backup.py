"""Backups, restores and moves of both databases: every row arrives, and nothing that is damaged does."""

import os
import sqlite3
import stat
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from taskyard.core.fleet import LEASE_MS, SWEEP_MS
from taskyard.core.states import Millis
from taskyard.engine import backup, move_store, offline_doctor
from taskyard.engine.backup import BadArchive, Manifest, NotPossible, Parts
from taskyard.engine.clock import SystemClock
from taskyard.engine.engine import Engine
from taskyard.engine.errors import InUse
from taskyard.files.digests import TreeFile, make_tree, sha256, tree_text
from taskyard.files.gc import collect_garbage
from taskyard.files.local import LocalFiles
from taskyard.files.store import blobs, trees
from taskyard.lifecycle.commands import Code, Poll, Refusal
from taskyard.lifecycle.poll import poll
from taskyard.lifecycle.timeouts import apply_timeouts, heartbeat
from taskyard.store import migrate, tables
from taskyard.store.queries import StoreUnavailable
from tests.lifecycle.harness import LifecycleHarness
from tests.lifecycle.populated_store import populate, run_doctor
from tests.postgres import Postgres

#: What a restore changes: it ends the life of the original.
CLEARED = {"bot", "server", "signing_key", "event_stream", "audit", "admission_lock", "webhook"}
#: Values that have to survive the archive and both databases.
ODD = {
    "integer": 2**63 - 1,
    "text": 'a "quoted" \\ line\nnext é\u2028 \U0001f600',
    "bytes": bytes(range(256)),
    "float": 0.1,
}


#: Rows only.
NO_FILES = Parts(no_files=True)


def nothing(what: str, done: int, total: int) -> None:
    assert 0 <= done <= total, what


@pytest.fixture
def populated(database_url: str) -> Iterator[LifecycleHarness]:
    """A store with tasks in every situation, and a row with odd values in each table that allows any row."""
    harness = LifecycleHarness(database_url)
    try:
        populate(harness, database_url)
        fill(database_url)
        yield harness
    finally:
        harness.close()


def fill(url: str) -> None:
    """Add a row with odd values to each empty table that no foreign key and no check keeps from having it."""
    for table in tables.tables():
        row = [ODD[kind] if name != "tree" else "0" * 64 for name, kind in table.columns]
        marks = ", ".join(["?" if url.startswith("sqlite") else "%s"] * len(row))
        text = f'INSERT INTO "{table.name}" ({", ".join(name for name, _ in table.columns)}) VALUES ({marks})'  # noqa: S608
        with connected(url) as connection:
            if connection.execute(f'SELECT COUNT(*) FROM "{table.name}"').fetchone()[0] == 0:  # noqa: S608
                try:
                    connection.execute(text, row)
                except (sqlite3.IntegrityError, psycopg.IntegrityError):
                    continue
                connection.commit()


@contextmanager
def connected(url: str) -> Iterator[Any]:
    opened: Any = sqlite3.connect(tables.path_of(url)) if tables.is_file(url) else psycopg.connect(url)
    with closing(opened):
        if tables.is_file(url):
            opened.execute("PRAGMA foreign_keys = ON")
        yield opened


def digests(url: str) -> dict[str, tuple[int, str]]:
    """The number of rows of each table, and their digest."""
    with tables.snapshot(url) as found:
        every = {one.name: backup.digest_table(found, one, lambda _: None) for one in tables.tables()}
    return {name: (one.count, one.text) for name, one in every.items()}


@pytest.fixture(params=["sqlite", "postgres"])
def target_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a database that is to be made."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'target.db'}"
        return
    server = request.getfixturevalue("postgres")
    assert isinstance(server, Postgres)
    url = server.empty()
    yield url
    server.drop(url)


def back_up(url: str, folder: Path, parts: Parts = NO_FILES, name: str = "backup.zip") -> Manifest:
    return backup.back_up(url, folder / name, parts, SystemClock(), nothing)


def restore(folder: Path, url: str, parts: Parts = NO_FILES) -> Manifest:
    return backup.restore(folder / "backup.zip", url, parts, SystemClock(), nothing)


def test_a_backup_is_private_and_whole_and_can_be_checked(populated: LifecycleHarness, tmp_path: Path) -> None:
    made = back_up(populated.store.url, tmp_path)
    file = tmp_path / "backup.zip"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {one.name for one in tmp_path.iterdir() if "part" in one.name or one.is_dir()} == set()
    before = digests(populated.store.url)
    assert {one.table.name: (one.rows, one.digest) for one in made.tables} == before
    assert len([count for count, _ in before.values() if count]) > 40, "most tables have rows"
    assert backup.verify(file, nothing) == made
    with pytest.raises(NotPossible, match="already"):
        back_up(populated.store.url, tmp_path)


def test_a_restored_database_has_every_row_on_either_kind_of_database(
    populated: LifecycleHarness, tmp_path: Path, target_url: str
) -> None:
    source = populated.store.url
    back_up(source, tmp_path)
    restore(tmp_path, target_url)
    before, after = digests(source), digests(target_url)
    assert {name for name in before if before[name] != after[name]} <= CLEARED
    assert after["bot"][0] == before["bot"][0]
    assert after["server"][0] == after["signing_key"][0] == 0
    with pytest.raises(migrate.NotEmpty):
        restore(tmp_path, target_url)
    assert digests(target_url) == after, "a refused restore changes nothing"


def test_a_restored_database_is_taken_over_like_one_after_a_crash(
    sqlite_url: str, tmp_path: Path, target_url: str
) -> None:
    """Old sessions are refused, leases end, and numbers of events are not given twice."""
    harness = LifecycleHarness(sqlite_url)
    populate(harness, sqlite_url)
    back_up(sqlite_url, tmp_path)
    with harness.store.read() as repo:
        sessions = {bot: session for bot, session, _ in repo.bots.sessions()}
        leased, last = repo.tasks.leased_with_session(sorted(sessions), 100), repo.stream.read().last
    harness.close()
    assert leased, "some tasks are leased"
    restore(tmp_path, target_url)
    new = LifecycleHarness(target_url)
    try:
        new.now = Millis(SystemClock().now() + 1)
        new.do(heartbeat)
        for bot, session in sessions.items():
            (answer,) = new.do(partial(poll, polls=[Poll(bot, session, "p9")]))
            assert isinstance(answer, Refusal), answer
            assert answer.code is Code.SESSION_REPLACED
        for _ in range(3 * LEASE_MS // SWEEP_MS):
            new.advance(SWEEP_MS)
            new.do(heartbeat)
        new.do(apply_timeouts)
        with new.store.read() as repo:
            assert repo.tasks.leased_with_session(sorted(sessions), 100) == []
            assert repo.stream.read().last > last + 1_000_000
            assert repo.admission.read_lock() is not None
        assert run_doctor(new) == []
    finally:
        new.close()


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_a_damaged_archive_is_refused_and_leaves_nothing(sqlite_url: str, tmp_path: Path, place: float) -> None:
    harness = LifecycleHarness(sqlite_url)
    populate(harness, sqlite_url)
    harness.close()
    back_up(sqlite_url, tmp_path)
    file = tmp_path / "backup.zip"
    body = bytearray(file.read_bytes())
    for at in range(int(len(body) * place), int(len(body) * place) + 40):
        body[at] ^= 0x55
    file.write_bytes(body)
    with pytest.raises(BadArchive):
        backup.verify(file, nothing)
    with pytest.raises(BadArchive):
        restore(tmp_path, f"sqlite:///{tmp_path / 'new.db'}")
    assert not [one.name for one in tmp_path.iterdir() if one.name.startswith("new.db") and ".lock" not in one.name]


def test_rows_that_were_taken_out_of_an_archive_are_missed(sqlite_url: str, tmp_path: Path, postgres: Postgres) -> None:
    """The members of the archive are sound, and one has fewer rows than the manifest says."""
    harness = LifecycleHarness(sqlite_url)
    populate(harness, sqlite_url)
    harness.close()
    back_up(sqlite_url, tmp_path, name="whole.zip")
    with zipfile.ZipFile(tmp_path / "whole.zip") as whole, zipfile.ZipFile(tmp_path / "backup.zip", "w") as cut:
        for name in whole.namelist():
            body = whole.read(name)
            cut.writestr(name, body if name != "tables/edge.jsonl" else body[body.index(b"\n") + 1 :])
    url = postgres.empty()
    for target in (url, f"sqlite:///{tmp_path / 'new.db'}"):
        with pytest.raises(BadArchive, match="table edge"):
            restore(tmp_path, target)
        assert migrate.current_version(target) is None
    postgres.drop(url)


def test_an_archive_of_a_newer_schema_is_refused(sqlite_url: str, tmp_path: Path) -> None:
    back_up(sqlite_url, tmp_path, name="whole.zip")
    with zipfile.ZipFile(tmp_path / "whole.zip") as whole, zipfile.ZipFile(tmp_path / "backup.zip", "w") as newer:
        for name in whole.namelist():
            known = f'"schema":"{migrate.NEWEST}"'.encode()
            newer.writestr(name, whole.read(name).replace(known, b'"schema":"9999"'))
    with pytest.raises(migrate.TooNew, match="9999"):
        restore(tmp_path, f"sqlite:///{tmp_path / 'new.db'}")


def test_what_is_no_archive_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "backup.zip").write_bytes(b"no zip")
    with pytest.raises(BadArchive, match="no backup, or is damaged"):
        backup.verify(tmp_path / "backup.zip", nothing)


# Files and keys.


def test_a_backup_has_the_files_that_rows_refer_to_and_no_others(database_url: str, tmp_path: Path) -> None:
    store = LocalFiles(tmp_path / "files")
    used, unused, gone = (tree_with(store, name) for name in (b"used", b"unused", b"gone"))
    with connected(database_url) as connection:
        for tree in (used, gone):
            connection.execute(f"INSERT INTO task_input_tree (task_id, tree) VALUES (1, '{tree}')")  # noqa: S608
        connection.commit()
    store.drop(blobs("default"), [sha256(b"gone")], unused_since=2**40)
    with pytest.raises(NotPossible, match="--no-files"):
        back_up(database_url, tmp_path, Parts())
    made = back_up(database_url, tmp_path, Parts(lambda: store))
    assert (sum(one.count for one in made.files), made.missing, made.missing_named) == (3, 1, (sha256(b"gone"),))
    other, target = LocalFiles(tmp_path / "other"), f"sqlite:///{tmp_path / 'target.db'}"
    with pytest.raises(NotPossible, match="--files"):
        restore(tmp_path, target, Parts())
    restore(tmp_path, target, Parts(lambda: other))
    assert other.get(blobs("default"), sha256(b"used")) == b"used"
    assert set(other.digests(trees("default"))) == {used, gone}
    assert unused not in set(other.digests(trees("default")))


def tree_with(store: LocalFiles, body: bytes) -> str:
    """Store a tree with one file; return its digest."""
    text = tree_text(make_tree([TreeFile("f", len(body), (sha256(body),))]))
    store.put(blobs("default"), {sha256(body): body})
    store.put(trees("default"), {sha256(text): text})
    return sha256(text)


def test_the_garbage_collector_removes_nothing_that_is_being_backed_up(sqlite_url: str, tmp_path: Path) -> None:
    """The last row that refers to a tree is deleted, and a pass made, right after the snapshot."""
    store = LocalFiles(tmp_path / "files")
    tree = tree_with(store, b"body")
    with connected(sqlite_url) as connection:
        connection.execute("INSERT INTO task_input_tree (task_id, tree) VALUES (1, ?)", [tree])
        connection.commit()

    def collect(what: str, done: int, total: int) -> None:
        nothing(what, done, total)
        with connected(sqlite_url) as connection:
            connection.execute("DELETE FROM task_input_tree")
            connection.commit()
        collect_garbage(store, lambda _: set(), unused_seconds=60, settle_seconds=0, bits=1 << 16)

    for path in (tmp_path / "files").rglob("*"):
        if path.is_file():
            os.utime(path, (1, 1))  # nobody has used it for long
    made = backup.back_up(sqlite_url, tmp_path / "backup.zip", Parts(lambda: store), SystemClock(), collect)
    assert (made.missing, sum(one.count for one in made.files)) == (0, 2)


def test_the_keys_of_secrets_are_in_a_backup_only_if_asked_for(sqlite_url: str, tmp_path: Path) -> None:
    with Engine.open(sqlite_url) as engine:
        engine.secrets.save("default", "password", b"hunter2", actor="me")
    keys = tmp_path / "secrets.key"
    made = back_up(sqlite_url, tmp_path)
    assert (made.has_secrets, made.has_keys) == (True, False)
    with zipfile.ZipFile(tmp_path / "backup.zip") as archive:
        every = b"".join(archive.read(name) for name in archive.namelist())
    assert keys.read_bytes().splitlines()[-1] not in every
    (tmp_path / "backup.zip").unlink()
    back_up(sqlite_url, tmp_path, Parts(no_files=True, keys=keys))
    new = tmp_path / "new" / "secrets.key"
    new.parent.mkdir()
    target = f"sqlite:///{new.with_name('new.db')}"
    with pytest.raises(NotPossible, match="--secrets-key-file"):
        restore(tmp_path, target)
    restore(tmp_path, target, Parts(no_files=True, keys=new))
    assert new.read_bytes() == keys.read_bytes()
    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    with Engine.open(target) as engine:
        assert engine.secrets.trouble() is None


# Moves.


def test_a_move_copies_every_row_and_leaves_the_old_database_alone(
    populated: LifecycleHarness, tmp_path: Path, target_url: str
) -> None:
    source = populated.store.url
    stop_servers(source)
    before = digests(source)
    moved = move_store.move(source, target_url, nothing)
    assert {one.name: (one.rows, one.digest) for one in moved} == before == digests(target_url) == digests(source)
    assert offline_doctor.existing_address(target_url) == target_url
    if not target_url.startswith("sqlite"):
        with connected(target_url) as connection:
            connection.execute("INSERT INTO admission_dirty (task_id) VALUES (NULL)")


def stop_servers(url: str) -> None:
    """Let the last heartbeat be long ago."""
    with connected(url) as connection:
        connection.execute("DELETE FROM server")
        connection.commit()


def test_a_move_is_refused_while_a_server_uses_the_database(database_url: str, tmp_path: Path) -> None:
    target = tmp_path / "target.db"
    with Engine.open(database_url, name="one") as engine:
        engine.schedule()
        with pytest.raises((InUse, StoreUnavailable), match="use"):
            move_store.move(database_url, f"sqlite:///{target}", nothing)
    if not database_url.startswith("sqlite"):
        with pytest.raises(InUse, match="server one used"):  # it has stopped, or was killed, just now
            move_store.move(database_url, f"sqlite:///{target}", nothing)
    assert not target.exists()
