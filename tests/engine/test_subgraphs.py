"""A graph inside a task: stored with its attempt, and the task ends when it is settled."""

import json
from typing import Any

import pytest

from taskyard.core.ids import Key, text_of
from taskyard.core.states import GraphState, Reason, Signal, State
from taskyard.engine import subgraphs
from taskyard.lifecycle.commands import Approve, Cancel, Done, Refusal, Rerun
from taskyard.lifecycle.submit import Submitted
from tests.engine.harness import EngineHarness, execute_raw, graph, noop, report, task, wait_until, wide
from tests.lifecycle.harness import Labels


def inside(document: object, *requires: str, **said: Any) -> dict[str, object]:
    """A node with a graph inside."""
    beside = {name: said.pop(name) for name in ("reruns",) if name in said}
    payload = {"graph": document} | {name: said.pop(name) for name in ("timeout",) if name in said}
    return task(*requires, payload=payload, **said) | beside


def begun(harness: EngineHarness, document: object, **said: Any) -> tuple[Labels, Labels]:
    """Submit a graph with another in its task `outer`, and a dependent of that; let both begin."""
    harness.hello()
    outer = harness.submit(graph(outer=inside(document, **said), after=noop("outer")))
    harness.settle()
    return outer, harness.labels(inner_of(harness, outer["outer"])[-1])


def inner_of(harness: EngineHarness, id: int) -> list[int]:
    """The graphs inside a task, in the order of its attempts."""
    with harness.store.read() as repo:
        return [found for _, found in sorted(repo.graphs.subgraphs([id]).items())]


def result(harness: EngineHarness, id: int) -> Any:
    with harness.store.read() as repo:
        return json.loads(repo.read.last_results([id])[id])


def run(harness: EngineHarness, signal: Signal = Signal.SUCCEED) -> None:
    """Let a bot end everything that is ready with one signal."""
    while leases := harness.claim(8):
        for lease in leases:
            assert isinstance(harness.end(lease, signal), Done)
    harness.settle()


def why(harness: EngineHarness, id: int) -> tuple[State, str]:
    found = harness.tasks({"it": id})["it"]
    return found.state, found.reason


def test_it_runs_while_its_graph_does_and_ends_well_with_it(harness: EngineHarness) -> None:
    outer, inner = begun(harness, graph(a=task(), b=task("a")))
    assert harness.states(outer) == {"outer": State.RUNNING, "after": State.UNSCHEDULED}
    assert harness.tasks(outer)["outer"].bot == "server"
    record = harness.graph(inner.graph)
    assert (record.parent, record.parent_attempt) == (outer["outer"], 1)
    run(harness)
    assert harness.states(outer) == {"outer": State.SUCCESSFUL, "after": State.SUCCESSFUL}
    assert harness.graph(inner.graph).state is harness.graph(outer.graph).state is GraphState.FINISHED
    assert result(harness, outer["outer"]) == {"graph": inner.text, "state": "finished", "results": {}}


def test_what_its_tasks_publish_is_its_result_by_label(sqlite_harness: EngineHarness) -> None:
    outer, inner = begun(sqlite_harness, graph(a=task(), ask=task(payload={"noop": True})))
    (lease,) = sqlite_harness.claim()
    sqlite_harness.engine.poll(sqlite_harness.poll_command(0, reports=(report(lease, result='{"n":1}'),)))
    sqlite_harness.settle()
    assert result(sqlite_harness, outer["outer"])["results"] == {"a": {"n": 1}}
    assert sqlite_harness.states(inner)["a"] is State.SUCCESSFUL


def test_a_graph_that_is_blocked_fails_it_and_a_rerun_makes_another(harness: EngineHarness) -> None:
    outer, inner = begun(harness, graph(a=task(), b=task("a")))
    run(harness, Signal.FAIL)
    assert why(harness, outer["outer"]) == (State.FAILED, Reason.GRAPH_FAILED)
    assert result(harness, outer["outer"]) == {"graph": inner.text, "state": "blocked", "failed": ["a"], "results": {}}
    assert harness.graph(inner.graph).state is GraphState.BLOCKED
    harness.engine.rerun(Rerun(task=outer["outer"]))
    harness.settle()
    first, second = inner_of(harness, outer["outer"])
    assert first == inner.graph != second
    run(harness)
    assert harness.states(outer) == {"outer": State.SUCCESSFUL, "after": State.SUCCESSFUL}
    assert harness.graph(first).state is GraphState.BLOCKED


