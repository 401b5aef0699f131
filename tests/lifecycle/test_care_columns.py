"""Every column there is, taken from the schema: spoiled, it is found and mended; found and left; or told why not.

Somebody who adds a column has to say here which it is.
"""

import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column

from taskyard.lifecycle.doctor import check
from taskyard.store.schema import metadata
from tests.each_row import each_row
from tests.lifecycle.grounds import Grounds
from tests.lifecycle.scene import Scene, found, set_scene
from tests.postgres import Postgres

COLUMNS = [f"{table.name}.{column.name}" for table in metadata.sorted_tables for column in table.columns]

#: What is done, and what is found to be wrong.
Spoil = tuple[str, set[tuple[str, str]]]


def task(column: str, label: str, value: object, *also: str) -> Spoil:
    """Spoil a column of one task; `also` names others that cannot be right then."""
    text = f"UPDATE task SET {column} = {value} WHERE id = {{{label}}}"  # noqa: S608 - all of it is ours
    return text, {("task", one) for one in (column, *also)}


def graph(column: str, label: str, value: object, *also: str) -> Spoil:
    text = f"UPDATE graph SET {column} = {value} WHERE id = {{{label}}}"  # noqa: S608 - all of it is ours
    return text, {("graph", one) for one in (column, *also)}


def attempt(column: str, label: str, value: object) -> Spoil:
    text = f"UPDATE attempt SET {column} = {value} WHERE task_id = {{{label}}}"  # noqa: S608 - all of it is ours
    return text, {("attempt", f"{column} of 1")}


def other(table: str, column: str, value: object, where: str = "") -> Spoil:
    return f"UPDATE {table} SET {column} = {value} {where}", {(table, column)}  # noqa: S608 - all of it is ours


