"""How failures learn of their handlers: only what matters, and page by page if there are too many."""

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
from tests.lifecycle.counting_store import EDGES, CountingStore
from tests.lifecycle.graphs import node
from tests.lifecycle.harness import Labels, LifecycleHarness, without_counts

#: How many edges fit into one transaction here, and more prerequisites than fit into two.
FITS, MANY = 10, 25


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "PROPAGATED_MAX", FITS)
    monkeypatch.setattr(propagate, "PAGE_MAX", FITS)
    monkeypatch.setattr(failure_handlers, "PAGE_MAX", FITS)


def cleanup(harness: LifecycleHarness, join: str = "all") -> Labels:
    """A task with `always` edges from many others."""
    names = [f"t{place}" for place in range(MANY)]
    labels = harness.submit({"tasks": {**{name: node() for name in names}, "clean": node(always=names, join=join)}})
    harness.hello("rack1")
    return labels


def test_a_handler_that_ends_during_a_retry_has_not_handled_the_next_failure(harness: LifecycleHarness) -> None:
    labels = harness.submit({"tasks": {"a": node(), "deal": node(failure=["a"])}})
    harness.hello("rack1")
    harness.end("rack1", harness.claim("rack1")[0], Signal.FAIL)
    deal = harness.start("rack1", labels, 1)["deal"]
    harness.rerun(labels["a"])
    again = harness.start("rack1", labels, 1)["a"]
    harness.end("rack1", deal)
    harness.end("rack1", again, Signal.FAIL)
    assert harness.state_names(labels) == {"a": "failed", "deal": "successful"}
    assert harness.graph(labels.graph).state is GraphState.BLOCKED


def test_a_handler_that_ended_before_a_failure_has_not_handled_it(harness: LifecycleHarness) -> None:
    labels = harness.submit({"tasks": {"a": node(), "b": node(), "deal": node(always=["a", "b"], join="any")}})
    harness.hello("rack1")
    both = harness.start("rack1", labels, 2)
    harness.end("rack1", both["a"])
    harness.end("rack1", harness.start("rack1", labels, 1)["deal"])
    harness.end("rack1", both["b"], Signal.FAIL)
    assert harness.graph(labels.graph).state is GraphState.BLOCKED


def handlers(harness: LifecycleHarness, labels: Labels, *names: str) -> list[Handlers]:
    return [harness.task(labels[name]).handlers for name in names]


def in_key_order(labels: Labels) -> list[str]:
    """The prerequisites in the order in which their ends are propagated."""
    return sorted((name for name in labels if name != "clean"), key=lambda name: labels[name])


def consult(harness: LifecycleHarness) -> None:
    """Recount every stored count, with open continuations."""
    with harness.store.read() as repo:
        assert check.doctor(repo, harness.now) == []


def end(transaction: Transaction, lease: Lease) -> None:
    end_attempts(transaction, [("rack1", Report(lease.task, lease.attempt, lease.fence, Signal.SUCCEED))])


def kinds(harness: LifecycleHarness) -> list[str]:
    return [note.kind for note in harness.continuations()]


def test_no_transaction_of_a_cleanup_of_many_reads_more_edges_than_fit(harness: LifecycleHarness) -> None:
    harness.store = counting = CountingStore(harness.store)
    labels = cleanup(harness)
    harness.run("rack1", labels, "t3", "t7", "t20")
    harness.run_continuations()
    counting.most(EDGES)
    (lease,) = harness.start("rack1", labels).values()
    assert counting.most(EDGES) == 0  # a handler that only comes closer to running adds what it added before
    harness.end("rack1", lease)
    assert kinds(harness) == [REPORT_RUN]
    assert harness.graph_state(labels) == "running"
    harness.run_continuations()
    assert 0 < counting.most(EDGES) <= FITS + 1
    assert handlers(harness, labels, "t3", "t7", "t20", "t0") == [Handlers(ran=1)] * 3 + [Handlers()]
    assert harness.graph_state(labels) == "finished"


def test_a_small_cleanup_is_reported_at_once_and_reads_no_edge_of_a_success(harness: LifecycleHarness) -> None:
    harness.store = counting = CountingStore(harness.store)
    labels = harness.submit({"tasks": {"a": node(), "b": node(), "c": node(), "clean": node(always=["a", "b", "c"])}})
    harness.hello("rack1")
    harness.run("rack1", labels, "b")
    (lease,) = harness.start("rack1", labels).values()
    counting.most(EDGES)
    harness.end("rack1", lease)
    assert counting.most(EDGES) == 1  # that of b
    assert harness.graph_state(labels) == "finished"


def test_the_dependents_of_a_cleanup_do_not_wait_for_the_failures_it_handled(harness: LifecycleHarness) -> None:
    names = [f"t{place}" for place in range(MANY)]
    nodes = {**{name: node() for name in names}, "clean": node(always=names), "next": node("clean")}
    labels = harness.submit({"tasks": nodes})
    harness.hello("rack1")
    harness.run("rack1", labels)
    harness.run_continuations()
    harness.run("rack1", labels)
    assert kinds(harness) == [REPORT_RUN]
    assert harness.state_names(labels)["next"] == "waiting"


def test_a_task_that_fails_before_it_knows_of_a_run_still_counts_it(harness: LifecycleHarness) -> None:
    labels = cleanup(harness, join="any")
    first, *_, last = in_key_order(labels)
    leases = harness.start("rack1", labels)
    harness.fail("rack1", leases[first])
    harness.run("rack1", labels)
    assert kinds(harness) == [REPORT_RUN]
    assert harness.run_continuation(harness.continuations()[0]) is False
    harness.fail("rack1", leases[last])
    assert handlers(harness, labels, first, last) == [Handlers(ran=1), Handlers(open=1)]
    consult(harness)
    harness.run_continuations()
    assert handlers(harness, labels, first, last) == [Handlers(ran=1), Handlers(ran=1)]
    assert harness.graph(labels.graph).tally.unhandled == 0


