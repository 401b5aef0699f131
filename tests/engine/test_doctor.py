"""A running engine reads histories, checks its store and repairs it."""

import asyncio

import pytest

from taskyard.core.graph.errors import Fault
from taskyard.core.ids import Key, text_of
from taskyard.core.states import Signal, sources
from taskyard.engine import failpoints
from taskyard.engine.engine import AsyncEngine, Engine
from taskyard.engine.errors import Failed, Unavailable
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.submit import Submitted
from taskyard.store.repo.admission import PoolRow
from taskyard.views.history import RequestedAction, TaskHistory, replay
from tests.engine.harness import EngineHarness, FakeClock, execute_raw, graph, task, wide


def shown(answer: TaskHistory | Refusal) -> TaskHistory:
    assert isinstance(answer, TaskHistory), answer
    return answer


def test_a_history_is_read_by_the_id_of_a_task(harness: EngineHarness) -> None:
    labels = harness.submit(graph(a=task(), b=task("a")), actor="ann")
    harness.hello()
    harness.settle()
    harness.end(harness.claim()[0])
    a, b = (shown(harness.engine.story(text_of(Key(labels[label])))) for label in "ab")
    assert (a.creation.label, a.creation.graph, b.creation.label) == ("a", labels.graph, "b")
    assert (replay(a), replay(b)) == (a.state, b.state)
    assert [one.action for one in a.happened if isinstance(one, RequestedAction)] == ["submit"]
    assert [(one.number, one.bot, one.signal) for one in a.attempts] == [(1, "b1", Signal.SUCCEED)]


def test_a_history_that_cannot_be_read_is_refused(harness: EngineHarness) -> None:
    labels = harness.submit(wide(1))
    unknown = text_of(Key(labels["t0"] + (1 << 4)))
    assert harness.engine.story(unknown) == Refusal(Code.NOT_FOUND, f"there is no task {unknown}")
    assert harness.engine.story(labels.text) == Refusal(Code.NOT_FOUND, f"there is no task {labels.text}")
    fault = Fault("task_id", "'t0' is no id: an id has 16 digits of 0-9 and a-f, the first at most 7")
    assert harness.engine.story("t0") == Refusal(Code.INVALID, "the request has 1 fault", (fault,))


def test_a_task_has_no_story_while_its_graph_is_being_loaded(harness: EngineHarness) -> None:
    labels = harness.submit(wide(1))
    loaded = text_of(Key(labels["t0"]))
    harness.engine.transact(lambda transaction: transaction.repo.graphs.set_loader(labels.graph, "a loader"))
    assert harness.engine.story(loaded) == Refusal(Code.NOT_FOUND, f"there is no task {loaded}")
    harness.engine.transact(lambda transaction: transaction.repo.graphs.set_loader(labels.graph, None))
    assert shown(harness.engine.story(loaded)).creation.label == "t0"


def test_a_task_has_no_story_while_its_extension_is_being_loaded(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = harness.submit(wide(1))
    monkeypatch.setattr("taskyard.engine.extend.PAGE_MAX", 1)
    assert isinstance(harness.engine.extend(labels.text, graph(a=task(), b=task())), Submitted)
    hidden = text_of(Key(harness.labels(labels.graph)["b"]))
    assert harness.engine.story(hidden) == Refusal(Code.NOT_FOUND, f"there is no task {hidden}")
    harness.settle()
    assert shown(harness.engine.story(hidden)).creation.label == "b"


def test_an_engine_at_work_is_checked_and_a_repair_releases_a_task_that_missed_its_turn(harness: EngineHarness) -> None:
    labels = harness.submit(graph(a=task(), b=task("a")))
    harness.hello()
    harness.settle()
    assert harness.engine.doctor() == []
    execute_raw(harness.store.url, "UPDATE task SET awaited = 2 WHERE id = {id}", labels["b"])
    harness.end(harness.claim()[0])
    found = harness.engine.doctor()
    assert [(one.subject, one.column) for one in found] == [(labels["b"], "awaited"), (labels["b"], "gate")]
    assert harness.engine.repair(found, "ann") == 2
    assert harness.engine.doctor() == []
    harness.settle()
    assert harness.states(labels)["b"] in sources(Signal.CLAIM)
    asked = [
        one
        for one in shown(harness.engine.story(text_of(Key(labels["b"])))).happened
        if isinstance(one, RequestedAction)
    ]
    assert [(one.actor, one.action) for one in asked] == [("", "submit"), ("ann", "repair"), ("ann", "repair")]


def test_a_missing_event_is_reported_and_left(database_url: str) -> None:
    with Engine.open(database_url, FakeClock()) as engine:
        made = engine.submit(wide(1))
        assert isinstance(made, Submitted)
        execute_raw(database_url, "DELETE FROM event WHERE subject_id = {id} AND number = 1", made.graph)
        found = engine.doctor()
        assert [(one.kind, one.subject, one.mendable) for one in found] == [("graph", made.graph, False)]
        assert engine.repair(found) == 0
        assert engine.doctor() == found


def test_a_repair_that_fails_half_way_has_audited_what_it_repaired(harness: EngineHarness) -> None:
    labels = harness.submit(wide(2))
    execute_raw(harness.store.url, "UPDATE task SET open_continuations = 7; UPDATE graph SET behind = 9")
    found = harness.engine.doctor()
    failpoints.arm("repair.before:raise@2")
    try:
        with pytest.raises(Failed):
            harness.engine.repair(found, "ann")
    finally:
        failpoints.arm(None)
    assert [(one.subject, one.column) for one in harness.engine.doctor()] == [(labels.graph, "behind")]
    with harness.store.read() as repo:
        shown = {id: [row.action for row in repo.events.audits_of(id, 9)] for id in (labels.graph, *labels.values())}
    assert shown == {labels.graph: ["submit"], **{id: ["repair"] for id in labels.values()}}
    harness.engine.repair(found, "ann")


def test_a_repair_is_several_transactions_of_the_one_writer(harness: EngineHarness) -> None:
    harness.submit(wide(3))
    before = harness.engine.commits
    execute_raw(harness.store.url, "UPDATE task SET due_ms = 5; UPDATE graph SET behind = 9")
    assert harness.engine.repair(harness.engine.doctor()) == 4
    assert harness.engine.commits > before + 1
    assert harness.engine.doctor() == []


def test_an_event_loop_can_call_all_of_it(database_url: str) -> None:
    async def serve(engine: Engine) -> None:
        face = AsyncEngine(engine)
        made = await face.submit(wide(1))
        assert isinstance(made, Submitted)
        execute_raw(database_url, "UPDATE graph SET behind = 9")
        found = await face.doctor()
        assert [one.column for one in found] == ["behind"]
        assert await face.repair(found) == 1
        assert await face.set_limit("licences", 3) is None
        assert await face.set_pool("default", from_bots=True) is None
        assert await face.set_stake_after("door", None) is None
        with engine.store.read() as repo:
            ((id, *_),) = repo.tasks.definitions_of(made.graph)
            assert (repo.admission.named_limits(), repo.admission.stake_after()) == ({"licences": 3}, {"door": None})
            assert repo.admission.pools() == [PoolRow("default", None, True)]
        assert shown(await face.story(text_of(Key(id)))).creation.graph == made.graph

    with Engine.open(database_url) as engine:
        asyncio.run(serve(engine))


def test_a_stopped_engine_repairs_nothing(sqlite_url: str) -> None:
    with Engine.open(sqlite_url) as engine:
        execute_raw(sqlite_url, "UPDATE service SET queues = 9")
        found = engine.doctor()
    with pytest.raises(Unavailable):
        engine.repair(found)