def test_reruns_of_its_own_make_another_graph_each(sqlite_harness: EngineHarness) -> None:
    outer, _ = begun(sqlite_harness, graph(a=task()), reruns=1)
    run(sqlite_harness, Signal.FAIL)
    assert why(sqlite_harness, outer["outer"]) == (State.RUNNING, Reason.UNDER_WAY)
    run(sqlite_harness, Signal.FAIL)
    assert why(sqlite_harness, outer["outer"]) == (State.FAILED, Reason.GRAPH_FAILED)
    assert len(inner_of(sqlite_harness, outer["outer"])) == 2


def test_canceled_it_ends_once_its_graph_has(harness: EngineHarness) -> None:
    outer, inner = begun(harness, graph(a=task(), b=task("a")))
    (lease,) = harness.claim()
    harness.engine.cancel(Cancel(task=outer["outer"], actor="ann"))
    harness.settle()
    assert harness.states(outer)["outer"] is State.STOPPING
    assert harness.states(inner) == {"a": State.STOPPING, "b": State.CANCELED}
    harness.end(lease, Signal.FAIL)
    harness.settle()
    assert harness.states(outer) == {"outer": State.CANCELED, "after": State.BLOCKED}
    assert harness.graph(inner.graph).state is GraphState.CANCELED
    with harness.store.read() as repo:
        assert [(one.actor, one.action) for one in repo.events.audits_of(inner.graph, 9)][-1] == ("ann", "cancel")


def test_a_canceled_graph_takes_those_inside_its_tasks_with_it(harness: EngineHarness) -> None:
    deep = graph(low=inside(graph(a=task())))
    outer, middle = begun(harness, deep)
    (lowest,) = inner_of(harness, middle["low"])
    harness.engine.cancel(Cancel(graph=outer.graph))
    harness.settle()
    states = {harness.graph(id).state for id in (outer.graph, middle.graph, lowest)}
    assert states == {GraphState.CANCELED}
    assert harness.states(middle) == {"low": State.CANCELED}
    assert harness.claim() == ()


def test_a_subgraph_that_a_person_cancels_fails_its_task(sqlite_harness: EngineHarness) -> None:
    outer, inner = begun(sqlite_harness, graph(a=task()))
    sqlite_harness.engine.cancel(Cancel(graph=inner.graph))
    sqlite_harness.settle()
    assert why(sqlite_harness, outer["outer"]) == (State.FAILED, Reason.GRAPH_FAILED)
    assert result(sqlite_harness, outer["outer"])["state"] == "canceled"


@pytest.mark.parametrize(
    ("said", "end"),
    [
        ({"timeout": "1h"}, (State.FAILED, Reason.TIMED_OUT)),
        ({"deadline": "1h"}, (State.ERROR, Reason.DEADLINE)),
    ],
)
def test_when_its_time_is_over_its_graph_ends_first(harness: EngineHarness, said: Any, end: object) -> None:
    outer, inner = begun(harness, graph(a=task()), **said)
    (lease,) = harness.claim()
    harness.clock.advance(3_600_000)
    harness.settle()
    assert harness.states(inner) == {"a": State.STOPPING}
    assert harness.states(outer)["outer"] is State.RUNNING
    harness.end(lease, Signal.FAIL)
    harness.settle()
    assert why(harness, outer["outer"]) == end
    assert harness.states(inner) == {"a": State.CANCELED}


def test_it_can_be_extended_while_it_runs_and_its_task_waits_for_that(sqlite_harness: EngineHarness) -> None:
    outer, inner = begun(sqlite_harness, graph(a=task()))
    sqlite_harness.engine.extend(inner.text, graph(b=task("a")))
    run(sqlite_harness)
    assert set(sqlite_harness.states(sqlite_harness.labels(inner.graph)).values()) == {State.SUCCESSFUL}
    assert sqlite_harness.states(outer)["outer"] is State.SUCCESSFUL
    assert isinstance(sqlite_harness.engine.extend(inner.text, graph(c=task())), Refusal)