def test_later_transitions_of_a_handler_are_reported_after_earlier_ones(harness: LifecycleHarness) -> None:
    labels = cleanup(harness, join="any")
    first, *_, last = in_key_order(labels)
    leases = harness.start("rack1", labels)
    for label in (first, last):
        harness.fail("rack1", leases[label])
    harness.cancel(labels["clean"])
    assert harness.run_continuation(harness.continuations()[0]) is False
    assert handlers(harness, labels, first, last) == [Handlers(), Handlers(open=1)]
    assert harness.graph(labels.graph).tally.unhandled == 2  # the first one and the cleanup itself
    consult(harness)
    harness.rerun(labels["clean"])
    assert kinds(harness) == [REPORT_TO_FAILURES, REPORT_TO_FAILURES]
    assert [harness.run_continuation(harness.continuations()[-1]) for _ in range(5)] == [False] * 4 + [True]
    assert handlers(harness, labels, first, last) == [Handlers(open=1)] * 2
    consult(harness)


def test_transitions_of_one_transaction_share_what_fits_and_later_ones_wait_for_what_did_not(
    harness: LifecycleHarness,
) -> None:
    names = [f"t{place}" for place in range(FITS)]
    nodes = {**{name: node() for name in names}, "one": node(failure=names), "two": node(failure=names)}
    labels = harness.submit({"tasks": nodes})
    harness.cancel(labels["t0"])
    assert handlers(harness, labels, "t0") == [Handlers(open=2)]
    harness.do(lambda transaction: cancel(transaction, [Cancel(labels[label]) for label in ("one", "two")]))
    assert [(note.kind, note.task) for note in harness.continuations()] == [(REPORT_TO_FAILURES, labels["two"])]
    assert handlers(harness, labels, "t0") == [Handlers(open=1)]
    harness.rerun(labels["two"])
    assert kinds(harness) == [REPORT_TO_FAILURES, REPORT_TO_FAILURES]
    consult(harness)
    harness.run_continuations()
    assert handlers(harness, labels, "t0") == [Handlers(open=1)]


def test_a_run_does_not_count_for_a_failure_that_came_after_it(harness: LifecycleHarness) -> None:
    labels = cleanup(harness)
    last = in_key_order(labels)[-1]
    harness.run("rack1", labels, last)
    harness.run_continuations()
    harness.run("rack1", labels)
    assert kinds(harness) == [REPORT_RUN]
    assert without_counts(harness.rerun(labels[last])) == BulkOutcome(labels[last], 0, promised=True)
    assert without_counts(harness.rerun(graph=labels.graph)) == BulkOutcome(labels.graph, 0, promised=True)
    consult(harness)
    harness.run_continuations()
    harness.run("rack1", labels, last)
    assert harness.task(labels[last]).life.round == 2
    assert handlers(harness, labels, last) == [Handlers()]
    assert harness.graph_state(labels) == "blocked"


def test_a_rerun_that_did_not_see_a_run_end_is_tried_again(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = LifecycleHarness(postgres_url)
    labels = cleanup(harness)
    harness.run("rack1", labels, "t0")
    harness.run_continuations()
    lease = harness.start("rack1", labels)["clean"]

    def rerun_while_the_cleanup_ends(transaction: Transaction) -> None:
        send = transaction.apply

        def end_first(moves: Sequence[Transition] = ()) -> None:
            harness.end("rack1", lease)
            assert kinds(harness) == [REPORT_RUN]
            send(moves)

        monkeypatch.setattr(transaction, "apply", end_first)
        assert rerun(transaction, [Rerun(labels["t0"])]) == [Done(labels["t0"], State.WAITING)]

    with pytest.raises(TransactionConflict, match="handler finished"):
        harness.do(rerun_while_the_cleanup_ends)
    assert without_counts(harness.rerun(labels["t0"])) == BulkOutcome(labels["t0"], 0, promised=True)
    harness.run_continuations()
    harness.run("rack1", labels, "t0")
    assert handlers(harness, labels, "t0") == [Handlers()]
    harness.close()


def test_a_run_that_ends_with_a_rerun_in_one_transaction_does_not_count_for_the_new_round(
    harness: LifecycleHarness,
) -> None:
    labels = cleanup(harness)
    harness.run("rack1", labels, "t0")
    harness.run_continuations()
    lease = harness.start("rack1", labels)["clean"]
    with harness.transaction() as transaction:
        rerun(transaction, [Rerun(labels["t0"])])
        end(transaction, lease)
    harness.run_continuations()
    harness.run("rack1", labels, "t0")
    assert handlers(harness, labels, "t0") == [Handlers()]
    assert harness.graph_state(labels) == "blocked"


def test_a_graph_that_is_canceled_needs_to_know_nothing_of_runs(harness: LifecycleHarness) -> None:
    labels = cleanup(harness)
    harness.run("rack1", labels, *in_key_order(labels)[:2])
    harness.run_continuations()
    extra = harness.graph(labels.graph)
    harness.run("rack1", labels)
    assert kinds(harness) == [REPORT_RUN]
    harness.cancel(graph=extra.id)
    assert harness.run_continuation(harness.continuations()[0]) is True
    assert harness.continuations() == []
    assert harness.graph(labels.graph).tally.active == 0
    consult(harness)
