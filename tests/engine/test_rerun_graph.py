"""Graphs that run others again from some tasks on: what is before those is taken over, with its results."""

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
from tests.engine.rig import Labels, Rig, graph, noop, report, task

DONE = State.SUCCESSFUL


def run(rig: Rig, labels: Labels, failing: frozenset[str] = frozenset()) -> None:
    """Run a graph until nothing in it moves; each task publishes its label."""
    rig.hello(slots=1_000)
    named = {id: label for label, id in labels.items()}
    for _ in range(200):
        rig.settle()
        leases = rig.claim(100)
        if not leases:
            return
        for lease in leases:
            label = named.get(lease.task, "")
            signal = Signal.FAIL if label in failing else Signal.SUCCEED
            rig.engine.poll(rig.wish(0, reports=(report(lease, signal, f'"{label} {lease.attempt}"'),)))
    raise AssertionError("it never ends")


def chain(rig: Rig, failing: frozenset[str] = frozenset()) -> Labels:
    """Four tasks in a row and one beside them, run to their ends."""
    labels = rig.submit({"name": "nightly", **graph(a=task(), b=task("a"), c=task("b"), d=task("c"), beside=task())})
    run(rig, labels, failing)
    return labels


def renewed(rig: Rig, labels: Labels, *names: str, key: str = "", actor: str = "") -> Labels:
    answer = rig.engine.renew(labels.text, names, key=key, actor=actor)
    assert isinstance(answer, Submitted), answer
    return rig.labels(answer.graph)


def test_what_is_before_a_label_is_taken_over_and_the_rest_runs_again(rig: Rig) -> None:
    old = chain(rig)
    new = renewed(rig, old, "c")
    assert rig.states(new) == {"a": DONE, "b": DONE, "c": State.WAITING, "d": State.UNSCHEDULED, "beside": DONE}
    (lease,) = rig.claim()
    with rig.store.read() as repo:
        assert repo.output.inputs([lease.task]) == [(new["c"], "b", '"b 1"')]
        assert repo.reuse.rerun(new.graph) == RerunRow(old.graph, ("c",), 2, 3)
        assert repo.reuse.sources(new.values()) == {
            new[label]: ReusedAttempt(old[label], old.graph, 1) for label in ("a", "b", "beside")
        }
    rig.end(lease)
    run(rig, new)
    assert rig.graph(new.graph).state is GraphState.FINISHED
    assert {task.life.attempt for label, task in rig.tasks(new).items() if label in "ab"} == {0}


def test_the_story_tells_that_a_result_was_taken_over_and_who_wanted_it(rig: Rig) -> None:
    old = chain(rig)
    new = renewed(rig, old, "d", actor="ann")
    told = rig.engine.story(text_of(Key(new["a"])))
    assert not isinstance(told, Refusal)
    assert replay(told) is DONE
    said = [getattr(one, "action", None) or f"{one.signal} {one.reason}" for one in told.happened]  # type: ignore[union-attr]
    assert said == ["submit", "reuse reused"]
    with rig.store.read() as repo:
        (_, asked) = repo.events.audits_of(old.graph, 9)
    assert (asked.actor, asked.action) == ("ann", "rerun")
    assert new.text in asked.note


def test_a_chain_of_reruns_remembers_who_really_ran(rig: Rig) -> None:
    old = chain(rig)
    middle = renewed(rig, old, "c")
    run(rig, middle)
    new = renewed(rig, middle, "d")
    with rig.store.read() as repo:
        sources = repo.reuse.sources(new.values())
        assert sources[new["a"]] == ReusedAttempt(old["a"], old.graph, 1)
        assert sources[new["c"]] == ReusedAttempt(middle["c"], middle.graph, 1)
        assert sorted(body for _, _, body in repo.output.inputs([new["d"], new["b"]])) == ['"a 1"', '"c 1"']
    run(rig, new)


def test_what_did_not_succeed_runs_again_too_with_all_behind_it(rig: Rig) -> None:
    document = graph(
        a=task(), bad=task("a"), behind=task("bad"), c=task("a"), d=task("c"),
        handler={"requires": [{"task": "bad", "on": "failure"}], "task": task()["task"]},
    )  # fmt: skip
    old = rig.submit(document)
    run(rig, old, frozenset({"bad"}))
    assert rig.states(old)["behind"] is State.BLOCKED
    new = renewed(rig, old, "d")
    with rig.store.read() as repo:
        assert set(repo.reuse.sources(new.values())) == {new["a"], new["c"]}
    run(rig, new)
    assert rig.states(new) == dict.fromkeys(("a", "bad", "behind", "c", "d"), DONE) | {"handler": State.SKIPPED}


