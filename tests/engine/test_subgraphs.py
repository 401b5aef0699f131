"""A graph inside a task: born with its attempt, and its rest is the end of the task."""

import json
from typing import Any

import pytest

from taskyard.core.ids import Key, text_of
from taskyard.core.states import GraphState, Reason, Signal, State
from taskyard.engine import subgraphs
from taskyard.lifecycle.commands import Approve, Cancel, Done, Refusal, Rerun
from taskyard.lifecycle.submit import Submitted
from tests.engine.rig import Labels, Rig, graph, noop, report, soon, spoil, task, wide


def inside(document: object, *requires: str, **said: Any) -> dict[str, object]:
    """A node with a graph inside."""
    beside = {name: said.pop(name) for name in ("reruns",) if name in said}
    payload = {"graph": document} | {name: said.pop(name) for name in ("timeout",) if name in said}
    return task(*requires, payload=payload, **said) | beside


def begun(rig: Rig, document: object, **said: Any) -> tuple[Labels, Labels]:
    """Submit a graph with another in its task `outer`, and somebody behind it; let both begin."""
    rig.hello()
    outer = rig.submit(graph(outer=inside(document, **said), after=noop("outer")))
    rig.settle()
    return outer, rig.labels(inner_of(rig, outer["outer"])[-1])


def inner_of(rig: Rig, id: int) -> list[int]:
    """Name the graphs inside a task, in the order of its attempts."""
    with rig.store.read() as repo:
        return [found for _, found in sorted(repo.graphs.subgraphs([id]).items())]


def result(rig: Rig, id: int) -> Any:
    with rig.store.read() as repo:
        return json.loads(repo.read.last_results([id])[id])


def run(rig: Rig, signal: Signal = Signal.SUCCEED) -> None:
    """Let a bot end everything that is ready in the same way."""
    while leases := rig.claim(8):
        for lease in leases:
            assert isinstance(rig.end(lease, signal), Done)
    rig.settle()


def why(rig: Rig, id: int) -> tuple[State, str]:
    found = rig.tasks({"it": id})["it"]
    return found.state, found.reason


def test_it_runs_while_its_graph_does_and_ends_well_with_it(rig: Rig) -> None:
    outer, inner = begun(rig, graph(a=task(), b=task("a")))
    assert rig.states(outer) == {"outer": State.RUNNING, "after": State.UNSCHEDULED}
    assert rig.tasks(outer)["outer"].bot == "server"
    record = rig.graph(inner.graph)
    assert (record.parent, record.parent_attempt) == (outer["outer"], 1)
    run(rig)
    assert rig.states(outer) == {"outer": State.SUCCESSFUL, "after": State.SUCCESSFUL}
    assert rig.graph(inner.graph).state is rig.graph(outer.graph).state is GraphState.FINISHED
    assert result(rig, outer["outer"]) == {"graph": inner.text, "state": "finished", "results": {}}


def test_what_its_tasks_publish_is_its_result_by_label(file_rig: Rig) -> None:
    outer, inner = begun(file_rig, graph(a=task(), ask=task(payload={"noop": True})))
    (lease,) = file_rig.claim()
    file_rig.engine.poll(file_rig.wish(0, reports=(report(lease, result='{"n":1}'),)))
    file_rig.settle()
    assert result(file_rig, outer["outer"])["results"] == {"a": {"n": 1}}
    assert file_rig.states(inner)["a"] is State.SUCCESSFUL


def test_a_graph_that_is_blocked_fails_it_and_a_rerun_makes_another(rig: Rig) -> None:
    outer, inner = begun(rig, graph(a=task(), b=task("a")))
    run(rig, Signal.FAIL)
    assert why(rig, outer["outer"]) == (State.FAILED, Reason.GRAPH_FAILED)
    assert result(rig, outer["outer"]) == {"graph": inner.text, "state": "blocked", "failed": ["a"], "results": {}}
    assert rig.graph(inner.graph).state is GraphState.BLOCKED
    rig.engine.rerun(Rerun(task=outer["outer"]))
    rig.settle()
    first, second = inner_of(rig, outer["outer"])
    assert first == inner.graph != second
    run(rig)
    assert rig.states(outer) == {"outer": State.SUCCESSFUL, "after": State.SUCCESSFUL}
    assert rig.graph(first).state is GraphState.BLOCKED


