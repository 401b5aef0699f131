"""Graphs are stored whole or not at all, and once, whatever is repeated and whichever process dies."""

import asyncio
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

from taskyard.core.ids import Key
from taskyard.core.states import GraphState, Millis, State
from taskyard.engine import submit
from taskyard.engine.bulk_load import LOAD_MAX_MS
from taskyard.engine.errors import Failed, Unavailable
from taskyard.engine.failpoints import arm
from taskyard.lifecycle.commands import Cancel, Code, Refusal
from taskyard.lifecycle.submit import PAGE_MAX, Submitted
from taskyard.store.queries import StoreUnavailable
from tests.engine.harness import WAIT_S, EngineHarness, graph, noop, report, task, wait_until, wide

ID = "7000000000000008"
LARGE = PAGE_MAX + 1


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    arm(None)


def test_a_small_graph_is_one_transaction(harness: EngineHarness) -> None:
    before = harness.engine.commits
    labels = harness.submit(graph(a=task(), b=task("a")), actor="ann")
    assert harness.engine.commits - before == 1
    assert harness.states(labels) == {"a": State.WAITING, "b": State.UNSCHEDULED}
    with harness.store.read() as repo:
        assert [(row.actor, row.action) for row in repo.events.audits_of(labels.graph, 9)] == [("ann", "submit")]


@pytest.mark.parametrize(
    "document", [None, [], {"tasks": []}, graph(a=1), graph(a={"task": []}), graph(a={"task": {"slices": {"b": 1}}})]
)
def test_whatever_is_submitted_is_answered(harness: EngineHarness, document: object) -> None:
    assert faults_of(harness.engine.submit(document))


def faults_of(answer: Submitted | Refusal) -> list[tuple[str, str]]:
    assert isinstance(answer, Refusal), answer
    assert answer.code is Code.INVALID
    return [(fault.path, fault.message) for fault in answer.faults]


def test_a_graph_without_tasks_is_finished(harness: EngineHarness) -> None:
    assert harness.graph(harness.submit({"tasks": {}}).graph).state is GraphState.FINISHED


def test_graphs_are_served_in_the_order_in_which_they_came(harness: EngineHarness) -> None:
    came = [harness.submit(graph(a=task(), b=task())) for _ in range(3)]
    harness.hello()
    assert [lease.task for lease in harness.claim(want=6)] == [labels[label] for labels in came for label in "ab"]


def test_a_large_graph_comes_in_pages_and_is_seen_whole(harness: EngineHarness) -> None:
    labels = harness.submit(wide(LARGE))
    assert set(harness.states(labels).values()) == {State.UNSCHEDULED}
    harness.settle()
    assert set(harness.states(labels).values()) == {State.WAITING}
    assert len(labels) == LARGE


def test_a_large_graph_may_require_later_labels(harness: EngineHarness) -> None:
    nodes = {f"t{number}": task(f"t{number + 1}") for number in range(LARGE - 1)} | {f"t{LARGE - 1}": task()}
    labels = harness.submit(graph(**nodes))
    harness.settle()
    states = harness.states(labels)
    assert states.pop(f"t{LARGE - 1}") is State.WAITING
    assert set(states.values()) == {State.UNSCHEDULED}
    order = [label for label, _ in sorted(labels.items(), key=lambda item: item[1])]
    assert order == list(nodes)


@pytest.mark.parametrize("tasks", [2, LARGE])
def test_the_same_graph_again_is_an_echo_and_another_is_refused(harness: EngineHarness, tasks: int) -> None:
    document = wide(tasks)
    first = harness.engine.submit(document, graph_id=ID)
    assert first == Submitted(int(ID, 16))
    again = {"tasks": dict(reversed(document["tasks"].items()))}  # type: ignore[attr-defined]
    assert harness.engine.submit(again, graph_id=ID) == Submitted(int(ID, 16), echo=True)
    other = harness.engine.submit(wide(tasks + 1), graph_id=ID)
    assert isinstance(other, Refusal)
    assert other.code is Code.CONFLICT
    harness.settle()


