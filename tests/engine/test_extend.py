"""Extensions: a repeat is an echo, and a concurrent change leads to another try."""

from collections.abc import Iterator
from threading import Thread

import pytest

from taskyard.core.events import EXTEND
from taskyard.core.states import GraphState, State
from taskyard.engine.bulk_load import LOAD_MAX_MS
from taskyard.engine.errors import Failed, Unavailable
from taskyard.engine.failpoints import arm
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.submit import PAGE_MAX, Submitted
from taskyard.store.queries import StoreUnavailable
from tests.engine.harness import WAIT_S, EngineHarness, graph, task, wait_until
from tests.lifecycle.harness import Labels

LARGE = PAGE_MAX + 1


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    arm(None)


def more(count: int, *requires: str) -> dict[str, object]:
    """An extension; those that it adds require each other backwards."""
    first = {"x0": task(*requires)}
    return graph(**{f"x{number}": task(f"x{number - 1}") for number in range(count - 1, 0, -1)} | first)


def begun(harness: EngineHarness) -> Labels:
    """A graph whose first task has ended."""
    labels = harness.submit(graph(a=task(), b=task("a")))
    harness.hello()
    (lease,) = harness.claim()
    harness.end(lease)
    return labels


@pytest.mark.parametrize("count", [2, LARGE])
def test_new_tasks_find_old_ones_as_they_are(harness: EngineHarness, count: int) -> None:
    labels = begun(harness)
    assert harness.engine.extend(labels.text, more(count, "a"), actor="bob") == Submitted(labels.graph)
    harness.settle()
    states = harness.states(harness.labels(labels.graph))
    assert (states["a"], states["b"], states["x0"], states["x1"]) == (
        State.SUCCESSFUL,
        State.WAITING,
        State.WAITING,
        State.UNSCHEDULED,
    )
    assert len(states) == 2 + count
    assert harness.graph(labels.graph).tally.behind == count - 1
    with harness.store.read() as repo:
        assert ("bob", "extend") in [(row.actor, row.action) for row in repo.events.audits_of(labels.graph, 9)]
        events = [(one.source, one.target, one.signal) for one in repo.events.of(labels.graph, 0, 9)]
    assert events == [(None, "running", None), ("running", "running", EXTEND)]


@pytest.mark.parametrize("count", [2, LARGE])
def test_the_same_extension_again_is_an_echo_at_any_later_moment(harness: EngineHarness, count: int) -> None:
    labels = begun(harness)
    harness.engine.extend(labels.text, more(count, "a"))
    assert harness.engine.extend(labels.text, more(count, "a")) == Submitted(labels.graph, echo=True)
    harness.settle()
    assert harness.engine.extend(labels.text, graph(a=task())) == Submitted(labels.graph, echo=True)


def test_a_finished_graph_echoes_and_takes_nothing_new(harness: EngineHarness) -> None:
    labels = begun(harness)
    harness.end(harness.claim()[0])
    assert harness.graph(labels.graph).state is GraphState.FINISHED
    assert harness.engine.extend(labels.text, graph(b=task("a"))) == Submitted(labels.graph, echo=True)
    refused = harness.engine.extend(labels.text, graph(c=task()))
    assert isinstance(refused, Refusal)
    assert refused.code is Code.CONFLICT


def test_an_echo_is_one_even_after_its_deadline(sqlite_harness: EngineHarness) -> None:
    late = task(deadline="2026-01-01T01:00:00Z")
    labels = sqlite_harness.submit(graph(a=late))
    sqlite_harness.clock.advance(7_200_000)
    assert sqlite_harness.engine.extend(labels.text, graph(a=late)) == Submitted(labels.graph, echo=True)
    refused = sqlite_harness.engine.extend(labels.text, graph(a=late, b=late))
    assert isinstance(refused, Refusal)
    assert refused.code is Code.INVALID
    sqlite_harness.settle()


