"""What every store must do, on both databases. New databases pass; new repository methods are tested in this folder."""

import inspect
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from taskyard.core.states import State
from taskyard.store.connection import Repo, Store, open_store
from taskyard.store.postgres import CONNECTIONS_MAX, PostgresStore
from taskyard.store.queries import DuplicateKey, StoreUnavailable, TransactionConflict
from taskyard.store.repo.events import AuditRow
from taskyard.store.sqlite import SqliteStore
from tests.store.rows import LARGEST, LATER, NOW, READY, REFUSED, add_graph, add_tasks, move, task_row

S = State


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = open_store(database_url)
    yield store
    store.close()


@pytest.fixture
def sqlite(sqlite_url: str) -> Iterator[SqliteStore]:
    store = open_store(sqlite_url)
    assert isinstance(store, SqliteStore)
    yield store
    store.close()


@pytest.fixture
def postgres_store(postgres_url: str) -> Iterator[PostgresStore]:
    store = open_store(postgres_url)
    assert isinstance(store, PostgresStore)
    store._pool.wait()  # else the first to come makes it open a second connection
    yield store
    store.close()


def test_every_repository_method_is_tested(sqlite: SqliteStore) -> None:
    with sqlite.read() as repo:
        repositories = {name: getattr(repo, name) for name in Repo.__slots__ if name not in {"cache", "doctor"}}
    methods = {
        f"{name}.{method}"
        for name, repository in repositories.items()
        for method, _ in inspect.getmembers(type(repository), inspect.isfunction)
        if not method.startswith("_")
    }
    texts = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.py"))
    assert methods - set(re.findall(r"(?:repo|one|other|look)\.(\w+\.\w+)\(", texts)) == set()


# Transactions.


