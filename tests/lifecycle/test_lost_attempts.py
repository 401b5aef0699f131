"""Attempts that are lost with their bots or come back from them: what had begun costs a retry, what had not is free."""

import pytest

from taskyard.core.attempt_policy import SPARED_MAX
from taskyard.core.fleet import GUARD_MS, LEASE_MS
from taskyard.core.matching import canonical
from taskyard.core.states import Reason, Signal, State
from taskyard.lifecycle.bot_sessions import hello
from taskyard.lifecycle.commands import Begun, Done, Hello, Lease, Refusal
from taskyard.lifecycle.poll import PollOutcome
from tests.lifecycle.grounds import Grounds, graph, node

LOST_MS = LEASE_MS + GUARD_MS


def taken(yard: Grounds, want: int = 9, session: str = "here/1") -> tuple[Lease, ...]:
    """Take tasks as a bot does that says what it begins."""
    answer = yard.poll("rack1", want, session, begun=())
    assert isinstance(answer, PollOutcome)
    return answer.leases


def begun(lease: Lease) -> Begun:
    return Begun(lease.task, lease.attempt, lease.fence)


def begin(yard: Grounds, *leases: Lease, session: str = "here/1") -> None:
    yard.poll("rack1", 0, session, begun=tuple(map(begun, leases)))


def come(yard: Grounds, session: str, had: tuple[Begun, ...] | None = None) -> None:
    """Begin a session, and say what the lives before had begun."""
    dimensions = canonical({"id": "rack1", "pool": "default"})
    assert yard.do(lambda transaction: hello(transaction, [Hello("rack1", session, dimensions, 4, begun=had)])) == [
        None
    ]


def ends(yard: Grounds, task: int) -> list[tuple[str | None, str | None]]:
    with yard.store.read() as repo:
        return [(one.signal, one.reason) for one in repo.attempts.of(task)]


def test_attempts_that_have_not_begun_differ_from_running_ones(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), b=node()))
    come(yard, "here/1")
    first, _ = taken(yard)
    assert {yard.task(id).reason for id in labels.values()} == {Reason.ASSIGNED}
    begin(yard, first)
    begin(yard, first)
    assert sorted(yard.task(id).reason for id in labels.values()) == [Reason.ASSIGNED, Reason.UNDER_WAY]


def test_a_bot_that_does_not_say_what_it_begins_begins_whatever_it_gets(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node()))
    yard.hello("rack1")
    yard.claim("rack1")
    assert yard.task(labels["a"]).reason == Reason.UNDER_WAY


def test_a_bot_can_only_begin_what_is_its_own(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node()))
    come(yard, "here/1")
    (lease,) = taken(yard)
    yard.hello("rack2", "s1")
    for wrong in (Begun(lease.task, 2, lease.fence), Begun(lease.task, 1, lease.fence + 1), Begun(12345, 1, 1)):
        begin_answer = yard.poll("rack1", 0, "here/1", begun=(wrong,))
        assert isinstance(begin_answer, PollOutcome)
    yard.poll("rack2", 0, begun=(begun(lease),))
    assert yard.task(labels["a"]).reason == Reason.ASSIGNED


def test_what_had_not_begun_comes_back_free_when_its_bot_says_so_however_often(yard: Grounds) -> None:
    labels = yard.submit(graph(ran=node(retries=1), waited=node(retries=0)))
    come(yard, "here/1")
    by_task = {lease.task: lease for lease in taken(yard)}
    for life in range(2, 7):
        had = [begun(by_task[labels["ran"]])] if labels["ran"] in by_task and life == 2 else []
        come(yard, f"here/{life}", tuple(had))
        task = yard.task(labels["waited"])
        assert (task.state, task.life.retries_used, task.life.ran, task.avoid_bot) == (State.WAITING, 0, False, None)
        by_task = {lease.task: lease for lease in taken(yard, session=f"here/{life}")}
        assert by_task[labels["waited"]].attempt == life
    assert ends(yard, labels["waited"]) == [("return", "returned")] * 5 + [(None, None)]
    assert ends(yard, labels["ran"])[0] == ("lose", "bot_lost")
    assert yard.task(labels["ran"]).life.retries_used == 1


def test_what_the_server_knows_to_have_begun_costs_a_retry_whatever_its_bot_says(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(retries=0)))
    come(yard, "here/1")
    begin(yard, *taken(yard))
    come(yard, "here/2", ())
    assert yard.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