def test_a_skipped_task_is_skipped_again_unless_something_before_it_runs(rig: Rig) -> None:
    handler = {"requires": [{"task": "a", "on": "failure"}], "task": task()["task"]}
    either = {"requires": ["handler", "a"], "join": "any", "task": task()["task"]}
    old = rig.submit(graph(a=task(), handler=handler, either=either, last=task("either")))
    run(rig, old)
    new = renewed(rig, old, "last")
    assert rig.states(new) == {"a": DONE, "handler": State.SKIPPED, "either": DONE, "last": State.WAITING}
    run(rig, new)
    again = renewed(rig, new, "a")
    assert rig.states(again) == {"a": State.WAITING} | dict.fromkeys(("handler", "either", "last"), State.UNSCHEDULED)
    run(rig, again)


def test_a_graph_inside_a_task_is_taken_over_with_it_or_run_again(rig: Rig) -> None:
    inside = {"task": {"payload": {"graph": graph(x=noop())}}}
    old = rig.submit(graph(inside=inside, last=task("inside")))
    run(rig, old)
    new = renewed(rig, old, "last")
    run(rig, new)
    assert (rig.tasks(new)["inside"].life.attempt, rig.states(new)["inside"]) == (0, DONE)
    again = renewed(rig, old, "inside")
    run(rig, again)
    assert rig.graph(again.graph).state is GraphState.FINISHED
    with rig.store.read() as repo:
        inner = repo.graphs.subgraphs([labels["inside"] for labels in (old, new, again)])
    assert set(inner) == {(old["inside"], 1), (again["inside"], 1)}


def test_a_matrix_is_named_by_its_node_or_by_one_combination(rig: Rig) -> None:
    test = {"matrix": {"os": ["linux", "mac"]}, "requires": ["a"], "task": task()["task"]}
    old = rig.submit(graph(a=task(), test=test, last=task("test")))
    run(rig, old)
    both, one = renewed(rig, old, "test"), renewed(rig, old, "test[mac]")
    waits = {label for label, state in rig.states(both).items() if state is State.WAITING}
    assert waits == {"test[linux]", "test[mac]"}
    assert {label for label, state in rig.states(one).items() if state is State.WAITING} == {"test[mac]"}
    run(rig, both)
    run(rig, one)


def test_tasks_that_are_named_by_id_are_named_by_their_new_one(rig: Rig) -> None:
    env = {"payload": {"command": ["true"], "env": {"A": {"$subs": "taskId:a"}, "B": "plain"}}}
    old = rig.submit(graph(a=task(), b=task("a", **env)))
    run(rig, old)
    new = renewed(rig, old, "b")
    with rig.store.read() as repo:
        text = repo.tasks.definitions([new["b"]])[new["b"]][1]
    assert text_of(Key(new["a"])) in text
    assert text_of(Key(old["a"])) not in text
    assert '"plain"' in text
    # What was submitted is still known: the same again is an echo.
    assert rig.engine.extend(new.text, graph(b=task("a", **env))) == Submitted(new.graph, echo=True)
    run(rig, new)


def test_what_is_taken_over_has_no_deadline_and_what_runs_again_must_not_be_late(rig: Rig) -> None:
    document = graph(a=task(deadline="2026-01-02T00:00:00Z"), b=task("a"))
    old = rig.submit(document)
    run(rig, old)
    rig.clock.later(3 * 86_400_000)
    late = rig.engine.renew(old.text, ("a",))
    assert isinstance(late, Refusal)
    assert (late.code, late.faults[0].path) == (Code.CONFLICT, "tasks.a")
    new = renewed(rig, old, "b")
    assert rig.states(new)["a"] is DONE
    assert rig.engine.extend(new.text, document).echo  # type: ignore[union-attr]
    run(rig, new)


def test_a_key_gives_the_same_graph_again_whatever_became_of_the_old_one(rig: Rig) -> None:
    old = chain(rig, frozenset({"c"}))
    new = renewed(rig, old, "b", key="k")
    assert rig.engine.renew(old.text, ("b",), key="k") == Submitted(new.graph, echo=True)
    refused = rig.engine.renew(old.text, ("a",), key="k")
    assert isinstance(refused, Refusal)
    assert refused.code is Code.CONFLICT
    run(rig, new)


def test_a_graph_that_moves_is_not_run_again(rig: Rig) -> None:
    labels = rig.submit(graph(a=task()))
    refused = rig.engine.renew(labels.text, ("a",))
    assert isinstance(refused, Refusal)
    assert (refused.code, "still moving" in refused.text) == (Code.CONFLICT, True)
    rig.engine.cancel(Cancel(graph=labels.graph))
    new = renewed(rig, labels, "a")
    assert rig.states(new) == {"a": State.WAITING}


