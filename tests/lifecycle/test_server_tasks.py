"""Server tasks: the kind `noop`."""

from taskyard.lifecycle.server_tasks import run_server_tasks
from tests.lifecycle.graphs import graph, node, noop
from tests.lifecycle.harness import LifecycleHarness


def test_a_task_that_does_nothing_begins_and_ends_at_once(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=noop(), b=node("a")))
    assert harness.state_names(labels) == {"a": "waiting", "b": "unscheduled"}
    assert harness.run_server_tasks() == 1
    assert harness.state_names(labels) == {"a": "successful", "b": "waiting"}
    assert harness.states_passed(labels["a"]) == ["pending", "waiting", "running", "successful"]
    with harness.store.read() as repo:
        assert [(one.bot, one.signal) for one in repo.attempts.of(labels["a"])] == [("server", "succeed")]


def test_a_chain_of_them_takes_one_call_each(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=noop(), b=noop("a"), c=noop("b"), d=noop()))
    assert [harness.run_server_tasks() for _ in range(4)] == [2, 1, 1, 0]
    assert harness.graph_state(labels) == "finished"


def test_no_bot_is_ever_given_one(harness: LifecycleHarness) -> None:
    harness.submit(graph(a=noop()))
    harness.hello("rack1")
    assert harness.claim("rack1") == ()
    harness.run_server_tasks()


def test_an_approval_does_not_hide_the_tasks_behind_it(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(ask=node(payload={"approval": "ship it?"}, priority=1), a=noop()))
    assert [harness.do(lambda transaction: run_server_tasks(transaction, 1)) for _ in range(3)] == [1, 1, 0]
    assert harness.state_names(labels) == {"ask": "running", "a": "successful"}


def test_a_canceled_graph_and_a_passed_deadline_are_left_alone(harness: LifecycleHarness) -> None:
    canceled = harness.submit(graph(a=noop()))
    late = harness.submit(graph(a=noop(deadline="10s")))
    harness.cancel(graph=canceled.graph)
    harness.advance(10_000)
    assert harness.run_server_tasks() == 0
    harness.sweep()
    assert harness.state_names(late) == {"a": "error"}