def test_reruns_of_its_own_make_another_graph_each(file_rig: Rig) -> None:
    outer, _ = begun(file_rig, graph(a=task()), reruns=1)
    run(file_rig, Signal.FAIL)
    assert why(file_rig, outer["outer"]) == (State.RUNNING, Reason.UNDER_WAY)
    run(file_rig, Signal.FAIL)
    assert why(file_rig, outer["outer"]) == (State.FAILED, Reason.GRAPH_FAILED)
    assert len(inner_of(file_rig, outer["outer"])) == 2


def test_canceled_it_ends_once_its_graph_has(rig: Rig) -> None:
    outer, inner = begun(rig, graph(a=task(), b=task("a")))
    (lease,) = rig.claim()
    rig.engine.cancel(Cancel(task=outer["outer"], actor="ann"))
    rig.settle()
    assert rig.states(outer)["outer"] is State.STOPPING
    assert rig.states(inner) == {"a": State.STOPPING, "b": State.CANCELED}
    rig.end(lease, Signal.FAIL)
    rig.settle()
    assert rig.states(outer) == {"outer": State.CANCELED, "after": State.BLOCKED}
    assert rig.graph(inner.graph).state is GraphState.CANCELED
    with rig.store.read() as repo:
        assert [(one.actor, one.action) for one in repo.events.audits_of(inner.graph, 9)][-1] == ("ann", "cancel")


def test_a_canceled_graph_takes_those_inside_its_tasks_with_it(rig: Rig) -> None:
    deep = graph(low=inside(graph(a=task())))
    outer, middle = begun(rig, deep)
    (lowest,) = inner_of(rig, middle["low"])
    rig.engine.cancel(Cancel(graph=outer.graph))
    rig.settle()
    states = {rig.graph(id).state for id in (outer.graph, middle.graph, lowest)}
    assert states == {GraphState.CANCELED}
    assert rig.states(middle) == {"low": State.CANCELED}
    assert rig.claim() == ()


def test_a_graph_that_somebody_cancels_fails_its_task(file_rig: Rig) -> None:
    outer, inner = begun(file_rig, graph(a=task()))
    file_rig.engine.cancel(Cancel(graph=inner.graph))
    file_rig.settle()
    assert why(file_rig, outer["outer"]) == (State.FAILED, Reason.GRAPH_FAILED)
    assert result(file_rig, outer["outer"])["state"] == "canceled"


@pytest.mark.parametrize(
    ("said", "end"),
    [
        ({"timeout": "1h"}, (State.FAILED, Reason.TIMED_OUT)),
        ({"deadline": "1h"}, (State.ERROR, Reason.DEADLINE)),
    ],
)
def test_when_its_time_is_over_its_graph_ends_first(rig: Rig, said: Any, end: object) -> None:
    outer, inner = begun(rig, graph(a=task()), **said)
    (lease,) = rig.claim()
    rig.clock.later(3_600_000)
    rig.settle()
    assert rig.states(inner) == {"a": State.STOPPING}
    assert rig.states(outer)["outer"] is State.RUNNING
    rig.end(lease, Signal.FAIL)
    rig.settle()
    assert why(rig, outer["outer"]) == end
    assert rig.states(inner) == {"a": State.CANCELED}


def test_it_can_be_extended_while_it_runs_and_its_task_waits_for_that(file_rig: Rig) -> None:
    outer, inner = begun(file_rig, graph(a=task()))
    file_rig.engine.extend(inner.text, graph(b=task("a")))
    run(file_rig)
    assert set(file_rig.states(file_rig.labels(inner.graph)).values()) == {State.SUCCESSFUL}
    assert file_rig.states(outer)["outer"] is State.SUCCESSFUL
    assert isinstance(file_rig.engine.extend(inner.text, graph(c=task())), Refusal)