def test_a_write_transaction_commits_at_its_end(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
    with store.read() as repo:
        assert [graph.id for graph in repo.graphs.peek([1])] == [1]


def test_a_failed_transaction_is_rolled_back(store: Store) -> None:
    def fail(repo: Repo) -> None:
        add_graph(repo)
        add_tasks(repo, 1, 2)
        repo.events.add_audits([(NOW, "ann", "submit", 1, "")])
        raise RuntimeError

    with pytest.raises(RuntimeError), store.write() as repo:
        fail(repo)
    with store.read() as repo:
        assert repo.graphs.peek([1]) == []
        assert repo.tasks.read([1, 2]) == []
        assert repo.events.audits_of(1, 9) == []


def test_a_refused_transaction_is_rolled_back_and_the_next_one_works(store: Store) -> None:
    def fail(repo: Repo) -> None:
        add_graph(repo)
        add_tasks(repo, 1, graph_id=404)

    with pytest.raises(REFUSED), store.write() as repo:
        fail(repo)
    with store.write() as repo:
        assert repo.graphs.peek([1]) == []
        add_graph(repo)


def test_a_read_sees_one_snapshot_while_others_write(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo, 1)
    with store.read() as look:
        assert len(look.graphs.peek([1, 2])) == 1
        with store.write() as repo:
            add_graph(repo, 2)
        assert len(look.graphs.peek([1, 2])) == 1
    with store.read() as look:
        assert len(look.graphs.peek([1, 2])) == 2


def test_a_read_transaction_cannot_write(store: Store) -> None:
    with pytest.raises((StoreUnavailable, psycopg.Error)), store.read() as repo:
        add_graph(repo)
    with store.read() as repo:
        assert repo.graphs.peek([1]) == []


def test_a_read_transaction_does_not_block_writers(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1)
    with store.read() as look:
        look.tasks.read([1])
        look.graphs.read([1])
        with store.write() as repo:
            move(repo, 1, S.PENDING)
        assert look.tasks.read([1])[0].state is S.UNSCHEDULED


# What every text and number survives.


@pytest.mark.parametrize("plane", range(17))
def test_text_of_every_plane_of_unicode_survives(store: Store, plane: int) -> None:
    first = plane * 0x10000
    text = "".join(chr(first + offset) for offset in (1, 0x41, 0x7F, 0xFF, 0x1234, 0xD7FF, 0xE000, 0xFFFD, 0xFFFF))
    with store.write() as repo:
        repo.events.add_answers([(f"k{text}", "d", text, NOW)])
        repo.events.add_audits([(NOW, text, "a", 1, text)])
    with store.read() as repo:
        assert repo.events.answers([f"k{text}"]) == {f"k{text}": ("d", text)}
        assert repo.events.audits_of(1, 9) == [AuditRow(NOW, text, "a", 1, text)]


@pytest.mark.parametrize("text", ["", " ", "\n\r\t", "'; DROP TABLE task; --", ":name ?1 $1 %s", '{"a": [1]}', "\\x00"])
def test_text_that_looks_like_sql_or_json_stays_text(store: Store, text: str) -> None:
    with store.write() as repo:
        repo.events.add_answers([(text, text, text, NOW)])
    with store.read() as repo:
        assert repo.events.answers([text, "else"]) == {text: (text, text)}


def test_a_nul_is_refused_or_stored_completely(store: Store) -> None:
    # SQLite keeps it, PostgreSQL cannot; no document that has one comes as far as a store.
    refused = False
    try:
        with store.write() as repo:
            repo.events.add_audits([(NOW, "a", "b", 1, "before"), (NOW, "a", "b", 1, "x\0y")])
    except psycopg.DataError:
        refused = True
    with store.write() as repo:
        repo.events.add_audits([(NOW, "a", "b", 1, "after")])
        notes = [row.note for row in repo.events.audits_of(1, 9)]
    assert notes == (["after"] if refused else ["before", "x\0y", "after"])


@pytest.mark.parametrize("key", [0, 1, 2**31, 2**32, 2**53 + 1, LARGEST - 1, LARGEST])
def test_keys_of_63_bits_survive(store: Store, key: int) -> None:
    with store.write() as repo:
        add_graph(repo, key)
        repo.tasks.add([task_row(key, graph_id=key, created_ms=key)])
        repo.tasks.add_definitions([(key, key, "a", "{}", None, "", "")])
    with store.read() as repo:
        (task,) = repo.tasks.read([key])
        assert (task.id, task.graph, task.created_ms) == (key, key, key)
        assert repo.tasks.with_labels(key, ["a"]) == {"a": key}


# Sets.


def test_an_empty_set_reads_and_changes_nothing(store: Store) -> None:
    with store.write() as repo:
        asked = [
            repo.tasks.read([]), repo.tasks.definitions([]), repo.tasks.with_labels(1, []), repo.tasks.leased_by([], 9),
            repo.tasks.owned_definitions([]),
            repo.tasks.claim_candidates([], 9), repo.graphs.read([]), repo.graphs.peek([]), repo.edges.into([]),
            repo.attempts.leased_by_poll([]), repo.attempts.open_of([]), repo.events.answers([]), repo.bots.read([]),
            repo.continuations.of_tasks([]),
            repo.queues.with_dimensions([]), repo.queues.with_hashes([]), repo.admission.contenders_among([]),
            repo.admission.mutexes_of([]), repo.admission.limits_of([]), repo.admission.holds_of([]),
            repo.edges.out_of([], 9),
            repo.edges.page_after([], (0, 0, ""), 9), repo.tasks.page(1, [], 0, 9),
            repo.admission.tasks_without_admission("p", [], 9),
        ]  # fmt: skip
        assert [list(one) for one in asked] == [[]] * len(asked)
        repo.tasks.add([])
        repo.tasks.write_moved([])
        repo.tasks.write_edge_counts([])
        repo.tasks.write_unmoved([])
        repo.tasks.mark_loaded([])
        repo.tasks.delete([])
        repo.attempts.end([])
        repo.bots.end_sessions([])
        repo.bots.drop_queues([])
        repo.admission.mark_dirty([])
        repo.admission.delete_dirty([])
        repo.admission.delete_holds([])
        repo.events.add(NOW, [])


def test_text_larger_than_any_buffer_is_written_and_read(store: Store) -> None:
    texts = {f"t{id}": f"{id}" * 1_000_000 for id in range(1, 9)}
    for _ in range(2):  # the second time the statement is known already
        with store.write() as repo:
            repo.events.add_answers([(label, "d", text, NOW) for label, text in texts.items()])
            assert {key: kept for key, (_, kept) in repo.events.answers(list(texts)).items()} == texts
            assert repo.events.delete_old_answers(LATER, 9) == len(texts)
            repo.events.add_audits([(NOW, "ann", "submit", 1, text) for text in texts.values()])


def test_many_rows_are_written_and_read_as_one_set(store: Store) -> None:
    many = range(1, 3_001)
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, *many)
        repo.tasks.add_definitions([(id, 1, f"t{id}", "{}", None, "", "") for id in many])
        repo.edges.add([(1, id, "success") for id in many[1:]])
    with store.read() as repo:
        assert [task.id for task in repo.tasks.read(list(reversed(many)))] == list(many)
        assert len(repo.tasks.with_labels(1, [f"t{id}" for id in many])) == 3_000
        assert len(repo.edges.out_of([1], 5_000)) == 2_999


# What each database has to be like.


def test_sqlite_syncs_every_commit_and_its_readers_cannot_write(sqlite: SqliteStore) -> None:
    writer = {name: pragma(sqlite._writer, name) for name in ("journal_mode", "synchronous", "foreign_keys")}
    assert writer == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    with sqlite.read():
        reader = sqlite._reader()
        assert pragma(reader, "query_only") == 1
        assert pragma(reader, "journal_mode") == "wal"


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def test_two_sqlite_reads_in_two_threads_do_not_share_a_connection(sqlite: SqliteStore) -> None:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - only here

    def reader() -> int:
        with sqlite.read():
            return id(sqlite._reader())

    with ThreadPoolExecutor(1) as other:
        assert other.submit(reader).result() != reader()


