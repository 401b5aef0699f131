"""Attempts that are lost with their bots or returned: those that had begun cost a retry, others nothing."""

import pytest

from taskyard.core.attempt_policy import SPARED_MAX
from taskyard.core.fleet import GUARD_MS, LEASE_MS
from taskyard.core.matching import canonical
from taskyard.core.states import Reason, Signal, State
from taskyard.lifecycle.bot_sessions import hello
from taskyard.lifecycle.commands import Begun, Done, Hello, Lease, Refusal
from taskyard.lifecycle.poll import PollOutcome
from tests.lifecycle.graphs import graph, node
from tests.lifecycle.harness import LifecycleHarness

LOST_MS = LEASE_MS + GUARD_MS


def taken(harness: LifecycleHarness, want: int = 9, session: str = "here/1") -> tuple[Lease, ...]:
    """Claim tasks as a bot that reports begun attempts."""
    answer = harness.poll("rack1", want, session, begun=())
    assert isinstance(answer, PollOutcome)
    return answer.leases


def begun(lease: Lease) -> Begun:
    return Begun(lease.task, lease.attempt, lease.fence)


def begin(harness: LifecycleHarness, *leases: Lease, session: str = "here/1") -> None:
    harness.poll("rack1", 0, session, begun=tuple(map(begun, leases)))


def come(harness: LifecycleHarness, session: str, had: tuple[Begun, ...] | None = None) -> None:
    """Begin a session, with the attempts that the sessions before had begun."""
    dimensions = canonical({"id": "rack1", "pool": "default"})
    assert harness.do(lambda transaction: hello(transaction, [Hello("rack1", session, dimensions, 4, begun=had)])) == [
        None
    ]


def ends(harness: LifecycleHarness, task: int) -> list[tuple[str | None, str | None]]:
    with harness.store.read() as repo:
        return [(one.signal, one.reason) for one in repo.attempts.of(task)]


def test_attempts_that_have_not_begun_differ_from_running_ones(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=node()))
    come(harness, "here/1")
    first, _ = taken(harness)
    assert {harness.task(id).reason for id in labels.values()} == {Reason.ASSIGNED}
    begin(harness, first)
    begin(harness, first)
    assert sorted(harness.task(id).reason for id in labels.values()) == [Reason.ASSIGNED, Reason.UNDER_WAY]


def test_for_a_bot_that_does_not_report_begun_attempts_every_attempt_has_begun(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node()))
    harness.hello("rack1")
    harness.claim("rack1")
    assert harness.task(labels["a"]).reason == Reason.UNDER_WAY


def test_a_bot_can_only_begin_what_is_its_own(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node()))
    come(harness, "here/1")
    (lease,) = taken(harness)
    harness.hello("rack2", "s1")
    for wrong in (Begun(lease.task, 2, lease.fence), Begun(lease.task, 1, lease.fence + 1), Begun(12345, 1, 1)):
        begin_answer = harness.poll("rack1", 0, "here/1", begun=(wrong,))
        assert isinstance(begin_answer, PollOutcome)
    harness.poll("rack2", 0, begun=(begun(lease),))
    assert harness.task(labels["a"]).reason == Reason.ASSIGNED


def test_attempts_that_had_not_begun_are_returned_at_no_cost_however_often(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(ran=node(retries=1), waited=node(retries=0)))
    come(harness, "here/1")
    by_task = {lease.task: lease for lease in taken(harness)}
    for life in range(2, 7):
        had = [begun(by_task[labels["ran"]])] if labels["ran"] in by_task and life == 2 else []
        come(harness, f"here/{life}", tuple(had))
        task = harness.task(labels["waited"])
        assert (task.state, task.life.retries_used, task.life.ran, task.avoid_bot) == (State.WAITING, 0, False, None)
        by_task = {lease.task: lease for lease in taken(harness, session=f"here/{life}")}
        assert by_task[labels["waited"]].attempt == life
    assert ends(harness, labels["waited"]) == [("return", "returned")] * 5 + [(None, None)]
    assert ends(harness, labels["ran"])[0] == ("lose", "bot_lost")
    assert harness.task(labels["ran"]).life.retries_used == 1


def test_an_attempt_that_the_server_knows_to_have_begun_costs_a_retry_whatever_its_bot_reports(
    harness: LifecycleHarness,
) -> None:
    labels = harness.submit(graph(a=node(retries=0)))
    come(harness, "here/1")
    begin(harness, *taken(harness))
    come(harness, "here/2", ())
    assert harness.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


def test_a_hello_whose_answer_is_lost_returns_no_attempt_twice(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(retries=0)))
    come(harness, "here/1")
    taken(harness)
    come(harness, "here/2", ())
    (lease,) = taken(harness, session="here/2")
    come(harness, "here/2", ())
    assert harness.task(labels["a"]).life.attempt == lease.attempt == 2
    assert harness.state_names(labels) == {"a": "running"}