@pytest.mark.parametrize("tasks", [2, LARGE])
def test_a_key_belongs_to_one_graph(harness: EngineHarness, tasks: int) -> None:
    first = harness.engine.submit(wide(tasks), key="mine")
    assert isinstance(first, Submitted)
    assert harness.engine.submit(wide(tasks), key="mine") == Submitted(first.graph, echo=True)
    for other in (wide(tasks + 1), wide(1)):
        refused = harness.engine.submit(other, key="mine")
        assert isinstance(refused, Refusal)
        assert refused.code is Code.CONFLICT
    refusal = harness.engine.cancel(Cancel(graph=first.graph, key="mine"))
    assert isinstance(refusal, Refusal)
    assert harness.submit(wide(tasks)).graph != first.graph
    harness.settle()


def test_a_small_graph_is_stored_from_an_event_loop_as_from_a_thread(harness: EngineHarness) -> None:
    def store(document: object, **said: Any) -> Submitted | Refusal | None:
        return asyncio.run(harness.engine.submit_small(document, **said))

    before = harness.engine.commits
    made = store(graph(a=task(), b=task("a")), actor="ann", key="k")
    assert isinstance(made, Submitted)
    assert harness.engine.commits - before == 1
    assert dict(harness.labels(made.graph)) == made.names
    assert harness.states(harness.labels(made.graph)) == {"a": State.WAITING, "b": State.UNSCHEDULED}
    again = store(graph(a=task(), b=task("a")), actor="ann", key="k")
    assert isinstance(again, Submitted)
    assert (again.graph, again.echo) == (made.graph, True)
    refused = store(graph(a=task()), key="x" * 10_000)
    assert isinstance(refused, Refusal)
    assert refused.code is Code.INVALID
    # These may need the store, and are left to a thread: another graph under the key, faults, and too many tasks.
    stored = harness.engine.commits
    assert store(graph(a=task()), actor="ann", key="k") is None
    assert store(graph(a=1)) is None
    assert store(wide(LARGE)) is None
    assert harness.engine.commits - stored <= 1

    def deny(pools: frozenset[str]) -> None:
        raise PermissionError(sorted(pools))

    with pytest.raises(PermissionError, match="default"):
        store(graph(a=task()), may=deny)


