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
from tests.lifecycle.random_history import end_random_lease, random_graph, rerun_or_cancel, run_continuations
from tests.lifecycle.yard import Yard, chain

S, G = State, Signal


@pytest.fixture
def yard(database_url: str) -> Iterator[Yard]:
    yard = Yard(database_url)
    yield yard
    yard.close()


def history_of(yard: Yard, task: int) -> TaskHistory:
    with yard.store.read() as repo:
        return read_history(repo, task)


def test_a_new_task_has_its_creation_and_the_request_for_it(yard: Yard) -> None:
    labels = yard.submit(chain("a", "b"))
    one = history_of(yard, labels["b"])
    assert one == TaskHistory(
        Creation(labels["b"], labels.graph, "b", yard.now),
        (RequestedAction(yard.now, RequestSubject.GRAPH, "ann", "submit", "2 tasks"),),
        (),
        State.UNSCHEDULED,
        whole=True,
    )
    assert replay(one) is State.UNSCHEDULED


def test_a_history_has_moves_attempts_and_requests_in_order(yard: Yard) -> None:
    labels = yard.submit({"tasks": {"a": {"reruns": 1, "task": {"payload": {"command": ["true"]}}}}})
    born = yard.now
    yard.hello("b1")
    yard.later(10)
    (first,) = yard.claim("b1")
    yard.later(10)
    yard.end("b1", first, Signal.FAIL, exit_code=3)
    (second,) = yard.claim("b1")
    one = history_of(yard, labels["a"])
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
    assert (last.at_ms, last.reason, last.attempt, last.bot) == (yard.now, REASONS[G.CLAIM], 2, "b1")
    assert [(a.number, a.bot, a.fence, a.lease_until_ms, a.ended_ms, a.signal, a.reason) for a in one.attempts] == [
        (1, "b1", first.fence, None, yard.now, G.FAIL, Reason.EXIT_CODE),
        (2, "b1", second.fence, second.until_ms, None, None, None),
    ]
    assert isinstance(one.attempts[0], AttemptSpan)
    assert one.attempts[0].exit_code == 3
    assert replay(one) is one.state is S.RUNNING


def test_a_request_comes_before_its_consequences(yard: Yard) -> None:
    labels = yard.submit(chain("a"))
    yard.later(5)
    with yard.transaction() as transaction:
        transaction.repo.events.add_audits([(yard.now, "bob", "cancel", labels["a"], "why not")])
        transaction.repo.events.add_audits([(yard.now + 1, "bob", "extend", labels.graph, "1 tasks")])
    asked = [one for one in history_of(yard, labels["a"]).happened if isinstance(one, RequestedAction)]
    assert [(one.actor, one.about, one.action) for one in asked] == [
        ("ann", RequestSubject.GRAPH, "submit"), ("bob", RequestSubject.TASK, "cancel"),
        ("bob", RequestSubject.GRAPH, "extend"),
    ]  # fmt: skip


def test_an_unknown_task_has_no_history(yard: Yard) -> None:
    with pytest.raises(LookupError, match="there is no task 0000000000000007"):
        history_of(yard, 7)


def test_a_history_is_read_in_pages_and_says_when_it_is_cut(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = yard.submit(chain("a"))
    yard.hello("b1")
    yard.end("b1", yard.claim("b1")[0])
    monkeypatch.setattr(history_module, "PAGE_MAX", 1)
    whole = history_of(yard, labels["a"])
    assert whole.whole
    assert replay(whole) is State.SUCCESSFUL
    monkeypatch.setattr(history_module, "MOVES_MAX", 2)
    part = history_of(yard, labels["a"])
    assert not part.whole
    assert part.happened == whole.happened[:3]
    with pytest.raises(Contradiction, match="is cut"):
        replay(part)


@pytest.mark.parametrize("wrong", [{"source": State.SKIPPED}, {"signal": Signal.REUSE}, {"target": State.FAILED}])
def test_a_history_that_does_not_follow_the_state_machine_is_a_contradiction(
    yard: Yard, wrong: dict[str, object]
) -> None:
    labels = yard.submit(chain("a"))
    one = history_of(yard, labels["a"])
    last = one.happened[-1]
    assert isinstance(last, TaskMove)
    spoiled = replace(one, happened=(*one.happened[:-1], replace(last, **wrong)))  # type: ignore[arg-type]
    with pytest.raises(Contradiction, match=f"event {last.number} of task"):
        replay(spoiled)


@pytest.mark.parametrize("seed", range(2))
def test_replaying_the_events_gives_the_stored_state(yard: Yard, seed: int) -> None:
    chance = Random(seed)
    graphs = [yard.submit(random_graph(chance)) for _ in range(3)]
    yard.hello("b1")
    for _ in range(40):
        yard.later(1)
        yard.claim("b1", 2)
        end_random_lease(yard, chance, ["b1"])
        rerun_or_cancel(yard, chance, graphs)
        run_continuations(yard)
    histories = [history_of(yard, id) for labels in graphs for id in labels.values()]
    assert [replay(one) for one in histories] == [yard.task(one.creation.task).state for one in histories]
    assert max(len(one.attempts) for one in histories) > 1


def test_a_lost_and_retried_attempt_is_shown_as_two(yard: Yard) -> None:
    labels = yard.submit(chain("a"))
    yard.hello("b1")
    (lease,) = yard.claim("b1")
    report = Report(lease.task, lease.attempt, lease.fence, Signal.LOSE)
    yard.do(lambda transaction: poll(transaction, [Poll("b1", "s1", reports=(report,), want=1, poll="p")]))
    one = history_of(yard, labels["a"])
    assert [(attempt.number, attempt.signal) for attempt in one.attempts] == [(1, Signal.LOSE), (2, None)]
    assert replay(one) is one.state
