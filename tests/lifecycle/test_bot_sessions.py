"""Sessions of bots: a new session in the same folder ends the attempts of the one before, in another folder not."""

import pytest

from taskyard.core.fleet import GUARD_MS, LEASE_MS, SWEEP_MS
from taskyard.core.matching import canonical
from taskyard.core.states import Reason, Signal, State
from taskyard.lifecycle import bot_sessions
from taskyard.lifecycle.bot_sessions import hello
from taskyard.lifecycle.commands import Adopted, Begun, Code, Done, Hello, Lease, Refusal, Report
from taskyard.lifecycle.poll import PollOutcome
from tests.lifecycle.graphs import chain, graph, node
from tests.lifecycle.harness import LifecycleHarness


def test_an_unknown_bot_has_to_say_hello_first(harness: LifecycleHarness) -> None:
    refused = harness.poll("rack1")
    assert isinstance(refused, Refusal)
    assert refused.code is Code.NOT_FOUND


def test_a_restarted_bot_loses_at_once_what_its_last_session_ran(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(retries=1), b=node(retries=0, priority=120)))
    harness.hello("rack1")
    harness.claim("rack1", 2)
    harness.hello("rack1", session="s2")
    assert harness.state_names(labels) == {"a": "waiting", "b": "error"}
    assert harness.why(labels["b"]) == (State.ERROR, Reason.BOT_LOST)
    assert harness.bot_events("rack1") == ["connected", "connected"]


