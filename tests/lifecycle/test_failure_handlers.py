"""How failures hear of those who deal with them: only what matters, and page by page where there are too many."""

from collections.abc import Sequence

import pytest

from taskyard.core.graph.state import Handlers
from taskyard.core.states import GraphState, Signal, State
from taskyard.lifecycle import failure_handlers, propagate, transaction
from taskyard.lifecycle.cancel import cancel
from taskyard.lifecycle.commands import BulkOutcome, Cancel, Done, Lease, Report, Rerun
from taskyard.lifecycle.doctor import check
from taskyard.lifecycle.failure_handlers import REPORT_RUN, REPORT_TO_FAILURES
from taskyard.lifecycle.report import end_attempts
from taskyard.lifecycle.rerun import rerun
from taskyard.lifecycle.transaction import Transaction
from taskyard.lifecycle.transition import Transition
from taskyard.store.queries import TransactionConflict
from tests.lifecycle.grounds import Grounds, node
from tests.lifecycle.in_short import in_short
from tests.lifecycle.tallied import EDGES, Tallied
from tests.lifecycle.yard import Labels

#: How many edges fit into one transaction here, and more prerequisites than fit into two.
FITS, MANY = 10, 25


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "PROPAGATED_MAX", FITS)
    monkeypatch.setattr(propagate, "PAGE_MAX", FITS)
    monkeypatch.setattr(failure_handlers, "PAGE_MAX", FITS)


def cleanup(yard: Grounds, join: str = "all") -> Labels:
    """A task that comes after many others, however they end."""
    names = [f"t{place}" for place in range(MANY)]
    labels = yard.submit({"tasks": {**{name: node() for name in names}, "clean": node(always=names, join=join)}})
    yard.hello("rack1")
    return labels


def test_a_handler_that_ends_during_a_retry_has_not_handled_the_next_failure(yard: Grounds) -> None:
    labels = yard.submit({"tasks": {"a": node(), "deal": node(failure=["a"])}})
    yard.hello("rack1")
    yard.end("rack1", yard.claim("rack1")[0], Signal.FAIL)
    deal = yard.start("rack1", labels, 1)["deal"]
    yard.rerun(labels["a"])
    again = yard.start("rack1", labels, 1)["a"]
    yard.end("rack1", deal)
    yard.end("rack1", again, Signal.FAIL)
    assert yard.words(labels) == {"a": "failed", "deal": "successful"}
    assert yard.graph(labels.graph).state is GraphState.BLOCKED


def test_a_handler_that_ended_before_a_failure_has_not_handled_it(yard: Grounds) -> None:
    labels = yard.submit({"tasks": {"a": node(), "b": node(), "deal": node(always=["a", "b"], join="any")}})
    yard.hello("rack1")
    both = yard.start("rack1", labels, 2)
    yard.end("rack1", both["a"])
    yard.end("rack1", yard.start("rack1", labels, 1)["deal"])
    yard.end("rack1", both["b"], Signal.FAIL)
    assert yard.graph(labels.graph).state is GraphState.BLOCKED


def handlers(yard: Grounds, labels: Labels, *names: str) -> list[Handlers]:
    return [yard.task(labels[name]).handlers for name in names]


def in_key_order(labels: Labels) -> list[str]:
    """Name the prerequisites in the order in which they are told."""
    return sorted((name for name in labels if name != "clean"), key=lambda name: labels[name])


def consult(yard: Grounds) -> None:
    """Have every number counted afresh, with notes open."""
    with yard.store.read() as repo:
        assert check.doctor(repo, yard.now) == []


def end(transaction: Transaction, lease: Lease) -> None:
    end_attempts(transaction, [("rack1", Report(lease.task, lease.attempt, lease.fence, Signal.SUCCEED))])


def kinds(yard: Grounds) -> list[str]:
    return [note.kind for note in yard.notes()]