def test_what_people_do_with_it_afterwards_does_not_open_its_task_again(file_rig: Rig) -> None:
    outer, inner = begun(file_rig, graph(a=task()))
    run(file_rig, Signal.FAIL)
    file_rig.engine.rerun(Rerun(graph=inner.graph))
    run(file_rig)
    assert file_rig.graph(inner.graph).state is GraphState.FINISHED
    assert why(file_rig, outer["outer"]) == (State.FAILED, Reason.GRAPH_FAILED)


def test_the_graph_of_an_older_attempt_does_not_end_a_later_one(file_rig: Rig) -> None:
    outer, old = begun(file_rig, graph(a=task()))
    run(file_rig, Signal.FAIL)
    file_rig.engine.rerun(Rerun(task=outer["outer"]))
    file_rig.settle()
    (lease,) = file_rig.claim()
    file_rig.engine.rerun(Rerun(graph=old.graph))
    run(file_rig)
    assert file_rig.graph(old.graph).state is GraphState.FINISHED
    assert why(file_rig, outer["outer"]) == (State.RUNNING, Reason.UNDER_WAY)
    file_rig.end(lease)
    file_rig.settle()
    assert file_rig.states(outer)["outer"] is State.SUCCESSFUL


def test_one_without_tasks_ends_at_once(file_rig: Rig) -> None:
    outer, inner = begun(file_rig, graph())
    assert file_rig.states(outer) == {"outer": State.SUCCESSFUL, "after": State.SUCCESSFUL}
    assert file_rig.graph(inner.graph).state is GraphState.FINISHED


def test_a_large_one_is_loaded_by_a_thread_of_its_own(file_rig: Rig) -> None:
    file_rig.hello()
    outer = file_rig.submit(graph(outer=inside(wide(1_500))))
    file_rig.settle()
    soon(lambda: bool(inner_of(file_rig, outer["outer"])))
    file_rig.settle()
    inner = file_rig.labels(inner_of(file_rig, outer["outer"])[0])
    assert len(inner) == 1_500
    assert file_rig.states(outer)["outer"] is State.RUNNING
    file_rig.engine.cancel(Cancel(task=outer["outer"]))
    file_rig.settle()
    assert file_rig.states(outer)["outer"] is State.CANCELED


def test_what_cannot_be_born_any_more_fails_its_task_and_says_why(file_rig: Rig) -> None:
    file_rig.hello()
    file_rig.engine.set_limit("licence", 1)
    outer = file_rig.submit(graph(first=task(), outer=inside(graph(a=task(limits={"licence": 1})), "first")))
    file_rig.engine.set_limit("licence", 0)
    run(file_rig)
    assert why(file_rig, outer["outer"]) == (State.FAILED, Reason.GRAPH_FAILED)
    told = result(file_rig, outer["outer"])
    assert told["refused"] == "some limits can never be met"
    assert [one["path"] for one in told["faults"]] == ["tasks.a.task.limits.licence"]


def test_a_canceled_task_bears_nothing(file_rig: Rig) -> None:
    file_rig.hello()
    outer = file_rig.submit(graph(outer=inside(graph(a=task()))))
    file_rig.engine.cancel(Cancel(task=outer["outer"]))
    file_rig.settle()
    assert file_rig.states(outer)["outer"] is State.CANCELED
    assert inner_of(file_rig, outer["outer"]) == []


def test_two_servers_bear_it_once(postgres_url: str) -> None:
    with Rig(postgres_url) as one, Rig(postgres_url) as two:
        outer = one.submit(graph(outer=inside(graph(a=task()))))
        found = [subgraphs.SubgraphStarter._waiting(rig.engine._subgraphs) for rig in (one, two)]
        assert found[0] == found[1] != {}
        for rig, waiting in zip((one, two), found, strict=True):
            for id, (attempt, text, submitter) in waiting.items():
                rig.engine._subgraphs._start(id, attempt, text, submitter)
        assert len(inner_of(one, outer["outer"])) == 1
        assert one.tasks(outer)["outer"].life.attempt == 1


