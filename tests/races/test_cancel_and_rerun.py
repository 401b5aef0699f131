"""Commands of people against reports of bots at the same moment: one comes first, and both answers agree."""

from collections.abc import Callable

import pytest

from taskyard.core.states import Signal, State
from taskyard.lifecycle.commands import BulkOutcome, Cancel, Code, Done, Lease, Refusal, Rerun
from tests.crash.small_pages import PLACES
from tests.engine.harness import WAIT_S, graph, task, wide
from tests.lifecycle.harness import Labels, without_counts
from tests.races.conftest import Open
from tests.races.invariants import Snapshot
from tests.races.servers import COMMIT, Server, run_concurrently, wait_for_lock_wait

Pair = tuple[Server, Server]
#: How many races run without a halt.
ROUNDS = 25


def canceling(server: Server, labels: Labels) -> Callable[[], object]:
    return lambda: server.engine.cancel(Cancel(graph=labels.graph, actor="ann"))


def started_after(found: Snapshot, labels: Labels) -> list[str | None]:
    """What began in a graph after it was canceled."""
    facts = found.facts[labels.graph]
    canceled = next(place for place, fact in enumerate(facts) if fact.target == "canceled" and fact.signal is None)
    return [fact.signal for fact in facts[canceled:] if fact.signal in {"claim", "release", "admit"}]


# Cancels.


def work(server: Server) -> list[tuple[Lease, Done | Refusal]]:
    """Take and end what there is, a little at a time."""
    done = []
    while leases := server.claim(2):
        done += [(lease, server.end(lease)) for lease in leases]
    return done