def test_no_transaction_of_a_cleanup_of_many_reads_more_edges_than_fit(yard: Grounds) -> None:
    yard.store = tallied = Tallied(yard.store)
    labels = cleanup(yard)
    yard.run("rack1", labels, "t3", "t7", "t20")
    yard.run_continuations()
    tallied.most(EDGES)
    (lease,) = yard.start("rack1", labels).values()
    assert tallied.most(EDGES) == 0  # who comes closer to running adds what it added before
    yard.end("rack1", lease)
    assert kinds(yard) == [REPORT_RUN]
    assert yard.verdict(labels) == "running"
    yard.run_continuations()
    assert 0 < tallied.most(EDGES) <= FITS + 1
    assert handlers(yard, labels, "t3", "t7", "t20", "t0") == [Handlers(ran=1)] * 3 + [Handlers()]
    assert yard.verdict(labels) == "finished"


def test_a_small_cleanup_is_reported_at_once_and_reads_no_edge_of_a_success(yard: Grounds) -> None:
    yard.store = tallied = Tallied(yard.store)
    labels = yard.submit({"tasks": {"a": node(), "b": node(), "c": node(), "clean": node(always=["a", "b", "c"])}})
    yard.hello("rack1")
    yard.run("rack1", labels, "b")
    (lease,) = yard.start("rack1", labels).values()
    tallied.most(EDGES)
    yard.end("rack1", lease)
    assert tallied.most(EDGES) == 1  # that of b
    assert yard.verdict(labels) == "finished"


def test_the_dependents_of_a_cleanup_do_not_wait_for_the_failures_it_handled(yard: Grounds) -> None:
    names = [f"t{place}" for place in range(MANY)]
    nodes = {**{name: node() for name in names}, "clean": node(always=names), "next": node("clean")}
    labels = yard.submit({"tasks": nodes})
    yard.hello("rack1")
    yard.run("rack1", labels)
    yard.run_continuations()
    yard.run("rack1", labels)
    assert kinds(yard) == [REPORT_RUN]
    assert yard.words(labels)["next"] == "waiting"


def test_a_task_that_fails_before_it_knows_of_a_run_still_counts_it(yard: Grounds) -> None:
    labels = cleanup(yard, join="any")
    first, *_, last = in_key_order(labels)
    leases = yard.start("rack1", labels)
    yard.fail("rack1", leases[first])
    yard.run("rack1", labels)
    assert kinds(yard) == [REPORT_RUN]
    assert yard.take_up(yard.notes()[0]) is False
    yard.fail("rack1", leases[last])
    assert handlers(yard, labels, first, last) == [Handlers(ran=1), Handlers(open=1)]
    consult(yard)
    yard.run_continuations()
    assert handlers(yard, labels, first, last) == [Handlers(ran=1), Handlers(ran=1)]
    assert yard.graph(labels.graph).tally.unhandled == 0


def test_later_transitions_of_a_handler_are_reported_after_earlier_ones(yard: Grounds) -> None:
    labels = cleanup(yard, join="any")
    first, *_, last = in_key_order(labels)
    leases = yard.start("rack1", labels)
    for label in (first, last):
        yard.fail("rack1", leases[label])
    yard.cancel(labels["clean"])
    assert yard.take_up(yard.notes()[0]) is False
    assert handlers(yard, labels, first, last) == [Handlers(), Handlers(open=1)]
    assert yard.graph(labels.graph).tally.unhandled == 2  # the first one and the cleanup itself
    consult(yard)
    yard.rerun(labels["clean"])
    assert kinds(yard) == [REPORT_TO_FAILURES, REPORT_TO_FAILURES]
    assert [yard.take_up(yard.notes()[-1]) for _ in range(5)] == [False] * 4 + [True]
    assert handlers(yard, labels, first, last) == [Handlers(open=1)] * 2
    consult(yard)


