"""Graphs that rerun others from some tasks on: the tasks before those are reused, with their results."""

from collections.abc import Iterator, Mapping

import pytest

from taskyard.core.ids import Key, text_of
from taskyard.core.states import GraphState, Signal, State
from taskyard.engine import bulk_load, rerun_graph
from taskyard.engine import submit as engine_submit
from taskyard.engine.bulk_load import LOAD_MAX_MS
from taskyard.engine.errors import Failed
from taskyard.engine.failpoints import arm
from taskyard.lifecycle import selection, submit
from taskyard.lifecycle.commands import Cancel, Code, Refusal
from taskyard.lifecycle.continuations import run_page
from taskyard.lifecycle.rows import OPEN
from taskyard.lifecycle.submit import Submitted
from taskyard.store.queries import StoreUnavailable
from taskyard.store.repo.tasks import RerunRow, ReusedAttempt
from taskyard.views.history import replay
from tests.engine.harness import EngineHarness, graph, noop, report, task
from tests.lifecycle.harness import Labels

DONE = State.SUCCESSFUL


def run(harness: EngineHarness, labels: Labels, failing: frozenset[str] = frozenset()) -> None:
    """Run a graph until nothing in it moves; each task publishes its label."""
    harness.hello(slots=1_000)
    named = {id: label for label, id in labels.items()}
    for _ in range(200):
        harness.settle()
        leases = harness.claim(100)
        if not leases:
            return
        for lease in leases:
            label = named.get(lease.task, "")
            signal = Signal.FAIL if label in failing else Signal.SUCCEED
            harness.engine.poll(harness.poll_command(0, reports=(report(lease, signal, f'"{label} {lease.attempt}"'),)))
    raise AssertionError("it never ends")


def chain(harness: EngineHarness, failing: frozenset[str] = frozenset()) -> Labels:
    """Four tasks in a row and one beside them, run to their ends."""
    labels = harness.submit(
        {"name": "nightly", **graph(a=task(), b=task("a"), c=task("b"), d=task("c"), beside=task())}
    )
    run(harness, labels, failing)
    return labels


def renewed(harness: EngineHarness, labels: Labels, *names: str, key: str = "", actor: str = "") -> Labels:
    answer = harness.engine.renew(labels.text, names, key=key, actor=actor)
    assert isinstance(answer, Submitted), answer
    return harness.labels(answer.graph)


def test_tasks_before_a_label_are_reused_and_the_others_run_again(harness: EngineHarness) -> None:
    old = chain(harness)
    new = renewed(harness, old, "c")
    assert harness.states(new) == {"a": DONE, "b": DONE, "c": State.WAITING, "d": State.UNSCHEDULED, "beside": DONE}
    (lease,) = harness.claim()
    with harness.store.read() as repo:
        assert repo.output.inputs([lease.task]) == [(new["c"], "b", '"b 1"')]
        assert repo.reuse.rerun(new.graph) == RerunRow(old.graph, ("c",), 2, 3)
        assert repo.reuse.sources(new.values()) == {
            new[label]: ReusedAttempt(old[label], old.graph, 1, 0) for label in ("a", "b", "beside")
        }
    harness.end(lease)
    run(harness, new)
    assert harness.graph(new.graph).state is GraphState.FINISHED
    assert {task.life.attempt for label, task in harness.tasks(new).items() if label in "ab"} == {0}


def test_the_history_shows_that_a_result_was_reused_and_who_requested_it(harness: EngineHarness) -> None:
    old = chain(harness)
    new = renewed(harness, old, "d", actor="ann")
    shown = harness.engine.story(text_of(Key(new["a"])))
    assert not isinstance(shown, Refusal)
    assert replay(shown) is DONE
    said = [getattr(one, "action", None) or f"{one.signal} {one.reason}" for one in shown.happened]  # type: ignore[union-attr]
    assert said == ["submit", "reuse reused"]
    with harness.store.read() as repo:
        (_, asked) = repo.events.audits_of(old.graph, 9)
    assert (asked.actor, asked.action) == ("ann", "rerun")
    assert new.text in asked.note