def test_what_people_do_with_it_afterwards_does_not_open_its_task_again(sqlite_harness: EngineHarness) -> None:
    outer, inner = begun(sqlite_harness, graph(a=task()))
    run(sqlite_harness, Signal.FAIL)
    sqlite_harness.engine.rerun(Rerun(graph=inner.graph))
    run(sqlite_harness)
    assert sqlite_harness.graph(inner.graph).state is GraphState.FINISHED
    assert why(sqlite_harness, outer["outer"]) == (State.FAILED, Reason.GRAPH_FAILED)


def test_the_graph_of_an_older_attempt_does_not_end_a_later_one(sqlite_harness: EngineHarness) -> None:
    outer, old = begun(sqlite_harness, graph(a=task()))
    run(sqlite_harness, Signal.FAIL)
    sqlite_harness.engine.rerun(Rerun(task=outer["outer"]))
    sqlite_harness.settle()
    (lease,) = sqlite_harness.claim()
    sqlite_harness.engine.rerun(Rerun(graph=old.graph))
    run(sqlite_harness)
    assert sqlite_harness.graph(old.graph).state is GraphState.FINISHED
    assert why(sqlite_harness, outer["outer"]) == (State.RUNNING, Reason.UNDER_WAY)
    sqlite_harness.end(lease)
    sqlite_harness.settle()
    assert sqlite_harness.states(outer)["outer"] is State.SUCCESSFUL


def test_one_without_tasks_ends_at_once(sqlite_harness: EngineHarness) -> None:
    outer, inner = begun(sqlite_harness, graph())
    assert sqlite_harness.states(outer) == {"outer": State.SUCCESSFUL, "after": State.SUCCESSFUL}
    assert sqlite_harness.graph(inner.graph).state is GraphState.FINISHED


def test_a_large_one_is_loaded_by_a_thread_of_its_own(sqlite_harness: EngineHarness) -> None:
    sqlite_harness.hello()
    outer = sqlite_harness.submit(graph(outer=inside(wide(1_500))))
    sqlite_harness.settle()
    wait_until(lambda: bool(inner_of(sqlite_harness, outer["outer"])))
    sqlite_harness.settle()
    inner = sqlite_harness.labels(inner_of(sqlite_harness, outer["outer"])[0])
    assert len(inner) == 1_500
    assert sqlite_harness.states(outer)["outer"] is State.RUNNING
    sqlite_harness.engine.cancel(Cancel(task=outer["outer"]))
    sqlite_harness.settle()
    assert sqlite_harness.states(outer)["outer"] is State.CANCELED


def test_a_subgraph_that_cannot_be_stored_any_more_fails_its_task_with_the_reason(
    sqlite_harness: EngineHarness,
) -> None:
    sqlite_harness.hello()
    sqlite_harness.engine.set_limit("licence", 1)
    outer = sqlite_harness.submit(graph(first=task(), outer=inside(graph(a=task(limits={"licence": 1})), "first")))
    sqlite_harness.engine.set_limit("licence", 0)
    run(sqlite_harness)
    assert why(sqlite_harness, outer["outer"]) == (State.FAILED, Reason.GRAPH_FAILED)
    shown = result(sqlite_harness, outer["outer"])
    assert shown["refused"] == "some limits can never be met"
    assert [one["path"] for one in shown["faults"]] == ["tasks.a.task.limits.licence"]


def test_a_canceled_task_bears_nothing(sqlite_harness: EngineHarness) -> None:
    sqlite_harness.hello()
    outer = sqlite_harness.submit(graph(outer=inside(graph(a=task()))))
    sqlite_harness.engine.cancel(Cancel(task=outer["outer"]))
    sqlite_harness.settle()
    assert sqlite_harness.states(outer)["outer"] is State.CANCELED
    assert inner_of(sqlite_harness, outer["outer"]) == []


def test_two_servers_bear_it_once(postgres_url: str) -> None:
    with EngineHarness(postgres_url) as one, EngineHarness(postgres_url) as two:
        outer = one.submit(graph(outer=inside(graph(a=task()))))
        found = [subgraphs.SubgraphStarter._waiting(harness.engine._subgraphs) for harness in (one, two)]
        assert found[0] == found[1] != {}
        for harness, waiting in zip((one, two), found, strict=True):
            for text, parent in waiting.values():
                harness.engine._subgraphs._start(text, parent)
        assert len(inner_of(one, outer["outer"])) == 1
        assert one.tasks(outer)["outer"].life.attempt == 1


