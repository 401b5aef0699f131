"""Sessions of bots: a new session in the same folder ends the attempts of the one before, in another folder not."""

import pytest

from taskyard.core.fleet import GUARD_MS, LEASE_MS, SWEEP_MS
from taskyard.core.matching import canonical
from taskyard.core.states import Reason, State
from taskyard.lifecycle import bot_sessions
from taskyard.lifecycle.bot_sessions import hello
from taskyard.lifecycle.commands import Code, Hello, Refusal
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
    assert [answer and answer.code for answer in answers] == [Code.SESSION_REPLACED, Code.SESSION_REPLACED, None]
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