def test_a_chain_of_reruns_remembers_the_task_that_ran(harness: EngineHarness) -> None:
    old = chain(harness)
    middle = renewed(harness, old, "c")
    run(harness, middle)
    new = renewed(harness, middle, "d")
    with harness.store.read() as repo:
        sources = repo.reuse.sources(new.values())
        assert sources[new["a"]] == ReusedAttempt(old["a"], old.graph, 1, 0)
        assert sources[new["c"]] == ReusedAttempt(middle["c"], middle.graph, 1, 0)
        assert sorted(body for _, _, body in repo.output.inputs([new["d"], new["b"]])) == ['"a 1"', '"c 1"']
    run(harness, new)


def test_what_did_not_succeed_runs_again_too_with_all_behind_it(harness: EngineHarness) -> None:
    document = graph(
        a=task(), bad=task("a"), behind=task("bad"), c=task("a"), d=task("c"),
        handler={"requires": [{"task": "bad", "on": "failure"}], "task": task()["task"]},
    )  # fmt: skip
    old = harness.submit(document)
    run(harness, old, frozenset({"bad"}))
    assert harness.states(old)["behind"] is State.BLOCKED
    new = renewed(harness, old, "d")
    with harness.store.read() as repo:
        assert set(repo.reuse.sources(new.values())) == {new["a"], new["c"]}
    run(harness, new)
    assert harness.states(new) == dict.fromkeys(("a", "bad", "behind", "c", "d"), DONE) | {"handler": State.SKIPPED}


def test_a_skipped_task_is_skipped_again_unless_something_before_it_runs(harness: EngineHarness) -> None:
    handler = {"requires": [{"task": "a", "on": "failure"}], "task": task()["task"]}
    either = {"requires": ["handler", "a"], "join": "any", "task": task()["task"]}
    old = harness.submit(graph(a=task(), handler=handler, either=either, last=task("either")))
    run(harness, old)
    new = renewed(harness, old, "last")
    assert harness.states(new) == {"a": DONE, "handler": State.SKIPPED, "either": DONE, "last": State.WAITING}
    run(harness, new)
    again = renewed(harness, new, "a")
    assert harness.states(again) == {"a": State.WAITING} | dict.fromkeys(
        ("handler", "either", "last"), State.UNSCHEDULED
    )
    run(harness, again)


def test_a_graph_inside_a_task_is_reused_with_it_or_run_again(harness: EngineHarness) -> None:
    inside = {"task": {"payload": {"graph": graph(x=noop())}}}
    old = harness.submit(graph(inside=inside, last=task("inside")))
    run(harness, old)
    new = renewed(harness, old, "last")
    run(harness, new)
    assert (harness.tasks(new)["inside"].life.attempt, harness.states(new)["inside"]) == (0, DONE)
    again = renewed(harness, old, "inside")
    run(harness, again)
    assert harness.graph(again.graph).state is GraphState.FINISHED
    with harness.store.read() as repo:
        inner = repo.graphs.subgraphs([labels["inside"] for labels in (old, new, again)])
    assert set(inner) == {(old["inside"], 1), (again["inside"], 1)}


def test_a_matrix_is_named_by_its_node_or_by_one_combination(harness: EngineHarness) -> None:
    test = {"matrix": {"os": ["linux", "mac"]}, "requires": ["a"], "task": task()["task"]}
    old = harness.submit(graph(a=task(), test=test, last=task("test")))
    run(harness, old)
    both, one = renewed(harness, old, "test"), renewed(harness, old, "test[mac]")
    waits = {label for label, state in harness.states(both).items() if state is State.WAITING}
    assert waits == {"test[linux]", "test[mac]"}
    assert {label for label, state in harness.states(one).items() if state is State.WAITING} == {"test[mac]"}
    run(harness, both)
    run(harness, one)


