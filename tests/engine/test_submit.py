"""Graphs are stored whole or not at all, once, whatever is repeated and whoever dies."""

from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

from taskyard.core.states import GraphState, State
from taskyard.engine import submit
from taskyard.engine.bulk_load import LOAD_MAX_MS
from taskyard.engine.errors import Failed, Unavailable
from taskyard.engine.failpoints import arm
from taskyard.lifecycle.commands import Cancel, Code, Refusal
from taskyard.lifecycle.submit import PAGE_MAX, Submitted
from taskyard.store.queries import StoreUnavailable
from tests.engine.rig import SOON_S, Rig, graph, noop, report, soon, task, wide

ID = "7000000000000008"
LARGE = PAGE_MAX + 1


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    arm(None)


def test_a_small_graph_is_one_transaction(rig: Rig) -> None:
    before = rig.engine.commits
    labels = rig.submit(graph(a=task(), b=task("a")), actor="ann")
    assert rig.engine.commits - before == 1
    assert rig.states(labels) == {"a": State.WAITING, "b": State.UNSCHEDULED}
    with rig.store.read() as repo:
        assert [(row.actor, row.action) for row in repo.events.audits_of(labels.graph, 9)] == [("ann", "submit")]


def test_what_nobody_runs_yet_is_refused_with_whatever_else_is_wrong(rig: Rig) -> None:
    inner = {"tasks": {"x": {"task": {"payload": {"ansible": "site.yml"}}}}}
    nodes = {
        "ask": {"task": {"payload": {"approval": "Ship it?"}}},
        "inner": {"task": {"payload": {"graph": inner}}},
        "ways": {"task": {"payload": {}, "slices": [{"payload": {"ansible": "or.yml"}}]}},
        "play": {"task": {"payload": {"ansible": "site.yml"}}},
        "files": task(payload={"command": ["make"], "outputs": ["dist"], "secrets": {"KEY": "deploy"}}),
        "none": task(payload={"command": ["make"], "outputs": [], "secrets": {}}),
        "same": task(idempotent=True),
        "fine": task(idempotent=False),
    }
    places = [
        "inner.task.payload.graph.tasks.x.task.payload.ansible",
        "ways.task.slices[0].payload.ansible",
        "play.task.payload.ansible",
        "files.task.payload.outputs",
        "files.task.payload.secrets",
        "same.task.idempotent",
    ]
    expected = [(f"tasks.{place}", submit.UNSUPPORTED) for place in places]
    assert faults_of(rig.engine.submit(graph(**nodes))) == expected
    typo = [("tasks.late.requires[0]", 'unknown label "asc"; did you mean "ask"?')]
    assert faults_of(rig.engine.submit(graph(**nodes, late=task("asc")))) == [*typo, *expected]
    stored = rig.submit(graph(first=task()))
    assert faults_of(rig.engine.extend(stored.text, graph(**nodes))) == expected
    assert list(rig.labels(stored.graph)) == ["first"]


def test_what_nobody_runs_yet_is_found_in_a_matrix(rig: Rig) -> None:
    play = {"matrix": {"os": ["a", "b"]}, "task": {"payload": {"ansible": {"playbook": {"$matrix": "os"}}}}}
    assert faults_of(rig.engine.submit(graph(play=play))) == [("tasks.play.task.payload.ansible", submit.UNSUPPORTED)]


@pytest.mark.parametrize(
    "document", [None, [], {"tasks": []}, graph(a=1), graph(a={"task": []}), graph(a={"task": {"slices": {"b": 1}}})]
)
def test_whatever_is_submitted_is_answered(rig: Rig, document: object) -> None:
    assert faults_of(rig.engine.submit(document))


def faults_of(answer: Submitted | Refusal) -> list[tuple[str, str]]:
    assert isinstance(answer, Refusal), answer
    assert answer.code is Code.INVALID
    return [(fault.path, fault.message) for fault in answer.faults]


def test_a_graph_without_tasks_is_finished(rig: Rig) -> None:
    assert rig.graph(rig.submit({"tasks": {}}).graph).state is GraphState.FINISHED


def test_graphs_are_served_in_the_order_in_which_they_came(rig: Rig) -> None:
    came = [rig.submit(graph(a=task(), b=task())) for _ in range(3)]
    rig.hello()
    assert [lease.task for lease in rig.claim(want=6)] == [labels[label] for labels in came for label in "ab"]


