"""Every SQL statement is well formed, used, valid on both databases, and served by an index if it is frequent."""

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from taskyard.core.states import State
from taskyard.store import repo, schema
from taskyard.store.connection import open_store
from taskyard.store.postgres_sessions import set_up
from taskyard.store.queries import POSTGRES, SQLITE, Statement, for_postgres, for_sqlite, statements, without_locks
from taskyard.store.repo.events import encode_fact, encode_transition
from tests.store.rows import NOW, READY, add_graph, add_tasks, move

FOLDER = Path(repo.__file__).parents[1]
REPOSITORY = "".join(path.read_text(encoding="utf-8") for path in sorted((FOLDER / "repo").glob("*.py")))
FILES = sorted((FOLDER / "sql").glob("*.sql"))
NAMES = sorted(statements(SQLITE))
#: The queries of every transaction, however large the tables are.
HOT = [
    "lock_tasks", "claim_candidates", "delete_old_responses", "select_edges_out_of", "select_edges_out_of_page",
    "select_edges_into", "select_due_tasks", "select_leased_tasks", "update_unmoved_tasks", "update_edge_counts",
    "select_graphs", "lock_graphs", "update_graph_states", "select_dirty", "delete_dirty", "select_continuations",
    "lock_continuation", "select_continuations_of_tasks", "lock_continuations_in_graph", "select_events_of_subject",
    "select_definitions", "select_tasks_by_label", "select_task_page", "select_roots_page", "select_leases_by_poll",
    "end_attempts", "select_attempts", "select_contenders", "select_contenders_by_id", "select_mutexes",
    "select_limits", "select_holds", "record_polls", "lock_bots", "select_queues_by_dimensions",
    "select_queues_after", "select_responses", "select_audits_of_subject", "select_prerequisites_in_states",
    "select_labels", "select_ended_attempts", "select_last_requests", "select_tasks_ahead", "sum_pool_use",
    "sum_limit_use", "select_recent_events", "select_older_mutex_rivals", "select_newer_mutex_rivals",
    *(name for name in NAMES if re.fullmatch(r"move_\w*tasks", name)),
]  # fmt: skip


def test_every_file_is_made_of_statements_and_nothing_else() -> None:
    heads = [
        line for path in FILES for line in path.read_text(encoding="utf-8").splitlines() if re.match(r"-- .*\(", line)
    ]
    read = {(one.name, one.database) for database in (SQLITE, POSTGRES) for one in statements(database).values()}
    assert len(read) == len(heads)
    assert all(path.read_text(encoding="utf-8").rstrip().endswith(";") for path in FILES)


@pytest.mark.parametrize("database", [SQLITE, POSTGRES])
def test_every_statement_is_one_sentence_and_one_command(database: str) -> None:
    for one in statements(database).values():
        assert one.sentence.endswith("."), one.name
        assert ";" not in one.text, one.name
        used = set(re.findall(r"(?<!:):([a-z_]+)\b", one.text))
        assert used == {name for name, _ in one.parameters}, one.name


def test_both_databases_have_the_same_statements_with_the_same_parameters() -> None:
    spelled = [{one.name: (one.each, one.parameters) for one in statements(on).values()} for on in (SQLITE, POSTGRES)]
    assert spelled[0] == spelled[1]


def test_every_statement_is_used_and_every_name_has_its_statement() -> None:
    quoted = set(re.findall(r'"(\w+)"', REPOSITORY))
    assert [name for name in NAMES if name not in quoted] == []
    run = set(re.findall(r'_session\.(?:fetch|prefetch|execute|execute_many|update_all)\(\s*"(\w+)"', REPOSITORY))
    assert run - set(NAMES) == set()


def test_only_the_repository_runs_statements() -> None:
    others = [path for path in FOLDER.parent.rglob("*.py") if path.parent != FOLDER / "repo"]
    running = [
        path.name
        for path in others
        if re.search(r"session\.(?:fetch|prefetch|execute\w*|update_all)\(", path.read_text(encoding="utf-8"))
    ]
    assert running == []


@pytest.mark.parametrize("database", [SQLITE, POSTGRES])
def test_the_only_literals_in_sql_are_states_and_tables(database: str) -> None:
    known = {*State, *schema.metadata.tables}
    for one in statements(database).values():
        assert {word for word in re.findall(r"'([^']*)'", one.text) if word and word not in known} == set(), one.name


def test_every_update_and_delete_has_a_where_clause() -> None:
    for one in statements(SQLITE).values():
        if one.text.startswith(("UPDATE", "DELETE")):
            assert " WHERE " in one.text, one.name


# What the databases make of them.


