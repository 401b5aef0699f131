"""The history of a task is in order and follows the state machine."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from taskyard.core.states import REASONS, Reason, Signal, State
from taskyard.lifecycle.commands import Poll, Report
from taskyard.lifecycle.poll import poll
from taskyard.views import history as history_module
from taskyard.views.history import (
    AttemptSpan,
    Contradiction,
    Creation,
    RequestedAction,
    RequestSubject,
    TaskHistory,
    TaskMove,
    read_history,
    replay,
)
from tests.lifecycle.graphs import chain
from tests.lifecycle.harness import BaseHarness
from tests.lifecycle.random_history import end_random_lease, random_graph, rerun_or_cancel, run_continuations

S, G = State, Signal


@pytest.fixture
def harness(database_url: str) -> Iterator[BaseHarness]:
    harness = BaseHarness(database_url)
    yield harness
    harness.close()


def history_of(harness: BaseHarness, task: int) -> TaskHistory:
    with harness.store.read() as repo:
        return read_history(repo, task)


def test_a_new_task_has_its_creation_and_the_request_for_it(harness: BaseHarness) -> None:
    labels = harness.submit(chain("a", "b"))
    one = history_of(harness, labels["b"])
    assert one == TaskHistory(
        Creation(labels["b"], labels.graph, "b", harness.now),
        (RequestedAction(harness.now, RequestSubject.GRAPH, "ann", "submit", "2 tasks"),),
        (),
        State.UNSCHEDULED,
        whole=True,
    )
    assert replay(one) is State.UNSCHEDULED


def test_a_history_has_moves_attempts_and_requests_in_order(harness: BaseHarness) -> None:
    labels = harness.submit({"tasks": {"a": {"reruns": 1, "task": {"payload": {"command": ["true"]}}}}})
    born = harness.now
    harness.hello("b1")
    harness.advance(10)
    (first,) = harness.claim("b1")
    harness.advance(10)
    harness.end("b1", first, Signal.FAIL, exit_code=3)
    (second,) = harness.claim("b1")
    one = history_of(harness, labels["a"])
    moves = [
        (move.at_ms - born, move.source, move.signal, move.target)
        for move in one.happened
        if isinstance(move, TaskMove)
    ]
    assert moves == [
        (0, S.UNSCHEDULED, G.RELEASE, S.PENDING),
        (0, S.PENDING, G.ADMIT, S.WAITING),
        (10, S.WAITING, G.CLAIM, S.RUNNING),
        (20, S.RUNNING, G.FAIL, S.PENDING),
        (20, S.PENDING, G.ADMIT, S.WAITING),
        (20, S.WAITING, G.CLAIM, S.RUNNING),
    ]
    assert isinstance(one.happened[0], RequestedAction)
    last = one.happened[-1]
    assert isinstance(last, TaskMove)
    assert (last.at_ms, last.reason, last.attempt, last.bot) == (harness.now, REASONS[G.CLAIM], 2, "b1")
    assert [(a.number, a.bot, a.fence, a.lease_until_ms, a.ended_ms, a.signal, a.reason) for a in one.attempts] == [
        (1, "b1", first.fence, None, harness.now, G.FAIL, Reason.EXIT_CODE),
        (2, "b1", second.fence, second.until_ms, None, None, None),
    ]
    assert isinstance(one.attempts[0], AttemptSpan)
    assert one.attempts[0].exit_code == 3
    assert replay(one) is one.state is S.RUNNING


def test_a_request_comes_before_its_consequences(harness: BaseHarness) -> None:
    labels = harness.submit(chain("a"))
    harness.advance(5)
    with harness.transaction() as transaction:
        transaction.repo.events.add_audits([(harness.now, "bob", "cancel", labels["a"], "why not")])
        transaction.repo.events.add_audits([(harness.now + 1, "bob", "extend", labels.graph, "1 tasks")])
    asked = [one for one in history_of(harness, labels["a"]).happened if isinstance(one, RequestedAction)]
    assert [(one.actor, one.about, one.action) for one in asked] == [
        ("ann", RequestSubject.GRAPH, "submit"), ("bob", RequestSubject.TASK, "cancel"),
        ("bob", RequestSubject.GRAPH, "extend"),
    ]  # fmt: skip


def test_an_unknown_task_has_no_history(harness: BaseHarness) -> None:
    with pytest.raises(LookupError, match="there is no task 0000000000000007"):
        history_of(harness, 7)


def test_a_history_is_read_in_pages_and_says_when_it_is_cut(
    harness: BaseHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("b1")
    harness.end("b1", harness.claim("b1")[0])
    monkeypatch.setattr(history_module, "PAGE_MAX", 1)
    whole = history_of(harness, labels["a"])
    assert whole.whole
    assert replay(whole) is State.SUCCESSFUL
    monkeypatch.setattr(history_module, "MOVES_MAX", 2)
    part = history_of(harness, labels["a"])
    assert not part.whole
    assert part.happened == whole.happened[:3]
    with pytest.raises(Contradiction, match="is cut"):
        replay(part)


@pytest.mark.parametrize("wrong", [{"source": State.SKIPPED}, {"signal": Signal.REUSE}, {"target": State.FAILED}])
def test_a_history_that_does_not_follow_the_state_machine_is_a_contradiction(
    harness: BaseHarness, wrong: dict[str, object]
) -> None:
    labels = harness.submit(chain("a"))
    one = history_of(harness, labels["a"])
    last = one.happened[-1]
    assert isinstance(last, TaskMove)
    spoiled = replace(one, happened=(*one.happened[:-1], replace(last, **wrong)))  # type: ignore[arg-type]
    with pytest.raises(Contradiction, match=f"event {last.number} of task"):
        replay(spoiled)


@pytest.mark.parametrize("seed", range(2))
def test_replaying_the_events_gives_the_stored_state(harness: BaseHarness, seed: int) -> None:
    chance = Random(seed)
    graphs = [harness.submit(random_graph(chance)) for _ in range(3)]
    harness.hello("b1")
    for _ in range(40):
        harness.advance(1)
        harness.claim("b1", 2)
        end_random_lease(harness, chance, ["b1"])
        rerun_or_cancel(harness, chance, graphs)
        run_continuations(harness)
    histories = [history_of(harness, id) for labels in graphs for id in labels.values()]
    assert [replay(one) for one in histories] == [harness.task(one.creation.task).state for one in histories]
    assert max(len(one.attempts) for one in histories) > 1


def test_a_lost_and_retried_attempt_is_shown_as_two(harness: BaseHarness) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("b1")
    (lease,) = harness.claim("b1")
    report = Report(lease.task, lease.attempt, lease.fence, Signal.LOSE)
    harness.do(lambda transaction: poll(transaction, [Poll("b1", "s1", reports=(report,), want=1, poll="p")]))
    one = history_of(harness, labels["a"])
    assert [(attempt.number, attempt.signal) for attempt in one.attempts] == [(1, Signal.LOSE), (2, None)]
    assert replay(one) is one.state