def test_a_large_graph_comes_in_pages_and_is_seen_whole(rig: Rig) -> None:
    labels = rig.submit(wide(LARGE))
    assert set(rig.states(labels).values()) == {State.UNSCHEDULED}
    rig.settle()
    assert set(rig.states(labels).values()) == {State.WAITING}
    assert len(labels) == LARGE


def test_a_large_graph_may_name_what_comes_later(rig: Rig) -> None:
    nodes = {f"t{number}": task(f"t{number + 1}") for number in range(LARGE - 1)} | {f"t{LARGE - 1}": task()}
    labels = rig.submit(graph(**nodes))
    rig.settle()
    states = rig.states(labels)
    assert states.pop(f"t{LARGE - 1}") is State.WAITING
    assert set(states.values()) == {State.UNSCHEDULED}
    order = [label for label, _ in sorted(labels.items(), key=lambda item: item[1])]
    assert order == list(nodes)


@pytest.mark.parametrize("tasks", [2, LARGE])
def test_the_same_graph_again_is_an_echo_and_another_is_refused(rig: Rig, tasks: int) -> None:
    document = wide(tasks)
    first = rig.engine.submit(document, graph_id=ID)
    assert first == Submitted(int(ID, 16))
    again = {"tasks": dict(reversed(document["tasks"].items()))}  # type: ignore[attr-defined]
    assert rig.engine.submit(again, graph_id=ID) == Submitted(int(ID, 16), echo=True)
    other = rig.engine.submit(wide(tasks + 1), graph_id=ID)
    assert isinstance(other, Refusal)
    assert other.code is Code.CONFLICT
    rig.settle()


@pytest.mark.parametrize("tasks", [2, LARGE])
def test_a_key_stands_for_one_graph(rig: Rig, tasks: int) -> None:
    first = rig.engine.submit(wide(tasks), key="mine")
    assert isinstance(first, Submitted)
    assert rig.engine.submit(wide(tasks), key="mine") == Submitted(first.graph, echo=True)
    for other in (wide(tasks + 1), wide(1)):
        refused = rig.engine.submit(other, key="mine")
        assert isinstance(refused, Refusal)
        assert refused.code is Code.CONFLICT
    wished = rig.engine.cancel(Cancel(graph=first.graph, key="mine"))
    assert isinstance(wished, Refusal)
    assert rig.submit(wide(tasks)).graph != first.graph
    rig.settle()


def test_a_key_that_is_used_twice_in_one_batch_makes_one_graph(rig: Rig) -> None:
    answers: list[object] = []
    asking = [Thread(target=lambda: answers.append(rig.engine.submit(wide(2), key="mine"))) for _ in range(2)]
    with rig.held_up():
        for thread in asking:
            thread.start()
        soon(lambda: rig.engine.writer_thread.waiting == 2)
    for thread in asking:
        thread.join(SOON_S)
    assert {type(one) for one in answers} == {Submitted}
    assert len({one.graph for one in answers if isinstance(one, Submitted)}) == 1
    assert sorted(one.echo for one in answers if isinstance(one, Submitted)) == [False, True]


def test_every_fault_is_listed_and_nothing_stored(rig: Rig) -> None:
    before = rig.engine.commits
    refused = rig.engine.submit({"tasks": {"a": task("b"), "c": {"task": {"payload": {"command": []}}}}})
    assert isinstance(refused, Refusal)
    assert refused.code is Code.INVALID
    assert {fault.path.split(".")[1] for fault in refused.faults} == {"a", "c"}
    assert rig.engine.commits == before


@pytest.mark.parametrize("text", ["", "no id", "7000000000000007", "f000000000000008"])
def test_an_id_that_is_none_is_refused(file_rig: Rig, text: str) -> None:
    refused = file_rig.engine.submit(wide(1), graph_id=text)
    assert isinstance(refused, Refusal)
    assert (refused.code, [fault.path for fault in refused.faults]) == (Code.INVALID, ["graph_id"])


@pytest.mark.parametrize("said", [{"graph_id": ID}, {"key": "mine"}])
def test_what_was_submitted_in_time_may_be_repeated_after_its_deadline(file_rig: Rig, said: dict[str, Any]) -> None:
    document = graph(a=task(deadline="2026-01-01T01:00:00Z"))
    first = file_rig.submit(document, **said)
    file_rig.clock.later(7_200_000)
    assert file_rig.engine.submit(document, **said) == Submitted(first.graph, echo=True)
    late = file_rig.engine.submit(document)
    assert isinstance(late, Refusal)
    assert late.code is Code.INVALID
    file_rig.settle()