MENDED: dict[str, list[Spoil]] = {
    # Tasks: what was asked for,
    "task.graph_id": [task("graph_id", "long", "{past}")],
    "task.rules": [task("rules", "flaky", "''"), task("rules", "long", "'nonsense'")],
    "task.kind": [task("kind", "long", "'noop'"), task("kind", "long", "'nonsense'")],
    "task.priority": [task("priority", "mop", 0)],
    "task.created_ms": [task("created_ms", "long", 5), task("created_ms", "flaky", "created_ms + 1")],
    "task.weight": [task("weight", "lone", 0), task("weight", "mop", 9)],
    "task.join_rule": [task("join_rule", "later", "'any'"), task("join_rule", "later", "'nonsense'")],
    "task.on_impossible": [task("on_impossible", "after", "'skip'"), task("on_impossible", "after", "'nonsense'")],
    "task.is_handler": [task("is_handler", "mop", 0), task("is_handler", "mop", 2), task("is_handler", "long", 1)],
    "task.is_constrained": [
        *(task("is_constrained", label, 0) for label in ("lone", "frugal")), task("is_constrained", "long", 1)
    ],
    # what happened,
    "task.previous_state": [task("previous_state", "ended", "'stopping'")],
    "task.reason": [task("reason", "boom", "'timed_out'"), task("reason", "later", "'mutex'")],
    "task.moved_ms": [task("moved_ms", "long", 5), task("moved_ms", "mop", "moved_ms + 1")],
    "task.attempt": [task("attempt", "long", 7), task("attempt", "long", 0)],
    "task.began_after": [task("began_after", "twice", 0), task("began_after", "long", 1)],
    "task.ended": [task("ended", "flaky", "NULL"), task("ended", "long", "'fail'"), task("ended", "lost", "'fail'")],
    "task.round": [task("round", "twice", 1), task("round", "long", 3)],
    "task.reruns_used": [task("reruns_used", "flaky", 0), task("reruns_used", "long", 3)],
    "task.retries_used": [task("retries_used", "lost", 0), task("retries_used", "long", 3)],
    "task.avoid_bot": [task("avoid_bot", "lost", "NULL"), task("avoid_bot", "mop", "'b1'")],
    "task.bot_id": [task("bot_id", "long", "'b9'")],
    "task.fence": [task("fence", "long", 5), task("fence", "long", "fence + 1"), task("fence", "later", 3)],
    # what others told it,
    "task.awaited": [task("awaited", "later", 2), task("awaited", "long", 2), task("awaited", "ended", 1)],
    "task.met": [
        task("met", "later", 2),
        task("met", "deaf", 1),
        task("met", "cure", 3),
        ("UPDATE task SET met = 0, awaited = 1 WHERE id = {cure}", {("task", "met"), ("task", "awaited")}),
    ],
    "task.broken": [task("broken", "after", 2)],
    "task.impossible": [task("impossible", "after", 1)],
    "task.handlers_ran": [task("handlers_ran", "boom", 1)],
    "task.handlers_open": [task("handlers_open", "boom", 0), task("handlers_open", "told", 0)],
    "task.open_continuations": [task("open_continuations", "told", 0), task("open_continuations", "long", 1)],
    "task.loading": [task("loading", "later", 1), task("loading", "long", 2)],
    # and where and until when it waits.
    "task.slice_index": [
        task("slice_index", "long", 1),
        task("slice_index", "picky", 0),
        task("slice_index", "mop", 9),
    ],
    "task.queue_id": [task("queue_id", "mop", 0)],
    "task.needs_admission": [
        task("needs_admission", "lone", 0),
        task("needs_admission", "frugal", 0),
        task("needs_admission", "mop", 1),
        task("needs_admission", "flaky", 1),
        task("needs_admission", "later", 1),
    ],
    "task.waits_since_ms": [
        task("waits_since_ms", "mop", 5),
        task("waits_since_ms", "mop", "NULL"),
        task("waits_since_ms", "long", 5),
        task("waits_since_ms", "lone", 5),
    ],
    "task.not_before_ms": [task("not_before_ms", "flaky", "NULL"), task("not_before_ms", "lone", 5)],
    "task.lease_until_ms": [
        task("lease_until_ms", "long", 5),
        task("lease_until_ms", "long", "lease_until_ms + 3600000"),
        task("lease_until_ms", "long", "NULL"),
        task("lease_until_ms", "mop", 5),
    ],
    "task.due_ms": [task("due_ms", "long", "NULL"), task("due_ms", "boom", 5), task("due_ms", "flaky", "due_ms + 1")],
    # What belongs to tasks.
    "task_definition.graph_id": [
        (
            "UPDATE task_definition SET graph_id = {past} WHERE id = {mop}",
            {("task_definition", "graph_id")},
        )
    ],
    "task_definition.label": [
        ("UPDATE task_definition SET label = 'x' WHERE id = {mop}", {("task_definition", "label")}),
    ],
    "edge.prerequisite_id": [
        (
            "UPDATE edge SET prerequisite_id = {lone} WHERE dependent_id = {later}",
            {("edge", "success of {long}"), ("edge", "success of {lone}")},
        ),
        (
            "DELETE FROM edge WHERE dependent_id = {mop}",
            {("edge", "failure of {boom}"), ("task", "handlers_open"), ("graph", "unhandled"), ("graph", "state")},
        ),
    ],
    "edge.dependent_id": [
        (
            "UPDATE edge SET dependent_id = {lone} WHERE dependent_id = {later}",
            {("edge", "success of {long}")},
        ),
    ],
    "edge.on_end": [
        (
            "UPDATE edge SET on_end = 'always' WHERE dependent_id = {later}",
            {("edge", "success of {long}"), ("edge", "always of {long}")},
        ),
        (
            "UPDATE edge SET on_end = 'nonsense' WHERE dependent_id = {later}",
            {("edge", "success of {long}"), ("edge", "nonsense of {long}")},
        ),
    ],
    "edge.handled_round": [
        (
            "UPDATE edge SET handled_round = 1 WHERE dependent_id = {later}",
            {("edge", "handled_round success of {long}")},
        ),
        ("UPDATE edge SET handled_round = 1 WHERE dependent_id = {mop}", {("edge", "handled_round failure of {boom}")}),
        (
            "UPDATE edge SET handled_round = NULL WHERE dependent_id = {cure}",
            {
                ("edge", "handled_round failure of {ill}"),
                ("task", "handlers_ran"),
                ("graph", "unhandled"),
                ("graph", "state"),
            },
        ),
    ],
    "task_mutex.task_id": [
        ("DELETE FROM task_mutex", {("task_mutex", "door")}),
        ("UPDATE task_mutex SET task_id = {mop}", {("task_mutex", "door")}),
    ],
    "task_mutex.key": [("UPDATE task_mutex SET key = 'x'", {("task_mutex", "door"), ("task_mutex", "x")})],
    "task_mutex.party": [("UPDATE task_mutex SET party = 'x'", {("task_mutex", "door")})],
    "task_limit.task_id": [
        ("DELETE FROM task_limit", {("task_limit", "licence")}),
        ("UPDATE task_limit SET task_id = {long}", {("task_limit", "licence")}),
    ],
    "task_limit.name": [("UPDATE task_limit SET name = 'x'", {("task_limit", "licence"), ("task_limit", "x")})],
    "task_limit.amount": [("UPDATE task_limit SET amount = 1", {("task_limit", "licence")})],
    "attempt.bot_id": [attempt("bot_id", "long", "'b9'"), attempt("bot_id", "boom", "'b9'")],
    "attempt.fence": [attempt("fence", "long", 5), attempt("fence", "boom", "fence + 1")],
    "attempt.round": [attempt("round", "long", 2), attempt("round", "twice", 2)],
    "attempt.slice_index": [attempt("slice_index", "long", 1)],
    "attempt.claimed_ms": [attempt("claimed_ms", "boom", 5)],
    "attempt.ended_ms": [attempt("ended_ms", "long", 5), attempt("ended_ms", "boom", "NULL")],
    "attempt.signal": [attempt("signal", "long", "'fail'"), attempt("signal", "boom", "NULL")],
    "attempt.reason": [attempt("reason", "long", "'done'"), attempt("reason", "boom", "'done'")],
    "attempt.exit_code": [attempt("exit_code", "long", 1)],
    "event.graph_id": [
        ("UPDATE event SET graph_id = 9 WHERE subject_id = {long}", {("event", "graph_id")}),
        ("UPDATE event SET graph_id = 9 WHERE subject_id = {now}", {("graph", "graph of events")}),
    ],
    # Graphs.
    "graph.state": [graph("state", "now", "'finished'"), graph("state", "over", "'running'")],
    "graph.active": [graph("active", "now", "active + 3"), graph("active", "now", 0)],
    "graph.behind": [graph("behind", "now", 0)],
    "graph.unhandled": [graph("unhandled", "now", 7)],
    "graph.events": [graph("events", "now", 1)],
    "graph.events_published": [graph("events_published", "now", 999), graph("events_published", "past", -1)],
    "graph.extensions": [graph("extensions", "past", 0), graph("extensions", "now", 9)],
    "graph.created_ms": [graph("created_ms", "past", 5)],
    "graph.moved_ms": [graph("moved_ms", "now", 5), graph("moved_ms", "over", 5)],
    "graph.canceled_ms": [graph("canceled_ms", "over", "NULL"), graph("canceled_ms", "now", 5)],
    "graph.loader": [graph("loader", "now", "'somebody'")],
    # The fleet, and everything else.
    "queue.hash": [other("queue", "hash", 9, "WHERE number = 1")],
    "queue.root": [other("queue", "root", "'any'", "WHERE number = 1")],
    "queue.pool": [other("queue", "pool", "'x'", "WHERE number = 1")],
    "service.queues": [other("service", "queues", 9)],
    "server.since_ms": [("UPDATE server SET since_ms = seen_ms + 3600000", {("service", "since_ms")})],
    "bot.first_seen_ms": [other("bot", "first_seen_ms", 5, "WHERE id = 'b1'")],
    "bot.terminated": [other("bot", "terminated", 1, "WHERE id = 'b1'")],
    "bot.missing": [other("bot", "missing", 1, "WHERE id = 'b1'")],
    "bot.events": [other("bot", "events", 5, "WHERE id = 'b1'")],
    "bot_queue.bot_id": [
        ("INSERT INTO bot_queue (bot_id, queue_id) SELECT 'b2', id FROM queue WHERE pool = 'attic'",
         {("bot_queue", "queue_id")}),
    ],
    "bot_queue.queue_id": [
        ("INSERT INTO bot_queue (bot_id, queue_id) VALUES ('b1', 0)", {("bot_queue", "queue_id")}),
    ],
    "hold.task_id": [(
            "DELETE FROM admission_dirty; INSERT INTO hold (task_id, reason) VALUES ({long}, 'mutex')",
            {("hold", "task")},
        )
    ],
}  # fmt: skip