@pytest.mark.parametrize(
    ("names", "path"), [(("c", "bb"), "from[1]"), ((), "labels"), ((7,), "labels[0]"), (("x",) * 101, "labels")]
)
def test_a_label_that_is_none_is_refused(file_rig: Rig, names: tuple[str, ...], path: str) -> None:
    old = chain(file_rig)
    refused = file_rig.engine.renew(old.text, names)
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.faults[0].path) == (Code.INVALID, path)


def test_whoever_may_not_run_something_somewhere_stores_nothing(file_rig: Rig) -> None:
    old = file_rig.submit(graph(a=task(dimensions={"pool": "x"}), b=task("a")))
    file_rig.engine.cancel(Cancel(graph=old.graph))
    asked: list[frozenset[str]] = []

    def may(pools: frozenset[str]) -> None:
        asked.append(pools)
        raise PermissionError

    with pytest.raises(PermissionError):
        file_rig.engine.renew(old.text, ("b",), may=may)
    with file_rig.store.read() as repo:
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


def ladder(rig: Rig, steps: int) -> Labels:
    """Two rows of tasks, each of which requires those before it in both, written down backwards."""
    nodes: dict[str, object] = {}
    for step in reversed(range(steps)):
        before = (f"a{step - 1}", f"b{step - 1}") if step else ()
        nodes |= {f"a{step}": task(*before), f"b{step}": noop(*before)}
    labels = rig.submit(graph(**nodes))
    run(rig, labels)
    return labels


def unfinished(states: Mapping[str, State]) -> set[str]:
    return {label for label, state in states.items() if state is not DONE}


@pytest.mark.usefixtures("short_pages")
def test_a_large_graph_is_taken_over_page_by_page_and_nothing_of_it_runs(rig: Rig) -> None:
    old = ladder(rig, 12)
    new = renewed(rig, old, "a9")
    seen = set[str]()
    for _ in range(100):
        moved = rig.engine.background.run_once()
        seen |= {label for label, task in rig.tasks(new).items() if task.life.attempt}
        assert rig.engine.doctor() == []
        if not moved:
            break
    assert unfinished(rig.states(new)) == {"a9", "a10", "b10", "a11", "b11"}
    assert seen == set()
    run(rig, new)
    assert rig.graph(new.graph).state is GraphState.FINISHED
    with rig.store.read() as repo:
        assert len(repo.reuse.sources(new.values())) == 19


@pytest.mark.usefixtures("short_pages")
def test_a_large_graph_that_is_canceled_meanwhile_takes_over_no_more(rig: Rig) -> None:
    new = renewed(rig, ladder(rig, 6), "a5")
    rig.engine.cancel(Cancel(graph=new.graph))
    rig.settle()
    assert rig.graph(new.graph).state is GraphState.CANCELED
    assert set(rig.states(new).values()) <= {State.CANCELED, DONE}


@pytest.mark.usefixtures("short_pages")
def test_nothing_is_released_before_all_is_taken_over_whichever_note_is_taken_up_first(rig: Rig) -> None:
    old = rig.submit(graph(**{f"t{number}": task() for number in range(9)}))
    run(rig, old)
    new = renewed(rig, old, "t8")
    with rig.store.read() as repo:
        (opening,) = repo.continuations.in_graph(new.graph, OPEN)
    taken = 0
    while rig.engine.transact(lambda transaction: run_page(transaction, opening.id)) is False:
        states = rig.states(new)
        taken += 3
        assert (len(unfinished(states)), states["t8"]) == (9 - min(taken, 8), State.UNSCHEDULED)
    assert rig.states(new) == dict.fromkeys(new, DONE) | {"t8": State.WAITING}


@pytest.mark.usefixtures("short_pages")
def test_a_graph_reruns_once_whichever_commit_reply_is_lost(rig: Rig) -> None:
    old = ladder(rig, 4)
    for number in range(7):
        rig.store.after = [*[None] * number, StoreUnavailable("the line was cut")]
        new = renewed(rig, old, "a3", key=f"k{number}")
        rig.store.after.clear()
        rig.settle()
        assert unfinished(rig.states(new)) == {"a3"}
        with rig.store.read() as repo:
            assert [body for _, _, body in repo.output.inputs([new["a3"]])] == ['"a2 1"']
        assert renewed(rig, old, "a3", key=f"k{number}").graph == new.graph
        rig.engine.cancel(Cancel(graph=new.graph))


@pytest.mark.usefixtures("short_pages")
def test_a_load_that_died_is_forgotten_with_what_it_took_over(rig: Rig) -> None:
    old = ladder(rig, 4)
    arm("load.open.before:raise@1")
    with pytest.raises(Failed):
        rig.engine.renew(old.text, ("a3",))
    arm(None)
    rig.clock.later(LOAD_MAX_MS + 1)
    rig.settle()
    with rig.store.read() as repo:
        assert [one.id for one in repo.doctor.graphs(-1, 9)] == [old.graph]
        assert repo.doctor.orphans(9) == []