def test_a_hello_whose_answer_is_lost_gives_nothing_back_twice(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(retries=0)))
    come(yard, "here/1")
    taken(yard)
    come(yard, "here/2", ())
    (lease,) = taken(yard, session="here/2")
    come(yard, "here/2", ())
    assert yard.task(labels["a"]).life.attempt == lease.attempt == 2
    assert yard.words(labels) == {"a": "running"}


def test_a_twin_in_another_folder_gives_back_nothing_of_the_first(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node()))
    come(yard, "here/1")
    taken(yard)
    come(yard, "there/1", ())
    assert (yard.task(labels["a"]).reason, yard.words(labels)) == (Reason.ASSIGNED, {"a": "running"})


@pytest.mark.parametrize("how", ["silent", "does not know", "goodbye"])
def test_what_a_lost_bot_never_began_is_free_twice_in_a_round_and_then_costs_a_retry(yard: Grounds, how: str) -> None:
    labels = yard.submit(graph(a=node(retries=0)))
    yard.sweep()
    for life in range(1, SPARED_MAX + 2):
        come(yard, f"here/{life}")
        assert len(taken(yard, session=f"here/{life}")) == 1
        if how == "silent":
            yard.wait(LOST_MS)
        elif how == "goodbye":
            yard.goodbye("rack1", f"here/{life}")
        else:
            come(yard, f"here/{life}b")
    assert ends(yard, labels["a"]) == [("lose", "returned")] * SPARED_MAX + [("lose", "bot_lost")]
    assert yard.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)
    yard.rerun(labels["a"])
    come(yard, "here/last")
    taken(yard, session="here/last")
    come(yard, "here/later")
    assert yard.words(labels) == {"a": "waiting"}


def test_what_a_lost_bot_had_begun_costs_a_retry_at_once(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(retries=0)))
    yard.sweep()
    come(yard, "here/1")
    begin(yard, *taken(yard))
    yard.wait(LOST_MS)
    assert yard.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


def test_an_attempt_that_is_given_back_costs_nothing_and_a_repeat_is_an_echo(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(retries=0)))
    yard.hello("rack1")
    lease = yard.claim("rack1", begun=())[0]
    for attempt in range(1, 5):
        assert lease.attempt == attempt
        first, again = yard.end("rack1", lease, Signal.RETURN), yard.end("rack1", lease, Signal.RETURN)
        assert isinstance(first, Done)
        assert isinstance(again, Done)
        assert again.echo
        assert isinstance(yard.end("rack1", lease, Signal.SUCCEED), Refusal)
        lease = yard.claim("rack1", begun=())[0]
    assert yard.task(labels["a"]).life.retries_used == 0


def test_what_is_given_back_while_it_is_to_be_stopped_is_canceled_and_never_ran(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node()))
    yard.hello("rack1")
    lease = yard.claim("rack1", begun=())[0]
    yard.cancel(labels["a"])
    assert isinstance(yard.end("rack1", lease, Signal.RETURN), Done)
    assert yard.why(labels["a"]) == (State.CANCELED, Reason.ASKED)
    assert not yard.task(labels["a"]).life.ran


def test_what_was_ended_because_it_could_not_be_renewed_is_free_twice(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(retries=0)))
    yard.hello("rack1")
    for _ in range(SPARED_MAX + 1):
        lease = yard.claim("rack1")[0]
        yard.end("rack1", lease, Signal.LOSE, reason=Reason.UNRENEWED)
    assert ends(yard, labels["a"]) == [("lose", "unrenewed")] * SPARED_MAX + [("lose", "bot_lost")]
    assert yard.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


def test_what_was_lost_with_a_runner_before_it_began_is_free_twice(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(retries=0)))
    yard.hello("rack1")
    for _ in range(SPARED_MAX + 1):
        lease = yard.claim("rack1", begun=())[0]
        yard.end("rack1", lease, Signal.LOSE, reason=Reason.RETURNED)
    assert ends(yard, labels["a"]) == [("lose", "returned")] * SPARED_MAX + [("lose", "bot_lost")]
    assert yard.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


def test_what_had_begun_is_not_free_though_its_bot_says_that_it_had_not(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(retries=0)))
    yard.hello("rack1")
    lease = yard.claim("rack1", begun=())[0]
    yard.poll("rack1", 0, begun=(begun(lease),))
    yard.end("rack1", lease, Signal.LOSE, reason=Reason.RETURNED)
    assert yard.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


def test_what_comes_back_after_its_deadline_is_in_error_for_that(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(deadline="30s")))
    yard.hello("rack1")
    lease = yard.claim("rack1", begun=())[0]
    yard.later(31_000)
    yard.end("rack1", lease, Signal.RETURN)
    yard.sweep()
    assert yard.why(labels["a"]) == (State.ERROR, Reason.DEADLINE)
