"""An approval: a person decides, or silence does; too early and too late change nothing."""

import json
from typing import Any

import pytest

from taskyard.core.states import Reason, State
from taskyard.lifecycle.approve import approve
from taskyard.lifecycle.commands import Approve, Code, Done, Refusal
from taskyard.lifecycle.doctor.check import doctor
from taskyard.lifecycle.idempotency import carry_out_keyed
from tests.lifecycle.graphs import graph, node, noop
from tests.lifecycle.harness import Labels, LifecycleHarness


def asking(*requires: str, message: object = "Ship it?", **fields: Any) -> dict[str, object]:
    """An approval."""
    payload = {"approval": message} | {name: fields.pop(name) for name in ("timeout",) if name in fields}
    return node(*requires, payload=payload, **fields)


def asked(harness: LifecycleHarness, *, reruns: int = 0, **fields: Any) -> Labels:
    """A graph that waits for an approval, with a dependent on success and one on failure."""
    ask = asking(**fields) | {"reruns": reruns}
    labels = harness.submit(graph(ask=ask, ship=node("ask"), mourn=node(failure=["ask"])))
    assert harness.run_server_tasks() == 1
    assert harness.why(labels["ask"]) == (State.RUNNING, Reason.APPROVAL)
    return labels


def decide(
    harness: LifecycleHarness, task: int, approved: bool = True, actor: str = "ann", **said: Any
) -> Done | Refusal:
    command = Approve(task, approved, actor=actor, **said)
    (answer,) = harness.do(lambda transaction: carry_out_keyed(transaction, [command], approve))
    assert isinstance(answer, Done | Refusal)
    return answer


def result(harness: LifecycleHarness, task: int) -> dict[str, Any]:
    with harness.store.read() as repo:
        found: dict[str, Any] = json.loads(repo.read.last_results([task])[task])
    return found


def sound(harness: LifecycleHarness) -> None:
    with harness.store.read() as repo:
        assert doctor(repo, harness.now) == []


def test_a_yes_lets_those_behind_it_go_and_is_their_input(harness: LifecycleHarness) -> None:
    labels = asked(harness)
    sound(harness)
    assert decide(harness, labels["ask"], comment="go") == Done(labels["ask"], State.SUCCESSFUL)
    assert harness.state_names(labels) == {"ask": "successful", "ship": "waiting", "mourn": "skipped"}
    decision = {"approved": True, "at_ms": harness.now, "by": "ann", "comment": "go", "timed_out": False}
    assert result(harness, labels["ask"]) == decision
    with harness.store.read() as repo:
        assert [json.loads(body) for _, _, body in repo.output.inputs([labels["ship"]])] == [decision]
        assert [(one.bot, one.signal) for one in repo.attempts.of(labels["ask"])] == [("server", "succeed")]
    assert harness.audits(labels["ask"]) == [("ann", "approve", "go")]
    sound(harness)


def test_a_no_fails_it_and_its_handler_runs(harness: LifecycleHarness) -> None:
    labels = asked(harness)
    assert decide(harness, labels["ask"], approved=False) == Done(labels["ask"], State.FAILED)
    assert harness.why(labels["ask"]) == (State.FAILED, Reason.DENIED)
    assert harness.state_names(labels) == {"ask": "failed", "ship": "blocked", "mourn": "waiting"}
    assert harness.audits(labels["ask"]) == [("ann", "deny", "")]


def test_a_second_decision_is_refused_with_the_first_one(harness: LifecycleHarness) -> None:
    labels = asked(harness)
    decide(harness, labels["ask"], key="k1")
    assert decide(harness, labels["ask"], key="k1") == Done(labels["ask"], State.SUCCESSFUL)
    late = decide(harness, labels["ask"], approved=False, actor="bob")
    assert isinstance(late, Refusal)
    assert late.code is Code.CONFLICT
    assert "cannot deny" in late.text
    assert "it was approved by ann at 2026-01-01T00:00:00Z" in late.text
    assert harness.audits(labels["ask"]) == [("ann", "approve", "")]


@pytest.mark.parametrize(("silence", "state"), [("deny", State.FAILED), ("approve", State.SUCCESSFUL)])
def test_an_approval_that_times_out_takes_the_chosen_decision(
    harness: LifecycleHarness, silence: str, state: State
) -> None:
    labels = asked(harness, message={"message": "Ship it?", "on_timeout": silence}, timeout="2h")
    harness.advance(7_199_999)
    harness.sweep()
    assert harness.why(labels["ask"]) == (State.RUNNING, Reason.APPROVAL)
    sound(harness)
    harness.advance(1)
    harness.sweep()
    assert harness.why(labels["ask"]) == (state, Reason.TIMED_OUT)
    shown = result(harness, labels["ask"])
    assert (shown["approved"], shown["by"], shown["timed_out"]) == (silence == "approve", None, True)
    late = decide(harness, labels["ask"])
    assert isinstance(late, Refusal)
    assert "it was not answered in time, so it was" in late.text
    sound(harness)