def test_faults_in_inner_graphs_are_listed_at_once_with_their_paths(sqlite_harness: EngineHarness) -> None:
    broken = graph(a=task("b"), c=task(payload={"ansible": "/site.yml"}))
    answer = sqlite_harness.engine.submit(graph(outer=inside(broken)))
    assert isinstance(answer, Refusal)
    assert {one.path for one in answer.faults} == {
        "tasks.outer.task.payload.graph.tasks.a.requires[0]",
        "tasks.outer.task.payload.graph.tasks.c.task.payload.ansible",
    }


def test_events_alone_and_sweeps_alone_bring_it_to_its_end(database_url: str) -> None:
    for hints in (True, False):
        with EngineHarness(database_url, events=hints, ticks=not hints) as harness:
            harness.hello()
            outer = harness.submit(graph(outer=inside(graph(a=noop(), b=inside(graph(c=noop()), "a")))))
            for _ in range(20):
                harness.settle()
                harness.clock.advance(5_000)
            assert harness.states(outer) == {"outer": State.SUCCESSFUL}
            assert text_of(Key(outer.graph)) == outer.text


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ("UPDATE graph SET parent_id = NULL WHERE id = {id}", {("task", "graph inside")}),
        ("UPDATE graph SET parent_id = 8 WHERE id = {id}", {("task", "graph inside"), ("graph", "attempt")}),
        ("UPDATE graph SET parent_attempt = 7 WHERE id = {id}", {("task", "graph inside"), ("graph", "attempt")}),
    ],
)
def test_a_graph_that_is_not_where_it_was_is_found(sqlite_harness: EngineHarness, wrong: str, found: object) -> None:
    outer, inner = begun(sqlite_harness, graph(a=task()))
    execute_raw(sqlite_harness.store.url, wrong, inner.graph)
    assert {(one.kind, one.column) for one in sqlite_harness.engine.doctor()} == found
    execute_raw(sqlite_harness.store.url, "UPDATE graph SET parent_attempt = 1 WHERE parent_attempt = 7")
    execute_raw(sqlite_harness.store.url, "UPDATE graph SET parent_id = {id} WHERE parent_attempt = 1", outer["outer"])


def test_a_settled_subgraph_whose_task_missed_it_is_found(harness: EngineHarness) -> None:
    outer, inner = begun(harness, graph(a=task()))
    execute_raw(harness.store.url, "UPDATE graph SET active = active + 1 WHERE id = {id}", inner.graph)
    harness.engine.transact(lambda transaction: transaction.repo.cache.bypass())
    run(harness)
    assert harness.states(outer)["outer"] is State.RUNNING
    while findings := harness.engine.doctor():
        harness.engine.repair(findings, "ann")
        harness.settle()
    assert harness.states(outer)["outer"] is State.SUCCESSFUL


def test_a_rerun_from_a_task_reuses_decisions_and_subgraphs_before_it(sqlite_harness: EngineHarness) -> None:
    ask = task(payload={"approval": "Ship it?"})
    outer = sqlite_harness.submit(graph(ask=ask, roll=inside(graph(a=noop()), "ask"), last=noop("roll")))
    sqlite_harness.settle()
    sqlite_harness.engine.approve(Approve(outer["ask"], approved=True, actor="ann"))
    sqlite_harness.settle()
    again = sqlite_harness.engine.renew(outer.text, ("last",))
    assert isinstance(again, Submitted)
    new = sqlite_harness.labels(again.graph)
    sqlite_harness.settle()
    assert set(sqlite_harness.states(new).values()) == {State.SUCCESSFUL}
    assert inner_of(sqlite_harness, new["roll"]) == []
    other = sqlite_harness.engine.renew(outer.text, ("roll",))
    assert isinstance(other, Submitted)
    sqlite_harness.settle()
    assert len(inner_of(sqlite_harness, sqlite_harness.labels(other.graph)["roll"])) == 1