def test_a_second_bot_of_a_name_in_another_folder_returns_no_attempt_of_the_first(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node()))
    come(harness, "here/1")
    taken(harness)
    come(harness, "there/1", ())
    assert (harness.task(labels["a"]).reason, harness.state_names(labels)) == (Reason.ASSIGNED, {"a": "running"})


@pytest.mark.parametrize("how", ["silent", "does not know", "goodbye"])
def test_what_a_lost_bot_never_began_is_free_twice_in_a_round_and_then_costs_a_retry(
    harness: LifecycleHarness, how: str
) -> None:
    labels = harness.submit(graph(a=node(retries=0)))
    harness.sweep()
    for life in range(1, SPARED_MAX + 2):
        come(harness, f"here/{life}")
        assert len(taken(harness, session=f"here/{life}")) == 1
        if how == "silent":
            harness.wait(LOST_MS)
        elif how == "goodbye":
            harness.goodbye("rack1", f"here/{life}")
        else:
            come(harness, f"here/{life}b")
    assert ends(harness, labels["a"]) == [("lose", "returned")] * SPARED_MAX + [("lose", "bot_lost")]
    assert harness.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)
    harness.rerun(labels["a"])
    come(harness, "here/last")
    taken(harness, session="here/last")
    come(harness, "here/later")
    assert harness.state_names(labels) == {"a": "waiting"}


def test_what_a_lost_bot_had_begun_costs_a_retry_at_once(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(retries=0)))
    harness.sweep()
    come(harness, "here/1")
    begin(harness, *taken(harness))
    harness.wait(LOST_MS)
    assert harness.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


def test_a_returned_attempt_costs_nothing_and_a_repeat_is_an_echo(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(retries=0)))
    harness.hello("rack1")
    lease = harness.claim("rack1", begun=())[0]
    for attempt in range(1, 5):
        assert lease.attempt == attempt
        first, again = harness.end("rack1", lease, Signal.RETURN), harness.end("rack1", lease, Signal.RETURN)
        assert isinstance(first, Done)
        assert isinstance(again, Done)
        assert again.echo
        assert isinstance(harness.end("rack1", lease, Signal.SUCCEED), Refusal)
        lease = harness.claim("rack1", begun=())[0]
    assert harness.task(labels["a"]).life.retries_used == 0


def test_an_attempt_that_is_returned_while_stopping_is_canceled_and_never_ran(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node()))
    harness.hello("rack1")
    lease = harness.claim("rack1", begun=())[0]
    harness.cancel(labels["a"])
    assert isinstance(harness.end("rack1", lease, Signal.RETURN), Done)
    assert harness.why(labels["a"]) == (State.CANCELED, Reason.ASKED)
    assert not harness.task(labels["a"]).life.ran


def test_what_was_ended_because_it_could_not_be_renewed_is_free_twice(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(retries=0)))
    harness.hello("rack1")
    for _ in range(SPARED_MAX + 1):
        lease = harness.claim("rack1")[0]
        harness.end("rack1", lease, Signal.LOSE, reason=Reason.UNRENEWED)
    assert ends(harness, labels["a"]) == [("lose", "unrenewed")] * SPARED_MAX + [("lose", "bot_lost")]
    assert harness.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


def test_what_was_lost_with_a_runner_before_it_began_is_free_twice(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(retries=0)))
    harness.hello("rack1")
    for _ in range(SPARED_MAX + 1):
        lease = harness.claim("rack1", begun=())[0]
        harness.end("rack1", lease, Signal.LOSE, reason=Reason.RETURNED)
    assert ends(harness, labels["a"]) == [("lose", "returned")] * SPARED_MAX + [("lose", "bot_lost")]
    assert harness.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


def test_an_attempt_that_had_begun_costs_a_retry_though_its_bot_reports_that_it_had_not(
    harness: LifecycleHarness,
) -> None:
    labels = harness.submit(graph(a=node(retries=0)))
    harness.hello("rack1")
    lease = harness.claim("rack1", begun=())[0]
    harness.poll("rack1", 0, begun=(begun(lease),))
    harness.end("rack1", lease, Signal.LOSE, reason=Reason.RETURNED)
    assert harness.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


def test_an_attempt_that_is_returned_after_its_deadline_is_in_error_for_that(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(deadline="30s")))
    harness.hello("rack1")
    lease = harness.claim("rack1", begun=())[0]
    harness.advance(31_000)
    harness.end("rack1", lease, Signal.RETURN)
    harness.sweep()
    assert harness.why(labels["a"]) == (State.ERROR, Reason.DEADLINE)