def test_a_label_cannot_be_given_another_meaning(harness: EngineHarness) -> None:
    labels = begun(harness)
    refused = harness.engine.extend(labels.text, graph(b=task(), c=task("nobody")))
    assert isinstance(refused, Refusal)
    assert refused.code is Code.INVALID
    assert {fault.path.split(".")[1] for fault in refused.faults} == {"b", "c"}


def test_payloads_of_an_extension_name_old_tasks_and_echo_as_they_were_written(harness: EngineHarness) -> None:
    labels = begun(harness)
    named = graph(c=task(payload={"command": ["true"], "env": {"A": {"$subs": "taskId:a"}}}))
    assert harness.engine.extend(labels.text, named) == Submitted(labels.graph)
    assert harness.engine.extend(labels.text, named) == Submitted(labels.graph, echo=True)


@pytest.mark.parametrize("text", ["nonsense", "7000000000000008"])
def test_what_is_not_there_cannot_be_extended(sqlite_harness: EngineHarness, text: str) -> None:
    refused = sqlite_harness.engine.extend(text, graph(a=task()))
    assert isinstance(refused, Refusal)
    assert refused.code is (Code.INVALID if text == "nonsense" else Code.NOT_FOUND)


def test_two_concurrent_extensions_are_both_stored(harness: EngineHarness) -> None:
    labels = begun(harness)
    answers: list[object] = []
    asking = [
        Thread(target=lambda label=label: answers.append(harness.engine.extend(labels.text, graph(**{label: task()}))))
        for label in ("c", "d", "e")
    ]
    with harness.writer_blocked():
        for thread in asking:
            thread.start()
        wait_until(lambda: harness.engine.writer_thread.waiting == 3)
    for thread in asking:
        thread.join(WAIT_S)
    assert answers == [Submitted(labels.graph)] * 3
    assert set(harness.labels(labels.graph)) == {"a", "b", "c", "d", "e"}


def test_an_extension_that_loses_too_many_races_is_to_be_repeated(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = begun(harness)
    monkeypatch.setattr("taskyard.engine.extend.LOOKS_MAX", 0)
    with pytest.raises(Unavailable):
        harness.engine.extend(labels.text, graph(c=task()))


@pytest.mark.parametrize("place", ["begin.after", "page.before", "page.after", "open.before"])
def test_an_extension_whose_loader_dies_is_dropped(harness: EngineHarness, place: str) -> None:
    labels = begun(harness)
    arm(f"load.{place}:raise@1")
    with pytest.raises(Failed):
        harness.engine.extend(labels.text, more(LARGE, "a"))
    for extension in (more(LARGE, "a"), graph(c=task())):
        refused = harness.engine.extend(labels.text, extension)
        assert isinstance(refused, Refusal)
        assert refused.code is Code.LOADING
    harness.settle()
    harness.clock.advance(LOAD_MAX_MS + 1)
    harness.settle()
    assert set(harness.labels(labels.graph)) == {"a", "b"}
    assert harness.engine.extend(labels.text, more(LARGE, "a")) == Submitted(labels.graph)
    harness.settle()
    assert len(harness.labels(labels.graph)) == 2 + LARGE


def test_an_extension_that_is_being_loaded_survives_a_sweep(harness: EngineHarness) -> None:
    labels = begun(harness)
    arm("load.page.after:raise@2")
    with pytest.raises(Failed):
        harness.engine.extend(labels.text, more(LARGE, "a"))
    harness.settle()
    assert len(harness.labels(labels.graph)) == 2 + LARGE


def test_commits_without_an_acknowledgement_do_not_disturb_an_extension(harness: EngineHarness) -> None:
    for passed in range(4):  # the beginning, two pages, the end
        labels = begun(harness)
        harness.store.after = [*[None] * passed, StoreUnavailable("the line was cut")]
        answer = harness.engine.extend(labels.text, more(LARGE, "a"))
        assert answer == Submitted(labels.graph, echo=passed == 3)
        harness.settle()
        assert len(harness.labels(labels.graph)) == 2 + LARGE
