"""How bots come and go: a new session in the same folder ends the attempts of the one before, a twin's does not."""

import pytest

from taskyard.core.fleet import GUARD_MS, LEASE_MS, SWEEP_MS
from taskyard.core.matching import canonical
from taskyard.core.states import Reason, State
from taskyard.lifecycle import bot_sessions
from taskyard.lifecycle.bot_sessions import hello
from taskyard.lifecycle.commands import Code, Hello, Refusal
from taskyard.lifecycle.poll import PollOutcome
from tests.lifecycle.grounds import Grounds, graph, node
from tests.lifecycle.yard import chain


def test_an_unknown_bot_has_to_say_hello_first(yard: Grounds) -> None:
    refused = yard.poll("rack1")
    assert isinstance(refused, Refusal)
    assert refused.code is Code.NOT_FOUND


def test_a_restarted_bot_loses_at_once_what_its_last_session_ran(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(retries=1), b=node(retries=0, priority=120)))
    yard.hello("rack1")
    yard.claim("rack1", 2)
    yard.hello("rack1", session="s2")
    assert yard.words(labels) == {"a": "waiting", "b": "error"}
    assert yard.why(labels["b"]) == (State.ERROR, Reason.BOT_LOST)
    assert yard.bot_events("rack1") == ["connected", "connected"]


def test_requests_of_a_replaced_session_are_refused(yard: Grounds) -> None:
    labels = yard.submit(chain("a"))
    yard.hello("rack1")
    yard.hello("rack1", session="s2")
    refused = yard.poll("rack1", session="s1")
    assert isinstance(refused, Refusal)
    assert refused.code is Code.SESSION_REPLACED
    assert yard.words(labels) == {"a": "waiting"}


def test_a_restarted_bot_that_had_too_much_for_one_transaction_loses_all_of_it(
    yard: Grounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bot_sessions, "LOST_MAX", 2)
    labels = yard.submit(graph(**{f"t{number}": node() for number in range(5)}))
    yard.hello("rack1", slots=5)
    yard.wait(2 * LEASE_MS, ["rack1"])  # the service is up for long, so nobody is spared
    yard.claim("rack1", 5)
    yard.hello("rack1", session="s2")
    states = list(yard.words(labels).values())
    assert (states.count("waiting"), states.count("running")) == (3, 2)
    yard.sweep()
    assert set(yard.words(labels).values()) == {"waiting"}


def test_a_late_copy_of_a_hello_that_was_replaced_is_refused_and_takes_nothing_away(yard: Grounds) -> None:
    labels = yard.submit(chain("a"))
    for session in ("s1", "s2", "s3"):
        yard.hello("rack1", session=session)
    yard.claim("rack1", session="s3")
    late = [Hello("rack1", session, canonical({"id": "rack1", "pool": "default"})) for session in ("s1", "s2", "s3")]
    answers = yard.do(lambda transaction: hello(transaction, late))
    assert [answer and answer.code for answer in answers] == [Code.SESSION_REPLACED, Code.SESSION_REPLACED, None]
    assert yard.words(labels) == {"a": "running"}


def test_the_same_session_may_say_hello_again_and_loses_nothing(yard: Grounds) -> None:
    labels = yard.submit(chain("a"))
    yard.hello("rack1")
    yard.claim("rack1")
    yard.hello("rack1", gpu="h100")
    assert yard.words(labels) == {"a": "running"}
    assert yard.bot_events("rack1") == ["connected"]


def test_a_bot_that_says_goodbye_gives_back_what_it_has(yard: Grounds) -> None:
    labels = yard.submit(chain("a"))
    yard.hello("rack1")
    yard.claim("rack1")
    yard.goodbye("rack1")
    assert yard.words(labels) == {"a": "waiting"}
    assert yard.claim("rack1") == ()
    assert yard.bot_events("rack1") == ["connected", "ended"]