def test_a_small_graph_whose_ids_are_in_use_is_left_to_a_thread(
    sqlite_harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sqlite_harness.submit(graph(a=task()))
    keys = submit.NewKeys(Key(made.graph), [Key(made["a"])], Millis(sqlite_harness.clock.now()))
    monkeypatch.setattr(submit.KeyGenerator, "generate", lambda *_: keys)
    assert asyncio.run(sqlite_harness.engine.submit_small(graph(b=task()))) is None


def test_a_key_that_is_used_twice_in_one_batch_makes_one_graph(harness: EngineHarness) -> None:
    answers: list[object] = []
    asking = [Thread(target=lambda: answers.append(harness.engine.submit(wide(2), key="mine"))) for _ in range(2)]
    with harness.writer_blocked():
        for thread in asking:
            thread.start()
        wait_until(lambda: harness.engine.writer_thread.waiting == 2)
    for thread in asking:
        thread.join(WAIT_S)
    assert {type(one) for one in answers} == {Submitted}
    assert len({one.graph for one in answers if isinstance(one, Submitted)}) == 1
    assert sorted(one.echo for one in answers if isinstance(one, Submitted)) == [False, True]


def test_every_fault_is_listed_and_nothing_stored(harness: EngineHarness) -> None:
    before = harness.engine.commits
    refused = harness.engine.submit({"tasks": {"a": task("b"), "c": {"task": {"payload": {"command": []}}}}})
    assert isinstance(refused, Refusal)
    assert refused.code is Code.INVALID
    assert {fault.path.split(".")[1] for fault in refused.faults} == {"a", "c"}
    assert harness.engine.commits == before


@pytest.mark.parametrize("text", ["", "no id", "7000000000000007", "f000000000000008"])
def test_an_id_that_is_none_is_refused(sqlite_harness: EngineHarness, text: str) -> None:
    refused = sqlite_harness.engine.submit(wide(1), graph_id=text)
    assert isinstance(refused, Refusal)
    assert (refused.code, [fault.path for fault in refused.faults]) == (Code.INVALID, ["graph_id"])


@pytest.mark.parametrize("said", [{"graph_id": ID}, {"key": "mine"}])
def test_what_was_submitted_in_time_may_be_repeated_after_its_deadline(
    sqlite_harness: EngineHarness, said: dict[str, Any]
) -> None:
    document = graph(a=task(deadline="2026-01-01T01:00:00Z"))
    first = sqlite_harness.submit(document, **said)
    sqlite_harness.clock.advance(7_200_000)
    assert sqlite_harness.engine.submit(document, **said) == Submitted(first.graph, echo=True)
    late = sqlite_harness.engine.submit(document)
    assert isinstance(late, Refusal)
    assert late.code is Code.INVALID
    sqlite_harness.settle()


def test_payloads_name_tasks_by_their_ids(harness: EngineHarness) -> None:
    named = {"command": ["true"], "env": {"BUILD": {"$subs": "taskId:a"}}}
    labels = harness.submit(graph(a=task(), b=task(payload=named)))
    with harness.store.read() as repo:
        definition = repo.tasks.definitions([labels["b"]])[labels["b"]][1]
    assert f"{labels['a']:016x}" in definition


@pytest.mark.parametrize("chance", [0, 2])
@pytest.mark.parametrize("tasks", [3, LARGE])
def test_keys_that_are_in_use_are_minted_anew(harness: EngineHarness, chance: int, tasks: int) -> None:
    """Another engine may have made the same ids: of a graph, or of tasks alone."""
    harness.clock.chances = iter([0, chance, chance, 50_000])
    first = harness.submit(wide(LARGE + 5))
    harness.engine._submission._keys._newest = None
    harness.clock.advance(-1)
    second = harness.submit(wide(tasks))
    assert len(second) == tasks
    assert not {first.graph, *first.values()} & {second.graph, *second.values()}
    assert next(harness.clock.chances) == 50_000, "nothing was in use"
    harness.settle()


@pytest.mark.parametrize("place", ["begin.before", "begin.after", "page.before", "page.after", "open.before"])
def test_a_load_that_dies_leaves_nothing_visible(harness: EngineHarness, place: str) -> None:
    arm(f"load.{place}:raise@1")
    with pytest.raises(Failed):
        harness.engine.submit(wide(LARGE), graph_id=ID)
    at_once = harness.engine.submit(wide(LARGE), graph_id=ID)
    if place == "begin.before":
        assert at_once == Submitted(int(ID, 16))
    else:
        assert isinstance(at_once, Refusal)
        assert at_once.code is Code.LOADING
    harness.clock.advance(LOAD_MAX_MS + 1)
    later = harness.engine.submit(wide(LARGE), graph_id=ID)
    assert later == Submitted(int(ID, 16), echo=place == "begin.before")
    harness.settle()
    assert set(harness.states(harness.labels(later.graph)).values()) == {State.WAITING}


def test_a_load_that_dies_after_its_last_commit_is_stored(harness: EngineHarness) -> None:
    arm("load.open.after:raise@1")
    with pytest.raises(Failed):
        harness.engine.submit(wide(LARGE), graph_id=ID)
    assert harness.engine.submit(wide(LARGE), graph_id=ID) == Submitted(int(ID, 16), echo=True)
    harness.settle()


def test_what_died_while_loading_is_swept_away(harness: EngineHarness) -> None:
    arm("load.open.before:raise@1")
    with pytest.raises(Failed):
        harness.engine.submit(wide(LARGE), graph_id=ID)
    harness.clock.advance(LOAD_MAX_MS + 1)
    harness.settle()
    with harness.store.read() as repo:
        assert repo.graphs.peek([int(ID, 16)]) == []


def test_commits_without_an_acknowledgement_do_not_disturb_a_load(harness: EngineHarness) -> None:
    for passed in range(4):  # the beginning, two pages, the end
        harness.store.after = [*[None] * passed, StoreUnavailable("the line was cut")]
        labels = harness.submit(wide(LARGE))
        assert harness.store.after == []
        assert len(labels) == LARGE
    harness.settle()


def test_a_load_that_others_keep_taking_away_is_given_up(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "TRIES_MAX", 0)
    with pytest.raises(Unavailable):
        harness.engine.submit(wide(1))


def test_a_star_of_noops_ends_by_itself(harness: EngineHarness) -> None:
    leaves = {f"n{number}": noop("root") for number in range(PAGE_MAX + 200)}
    labels = harness.submit(graph(root=task(), **leaves, end=task(*leaves)))
    harness.hello()
    harness.settle()
    (root,) = harness.claim()
    harness.engine.poll(harness.poll_command(0, reports=(report(root),)))
    harness.settle()
    (end,) = harness.claim()
    assert end.task == labels["end"]
    harness.end(end)
    assert harness.graph(labels.graph).state is GraphState.FINISHED
