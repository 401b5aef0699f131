"""Each kind of wrong row is found: a wrong count is repaired, a broken invariant is reported and left to a person."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column

from taskyard.lifecycle.doctor.repair import repair
from taskyard.store.schema import metadata
from tests.lifecycle.harness import LifecycleHarness
from tests.lifecycle.populated_store import PopulatedStore, populate, run_doctor
from tests.postgres import Postgres

#: What is done to the rows, and what is found: kinds and columns.
Damage = tuple[str, set[tuple[str, str]]]


def task(column: str, label: str, value: object) -> Damage:
    """Damage a column of one task."""
    return f"UPDATE task SET {column} = {value} WHERE id = {{{label}}}", {("task", column)}  # noqa: S608 - all ours


def graph(column: str, label: str, value: object) -> Damage:
    return f"UPDATE graph SET {column} = {value} WHERE id = {{{label}}}", {("graph", column)}  # noqa: S608 - all ours


def attempt(column: str, label: str, value: object) -> Damage:
    text = f"UPDATE attempt SET {column} = {value} WHERE task_id = {{{label}}}"  # noqa: S608 - all ours
    return text, {("attempt", f"{column} of 1")}


def other(table: str, column: str, value: object, where: str) -> Damage:
    return f"UPDATE {table} SET {column} = {value} WHERE {where}", {(table, column)}  # noqa: S608 - all ours


#: Counts. A repair writes what is counted, and every row is as it was before.
REPAIRED: list[Damage] = [
    # Tasks: their edge counts, their handler counts,
    task("awaited", "later", 2),
    task("awaited", "long", 2),
    task("awaited", "ended", 1),  # in a canceled graph
    task("met", "later", 2),
    task("met", "deaf", 1),  # a continuation has not reached it yet
    task("met", "cure", 3),
    ("UPDATE task SET met = 0, awaited = 1 WHERE id = {cure}", {("task", "met"), ("task", "awaited")}),
    task("broken", "after", 2),
    task("impossible", "after", 1),
    task("handlers_ran", "boom", 1),
    task("handlers_open", "boom", 0),
    task("handlers_open", "told", 0),  # a continuation has not reached its handler yet
    # their open continuations, whether an admission pass has to admit them, and when their next timeout is due.
    task("open_continuations", "told", 0),
    task("open_continuations", "long", 1),
    task("needs_admission", "lone", 0),
    task("needs_admission", "frugal", 0),
    task("needs_admission", "mop", 1),
    task("needs_admission", "flaky", 1),
    task("due_ms", "long", "NULL"),
    task("due_ms", "boom", 5),
    task("due_ms", "flaky", "due_ms + 1"),
    # Graphs.
    graph("state", "now", "'finished'"),
    graph("state", "over", "'running'"),
    graph("active", "now", "active + 3"),
    graph("active", "now", 0),
    graph("behind", "now", 0),
    graph("unhandled", "now", 7),
    graph("events", "now", 1),
    graph("events_published", "now", 999),
    graph("events_published", "past", -1),
    graph("extensions", "past", 0),
    graph("extensions", "now", 9),
    # The fleet and admission.
    other("queue", "hash", 9, "number = 1"),
    other("queue", "root", "'any'", "number = 1"),
    other("queue", "pool", "'x'", "number = 1"),
    other("service", "queues", 9, "id = 1"),
    other("bot", "terminated", 1, "id = 'b1'"),
    other("bot", "missing", 1, "id = 'b1'"),
    other("bot", "events", 5, "id = 'b1'"),
    (
        "INSERT INTO bot_queue (bot_id, queue_id) SELECT 'b2', id FROM queue WHERE pool = 'attic'",
        {("bot_queue", "queue_id")},
    ),
    ("INSERT INTO bot_queue (bot_id, queue_id) VALUES ('b1', 0)", {("bot_queue", "queue_id")}),
    ("DELETE FROM admission_dirty; INSERT INTO hold (task_id, reason) VALUES ({long}, 'mutex')", {("hold", "task")}),
]

#: Broken invariants. A repair leaves them as they are.
REPORTED: list[Damage] = [
    # The events of a task give its state, attempt, round and budgets,
    (
        """UPDATE task SET previous_state = 'pending', state = 'successful' WHERE id = {lone};
           UPDATE graph SET active = active - 1 WHERE id = {now}""",
        {("task", "state")},
    ),
    ("UPDATE task SET attempt = 7 WHERE id = {later}", {("task", "attempt")}),
    task("round", "long", 3),
    task("reruns_used", "flaky", 0),
    task("retries_used", "lost", 0),
    ("UPDATE event SET graph_id = 9 WHERE subject_id = {long}", {("event", "graph_id")}),
    (
        "UPDATE event SET subject_id = {later} WHERE subject_id = {long} AND number = {claim}",
        {("task", "state"), ("event", "event {claim}"), ("attempt", "row of 1"), ("task", "attempt")},
    ),
    (
        """UPDATE event SET facts = REPLACE(facts, '"wCr"', '"kCr"') WHERE subject_id = {long} AND number = {claim}""",
        {("event", "event {claim}")},
    ),
    (
        """UPDATE event SET facts = REPLACE(facts, '"wCr"', '"wUr"') WHERE subject_id = {long} AND number = {claim}""",
        {("event", "event {claim}"), ("attempt", "row of 1")},
    ),
    (
        "UPDATE event SET facts = 'nonsense' WHERE subject_id = {long} AND number = {claim}",
        {("event", "event {claim}"), ("task", "state"), ("attempt", "row of 1")},
    ),
    # its attempts follow one another, and the last one is that of its lease,
    ("DELETE FROM attempt WHERE task_id = {long}", {("attempt", "row of 1")}),
    ("UPDATE attempt SET task_id = 9 WHERE task_id = {long}", {("attempt", "row of 1"), ("attempt", "attempt")}),
    (
        "UPDATE attempt SET number = 5 WHERE task_id = {long}",
        {("attempt", "row of 1"), ("attempt", "row of 5"), ("attempt", "ended_ms of 5")},
    ),
    (attempt("bot_id", "long", "'b9'")[0], {("attempt", "bot_id of 1"), ("attempt", "block of 1")}),
    ("DELETE FROM attempt_block", {("attempt", "block of 1")}),
    attempt("fence", "long", 5),
    attempt("ended_ms", "long", 5),
    attempt("ended_ms", "boom", "NULL"),
    attempt("signal", "boom", "'succeed'"),
    (task("fence", "long", 5)[0], {("attempt", "fence of 1")}),
    (task("bot_id", "long", "'b9'")[0], {("attempt", "bot_id of 1")}),
    # it is `loading` only while its extension is loaded, and has the rows of its definition.
    ("UPDATE task SET loading = 1 WHERE id = {long}", {("task", "loading"), ("graph", "active")}),
    task("rules", "flaky", "'nonsense'"),
    ("DELETE FROM task_definition WHERE id = {long}", {("task", "definition")}),
    ("UPDATE task_definition SET definition = 'nonsense' WHERE id = {long}", {("task", "definition")}),
    ("UPDATE task_definition SET graph_id = {past} WHERE id = {mop}", {("task", "graph_id of its definition")}),
    (
        "DELETE FROM edge WHERE dependent_id = {later}",
        {("task", "edges"), ("task", "awaited"), ("task", "gate")},
    ),
    ("DELETE FROM task_mutex", {("task", "mutexes")}),
    ("UPDATE task_mutex SET party = 'x'", {("task", "mutexes")}),
    ("UPDATE task_limit SET amount = 1", {("task", "limits")}),
    # The events of a graph are without a gap, and give whether it was canceled.
    ("UPDATE event SET graph_id = 9 WHERE subject_id = {now}", {("graph", "graph of events")}),
    ("DELETE FROM event WHERE subject_id = {now} AND number = 1", {("graph", "number of events")}),
    (
        """UPDATE event SET facts = REPLACE(facts, '"--r"', '"--b"') WHERE subject_id = {over} AND number = {birth}""",
        {("graph", "event {turn}")},
    ),
    ("UPDATE graph SET canceled_ms = 5 WHERE id = {now}", {("graph", "canceled_ms")}),
    graph("loader", "now", "'somebody'"),
    ("DELETE FROM graph_definition WHERE id = {now}", {("graph", "definition")}),
    # The fleet, and rows without an attempt. Holders of mutexes, limits and pools have tests of their own.
    ("UPDATE task SET queue_id = 7 WHERE id = {long}", {("task", "queue")}),
    other("queue", "dimensions", '\'[["pool",["x"]]]\'', "pool = 'roof'"),
    ("UPDATE server SET since_ms = seen_ms + 3600000", {("service", "since_ms")}),
    ("INSERT INTO result (task_id, attempt, body) VALUES ({long}, 9, '')", {("result", "attempt")}),
    ("INSERT INTO attempt_stats (task_id, attempt) VALUES ({long}, 9)", {("attempt_stats", "attempt")}),
    ("INSERT INTO progress (task_id, attempt, at_ms) VALUES ({long}, 9, 0)", {("progress", "attempt")}),
    (
        "INSERT INTO output_chunk (task_id, attempt, number, start, at_ms, body) VALUES ({long}, 9, 1, 0, 0, '')",
        {("output_chunk", "attempt")},
    ),
]


class ReusedStore:
    """A populated store in one database, which is used again until a test has changed it."""

    def __init__(self, fresh: Callable[[], str]) -> None:
        self._fresh = fresh
        self._populated: PopulatedStore | None = None
        self._before: object = None

    def populated(self) -> PopulatedStore:
        if self._populated is None or dump(self._populated) != self._before:
            self.close()
            url = self._fresh()
            self._populated = populate(LifecycleHarness(url), url)
            self._before = dump(self._populated)
        return self._populated

    def close(self) -> None:
        if self._populated is not None:
            self._populated.harness.close()


@pytest.fixture(scope="module")
def stores(
    postgres: Postgres, sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, ReusedStore]]:
    def copy() -> str:
        return f"sqlite:///{shutil.copy(sqlite_template, tmp_path_factory.mktemp('populated') / 'taskyard.db')}"

    both = {"sqlite": ReusedStore(copy), "postgres": ReusedStore(postgres.fresh)}
    yield both
    for store in both.values():
        store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def populated(request: pytest.FixtureRequest, stores: dict[str, ReusedStore]) -> PopulatedStore:
    return stores[request.param].populated()


def do_damage(populated: PopulatedStore, text: str, columns: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Damage rows; return what has to be found."""
    with populated.harness.store.read() as repo:
        claim = next(one.number for one in repo.events.of(populated.ids["long"], 0, 100) if one.signal == "claim")
        birth, turn = (one.number for one in repo.events.of(populated.ids["over"], 0, 100))
    populated.sql(text, claim=claim, birth=birth)
    return populated.named(columns, claim=claim, turn=turn)