def test_tasks_that_are_named_by_id_are_named_by_their_new_one(harness: EngineHarness) -> None:
    env = {"payload": {"command": ["true"], "env": {"A": {"$subs": "taskId:a"}, "B": "plain"}}}
    old = harness.submit(graph(a=task(), b=task("a", **env)))
    run(harness, old)
    new = renewed(harness, old, "b")
    with harness.store.read() as repo:
        text = repo.tasks.definitions([new["b"]])[new["b"]][1]
    assert text_of(Key(new["a"])) in text
    assert text_of(Key(old["a"])) not in text
    assert '"plain"' in text
    # What was submitted is still known: the same again is an echo.
    assert harness.engine.extend(new.text, graph(b=task("a", **env))) == Submitted(new.graph, echo=True)
    run(harness, new)


def test_a_reused_task_has_no_deadline_and_one_that_runs_again_must_not_be_late(harness: EngineHarness) -> None:
    document = graph(a=task(deadline="2026-01-02T00:00:00Z"), b=task("a"))
    old = harness.submit(document)
    run(harness, old)
    harness.clock.advance(3 * 86_400_000)
    late = harness.engine.renew(old.text, ("a",))
    assert isinstance(late, Refusal)
    assert (late.code, late.faults[0].path) == (Code.CONFLICT, "tasks.a")
    new = renewed(harness, old, "b")
    assert harness.states(new)["a"] is DONE
    assert harness.engine.extend(new.text, document).echo  # type: ignore[union-attr]
    run(harness, new)


def test_a_key_gives_the_same_graph_again_whatever_became_of_the_old_one(harness: EngineHarness) -> None:
    old = chain(harness, frozenset({"c"}))
    new = renewed(harness, old, "b", key="k")
    assert harness.engine.renew(old.text, ("b",), key="k") == Submitted(new.graph, echo=True)
    refused = harness.engine.renew(old.text, ("a",), key="k")
    assert isinstance(refused, Refusal)
    assert refused.code is Code.CONFLICT
    run(harness, new)


def test_a_graph_that_moves_is_not_run_again(harness: EngineHarness) -> None:
    labels = harness.submit(graph(a=task()))
    refused = harness.engine.renew(labels.text, ("a",))
    assert isinstance(refused, Refusal)
    assert (refused.code, "still moving" in refused.text) == (Code.CONFLICT, True)
    harness.engine.cancel(Cancel(graph=labels.graph))
    new = renewed(harness, labels, "a")
    assert harness.states(new) == {"a": State.WAITING}


@pytest.mark.parametrize(
    ("names", "path"), [(("c", "bb"), "from[1]"), ((), "labels"), ((7,), "labels[0]"), (("x",) * 101, "labels")]
)
def test_a_label_that_is_none_is_refused(sqlite_harness: EngineHarness, names: tuple[str, ...], path: str) -> None:
    old = chain(sqlite_harness)
    refused = sqlite_harness.engine.renew(old.text, names)
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.faults[0].path) == (Code.INVALID, path)


def test_a_rerun_without_a_right_in_every_pool_stores_nothing(sqlite_harness: EngineHarness) -> None:
    old = sqlite_harness.submit(graph(a=task(dimensions={"pool": "x"}), b=task("a")))
    sqlite_harness.engine.cancel(Cancel(graph=old.graph))
    asked: list[frozenset[str]] = []

    def may(pools: frozenset[str]) -> None:
        asked.append(pools)
        raise PermissionError

    with pytest.raises(PermissionError):
        sqlite_harness.engine.renew(old.text, ("b",), may=may)
    with sqlite_harness.store.read() as repo:
        assert [one.id for one in repo.doctor.graphs(-1, 9)] == [old.graph]
    assert asked == [frozenset({"x", "default"})]


# Large graphs.


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    arm(None)


@pytest.fixture
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (submit, bulk_load, rerun_graph, engine_submit):
        monkeypatch.setattr(module, "PAGE_MAX", 5)
    monkeypatch.setattr(selection, "PAGE_MAX", 3)