#: What is found, and nobody can mend.
LEFT: dict[str, list[Spoil]] = {
    "task.state": [
        (
            """UPDATE task SET previous_state = 'pending', state = 'successful' WHERE id = {lone};
               UPDATE graph SET active = active - 1 WHERE id = {now}""",
            {("task", "state")},
        )
    ],
    "task_definition.id": [
        ("DELETE FROM task_definition WHERE id = {long}", {("task", "definition"), ("edge", "to long")})
    ],
    "task_definition.definition": [
        ("UPDATE task_definition SET definition = 'nonsense' WHERE id = {long}", {("task", "definition")})
    ],
    "attempt.task_id": [
        ("DELETE FROM attempt WHERE task_id = {long}", {("attempt", "row of 1")}),
        ("UPDATE attempt SET task_id = 9 WHERE task_id = {long}", {("attempt", "row of 1"), ("attempt", "attempt")}),
    ],
    "attempt.number": [
        (
            "UPDATE attempt SET number = 5 WHERE task_id = {long}",
            {("attempt", "row of 1"), ("attempt", "row of 5")},
        )
    ],
    "event.subject_id": [
        (
            "UPDATE event SET subject_id = {later} WHERE subject_id = {long} AND number = {claim}",
            {("task", "state"), ("event", "event {claim}")},
        )
    ],
    "event.number": [
        (
            "DELETE FROM event WHERE subject_id = {now} AND number = 1",
            {("graph", "number of events")},
        )
    ],
    "event.facts": [
        (
            """UPDATE event SET facts = REPLACE(facts, '"wCr"', '"kCr"')
                WHERE subject_id = {long} AND number = {claim}""",
            {("event", "event {claim}")},
        ),
        (
            """UPDATE event SET facts = REPLACE(facts, '"wCr"', '"wUr"')
                WHERE subject_id = {long} AND number = {claim}""",
            {("event", "event {claim}")},
        ),
        (
            "UPDATE event SET facts = 'nonsense' WHERE subject_id = {long} AND number = {claim}",
            {("event", "event {claim}"), ("task", "state")},
        ),
        (
            """UPDATE event SET facts = REPLACE(facts, '"wCr"', '"w!r"')
                WHERE subject_id = {long} AND number = {claim}""",
            {("event", "event {claim}"), ("task", "state")},
        ),
        (
            """UPDATE event SET facts = REPLACE(facts, '"--r"', '"--b"')
                WHERE subject_id = {over} AND number = {birth}""",
            {("graph", "event {turn}")},
        ),
    ],
    "graph_definition.id": [("DELETE FROM graph_definition WHERE id = {now}", {("graph", "definition")})],
    "queue.number": [
        (
            "UPDATE queue SET number = 50 WHERE number = 1; UPDATE service SET queues = 50",
            {("service", "number of queues")},
        )
    ],
    "queue.dimensions": [
        (
            "UPDATE queue SET dimensions = '[[\"pool\",[\"x\"]]]' WHERE pool = 'roof'",
            {("queue", "dimensions"), ("task", "queue_id")},
        )
    ],
    "result.attempt": [("INSERT INTO result (task_id, attempt, body) VALUES ({long}, 9, '')", {("result", "attempt")})],
    "attempt_stats.attempt": [
        ("INSERT INTO attempt_stats (task_id, attempt) VALUES ({long}, 9)", {("attempt_stats", "attempt")})
    ],
    "progress.attempt": [
        ("INSERT INTO progress (task_id, attempt, at_ms) VALUES ({long}, 9, 0)", {("progress", "attempt")})
    ],
    "output_chunk.attempt": [
        (
            "INSERT INTO output_chunk (task_id, attempt, number, start, at_ms, body) VALUES ({long}, 9, 1, 0, 0, '')",
            {("output_chunk", "attempt")},
        )
    ],
}