def test_who_shares_a_transaction_shares_what_fits_and_later_moves_wait_for_what_did_not(yard: Grounds) -> None:
    names = [f"t{place}" for place in range(FITS)]
    nodes = {**{name: node() for name in names}, "one": node(failure=names), "two": node(failure=names)}
    labels = yard.submit({"tasks": nodes})
    yard.cancel(labels["t0"])
    assert handlers(yard, labels, "t0") == [Handlers(open=2)]
    yard.do(lambda transaction: cancel(transaction, [Cancel(labels[label]) for label in ("one", "two")]))
    assert [(note.kind, note.task) for note in yard.notes()] == [(REPORT_TO_FAILURES, labels["two"])]
    assert handlers(yard, labels, "t0") == [Handlers(open=1)]
    yard.rerun(labels["two"])
    assert kinds(yard) == [REPORT_TO_FAILURES, REPORT_TO_FAILURES]
    consult(yard)
    yard.run_continuations()
    assert handlers(yard, labels, "t0") == [Handlers(open=1)]


def test_a_run_does_not_count_for_a_failure_that_came_after_it(yard: Grounds) -> None:
    labels = cleanup(yard)
    last = in_key_order(labels)[-1]
    yard.run("rack1", labels, last)
    yard.run_continuations()
    yard.run("rack1", labels)
    assert kinds(yard) == [REPORT_RUN]
    assert in_short(yard.rerun(labels[last])) == BulkOutcome(labels[last], 0, promised=True)
    assert in_short(yard.rerun(graph=labels.graph)) == BulkOutcome(labels.graph, 0, promised=True)
    consult(yard)
    yard.run_continuations()
    yard.run("rack1", labels, last)
    assert yard.task(labels[last]).life.round == 2
    assert handlers(yard, labels, last) == [Handlers()]
    assert yard.verdict(labels) == "blocked"


def test_a_rerun_that_did_not_see_a_run_end_is_tried_again(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Grounds(postgres_url)
    labels = cleanup(yard)
    yard.run("rack1", labels, "t0")
    yard.run_continuations()
    lease = yard.start("rack1", labels)["clean"]

    def rerun_while_the_cleanup_ends(transaction: Transaction) -> None:
        send = transaction.apply

        def end_first(moves: Sequence[Transition] = ()) -> None:
            yard.end("rack1", lease)
            assert kinds(yard) == [REPORT_RUN]
            send(moves)

        monkeypatch.setattr(transaction, "apply", end_first)
        assert rerun(transaction, [Rerun(labels["t0"])]) == [Done(labels["t0"], State.WAITING)]

    with pytest.raises(TransactionConflict, match="handler finished"):
        yard.do(rerun_while_the_cleanup_ends)
    assert in_short(yard.rerun(labels["t0"])) == BulkOutcome(labels["t0"], 0, promised=True)
    yard.run_continuations()
    yard.run("rack1", labels, "t0")
    assert handlers(yard, labels, "t0") == [Handlers()]
    yard.close()


def test_a_run_that_ends_with_a_rerun_in_one_transaction_does_not_count_for_the_new_round(yard: Grounds) -> None:
    labels = cleanup(yard)
    yard.run("rack1", labels, "t0")
    yard.run_continuations()
    lease = yard.start("rack1", labels)["clean"]
    with yard.transaction() as transaction:
        rerun(transaction, [Rerun(labels["t0"])])
        end(transaction, lease)
    yard.run_continuations()
    yard.run("rack1", labels, "t0")
    assert handlers(yard, labels, "t0") == [Handlers()]
    assert yard.verdict(labels) == "blocked"


def test_a_graph_that_is_canceled_needs_to_know_nothing_of_runs(yard: Grounds) -> None:
    labels = cleanup(yard)
    yard.run("rack1", labels, *in_key_order(labels)[:2])
    yard.run_continuations()
    extra = yard.graph(labels.graph)
    yard.run("rack1", labels)
    assert kinds(yard) == [REPORT_RUN]
    yard.cancel(graph=extra.id)
    assert yard.take_up(yard.notes()[0]) is True
    assert yard.notes() == []
    assert yard.graph(labels.graph).tally.active == 0
    consult(yard)