def dump(populated: PopulatedStore) -> dict[str, list[tuple[object, ...]]]:
    """Read everything but what a repair leaves behind on purpose."""
    tables = [one for one in metadata.sorted_tables if one.name not in {"audit", "admission_dirty"}]
    texts = {
        one.name: f"SELECT {_listed(one.columns)} FROM {one.name} ORDER BY {_listed(one.primary_key)}"  # noqa: S608 - ours
        for one in tables
    }
    return dict(zip(texts, populated.answers(*texts.values()), strict=True))


def _listed(columns: Iterable[Column[Any]]) -> str:
    return ", ".join(one.name for one in columns if str(one) != "bot.changes")


def test_a_healthy_store_has_no_findings(populated: PopulatedStore) -> None:
    assert [str(one) for one in run_doctor(populated.harness)] == []


@pytest.mark.parametrize("damage", REPAIRED)
def test_a_wrong_count_is_found_and_every_row_is_repaired(populated: PopulatedStore, damage: Damage) -> None:
    before = dump(populated)
    wrong = do_damage(populated, *damage)
    assert dump(populated) != before
    findings = run_doctor(populated.harness)
    assert {(one.kind, one.column) for one in findings} == wrong
    assert [str(one) for one in findings if not one.mendable] == []
    assert repair(populated.harness.do, findings, "ann") == len(findings)
    assert [str(one) for one in run_doctor(populated.harness)] == []
    assert dump(populated) == before


@pytest.mark.parametrize("damage", REPORTED)
def test_a_broken_invariant_is_found_and_left_to_a_person(populated: PopulatedStore, damage: Damage) -> None:
    wrong = do_damage(populated, *damage)
    findings = run_doctor(populated.harness)
    assert {(one.kind, one.column) for one in findings} == wrong
    left = [one for one in findings if not one.mendable]
    assert left
    while findings := [one for one in run_doctor(populated.harness) if one.mendable]:
        repair(populated.harness.do, findings)
    assert set(left) <= set(run_doctor(populated.harness))