#: What is not looked at, and why. A star stands for every column that is not named elsewhere.
EXEMPT: dict[str, str] = {
    "task.id": "A key is what a row is known by: with another one it is another row.",
    "graph.id": "A key is what a row is known by: with another one it is another row.",
    "graph.parent_id": "It is compared with the attempts that there are, in `tests/engine/test_inner.py`.",
    "graph.parent_attempt": "It is compared with the attempts that there are, in `tests/engine/test_inner.py`.",
    "queue.id": "Tasks refer to it, and its dimensions are compared with it instead.",
    "task_definition.digest": "It is of what was submitted, which is not kept where something was put in its place.",
    "task_definition.submitter": "Who submitted a task is the truth.",
    "event.at_ms": "When something happened is the truth that rows follow from.",
    "graph_definition.*": "What was said about a graph is the truth, and its digest is of a document that is not kept.",
    "graph_rerun.*": "What a person asked for, and what a graph was born with because of it, is the truth.",
    "task_reuse.*": "Only this row knows whose end a task took over.",
    "attempt.session": "Only the bot and this row know in which session it was.",
    "attempt.poll_id": "Only the bot and this row know by which poll it was.",
    "result.*": "What an attempt published is the truth.",
    "attempt_stats.*": "What was measured is the truth.",
    "output_chunk.*": "What was printed is the truth.",
    "progress.*": "What an attempt said of itself is the truth.",
    "token.*": "What a person gave out is the truth.",
    "graph_pool.*": "It says who may see a graph, and nothing moves by it.",
    "signing_key.*": "A key follows from nothing.",
    "audit.*": "What people asked for is the truth.",
    "idempotency_key.*": "What was answered is the truth, and is forgotten after a day.",
    "continuation.*": "A promise is the truth, and the counts of its graph and its task follow from it.",
    "bot.*": "What a bot said of itself is the truth until it speaks again.",
    "bot.pool": "To which pool a name belongs only this row says: it was the first to come with it.",
    "bot.version": "It only has to grow with everything that is said about a bot.",
    "bot_dimensions.*": "What a bot said of itself is the truth until it says hello again.",
    "bot_settings.*": "What an admin says about a bot is the truth.",
    "bot_event.*": "What happened to a bot is the truth that its row follows from.",
    "dimension_aggregation.*": "No engine writes it yet.",
    "pool.*": "What a person said is the truth; overuse of it is found.",
    "named_limit.*": "What a person said is the truth; overuse of it is found.",
    "mutex_policy.*": "What a person said is the truth.",
    "hold.mutex_since_ms": "When it happened follows from nothing.",
    "hold.*": "It is what the last pass said, decides nothing, and the next pass says it anew.",
    "admission_lock.*": "A lock follows from nothing: it lapses by itself, and its number only has to grow.",
    "admission_dirty.*": "It asks a pass to look at something, which a pass does now and then in any case.",
    "service.id": "There is one row, and it is known by this.",
    "server.name": "Nothing else tells who it is.",
    "server.seen_ms": "It is told anew with the next beat.",
}