def test_faults_inside_are_told_at_once_with_their_place(file_rig: Rig) -> None:
    broken = graph(a=task("b"), c=task(payload={"ansible": "site.yml"}))
    answer = file_rig.engine.submit(graph(outer=inside(broken)))
    assert isinstance(answer, Refusal)
    assert {one.path for one in answer.faults} == {
        "tasks.outer.task.payload.graph.tasks.a.requires[0]",
        "tasks.outer.task.payload.graph.tasks.c.task.payload.ansible",
    }


def test_events_alone_and_sweeps_alone_bring_it_to_its_end(database_url: str) -> None:
    for hints in (True, False):
        with Rig(database_url, events=hints, ticks=not hints) as rig:
            rig.hello()
            outer = rig.submit(graph(outer=inside(graph(a=noop(), b=inside(graph(c=noop()), "a")))))
            for _ in range(20):
                rig.settle()
                rig.clock.later(5_000)
            assert rig.states(outer) == {"outer": State.SUCCESSFUL}
            assert text_of(Key(outer.graph)) == outer.text


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ("UPDATE graph SET parent_id = NULL WHERE id = {id}", {("task", "graph inside")}),
        ("UPDATE graph SET parent_id = 8 WHERE id = {id}", {("task", "graph inside"), ("graph", "attempt")}),
        ("UPDATE graph SET parent_attempt = 7 WHERE id = {id}", {("task", "graph inside"), ("graph", "attempt")}),
    ],
)
def test_a_graph_that_is_not_where_it_was_is_found(file_rig: Rig, wrong: str, found: object) -> None:
    outer, inner = begun(file_rig, graph(a=task()))
    spoil(file_rig.store.url, wrong, inner.graph)
    assert {(one.kind, one.column) for one in file_rig.engine.doctor()} == found
    spoil(file_rig.store.url, "UPDATE graph SET parent_attempt = 1 WHERE parent_attempt = 7")
    spoil(file_rig.store.url, "UPDATE graph SET parent_id = {id} WHERE parent_attempt = 1", outer["outer"])


def test_a_rest_that_nobody_heard_of_is_found_and_told(rig: Rig) -> None:
    outer, inner = begun(rig, graph(a=task()))
    spoil(rig.store.url, "UPDATE graph SET active = active + 1 WHERE id = {id}", inner.graph)
    rig.engine.transact(lambda transaction: transaction.repo.cache.bypass())
    run(rig)
    assert rig.states(outer)["outer"] is State.RUNNING
    while findings := rig.engine.doctor():
        rig.engine.repair(findings, "ann")
        rig.settle()
    assert rig.states(outer)["outer"] is State.SUCCESSFUL


def test_who_runs_again_what_is_behind_takes_over_decisions_and_graphs(file_rig: Rig) -> None:
    ask = task(payload={"approval": "Ship it?"})
    outer = file_rig.submit(graph(ask=ask, roll=inside(graph(a=noop()), "ask"), last=noop("roll")))
    file_rig.settle()
    file_rig.engine.approve(Approve(outer["ask"], approved=True, actor="ann"))
    file_rig.settle()
    again = file_rig.engine.renew(outer.text, ("last",))
    assert isinstance(again, Submitted)
    new = file_rig.labels(again.graph)
    file_rig.settle()
    assert set(file_rig.states(new).values()) == {State.SUCCESSFUL}
    assert inner_of(file_rig, new["roll"]) == []
    other = file_rig.engine.renew(outer.text, ("roll",))
    assert isinstance(other, Submitted)
    file_rig.settle()
    assert len(inner_of(file_rig, file_rig.labels(other.graph)["roll"])) == 1
