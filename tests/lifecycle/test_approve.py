"""An approval: a person decides, or silence does; too early and too late change nothing."""

import json
from typing import Any

import pytest

from taskyard.core.states import Reason, State
from taskyard.lifecycle.approve import approve
from taskyard.lifecycle.commands import Approve, Code, Done, Refusal
from taskyard.lifecycle.doctor.check import doctor
from taskyard.lifecycle.idempotency import carry_out_keyed
from tests.lifecycle.grounds import Grounds, graph, node, noop
from tests.lifecycle.yard import Labels


def asking(*requires: str, message: object = "Ship it?", **fields: Any) -> dict[str, object]:
    """A node that asks a person."""
    payload = {"approval": message} | {name: fields.pop(name) for name in ("timeout",) if name in fields}
    return node(*requires, payload=payload, **fields)


def asked(yard: Grounds, *, reruns: int = 0, **fields: Any) -> Labels:
    """A graph that waits for a person, with somebody behind the yes and somebody behind the no."""
    ask = asking(**fields) | {"reruns": reruns}
    labels = yard.submit(graph(ask=ask, ship=node("ask"), mourn=node(failure=["ask"])))
    assert yard.serve_own() == 1
    assert yard.why(labels["ask"]) == (State.RUNNING, Reason.APPROVAL)
    return labels


def decide(yard: Grounds, task: int, approved: bool = True, actor: str = "ann", **said: Any) -> Done | Refusal:
    command = Approve(task, approved, actor=actor, **said)
    (answer,) = yard.do(lambda transaction: carry_out_keyed(transaction, [command], approve))
    assert isinstance(answer, Done | Refusal)
    return answer


def result(yard: Grounds, task: int) -> dict[str, Any]:
    with yard.store.read() as repo:
        found: dict[str, Any] = json.loads(repo.read.last_results([task])[task])
    return found


def sound(yard: Grounds) -> None:
    with yard.store.read() as repo:
        assert doctor(repo, yard.now) == []


def test_a_yes_lets_those_behind_it_go_and_is_their_input(yard: Grounds) -> None:
    labels = asked(yard)
    sound(yard)
    assert decide(yard, labels["ask"], comment="go") == Done(labels["ask"], State.SUCCESSFUL)
    assert yard.words(labels) == {"ask": "successful", "ship": "waiting", "mourn": "skipped"}
    decision = {"approved": True, "at_ms": yard.now, "by": "ann", "comment": "go", "timed_out": False}
    assert result(yard, labels["ask"]) == decision
    with yard.store.read() as repo:
        assert [json.loads(body) for _, _, body in repo.output.inputs([labels["ship"]])] == [decision]
        assert [(one.bot, one.signal) for one in repo.attempts.of(labels["ask"])] == [("server", "succeed")]
    assert yard.audits(labels["ask"]) == [("ann", "approve", "go")]
    sound(yard)


def test_a_no_fails_it_and_its_handler_runs(yard: Grounds) -> None:
    labels = asked(yard)
    assert decide(yard, labels["ask"], approved=False) == Done(labels["ask"], State.FAILED)
    assert yard.why(labels["ask"]) == (State.FAILED, Reason.DENIED)
    assert yard.words(labels) == {"ask": "failed", "ship": "blocked", "mourn": "waiting"}
    assert yard.audits(labels["ask"]) == [("ann", "deny", "")]


def test_a_second_decision_is_refused_with_the_first_one(yard: Grounds) -> None:
    labels = asked(yard)
    decide(yard, labels["ask"], key="k1")
    assert decide(yard, labels["ask"], key="k1") == Done(labels["ask"], State.SUCCESSFUL)
    late = decide(yard, labels["ask"], approved=False, actor="bob")
    assert isinstance(late, Refusal)
    assert late.code is Code.CONFLICT
    assert "cannot deny" in late.text
    assert "it was approved by ann at 2026-01-01T00:00:00Z" in late.text
    assert yard.audits(labels["ask"]) == [("ann", "approve", "")]


@pytest.mark.parametrize(("silence", "state"), [("deny", State.FAILED), ("approve", State.SUCCESSFUL)])
def test_an_approval_that_times_out_takes_the_chosen_decision(yard: Grounds, silence: str, state: State) -> None:
    labels = asked(yard, message={"message": "Ship it?", "on_timeout": silence}, timeout="2h")
    yard.later(7_199_999)
    yard.sweep()
    assert yard.why(labels["ask"]) == (State.RUNNING, Reason.APPROVAL)
    sound(yard)
    yard.later(1)
    yard.sweep()
    assert yard.why(labels["ask"]) == (state, Reason.TIMED_OUT)
    told = result(yard, labels["ask"])
    assert (told["approved"], told["by"], told["timed_out"]) == (silence == "approve", None, True)
    late = decide(yard, labels["ask"])
    assert isinstance(late, Refusal)
    assert "it was not answered in time, so it was" in late.text
    sound(yard)