def test_sqlite_reports_a_conflict_while_another_process_writes(sqlite: SqliteStore, sqlite_url: str) -> None:
    sqlite._writer.execute("PRAGMA busy_timeout = 0")
    other = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(TransactionConflict), sqlite.write():
        pass
    other.close()
    with sqlite.write() as repo:
        add_graph(repo)


def test_postgres_has_the_needed_version_and_settings(postgres_store: PostgresStore) -> None:
    names = ("synchronous_commit", "default_transaction_isolation", "plan_cache_mode", "enable_seqscan", "jit")
    with postgres_store._pool.connection() as connection:
        assert connection.info.server_version >= 150_000
        settings = {name: connection.execute(f"SHOW {name}").fetchone() for name in names}
        timeouts = [
            connection.execute(f"SHOW {name}").fetchone()
            for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        ]
    assert settings == {
        "synchronous_commit": ("on",),
        "default_transaction_isolation": ("read committed",),
        "plan_cache_mode": ("force_generic_plan",),
        "enable_seqscan": ("off",),
        "jit": ("off",),
    }
    assert ("0",) not in timeouts
    assert CONNECTIONS_MAX >= 2


def test_two_servers_are_given_different_candidates(postgres_store: PostgresStore) -> None:
    with postgres_store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2, 3)
        for id in (1, 2, 3):
            move(repo, id, *READY)
    with postgres_store.write() as one, postgres_store.write() as other:
        assert {row[0] for row in one.tasks.claim_candidates([0], 2)} == {1, 2}
        assert {row[0] for row in other.tasks.claim_candidates([0], 2)} == {3}
        assert other.tasks.waiting_of_kinds(0, ["command"], 9) == [3]
    with postgres_store.write() as one:
        assert {row[0] for row in one.tasks.claim_candidates([0], 2)} == {1, 2}


def test_two_servers_do_not_take_the_admission_lock_at_once(postgres_store: PostgresStore) -> None:
    with postgres_store.write() as one, postgres_store.write() as other:
        assert one.admission.read_lock() is not None
        assert other.admission.read_lock() is None
    with postgres_store.write() as one:
        assert one.admission.read_lock() is not None


def test_a_long_wait_for_a_lock_is_a_conflict(postgres_store: PostgresStore) -> None:
    with postgres_store.write() as repo:
        add_graph(repo)
    with postgres_store.write() as one:
        one.graphs.read([1])
        with pytest.raises(TransactionConflict), postgres_store.write() as other:
            look_at_once(other)


def look_at_once(other: Repo) -> None:
    """Wait for the lock of a graph for as short as can be."""
    other.tasks._session._pipeline.send_text("SET LOCAL lock_timeout = 1")  # type: ignore[attr-defined]
    other.graphs.read([1])


def test_a_killed_connection_makes_the_store_unavailable_for_one_transaction(
    postgres_store: PostgresStore, postgres_url: str
) -> None:
    def be_killed(repo: Repo) -> None:
        add_graph(repo)
        kill(postgres_url, repo.tasks._session._pipeline._pgconn.backend_pid)  # type: ignore[attr-defined]
        add_graph(repo, 2)

    with pytest.raises(StoreUnavailable), postgres_store.write() as repo:
        be_killed(repo)
    with postgres_store.write() as repo:
        assert repo.graphs.peek([1, 2]) == []
        add_graph(repo)


def test_a_connection_lost_between_transactions_costs_one_try(postgres_store: PostgresStore, postgres_url: str) -> None:
    with postgres_store.write() as repo:
        pid = repo.tasks._session._pipeline._pgconn.backend_pid  # type: ignore[attr-defined]
    kill(postgres_url, pid)
    with pytest.raises(StoreUnavailable), postgres_store.write():
        pass
    with postgres_store.write() as repo:
        add_graph(repo)


def kill(url: str, pid: int) -> None:
    """End a connection from outside, and wait until it is gone."""
    with psycopg.connect(url, autocommit=True) as killer:
        assert killer.execute("SELECT pg_terminate_backend(%s, 10000)", [pid]).fetchone() == (True,)


def test_a_store_is_opened_by_its_address_and_other_addresses_are_refused() -> None:
    with pytest.raises(ValueError, match="mysql:// is not a database address"):
        open_store("mysql://host/name")


def test_a_statement_sent_after_an_error_can_be_sent_again(postgres_store: PostgresStore) -> None:
    def collide(repo: Repo) -> None:
        repo.tasks.add([task_row(1), task_row(1)])
        repo.admission.mark_dirty([7])  # no other wait followed: it is skipped, and so is reading its meaning

    with pytest.raises(DuplicateKey), postgres_store.write() as repo:
        collide(repo)
    with postgres_store.write() as repo:
        repo.admission.mark_dirty([7])
        assert [task for _, task in repo.admission.dirty(0, 9)] == [7]


def test_a_nul_character_is_refused_and_truncates_nothing(postgres_store: PostgresStore) -> None:
    with pytest.raises(psycopg.DataError), postgres_store.write() as repo:
        repo.queues.with_dimensions(["a\0b", "c"])