def test_requests_of_a_replaced_session_are_refused(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("rack1")
    harness.hello("rack1", session="s2")
    refused = harness.poll("rack1", session="s1")
    assert isinstance(refused, Refusal)
    assert refused.code is Code.SESSION_REPLACED
    assert harness.state_names(labels) == {"a": "waiting"}


def test_a_restarted_bot_that_had_too_much_for_one_transaction_loses_all_of_it(
    harness: LifecycleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bot_sessions, "LOST_MAX", 2)
    labels = harness.submit(graph(**{f"t{number}": node() for number in range(5)}))
    harness.hello("rack1", slots=5)
    harness.wait(2 * LEASE_MS, ["rack1"])  # the service has been up for long, so no lease is extended
    harness.claim("rack1", 5)
    harness.hello("rack1", session="s2")
    states = list(harness.state_names(labels).values())
    assert (states.count("waiting"), states.count("running")) == (3, 2)
    harness.sweep()
    assert set(harness.state_names(labels).values()) == {"waiting"}


def test_a_late_copy_of_a_hello_that_was_replaced_is_refused_and_takes_nothing_away(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a"))
    for session in ("s1", "s2", "s3"):
        harness.hello("rack1", session=session)
    harness.claim("rack1", session="s3")
    late = [Hello("rack1", session, canonical({"id": "rack1", "pool": "default"})) for session in ("s1", "s2", "s3")]
    answers = harness.do(lambda transaction: hello(transaction, late))
    assert [answer.code if isinstance(answer, Refusal) else answer for answer in answers] == [
        Code.SESSION_REPLACED,
        Code.SESSION_REPLACED,
        None,
    ]
    assert harness.state_names(labels) == {"a": "running"}


def test_the_same_session_may_say_hello_again_and_loses_nothing(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("rack1")
    harness.claim("rack1")
    harness.hello("rack1", gpu="h100")
    assert harness.state_names(labels) == {"a": "running"}
    assert harness.bot_events("rack1") == ["connected"]


def test_a_bot_that_says_goodbye_returns_its_leases(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("rack1")
    harness.claim("rack1")
    harness.goodbye("rack1")
    assert harness.state_names(labels) == {"a": "waiting"}
    assert harness.claim("rack1") == ()
    assert harness.bot_events("rack1") == ["connected", "ended"]


def test_a_goodbye_of_an_older_session_means_nothing(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("rack1", session="s2")
    harness.poll("rack1", session="s2")
    harness.goodbye("rack1", session="s1")
    assert harness.state_names(labels) == {"a": "running"}


def test_a_second_bot_of_a_name_gets_other_work_and_the_attempts_of_the_first_end_with_their_leases(
    harness: LifecycleHarness,
) -> None:
    labels = harness.submit(graph(a=node(retries=1), b=node(priority=200)))
    harness.hello("rack1", session="here/1")
    harness.wait(2 * LEASE_MS, ["rack1"], session="here/1")  # the service has been up for long, so no lease is extended
    harness.claim("rack1", session="here/1")
    harness.hello("rack1", session="there/1")
    (other,) = harness.claim("rack1", 9, session="there/1")
    assert (other.task, harness.state_names(labels)) == (labels["b"], {"a": "running", "b": "running"})
    refused = harness.poll("rack1", session="here/1")
    assert isinstance(refused, Refusal)
    harness.wait(LEASE_MS + GUARD_MS - 1, ["rack1"], session="there/1")
    assert harness.state_names(labels)["a"] == "running"
    harness.wait(SWEEP_MS, ["rack1"], session="there/1")
    assert harness.state_names(labels)["a"] == "waiting"
    assert harness.bot_events_with_notes("rack1") == [("connected", ""), ("connected", bot_sessions.ELSEWHERE)]


def test_a_replaced_bot_that_has_ended_everything_returns_its_leases_with_its_goodbye(
    harness: LifecycleHarness,
) -> None:
    labels = harness.submit(graph(a=node(), b=node()))
    harness.hello("rack1", session="here/1")
    harness.claim("rack1", session="here/1")
    harness.hello("rack1", session="there/12")
    harness.claim("rack1", session="there/12")
    harness.goodbye("rack1", session="there/1")
    assert harness.state_names(labels) == {"a": "running", "b": "running"}
    harness.goodbye("rack1", session="here/1")
    assert harness.state_names(labels) == {"a": "waiting", "b": "running"}
    assert harness.bot_events("rack1") == ["connected", "connected"]
    assert isinstance(harness.poll("rack1", session="there/12"), PollOutcome)


def test_each_of_two_bots_of_one_name_ends_only_what_its_own_folder_ran(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=node()))
    harness.hello("rack1", session="here/1")
    harness.claim("rack1", session="here/1")
    harness.hello("rack1", session="there/1")
    harness.claim("rack1", session="there/1")
    harness.hello("rack1", session="here/2")
    assert harness.state_names(labels) == {"a": "waiting", "b": "running"}
    harness.hello("rack1", session="there/2")
    assert harness.state_names(labels) == {"a": "waiting", "b": "waiting"}


def test_a_second_bot_of_a_name_that_connects_with_a_late_request_of_the_first_takes_no_lease_from_it(
    harness: LifecycleHarness,
) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("rack1", session="here/1")
    harness.claim("rack1", session="here/1")
    has = canonical({"id": "rack1", "pool": "default"})
    harness.do(lambda transaction: hello(transaction, [Hello("rack1", one, has) for one in ("here/1", "there/1")]))
    assert harness.state_names(labels) == {"a": "running"}
    late = harness.poll("rack1", session="here/1")
    assert isinstance(late, Refusal)
    assert isinstance(harness.poll("rack1", session="there/1"), PollOutcome)


def test_a_second_bot_of_a_name_releases_none_of_too_many_leases_for_one_transaction(
    harness: LifecycleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bot_sessions, "LOST_MAX", 2)
    labels = harness.submit(graph(**{f"t{number}": node() for number in range(5)}))
    harness.hello("rack1", slots=5, session="here/1")
    harness.wait(2 * LEASE_MS, ["rack1"], session="here/1")
    harness.claim("rack1", 5, session="here/1")
    harness.hello("rack1", session="there/1")
    harness.sweep()
    assert set(harness.state_names(labels).values()) == {"running"}
    harness.hello("rack1", session="here/2")
    harness.sweep()
    assert set(harness.state_names(labels).values()) == {"waiting"}


# Adoption: a restarted bot goes on with attempts that run outside of it.


def adopting(
    harness: LifecycleHarness, session: str, *refs: Begun, replaces: str = "here/1", bot: str = "rack1"
) -> tuple[Adopted, ...]:
    """Say hello in a folder's next session; get what it adopts."""
    dimensions = canonical({"id": bot, "pool": "default"})
    command = Hello(bot, session, dimensions, 4, begun=(), replaces=replaces, adopts=refs)
    (answer,) = harness.do(lambda transaction: hello(transaction, [command]))
    assert isinstance(answer, tuple), answer
    return answer


def report(lease: Lease) -> Report:
    return Report(lease.task, lease.attempt, lease.fence, Signal.SUCCEED)


def ref_of(lease: Lease) -> Begun:
    return Begun(lease.task, lease.attempt, lease.fence)


def test_a_restarted_bot_goes_on_with_what_it_adopts_and_loses_the_rest_at_once(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=node(priority=200)))
    harness.hello("rack1", session="here/1")
    mine, _ = harness.claim("rack1", 2, session="here/1")
    harness.advance(1_000)
    (adopted,) = adopting(harness, "here/2", ref_of(mine))
    assert (adopted.task, adopted.attempt, adopted.stop) == (mine.task, mine.attempt, False)
    assert adopted.fence > mine.fence
    assert adopted.lease_until_ms == harness.now + LEASE_MS
    assert harness.state_names(labels) == {"a": "running", "b": "waiting"}
    stale = harness.poll("rack1", session="here/2", reports=(report(mine),), want=0)
    assert isinstance(stale, PollOutcome)
    assert isinstance(stale.reports[0], Refusal)
    current = Lease(mine.task, mine.attempt, adopted.fence, adopted.lease_until_ms)
    ended = harness.poll("rack1", session="here/2", reports=(report(current),), want=0)
    assert isinstance(ended, PollOutcome)
    assert isinstance(ended.reports[0], Done)
    assert harness.state_names(labels)["a"] == "successful"
    assert harness.bot_events_with_notes("rack1")[-1] == ("connected", bot_sessions.ADOPTED.format(1))


def test_a_repeated_hello_gets_the_same_fences(harness: LifecycleHarness) -> None:
    harness.submit(chain("a"))
    harness.hello("rack1", session="here/1")
    (lease,) = harness.claim("rack1", session="here/1")
    first = adopting(harness, "here/2", ref_of(lease))
    harness.advance(5)
    assert adopting(harness, "here/2", ref_of(lease)) == first


def test_a_bot_that_missed_the_answer_to_its_hello_and_died_adopts_by_the_fence_of_the_claim(
    harness: LifecycleHarness,
) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("rack1", session="here/1")
    (lease,) = harness.claim("rack1", session="here/1")
    (second,) = adopting(harness, "here/2", ref_of(lease))
    harness.advance(5)
    (third,) = adopting(harness, "here/3", ref_of(lease))
    assert third.fence > second.fence
    assert harness.state_names(labels) == {"a": "running"}
    late = Hello("rack1", "here/2", canonical({"id": "rack1", "pool": "default"}), adopts=(ref_of(lease),))
    (refused,) = harness.do(lambda transaction: hello(transaction, [late]))
    assert isinstance(refused, Refusal)
    harness.goodbye("rack1", session="here/2")
    assert harness.state_names(labels) == {"a": "running"}, "the attempt belongs to the third session"
    harness.goodbye("rack1", session="here/3")
    assert harness.state_names(labels) == {"a": "waiting"}


def test_what_was_given_away_another_folder_has_or_never_was_cannot_be_adopted(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=node(priority=200), c=node(priority=201)))
    harness.hello("rack1", session="here/1")
    harness.wait(2 * LEASE_MS, ["rack1"], session="here/1")  # the service has been up for long
    (given,) = harness.claim("rack1", session="here/1")
    harness.wait(LEASE_MS + GUARD_MS + SWEEP_MS)
    harness.hello("rack2", session="there/1")
    (again,) = harness.claim("rack2", session="there/1")
    assert (again.task, again.attempt) == (labels["a"], 2)
    harness.hello("rack1", session="other/1")
    (elsewhere,) = harness.claim("rack1", session="other/1")
    refs = [ref_of(given), ref_of(again), ref_of(elsewhere), Begun(labels["c"], 1, 7), Begun(12_345, 1, 7)]
    assert adopting(harness, "here/2", *refs) == ()
    assert harness.state_names(labels) == {"a": "running", "b": "running", "c": "waiting"}


def test_only_a_session_of_the_same_folder_can_be_replaced(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("rack1", session="here/1")
    (lease,) = harness.claim("rack1", session="here/1")
    assert adopting(harness, "there/1", ref_of(lease)) == ()
    assert adopting(harness, "there/2", ref_of(lease), replaces="there/1") == ()
    assert harness.state_names(labels) == {"a": "running"}


def test_an_adopted_attempt_that_was_canceled_is_to_be_stopped(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("rack1", session="here/1")
    (lease,) = harness.claim("rack1", session="here/1")
    harness.cancel(labels["a"])
    (adopted,) = adopting(harness, "here/2", ref_of(lease))
    assert adopted.stop
    assert harness.state_names(labels) == {"a": "stopping"}


def test_adopted_attempts_outlive_the_end_of_more_than_one_transaction_takes(
    harness: LifecycleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bot_sessions, "LOST_MAX", 2)
    labels = harness.submit(graph(**{f"t{number}": node() for number in range(6)}))
    harness.hello("rack1", session="here/1", slots=6)
    harness.wait(2 * LEASE_MS, ["rack1"], session="here/1")  # the service has been up for long
    leases = harness.claim("rack1", 6, session="here/1")
    adopted = adopting(harness, "here/2", *map(ref_of, leases[:2]))
    harness.sweep()
    assert len(adopted) == 2
    running = {labels[name] for name, state in harness.state_names(labels).items() if state == "running"}
    assert running == {lease.task for lease in leases[:2]}