def test_without_a_time_out_it_waits_for_ever(yard: Grounds) -> None:
    labels = asked(yard)
    yard.later(40 * 86_400_000)
    yard.sweep()
    assert yard.words(labels)["ask"] == "running"
    assert yard.task(labels["ask"]).due_ms is None


def test_too_early_is_refused_and_says_why(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), ask=asking("a")))
    early = decide(yard, labels["ask"])
    assert isinstance(early, Refusal)
    assert early.text.endswith("it is unscheduled (prerequisite), so nobody has been asked yet")
    other = decide(yard, labels["a"])
    assert isinstance(other, Refusal)
    assert other.text.endswith("it is no approval but a command, and is not decided by people")
    assert isinstance(decide(yard, 8), Refusal)


def test_a_canceled_approval_ends_at_once_and_cannot_be_decided(yard: Grounds) -> None:
    labels = asked(yard)
    assert yard.cancel(labels["ask"]) == Done(labels["ask"], State.CANCELED)
    assert yard.story(labels["ask"])[-2:] == ["stopping", "canceled"]
    late = decide(yard, labels["ask"])
    assert isinstance(late, Refusal)
    assert late.text.endswith("it is canceled (asked), and was not decided")
    sound(yard)
    other = asked(yard)
    yard.cancel(graph=other.graph)
    assert yard.words(other) == {"ask": "canceled", "ship": "canceled", "mourn": "canceled"}
    assert yard.verdict(other) == "canceled"


def test_its_deadline_is_an_error_though_its_time_out_would_be_a_yes(yard: Grounds) -> None:
    message = {"message": "Ship it?", "on_timeout": "approve"}
    labels = asked(yard, message=message, timeout="2h", deadline="1h")
    yard.later(3_600_000)
    yard.sweep()
    assert yard.why(labels["ask"]) == (State.ERROR, Reason.DEADLINE)
    sound(yard)


@pytest.mark.parametrize("silence", ["approve", "deny"])
def test_its_time_out_counts_though_its_deadline_has_passed_when_that_is_noticed(yard: Grounds, silence: str) -> None:
    message = {"message": "Ship it?", "on_timeout": silence}
    labels = asked(yard, message=message, timeout="1h", deadline="2h")
    yard.later(3 * 3_600_000)  # and no server was there meanwhile
    yard.sweep()
    expected = State.SUCCESSFUL if silence == "approve" else State.FAILED
    assert yard.why(labels["ask"]) == (expected, Reason.TIMED_OUT)
    sound(yard)


def test_a_rerun_asks_again_and_a_new_time_begins(yard: Grounds) -> None:
    labels = asked(yard, timeout="1h")
    decide(yard, labels["ask"], approved=False)
    yard.rerun(labels["ask"])
    yard.later(3_000_000)
    yard.serve_own()
    yard.later(3_000_000)
    yard.sweep()
    assert yard.why(labels["ask"]) == (State.RUNNING, Reason.APPROVAL)
    assert isinstance(decide(yard, labels["ask"]), Done)
    assert yard.words(labels)["ship"] == "waiting"
    assert yard.task(labels["ask"]).life.attempt == 2


def test_automatic_reruns_ask_again_after_a_denial(yard: Grounds) -> None:
    labels = asked(yard, reruns=1)
    assert decide(yard, labels["ask"], approved=False) == Done(labels["ask"], State.WAITING)
    yard.serve_own()
    assert decide(yard, labels["ask"], approved=False) == Done(labels["ask"], State.FAILED)


def test_mutexes_are_held_while_a_person_thinks(yard: Grounds) -> None:
    labels = yard.submit(
        graph(ask=asking(mutexes=[{"key": "gate"}]), a=noop(), other=asking(mutexes=[{"key": "gate"}]))
    )
    assert yard.words(labels)["ask"] == "pending"
    yard.serve_own()
    assert yard.words(labels)["a"] == "successful"


def test_a_bot_that_begins_again_does_not_take_the_question_with_it(yard: Grounds) -> None:
    labels = asked(yard)
    yard.hello("rack1")
    yard.hello("rack1", "s2")
    yard.goodbye("rack1", "s2")
    assert yard.words(labels)["ask"] == "running"
