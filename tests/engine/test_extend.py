"""Graphs grow: what is repeated is an echo, what others changed meanwhile is looked at again."""

from collections.abc import Iterator
from threading import Thread

import pytest

from taskyard.core.states import GraphState, State
from taskyard.engine.bulk_load import LOAD_MAX_MS
from taskyard.engine.errors import Failed, Unavailable
from taskyard.engine.failpoints import arm
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.submit import PAGE_MAX, Submitted
from taskyard.store.queries import StoreUnavailable
from tests.engine.rig import SOON_S, Labels, Rig, graph, soon, task

LARGE = PAGE_MAX + 1


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    arm(None)


def more(count: int, *requires: str) -> dict[str, object]:
    """An extension; those that it adds require each other backwards."""
    first = {"x0": task(*requires)}
    return graph(**{f"x{number}": task(f"x{number - 1}") for number in range(count - 1, 0, -1)} | first)


def begun(rig: Rig) -> Labels:
    """A graph whose first task has ended."""
    labels = rig.submit(graph(a=task(), b=task("a")))
    rig.hello()
    (lease,) = rig.claim()
    rig.end(lease)
    return labels


@pytest.mark.parametrize("count", [2, LARGE])
def test_new_tasks_find_old_ones_as_they_are(rig: Rig, count: int) -> None:
    labels = begun(rig)
    assert rig.engine.extend(labels.text, more(count, "a"), actor="bob") == Submitted(labels.graph)
    rig.settle()
    states = rig.states(rig.labels(labels.graph))
    assert (states["a"], states["b"], states["x0"], states["x1"]) == (
        State.SUCCESSFUL,
        State.WAITING,
        State.WAITING,
        State.UNSCHEDULED,
    )
    assert len(states) == 2 + count
    assert rig.graph(labels.graph).tally.behind == count - 1
    with rig.store.read() as repo:
        assert ("bob", "extend") in [(row.actor, row.action) for row in repo.events.audits_of(labels.graph, 9)]


@pytest.mark.parametrize("count", [2, LARGE])
def test_the_same_extension_again_is_an_echo_at_any_later_moment(rig: Rig, count: int) -> None:
    labels = begun(rig)
    rig.engine.extend(labels.text, more(count, "a"))
    assert rig.engine.extend(labels.text, more(count, "a")) == Submitted(labels.graph, echo=True)
    rig.settle()
    assert rig.engine.extend(labels.text, graph(a=task())) == Submitted(labels.graph, echo=True)


def test_a_finished_graph_echoes_and_takes_nothing_new(rig: Rig) -> None:
    labels = begun(rig)
    rig.end(rig.claim()[0])
    assert rig.graph(labels.graph).state is GraphState.FINISHED
    assert rig.engine.extend(labels.text, graph(b=task("a"))) == Submitted(labels.graph, echo=True)
    refused = rig.engine.extend(labels.text, graph(c=task()))
    assert isinstance(refused, Refusal)
    assert refused.code is Code.CONFLICT


def test_an_echo_is_one_even_after_its_deadline(file_rig: Rig) -> None:
    late = task(deadline="2026-01-01T01:00:00Z")
    labels = file_rig.submit(graph(a=late))
    file_rig.clock.later(7_200_000)
    assert file_rig.engine.extend(labels.text, graph(a=late)) == Submitted(labels.graph, echo=True)
    refused = file_rig.engine.extend(labels.text, graph(a=late, b=late))
    assert isinstance(refused, Refusal)
    assert refused.code is Code.INVALID
    file_rig.settle()


def test_a_label_cannot_be_given_another_meaning(rig: Rig) -> None:
    labels = begun(rig)
    refused = rig.engine.extend(labels.text, graph(b=task(), c=task("nobody")))
    assert isinstance(refused, Refusal)
    assert refused.code is Code.INVALID
    assert {fault.path.split(".")[1] for fault in refused.faults} == {"b", "c"}


def test_payloads_of_an_extension_name_old_tasks_and_echo_as_they_were_written(rig: Rig) -> None:
    labels = begun(rig)
    named = graph(c=task(payload={"command": ["true"], "env": {"A": {"$subs": "taskId:a"}}}))
    assert rig.engine.extend(labels.text, named) == Submitted(labels.graph)
    assert rig.engine.extend(labels.text, named) == Submitted(labels.graph, echo=True)


@pytest.mark.parametrize("text", ["nonsense", "7000000000000008"])
def test_what_is_not_there_cannot_be_extended(file_rig: Rig, text: str) -> None:
    refused = file_rig.engine.extend(text, graph(a=task()))
    assert isinstance(refused, Refusal)
    assert refused.code is (Code.INVALID if text == "nonsense" else Code.NOT_FOUND)


def test_two_who_extend_at_once_both_do(rig: Rig) -> None:
    labels = begun(rig)
    answers: list[object] = []
    asking = [
        Thread(target=lambda label=label: answers.append(rig.engine.extend(labels.text, graph(**{label: task()}))))
        for label in ("c", "d", "e")
    ]
    with rig.held_up():
        for thread in asking:
            thread.start()
        soon(lambda: rig.engine.writer_thread.waiting == 3)
    for thread in asking:
        thread.join(SOON_S)
    assert answers == [Submitted(labels.graph)] * 3
    assert set(rig.labels(labels.graph)) == {"a", "b", "c", "d", "e"}


def test_who_looks_in_vain_too_often_is_told_to_ask_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = begun(rig)
    monkeypatch.setattr("taskyard.engine.extend.LOOKS_MAX", 0)
    with pytest.raises(Unavailable):
        rig.engine.extend(labels.text, graph(c=task()))


@pytest.mark.parametrize("place", ["begin.after", "page.before", "page.after", "open.before"])
def test_who_dies_while_extending_leaves_nothing_for_ever(rig: Rig, place: str) -> None:
    labels = begun(rig)
    arm(f"load.{place}:raise@1")
    with pytest.raises(Failed):
        rig.engine.extend(labels.text, more(LARGE, "a"))
    for extension in (more(LARGE, "a"), graph(c=task())):
        refused = rig.engine.extend(labels.text, extension)
        assert isinstance(refused, Refusal)
        assert refused.code is Code.LOADING
    rig.settle()
    rig.clock.later(LOAD_MAX_MS + 1)
    rig.settle()
    assert set(rig.labels(labels.graph)) == {"a", "b"}
    assert rig.engine.extend(labels.text, more(LARGE, "a")) == Submitted(labels.graph)
    rig.settle()
    assert len(rig.labels(labels.graph)) == 2 + LARGE


def test_an_extension_that_is_being_loaded_survives_a_sweep(rig: Rig) -> None:
    labels = begun(rig)
    arm("load.page.after:raise@2")
    with pytest.raises(Failed):
        rig.engine.extend(labels.text, more(LARGE, "a"))
    rig.settle()
    assert len(rig.labels(labels.graph)) == 2 + LARGE


def test_commits_that_nobody_heard_of_do_not_disturb_an_extension(rig: Rig) -> None:
    for passed in range(4):  # the beginning, two pages, the end
        labels = begun(rig)
        rig.store.after = [*[None] * passed, StoreUnavailable("the line was cut")]
        answer = rig.engine.extend(labels.text, more(LARGE, "a"))
        assert answer == Submitted(labels.graph, echo=passed == 3)
        rig.settle()
        assert len(rig.labels(labels.graph)) == 2 + LARGE