def test_a_goodbye_of_an_older_session_means_nothing(yard: Grounds) -> None:
    labels = yard.submit(chain("a"))
    yard.hello("rack1", session="s2")
    yard.poll("rack1", session="s2")
    yard.goodbye("rack1", session="s1")
    assert yard.words(labels) == {"a": "running"}


def test_a_twin_takes_other_work_and_what_the_first_runs_ends_with_its_lease(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(retries=1), b=node(priority=200)))
    yard.hello("rack1", session="here/1")
    yard.wait(2 * LEASE_MS, ["rack1"], session="here/1")  # the service is up for long, so nobody is spared
    yard.claim("rack1", session="here/1")
    yard.hello("rack1", session="there/1")
    (other,) = yard.claim("rack1", 9, session="there/1")
    assert (other.task, yard.words(labels)) == (labels["b"], {"a": "running", "b": "running"})
    refused = yard.poll("rack1", session="here/1")
    assert isinstance(refused, Refusal)
    yard.wait(LEASE_MS + GUARD_MS - 1, ["rack1"], session="there/1")
    assert yard.words(labels)["a"] == "running"
    yard.wait(SWEEP_MS, ["rack1"], session="there/1")
    assert yard.words(labels)["a"] == "waiting"
    assert yard.bot_notes("rack1") == [("connected", ""), ("connected", bot_sessions.ELSEWHERE)]


def test_a_twin_that_was_replaced_and_has_ended_everything_gives_it_back_by_its_goodbye(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), b=node()))
    yard.hello("rack1", session="here/1")
    yard.claim("rack1", session="here/1")
    yard.hello("rack1", session="there/12")
    yard.claim("rack1", session="there/12")
    yard.goodbye("rack1", session="there/1")
    assert yard.words(labels) == {"a": "running", "b": "running"}
    yard.goodbye("rack1", session="here/1")
    assert yard.words(labels) == {"a": "waiting", "b": "running"}
    assert yard.bot_events("rack1") == ["connected", "connected"]
    assert isinstance(yard.poll("rack1", session="there/12"), PollOutcome)


def test_each_of_two_bots_of_one_name_ends_only_what_its_own_folder_ran(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), b=node()))
    yard.hello("rack1", session="here/1")
    yard.claim("rack1", session="here/1")
    yard.hello("rack1", session="there/1")
    yard.claim("rack1", session="there/1")
    yard.hello("rack1", session="here/2")
    assert yard.words(labels) == {"a": "waiting", "b": "running"}
    yard.hello("rack1", session="there/2")
    assert yard.words(labels) == {"a": "waiting", "b": "waiting"}


def test_a_twin_that_comes_with_a_word_of_the_first_takes_nothing_away_from_it(yard: Grounds) -> None:
    labels = yard.submit(chain("a"))
    yard.hello("rack1", session="here/1")
    yard.claim("rack1", session="here/1")
    has = canonical({"id": "rack1", "pool": "default"})
    yard.do(lambda transaction: hello(transaction, [Hello("rack1", one, has) for one in ("here/1", "there/1")]))
    assert yard.words(labels) == {"a": "running"}
    late = yard.poll("rack1", session="here/1")
    assert isinstance(late, Refusal)
    assert isinstance(yard.poll("rack1", session="there/1"), PollOutcome)


def test_a_twin_of_a_bot_with_too_much_for_one_transaction_lets_go_of_none_of_it(
    yard: Grounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bot_sessions, "LOST_MAX", 2)
    labels = yard.submit(graph(**{f"t{number}": node() for number in range(5)}))
    yard.hello("rack1", slots=5, session="here/1")
    yard.wait(2 * LEASE_MS, ["rack1"], session="here/1")
    yard.claim("rack1", 5, session="here/1")
    yard.hello("rack1", session="there/1")
    yard.sweep()
    assert set(yard.words(labels).values()) == {"running"}
    yard.hello("rack1", session="here/2")
    yard.sweep()
    assert set(yard.words(labels).values()) == {"waiting"}