def exemption(column: str) -> str | None:
    """Give the reason why a column is not looked at."""
    if column in MENDED or column in LEFT:
        return None
    return EXEMPT.get(column) or EXEMPT.get(f"{column.split('.', 1)[0]}.*")


def cases(spoils: dict[str, list[Spoil]]) -> list[object]:
    return [
        pytest.param(spoil, column, id=f"{column}-{number}")
        for column, each in spoils.items()
        for number, spoil in enumerate(each, 1)
    ]


class Stage:
    """A scene in one database, used again as long as it is as it was."""

    def __init__(self, fresh: Callable[[], str]) -> None:
        self._fresh = fresh
        self._scene: Scene | None = None
        self._before: object = None

    def scene(self) -> Scene:
        if self._scene is None or dump(self._scene) != self._before:
            self.close()
            url = self._fresh()
            self._scene = set_scene(Grounds(url), url)
            self._before = dump(self._scene)
        return self._scene

    def close(self) -> None:
        if self._scene is not None:
            self._scene.yard.close()


@pytest.fixture(scope="module")
def stages(
    postgres: Postgres, sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Stage]]:
    def copy() -> str:
        return f"sqlite:///{shutil.copy(sqlite_template, tmp_path_factory.mktemp('stage') / 'taskyard.db')}"

    both = {"sqlite": Stage(copy), "postgres": Stage(postgres.fresh)}
    yield both
    for stage in both.values():
        stage.close()


