"""What the server runs itself: a task that does nothing."""

from taskyard.lifecycle.server_tasks import run_server_tasks
from tests.lifecycle.grounds import Grounds, graph, node, noop


def test_a_task_that_does_nothing_begins_and_ends_at_once(yard: Grounds) -> None:
    labels = yard.submit(graph(a=noop(), b=node("a")))
    assert yard.words(labels) == {"a": "waiting", "b": "unscheduled"}
    assert yard.serve_own() == 1
    assert yard.words(labels) == {"a": "successful", "b": "waiting"}
    assert yard.story(labels["a"]) == ["pending", "waiting", "running", "successful"]
    with yard.store.read() as repo:
        assert [(one.bot, one.signal) for one in repo.attempts.of(labels["a"])] == [("server", "succeed")]


def test_a_chain_of_them_takes_one_call_each(yard: Grounds) -> None:
    labels = yard.submit(graph(a=noop(), b=noop("a"), c=noop("b"), d=noop()))
    assert [yard.serve_own() for _ in range(4)] == [2, 1, 1, 0]
    assert yard.verdict(labels) == "finished"


def test_no_bot_is_ever_given_one(yard: Grounds) -> None:
    yard.submit(graph(a=noop()))
    yard.hello("rack1")
    assert yard.claim("rack1") == ()
    yard.serve_own()


def test_an_approval_does_not_hide_the_tasks_behind_it(yard: Grounds) -> None:
    labels = yard.submit(graph(ask=node(payload={"approval": "ship it?"}, priority=1), a=noop()))
    assert [yard.do(lambda transaction: run_server_tasks(transaction, 1)) for _ in range(3)] == [1, 1, 0]
    assert yard.words(labels) == {"ask": "running", "a": "successful"}


def test_a_canceled_graph_and_a_passed_deadline_are_left_alone(yard: Grounds) -> None:
    canceled = yard.submit(graph(a=noop()))
    late = yard.submit(graph(a=noop(deadline="10s")))
    yard.cancel(graph=canceled.graph)
    yard.later(10_000)
    assert yard.serve_own() == 0
    yard.sweep()
    assert yard.words(late) == {"a": "error"}