@pytest.mark.parametrize("pages", ["whole", "small"])
def test_a_graph_that_is_canceled_while_bots_are_at_it_starts_nothing_more(
    servers: Open, pages: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pages == "small":
        for module, name in PLACES:
            monkeypatch.setattr(module, name, 5)
    three = servers(3)
    for server in three:
        server.hello()
    for _ in range(ROUNDS):
        labels = three[0].submit(
            graph(**{f"t{n}": task() for n in range(16)}, **{f"u{n}": task(f"t{n}") for n in "012"})
        )
        three[0].settle()
        _, ones, twos = run_concurrently(canceling(three[2], labels), lambda: work(three[0]), lambda: work(three[1]))
        assert isinstance(ones, list)
        assert isinstance(twos, list)
        for _, answer in [*ones, *twos]:
            assert isinstance(answer, Done)
            assert answer.state in {State.SUCCESSFUL, State.CANCELED}
        for server in three:  # each knows what its own commits have left to do
            server.settle()
        states = set(three[0].states(labels).values())
        assert states <= {"successful", "canceled"}
        # Sometimes the bots are done before the cancel arrives.
        is_late = states == {"successful"}
        assert three[0].graph_state(labels.graph) == ("finished" if is_late else "canceled")
        assert is_late or started_after(three[0].audit(), labels) == []


def test_a_claim_that_comes_before_the_cancel_is_stopped(pair: Pair) -> None:
    one, two = pair
    labels = one.submit(wide(2))
    with one.halted(COMMIT) as halt:
        taking = one.in_thread(one.claim, 1)
        halt.reached()
        asking = two.in_thread(canceling(two, labels))
        wait_for_lock_wait(one.url)
    (lease,) = taking.result(WAIT_S)
    assert without_counts(asking.result(WAIT_S)) == BulkOutcome(labels.graph, 2)
    assert one.states(labels) == {"t0": "stopping", "t1": "canceled"}
    assert one.end(lease) == Done(lease.task, State.CANCELED)


def test_a_claim_that_comes_too_late_gets_nothing(pair: Pair) -> None:
    one, two = pair
    labels = one.submit(wide(2))
    with two.halted(COMMIT) as halt:
        asking = two.in_thread(canceling(two, labels))
        halt.reached()
        assert one.claim(2) == ()
    assert without_counts(asking.result(WAIT_S)) == BulkOutcome(labels.graph, 2)
    assert set(one.states(labels).values()) == {"canceled"}


def test_a_claim_that_has_chosen_before_the_cancel_looks_again(pair: Pair) -> None:
    one, two = pair
    labels = one.submit(wide(2))
    other = one.submit(wide(1))
    with one.halted("insert_attempts") as halt:  # it has chosen the tasks, and has not read the state of the graph yet
        taking = one.in_thread(one.claim, 3)
        halt.reached()
        two.engine.transact(
            lambda transaction: transaction.cancel_graph(labels.graph)
        )  # as of a large one: its tasks follow later
    assert [lease.task for lease in taking.result(WAIT_S)] == [other["t0"]]
    assert one.store.lost == 1
    assert {type(one.engine.cancel(Cancel(task=id))) for id in labels.values()} == {Done}
    assert set(one.states(labels).values()) == {"canceled"}


@pytest.mark.parametrize("early", ["cancel", "report"])
def test_a_result_and_a_cancel_of_its_graph_follow_one_another(pair: Pair, early: str) -> None:
    one, two = pair
    labels = one.submit(graph(a=task(), b=task("a")))
    (lease,) = one.claim()
    acts: list[tuple[Server, Callable[[], object]]] = [(one, lambda: one.end(lease)), (two, canceling(two, labels))]
    (first, act), (then, other) = acts if early == "report" else reversed(acts)
    with first.halted(COMMIT) as halt:
        acting = first.in_thread(act)
        halt.reached()
        following = then.in_thread(other)
        wait_for_lock_wait(one.url)
    answers = [acting.result(WAIT_S), following.result(WAIT_S)]
    ended = State.SUCCESSFUL if early == "report" else State.CANCELED
    assert Done(lease.task, ended) in answers
    assert one.states(labels) == {"a": str(ended), "b": "canceled"}
    assert one.graph_state(labels.graph) == "canceled"


# Reruns.


def handled(server: Server) -> tuple[Labels, Lease]:
    """A graph whose task has failed, and whose handler runs: when the handler ends, the graph is finished."""
    deal = task() | {"requires": [{"task": "a", "on": "failure"}]}
    labels = server.submit(graph(a=task(), deal=deal))
    assert isinstance(server.end(server.claim()[0], Signal.FAIL), Done)
    (lease,) = server.claim()
    assert lease.task == labels["deal"]
    return labels, lease


def trying_again(server: Server, labels: Labels) -> Callable[[], object]:
    return lambda: server.engine.rerun(Rerun(task=labels["a"], actor="ann"))


def refused(answer: object) -> bool:
    return isinstance(answer, Refusal) and answer.code is Code.CONFLICT


def test_a_graph_is_finished_or_one_of_its_tasks_is_rerun_and_never_both(pair: Pair) -> None:
    one, two = pair
    for _ in range(5):  # each takes the row that the other has, and a deadlock is only noticed after a second
        labels, lease = handled(one)
        ended, answer = run_concurrently(lambda: one.end(lease), trying_again(two, labels))  # noqa: B023
        assert ended == Done(labels["deal"], State.SUCCESSFUL)
        check_rerun(one, labels, answer)


def check_rerun(server: Server, labels: Labels, answer: object) -> None:
    if refused(answer):
        assert server.graph_state(labels.graph) == "finished"
        assert server.states(labels) == {"a": "failed", "deal": "successful"}
    else:
        assert answer == Done(labels["a"], State.WAITING)
        assert server.graph_state(labels.graph) == "running"
        assert server.end(server.claim()[0]) == Done(labels["a"], State.SUCCESSFUL)
        assert server.graph_state(labels.graph) == "finished"


@pytest.mark.parametrize("early", ["rerun", "report"])
def test_a_rerun_and_the_end_of_its_graph_follow_one_another(pair: Pair, early: str) -> None:
    one, two = pair
    labels, lease = handled(one)
    acts: list[tuple[Server, Callable[[], object]]] = [
        (one, lambda: one.end(lease)),
        (two, trying_again(two, labels)),
    ]
    (first, act), (then, other) = acts if early == "report" else reversed(acts)
    with first.halted(COMMIT) as halt:
        acting = first.in_thread(act)
        halt.reached()
        following = then.in_thread(other)
        wait_for_lock_wait(one.url)
    answers = {first: acting.result(WAIT_S), then: following.result(WAIT_S)}
    assert answers[one] == Done(labels["deal"], State.SUCCESSFUL)
    assert refused(answers[two]) is (early == "report")
    check_rerun(one, labels, answers[two])


def test_two_concurrent_reruns_open_one_round(pair: Pair) -> None:
    one, two = pair
    for _ in range(ROUNDS):
        labels = one.submit(graph(a=task(), b=task("a")))
        one.end(one.claim()[0], Signal.FAIL)
        assert one.states(labels) == {"a": "failed", "b": "blocked"}
        answers = run_concurrently(trying_again(one, labels), trying_again(two, labels))
        assert sorted(answer.echo for answer in answers if isinstance(answer, Done)) == [False, True]
        with one.store.read() as repo:
            lives = {task.id: task.life.round for task in repo.tasks.read(list(labels.values()))}
        assert lives == {labels["a"]: 2, labels["b"]: 1}
        assert isinstance(one.end(one.claim()[0]), Done)
        assert isinstance(one.end(one.claim()[0]), Done)
        assert one.graph_state(labels.graph) == "finished"