def test_payloads_name_tasks_by_their_ids(rig: Rig) -> None:
    named = {"command": ["true"], "env": {"BUILD": {"$subs": "taskId:a"}}}
    labels = rig.submit(graph(a=task(), b=task(payload=named)))
    with rig.store.read() as repo:
        definition = repo.tasks.definitions([labels["b"]])[labels["b"]][1]
    assert f"{labels['a']:016x}" in definition


@pytest.mark.parametrize("chance", [0, 2])
@pytest.mark.parametrize("tasks", [3, LARGE])
def test_keys_that_are_in_use_are_minted_anew(rig: Rig, chance: int, tasks: int) -> None:
    """Another engine may have minted the same: of a graph, or of tasks alone."""
    rig.clock.chances = iter([0, chance, chance, 50_000])
    first = rig.submit(wide(LARGE + 5))
    rig.engine._submission._keys._newest = None
    rig.clock.later(-1)
    second = rig.submit(wide(tasks))
    assert len(second) == tasks
    assert not {first.graph, *first.values()} & {second.graph, *second.values()}
    assert next(rig.clock.chances) == 50_000, "nothing was in use"
    rig.settle()


@pytest.mark.parametrize("place", ["begin.before", "begin.after", "page.before", "page.after", "open.before"])
def test_who_dies_while_loading_leaves_nothing_that_is_seen(rig: Rig, place: str) -> None:
    arm(f"load.{place}:raise@1")
    with pytest.raises(Failed):
        rig.engine.submit(wide(LARGE), graph_id=ID)
    at_once = rig.engine.submit(wide(LARGE), graph_id=ID)
    if place == "begin.before":
        assert at_once == Submitted(int(ID, 16))
    else:
        assert isinstance(at_once, Refusal)
        assert at_once.code is Code.LOADING
    rig.clock.later(LOAD_MAX_MS + 1)
    later = rig.engine.submit(wide(LARGE), graph_id=ID)
    assert later == Submitted(int(ID, 16), echo=place == "begin.before")
    rig.settle()
    assert set(rig.states(rig.labels(later.graph)).values()) == {State.WAITING}


def test_who_dies_after_the_last_commit_has_stored_it(rig: Rig) -> None:
    arm("load.open.after:raise@1")
    with pytest.raises(Failed):
        rig.engine.submit(wide(LARGE), graph_id=ID)
    assert rig.engine.submit(wide(LARGE), graph_id=ID) == Submitted(int(ID, 16), echo=True)
    rig.settle()


def test_what_died_while_loading_is_swept_away(rig: Rig) -> None:
    arm("load.open.before:raise@1")
    with pytest.raises(Failed):
        rig.engine.submit(wide(LARGE), graph_id=ID)
    rig.clock.later(LOAD_MAX_MS + 1)
    rig.settle()
    with rig.store.read() as repo:
        assert repo.graphs.peek([int(ID, 16)]) == []


def test_commits_that_nobody_heard_of_do_not_disturb_a_load(rig: Rig) -> None:
    for passed in range(4):  # the beginning, two pages, the end
        rig.store.after = [*[None] * passed, StoreUnavailable("the line was cut")]
        labels = rig.submit(wide(LARGE))
        assert rig.store.after == []
        assert len(labels) == LARGE
    rig.settle()


def test_a_load_that_others_keep_taking_away_is_given_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "TRIES_MAX", 0)
    with pytest.raises(Unavailable):
        rig.engine.submit(wide(1))


def test_a_star_of_noops_ends_by_itself(rig: Rig) -> None:
    leaves = {f"n{number}": noop("root") for number in range(PAGE_MAX + 200)}
    labels = rig.submit(graph(root=task(), **leaves, end=task(*leaves)))
    rig.hello()
    rig.settle()
    (root,) = rig.claim()
    rig.engine.poll(rig.wish(0, reports=(report(root),)))
    rig.settle()
    (end,) = rig.claim()
    assert end.task == labels["end"]
    rig.end(end)
    assert rig.graph(labels.graph).state is GraphState.FINISHED