def test_without_a_time_out_it_waits_for_ever(harness: LifecycleHarness) -> None:
    labels = asked(harness)
    harness.advance(40 * 86_400_000)
    harness.sweep()
    assert harness.state_names(labels)["ask"] == "running"
    assert harness.task(labels["ask"]).due_ms is None


def test_a_decision_that_is_too_early_is_refused_with_the_reason(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), ask=asking("a")))
    early = decide(harness, labels["ask"])
    assert isinstance(early, Refusal)
    assert early.text.endswith("it is unscheduled (prerequisite), so the approval has not been requested yet")
    other = decide(harness, labels["a"])
    assert isinstance(other, Refusal)
    assert other.text.endswith("it is no approval but a command, and is not decided by people")
    assert isinstance(decide(harness, 8), Refusal)


def test_a_canceled_approval_ends_at_once_and_cannot_be_decided(harness: LifecycleHarness) -> None:
    labels = asked(harness)
    assert harness.cancel(labels["ask"]) == Done(labels["ask"], State.CANCELED)
    assert harness.states_passed(labels["ask"])[-2:] == ["stopping", "canceled"]
    late = decide(harness, labels["ask"])
    assert isinstance(late, Refusal)
    assert late.text.endswith("it is canceled (asked), and was not decided")
    sound(harness)
    other = asked(harness)
    harness.cancel(graph=other.graph)
    assert harness.state_names(other) == {"ask": "canceled", "ship": "canceled", "mourn": "canceled"}
    assert harness.graph_state(other) == "canceled"


def test_its_deadline_is_an_error_though_its_time_out_would_be_a_yes(harness: LifecycleHarness) -> None:
    message = {"message": "Ship it?", "on_timeout": "approve"}
    labels = asked(harness, message=message, timeout="2h", deadline="1h")
    harness.advance(3_600_000)
    harness.sweep()
    assert harness.why(labels["ask"]) == (State.ERROR, Reason.DEADLINE)
    sound(harness)


@pytest.mark.parametrize("silence", ["approve", "deny"])
def test_its_time_out_counts_though_its_deadline_has_passed_when_that_is_noticed(
    harness: LifecycleHarness, silence: str
) -> None:
    message = {"message": "Ship it?", "on_timeout": silence}
    labels = asked(harness, message=message, timeout="1h", deadline="2h")
    harness.advance(3 * 3_600_000)  # and no server was running meanwhile
    harness.sweep()
    expected = State.SUCCESSFUL if silence == "approve" else State.FAILED
    assert harness.why(labels["ask"]) == (expected, Reason.TIMED_OUT)
    sound(harness)


def test_a_rerun_asks_again_and_a_new_time_begins(harness: LifecycleHarness) -> None:
    labels = asked(harness, timeout="1h")
    decide(harness, labels["ask"], approved=False)
    harness.rerun(labels["ask"])
    harness.advance(3_000_000)
    harness.run_server_tasks()
    harness.advance(3_000_000)
    harness.sweep()
    assert harness.why(labels["ask"]) == (State.RUNNING, Reason.APPROVAL)
    assert isinstance(decide(harness, labels["ask"]), Done)
    assert harness.state_names(labels)["ship"] == "waiting"
    assert harness.task(labels["ask"]).life.attempt == 2


def test_automatic_reruns_ask_again_after_a_denial(harness: LifecycleHarness) -> None:
    labels = asked(harness, reruns=1)
    assert decide(harness, labels["ask"], approved=False) == Done(labels["ask"], State.WAITING)
    harness.run_server_tasks()
    assert decide(harness, labels["ask"], approved=False) == Done(labels["ask"], State.FAILED)


def test_mutexes_are_held_while_a_person_thinks(harness: LifecycleHarness) -> None:
    labels = harness.submit(
        graph(ask=asking(mutexes=[{"key": "gate"}]), a=noop(), other=asking(mutexes=[{"key": "gate"}]))
    )
    assert harness.state_names(labels)["ask"] == "pending"
    harness.run_server_tasks()
    assert harness.state_names(labels)["a"] == "successful"


def test_a_bot_that_begins_again_does_not_take_the_question_with_it(harness: LifecycleHarness) -> None:
    labels = asked(harness)
    harness.hello("rack1")
    harness.hello("rack1", "s2")
    harness.goodbye("rack1", "s2")
    assert harness.state_names(labels)["ask"] == "running"