@pytest.fixture(params=["sqlite", "postgres"])
def scene(request: pytest.FixtureRequest, stages: dict[str, Stage]) -> Scene:
    return stages[request.param].scene()


def spoil(scene: Scene, text: str, columns: set[tuple[str, str]]) -> set[tuple[str, str]]:
    with scene.yard.store.read() as repo:
        claim = next(one.number for one in repo.events.of(scene.ids["long"], 0, 100) if one.signal == "claim")
        birth, turn = (one.number for one in repo.events.of(scene.ids["over"], 0, 100))
    scene.sql(text, claim=claim, birth=birth)
    return scene.named(columns, claim=claim, turn=turn)


def dump(scene: Scene) -> dict[str, list[tuple[object, ...]]]:
    """Read everything but what a repair leaves behind on purpose."""
    tables = [one for one in metadata.sorted_tables if one.name not in {"audit", "admission_dirty"}]
    texts = {
        one.name: f"SELECT {_listed(one.columns)} FROM {one.name} ORDER BY {_listed(one.primary_key)}"  # noqa: S608 - ours
        for one in tables
    }
    return {name: scene.rows(text) for name, text in texts.items()}


def _listed(columns: Iterable[Column[Any]]) -> str:
    return ", ".join(one.name for one in columns if str(one) != "bot.version")


def test_every_column_of_the_schema_is_spoiled_here_or_is_exempt_for_a_reason() -> None:
    assert [one for one in COLUMNS if not (one in MENDED or one in LEFT or exemption(one))] == []
    assert {*MENDED, *LEFT} <= set(COLUMNS)
    assert not set(MENDED) & set(LEFT)
    reasons = {exemption(one) for one in COLUMNS}
    assert [one for one, reason in EXEMPT.items() if reason not in reasons or not reason.endswith(".")] == []


@each_row(("spoiled", "column"), [*cases(MENDED), *cases(LEFT)])
def test_a_column_is_spoiled_by_what_is_said_to_spoil_it(spoiled: Spoil, column: str) -> None:
    table, _, name = column.partition(".")
    rows = any(f"{verb} {table}" in spoiled[0] for verb in ("DELETE FROM", "INSERT INTO"))
    assert rows or re.search(rf"UPDATE {table} SET ([^;]*, )?{name} =", spoiled[0])  # noqa: S608 - nobody runs it


def test_the_scene_is_healthy(scene: Scene) -> None:
    assert [str(one) for one in found(scene.yard)] == []


@pytest.mark.parametrize(("spoiled", "column"), cases(MENDED))
def test_whatever_is_not_so_is_found_and_everything_becomes_as_it_was(
    scene: Scene, spoiled: Spoil, column: str
) -> None:
    before = dump(scene)
    wrong = spoil(scene, *spoiled)
    assert dump(scene) != before
    findings = found(scene.yard)
    assert {(one.kind, one.column) for one in findings} == wrong
    assert [str(one) for one in findings if not one.mendable] == []
    assert check.repair(scene.yard.do, findings, "ann") == len(findings)
    assert [str(one) for one in found(scene.yard)] == []
    assert dump(scene) == before


@pytest.mark.parametrize(("spoiled", "column"), cases(LEFT))
def test_what_nobody_can_mend_is_found_and_left_alone(scene: Scene, spoiled: Spoil, column: str) -> None:
    wrong = spoil(scene, *spoiled)
    findings = found(scene.yard)
    assert {(one.kind, one.column) for one in findings} == wrong
    left = [one for one in findings if not one.mendable]
    assert left
    check.repair(scene.yard.do, findings)
    assert found(scene.yard) == left