@pytest.fixture
def sqlite(sqlite_url: str) -> Iterator[sqlite3.Connection]:
    fill(sqlite_url)
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def postgres_plans(request: pytest.FixtureRequest) -> Iterator[psycopg.Connection[Any]]:
    server = request.getfixturevalue("postgres")
    url = server.fresh()
    fill(url)
    with psycopg.connect(url, autocommit=True) as connection:
        set_up(connection)
        connection.execute("ANALYZE")
        yield connection
    server.drop(url)


def fill(url: str) -> None:
    """A few thousand rows, so that the query planner has statistics."""
    store = open_store(url)
    with store.write() as repo:
        many = range(100, 2_100)
        for graph in many:
            add_graph(repo, graph)
        repo.queues.add([(number, number, number, "any", "", f"d{number}", 0) for number in range(1, 201)], 200)
        for id in many:
            add_tasks(repo, id, graph_id=id, queue_id=id % 20 + 1, due_ms=NOW + id)
        for id in many[::4]:
            move(repo, id, *READY)
        for id in many[1::4]:
            move(repo, id, *READY, State.RUNNING, bot=f"b{id}")
        tasks = repo.tasks.read(many[::2])
        for task in tasks:
            task.needs_admission = True
        repo.tasks.write_unmoved(tasks)
        repo.tasks.add_definitions([(id, id, f"t{id}", "{}", None, "", "") for id in many])
        repo.tasks.add_mutexes([(id, f"k{id % 9}", None) for id in many])
        repo.edges.add([(id, other, "success") for id in many[:100] for other in many[100:130]])
        repo.attempts.add([(id, 1, f"b{id % 9}", "s", "p", 1, 1, 0, NOW, None) for id in many])
        repo.events.add(
            NOW,
            [(id, 0, [(id, [encode_fact(encode_transition(None, "running", None), None, None, None)])]) for id in many],
        )
        repo.continuations.add([("update_published", id, id, "a", "b", "", "") for id in many])
        repo.admission.mark_dirty(many)
        repo.events.add_answers([(f"k{id}", "", "", NOW) for id in many])
        repo.events.add_audits([(NOW, "", "", id, "") for id in many])
        repo.bots.begin_sessions([(f"b{id}", "p", "s", "", 1, NOW, NOW, "", None, None, 0) for id in many])
        repo.bots.set_dimensions([(f"b{id}", "[]") for id in many])
        repo.bots.set_settings([(f"b{id}", None, None, 0, 0) for id in many])
    store.close()


def test_sqlite_understands_every_statement(sqlite: sqlite3.Connection) -> None:
    for one in statements(SQLITE).values():
        sqlite.execute(f"EXPLAIN {for_sqlite(one)}", [None] * len(one.parameters))


@pytest.mark.parametrize("analyzed", [False, True])
def test_sqlite_runs_frequent_queries_by_an_index(sqlite: sqlite3.Connection, analyzed: bool) -> None:
    if analyzed:
        sqlite.execute("ANALYZE")
    scans = {name: sqlite_scans(sqlite, statements(SQLITE)[name]) for name in HOT}
    assert {name: found for name, found in scans.items() if found} == {}


def sqlite_scans(connection: sqlite3.Connection, one: Statement) -> list[str]:
    rows = connection.execute(f"EXPLAIN QUERY PLAN {for_sqlite(one)}", [None] * len(one.parameters))
    return [row[3] for row in rows if row[3].startswith("SCAN ") and "VIRTUAL TABLE" not in row[3]]


@pytest.mark.parametrize("name", NAMES)
def test_postgres_understands_every_statement(postgres_plans: psycopg.Connection[Any], name: str) -> None:
    text = for_postgres(statements(POSTGRES)[name])
    for one in (text, without_locks(text)):
        postgres_plans.execute(f"PREPARE one AS {one}".encode())
        postgres_plans.execute("DEALLOCATE one")


@pytest.mark.parametrize("name", HOT)
def test_postgres_runs_frequent_queries_by_an_index(postgres_plans: psycopg.Connection[Any], name: str) -> None:
    one = statements(POSTGRES)[name]
    postgres_plans.execute(f"PREPARE one AS {for_postgres(one)}".encode())
    values = f"({', '.join(['NULL'] * len(one.parameters))})" if one.parameters else ""
    row = postgres_plans.execute(f"EXPLAIN (FORMAT JSON) EXECUTE one{values}".encode()).fetchone()
    postgres_plans.execute("DEALLOCATE one")
    assert row is not None
    assert [step for step in steps(row[0][0]["Plan"]) if reads_all(step)] == []


def steps(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {name: value for name, value in plan.items() if name != "Plans"}
    for part in plan.get("Plans", ()):
        yield from steps(part)


def reads_all(step: dict[str, Any]) -> bool:
    """Whether a step of a plan reads a whole table, or a whole index."""
    kind = step["Node Type"]
    return kind == "Seq Scan" or (kind.startswith("Index") and "Index Cond" not in step)