def ladder(harness: EngineHarness, steps: int) -> Labels:
    """Two rows of tasks, each of which requires those before it in both, written down backwards."""
    nodes: dict[str, object] = {}
    for step in reversed(range(steps)):
        before = (f"a{step - 1}", f"b{step - 1}") if step else ()
        nodes |= {f"a{step}": task(*before), f"b{step}": noop(*before)}
    labels = harness.submit(graph(**nodes))
    run(harness, labels)
    return labels


def unfinished(states: Mapping[str, State]) -> set[str]:
    return {label for label, state in states.items() if state is not DONE}


@pytest.mark.usefixtures("short_pages")
def test_a_large_graph_is_reused_page_by_page_and_nothing_of_it_runs(harness: EngineHarness) -> None:
    old = ladder(harness, 12)
    new = renewed(harness, old, "a9")
    seen = set[str]()
    for _ in range(100):
        moved = harness.engine.background.run_once()
        seen |= {label for label, task in harness.tasks(new).items() if task.life.attempt}
        assert harness.engine.doctor() == []
        if not moved:
            break
    assert unfinished(harness.states(new)) == {"a9", "a10", "b10", "a11", "b11"}
    assert seen == set()
    run(harness, new)
    assert harness.graph(new.graph).state is GraphState.FINISHED
    with harness.store.read() as repo:
        assert len(repo.reuse.sources(new.values())) == 19


@pytest.mark.usefixtures("short_pages")
def test_a_large_graph_that_is_canceled_meanwhile_reuses_no_more(harness: EngineHarness) -> None:
    new = renewed(harness, ladder(harness, 6), "a5")
    harness.engine.cancel(Cancel(graph=new.graph))
    harness.settle()
    assert harness.graph(new.graph).state is GraphState.CANCELED
    assert set(harness.states(new).values()) <= {State.CANCELED, DONE}


@pytest.mark.usefixtures("short_pages")
def test_nothing_is_released_before_all_is_reused_whichever_continuation_runs_first(harness: EngineHarness) -> None:
    old = harness.submit(graph(**{f"t{number}": task() for number in range(9)}))
    run(harness, old)
    new = renewed(harness, old, "t8")
    with harness.store.read() as repo:
        (opening,) = repo.continuations.in_graph(new.graph, OPEN)
    taken = 0
    while harness.engine.transact(lambda transaction: run_page(transaction, opening.id)) is False:
        states = harness.states(new)
        taken += 3
        assert (len(unfinished(states)), states["t8"]) == (9 - min(taken, 8), State.UNSCHEDULED)
    assert harness.states(new) == dict.fromkeys(new, DONE) | {"t8": State.WAITING}


@pytest.mark.usefixtures("short_pages")
def test_a_graph_reruns_once_whichever_commit_reply_is_lost(harness: EngineHarness) -> None:
    old = ladder(harness, 4)
    for number in range(7):
        harness.store.after = [*[None] * number, StoreUnavailable("the line was cut")]
        new = renewed(harness, old, "a3", key=f"k{number}")
        harness.store.after.clear()
        harness.settle()
        assert unfinished(harness.states(new)) == {"a3"}
        with harness.store.read() as repo:
            assert [body for _, _, body in repo.output.inputs([new["a3"]])] == ['"a2 1"']
        assert renewed(harness, old, "a3", key=f"k{number}").graph == new.graph
        harness.engine.cancel(Cancel(graph=new.graph))


@pytest.mark.usefixtures("short_pages")
def test_a_load_that_died_is_forgotten_with_what_it_took_over(harness: EngineHarness) -> None:
    old = ladder(harness, 4)
    arm("load.open.before:raise@1")
    with pytest.raises(Failed):
        harness.engine.renew(old.text, ("a3",))
    arm(None)
    harness.clock.advance(LOAD_MAX_MS + 1)
    harness.settle()
    with harness.store.read() as repo:
        assert [one.id for one in repo.doctor.graphs(-1, 9)] == [old.graph]
        assert repo.doctor.orphans(9) == []
