"""Cancel: a task, a subtree, a graph."""

import pytest

from taskyard.core.ids import Key, text_of
from taskyard.core.states import Reason, Signal, State
from taskyard.lifecycle.commands import BulkOutcome, Cancel, Code, Done, Refusal, Report, Rerun
from taskyard.lifecycle.report import end_attempts
from taskyard.lifecycle.rerun import rerun
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.queries import TransactionConflict
from tests.lifecycle.graphs import MANY, chain, graph, node, star
from tests.lifecycle.harness import LifecycleHarness, without_counts

KEY = 8_693_923_365_000_000_000


def refused(outcome: object) -> tuple[Code, str]:
    assert isinstance(outcome, Refusal)
    return outcome.code, outcome.text.split(": ")[-1]


def test_an_unstarted_task_is_canceled_at_once_and_counts_as_a_failure(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=node("a"), page=node(failure=["a"])))
    assert harness.cancel(labels["a"]) == Done(labels["a"], State.CANCELED)
    assert harness.state_names(labels) == {"a": "canceled", "b": "blocked", "page": "waiting"}
    assert harness.why(labels["a"]) == (State.CANCELED, Reason.ASKED)
    assert harness.audits(labels["a"]) == [("ann", "cancel", "")]


@pytest.mark.parametrize("state", ["unscheduled", "blocked", "pending", "waiting"])
def test_whatever_has_not_started_can_be_canceled(harness: LifecycleHarness, state: str) -> None:
    fields = {"not_before": "1h"} if state == "pending" else {}
    labels = harness.submit(graph(a=node(), b=node("a"), c=node(**fields)))
    if state == "blocked":
        harness.cancel(labels["a"])
    label = "b" if state in {"unscheduled", "blocked"} else "c"
    assert harness.state_names(labels)[label] == state
    assert harness.cancel(labels[label]) == Done(labels[label], State.CANCELED)


def test_a_running_task_is_stopped_first_and_then_canceled_whatever_its_bot_reports(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(reruns=3), b=node(), c=node()))
    harness.hello("rack1")
    leases = harness.start("rack1", labels)
    for label in leases:
        assert harness.cancel(labels[label]) == Done(labels[label], State.STOPPING)
        assert harness.cancel(labels[label]) == Done(labels[label], State.STOPPING, echo=True)
    assert harness.why(labels["a"]) == (State.STOPPING, Reason.STOP_ASKED)
    harness.end("rack1", leases["a"], Signal.FAIL, exit_code=1)
    harness.end("rack1", leases["b"], Signal.SUCCEED)
    harness.end("rack1", leases["c"], Signal.LOSE)
    assert harness.count_states(labels) == {"canceled": 3}
    assert harness.why(labels["a"]) == (State.CANCELED, Reason.ASKED)
    assert harness.cancel(labels["a"]) == Done(labels["a"], State.CANCELED, echo=True)
    assert harness.audits(labels["a"]) == [("ann", "cancel", "")]


def test_what_has_ended_cannot_be_canceled_and_what_is_not_there_neither(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=node(), page=node(failure=["a"])))
    harness.hello("rack1")
    harness.run("rack1", labels, "b")
    assert refused(harness.cancel(labels["a"])) == (Code.CONFLICT, "it is successful")
    assert refused(harness.cancel(labels["b"])) == (Code.CONFLICT, "it is failed")
    assert refused(harness.cancel(labels["page"])) == (Code.CONFLICT, "it is skipped")
    assert refused(harness.cancel(KEY))[0] is Code.NOT_FOUND
    assert refused(harness.cancel(graph=KEY))[0] is Code.NOT_FOUND
    assert harness.audits(labels["a"]) == []


def test_a_canceled_graph_ends_every_task_and_starts_no_handler(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=node("a"), run=node(), page=node(failure=["a", "run"], join="any")))
    harness.hello("rack1")
    lease = harness.claim("rack1")[0]
    assert lease.task == labels["a"]
    assert harness.cancel(graph=labels.graph) == BulkOutcome(labels.graph, 4)
    assert harness.state_names(labels) == {"a": "stopping", "b": "canceled", "run": "canceled", "page": "canceled"}
    assert harness.graph_state(labels) == "canceling"
    harness.end("rack1", lease, Signal.FAIL, exit_code=1)
    assert harness.claim("rack1") == ()
    assert harness.count_states(labels) == {"canceled": 4}
    assert harness.states_passed(labels.graph) == ["running", "canceling", "canceled"]
    assert harness.cancel(graph=labels.graph) == BulkOutcome(labels.graph, 0, echo=True)
    assert harness.audits(labels.graph) == [("ann", "submit", "4 tasks"), ("ann", "cancel", "")]


def test_a_handler_that_ends_after_its_graph_was_canceled_upsets_no_count(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=node(), page=node(failure=["a", "b"], join="any")))
    harness.hello("rack1")
    harness.fail("rack1", harness.start("rack1", labels, 1)["a"])
    lease = harness.start("rack1", labels)["page"]
    harness.cancel(graph=labels.graph)
    assert harness.end("rack1", lease) == Done(labels["page"], State.CANCELED)
    assert harness.cancel(labels["a"], subtree=True) == BulkOutcome(labels["a"], 0, echo=True)


def test_a_skipped_task_of_a_canceled_graph_stays_where_it_is(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=node("a", on_impossible="skip"), c=node()))
    harness.hello("rack1")
    harness.fail("rack1", harness.start("rack1", labels, 1)["a"])
    harness.cancel(graph=labels.graph)
    assert harness.state_names(labels) == {"a": "failed", "b": "skipped", "c": "canceled"}


def test_a_graph_where_nothing_moves_any_more_becomes_canceled_too(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node()))
    harness.hello("rack1")
    harness.run("rack1", labels, "a")
    assert harness.graph_state(labels) == "blocked"
    assert harness.cancel(graph=labels.graph) == BulkOutcome(labels.graph, 0)
    assert harness.states_passed(labels.graph) == ["running", "blocked", "canceled"]


def test_a_finished_graph_cannot_be_canceled(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("rack1")
    harness.run("rack1", labels)
    assert refused(harness.cancel(graph=labels.graph)) == (Code.CONFLICT, "it is finished")
    assert refused(harness.cancel(labels["a"], subtree=True)) == (Code.CONFLICT, "it is finished")
    assert harness.graph_state(labels) == "finished"


def test_a_large_graph_is_canceled_at_once_and_its_tasks_page_by_page(harness: LifecycleHarness) -> None:
    labels = harness.submit(star())
    assert harness.cancel(graph=labels.graph) == BulkOutcome(labels.graph, 0, promised=True)
    assert harness.graph_state(labels) == "canceling"
    harness.hello("rack1")
    assert harness.claim("rack1", 5) == ()
    assert harness.run_continuations() == 6
    assert harness.graph_state(labels) == "canceled"
    assert harness.count_states(labels) == {"canceled": MANY + 1}
    assert harness.graph(labels.graph).tally.active == 0


def test_a_graph_is_canceled_during_the_propagation_to_dependents(harness: LifecycleHarness) -> None:
    labels = harness.submit(star())
    harness.hello("rack1")
    harness.run("rack1", labels)
    harness.run_continuation(harness.continuations()[0])
    leases = harness.claim("rack1", 2)
    harness.cancel(graph=labels.graph)
    harness.run_continuations()
    assert harness.count_states(labels) == {"canceled": MANY - 2, "stopping": 2, "successful": 1}
    for lease in leases:
        harness.end("rack1", lease)
    assert harness.graph(labels.graph).tally.active == 0


def test_a_subtree_is_canceled_without_starting_a_handler_in_it(harness: LifecycleHarness) -> None:
    labels = harness.submit(
        graph(a=node(), b=node("a"), page=node(failure=["b"]), c=node(always=["page"]), other=node(), d=node("other"))
    )
    assert without_counts(harness.cancel(labels["b"], subtree=True)) == BulkOutcome(labels["b"], 3)
    assert harness.state_names(labels) == {
        "a": "waiting",
        "b": "canceled",
        "page": "canceled",
        "c": "canceled",
        "other": "waiting",
        "d": "unscheduled",
    }
    assert harness.cancel(labels["b"], subtree=True) == BulkOutcome(labels["b"], 0, echo=True)
    assert harness.audits(labels["b"]) == [("ann", "cancel", "and all behind it, 3 tasks")]


def test_several_tasks_of_a_graph_are_canceled_with_all_behind_them(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=node("a"), c=node("b", "x"), x=node(), y=node("x"), other=node()))
    command = Cancel(graph=labels.graph, tasks=(labels["b"], labels["y"]), actor="ann")
    assert harness.carry_out(command) == BulkOutcome(labels.graph, 3, total=3)
    assert harness.state_names(labels) == {
        "a": "waiting",
        "b": "canceled",
        "c": "canceled",
        "x": "waiting",
        "y": "canceled",
        "other": "waiting",
    }
    assert harness.carry_out(command) == BulkOutcome(labels.graph, 0, echo=True)
    shown = f"only task {text_of(Key(labels['b']))} and 1 more and all behind, 3 tasks"
    assert harness.audits(labels.graph) == [("ann", "submit", "6 tasks"), ("ann", "cancel", shown)]


def test_tasks_of_another_graph_are_no_part_of_this_one(harness: LifecycleHarness) -> None:
    labels, others = harness.submit(chain("a", "b")), harness.submit(chain("c"))
    for graph_id, task in ((labels.graph, others["c"]), (labels.graph, 404), (404, labels["a"])):
        assert refused(harness.carry_out(Cancel(graph=graph_id, tasks=(task,))))[0] is Code.NOT_FOUND
    assert harness.count_states(labels) == {"waiting": 1, "unscheduled": 1}


def test_what_is_behind_a_task_that_has_ended_can_still_be_canceled(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a", "b", "c"))
    harness.hello("rack1")
    harness.run("rack1", labels)
    assert without_counts(harness.cancel(labels["a"], subtree=True)) == BulkOutcome(labels["a"], 2)
    assert harness.state_names(labels) == {"a": "successful", "b": "canceled", "c": "canceled"}


def test_a_large_subtree_is_canceled_from_its_leaves_up(harness: LifecycleHarness) -> None:
    document = star()
    document["tasks"]["page"] = node(failure=["hub"])  # type: ignore[index]
    document["tasks"]["end"] = node(always=[f"ray{place}" for place in range(3)], join="any")  # type: ignore[index]
    labels = harness.submit(document)
    assert without_counts(harness.cancel(labels["hub"], subtree=True)) == BulkOutcome(labels["hub"], 0, promised=True)
    notes = harness.continuations()
    assert len(notes) == 7  # the hub has so many dependents that it moves alone
    assert harness.run_continuation(notes[-1]) is False  # which holds the hub; the first runs in its place
    assert harness.state_names({"hub": labels["hub"]}) == {"hub": "waiting"}
    harness.run_continuations()
    assert harness.count_states(labels) == {"canceled": MANY + 3}
    assert {harness.states_passed(labels[label])[-1] for label in ("page", "end")} == {"canceled"}
    assert "pending" not in harness.states_passed(labels["page"]) + harness.states_passed(labels["end"])
    assert harness.graph_state(labels) == "blocked"


def test_a_transaction_that_did_not_know_that_the_graph_was_canceled_is_tried_again(postgres_url: str) -> None:
    harness = LifecycleHarness(postgres_url)
    nodes = {f"t{place}": node() for place in range(1_100)}
    labels = harness.submit({"tasks": nodes | {"a": node(priority=1), "page": node(failure=["a"])}})
    harness.hello("rack1")
    lease = harness.start("rack1", labels, 1)["a"]
    report = Report(lease.task, lease.attempt, lease.fence, Signal.FAIL, exit_code=1)

    def fail_while_somebody_cancels(transaction: Transaction) -> None:
        end_attempts(transaction, [("rack1", report)])
        assert str(transaction.lock_tasks([labels["page"]])[labels["page"]].state) == "waiting"
        assert harness.cancel(graph=labels.graph) == BulkOutcome(labels.graph, 0, promised=True)

    with pytest.raises(TransactionConflict, match="canceled meanwhile"):
        harness.do(fail_while_somebody_cancels)
    assert harness.fail("rack1", lease) == Done(labels["a"], State.FAILED)
    harness.run_continuations()
    assert harness.count_states(labels) == {"canceled": 1_101, "failed": 1}
    harness.close()


def test_a_graph_that_finishes_meanwhile_is_not_brought_back_by_a_rerun(postgres_url: str) -> None:
    harness = LifecycleHarness(postgres_url)
    labels = harness.submit(graph(a=node(), page=node(failure=["a"]), last=node("page")))
    harness.hello("rack1")
    harness.run("rack1", labels, "a")
    harness.run("rack1", labels)
    lease = harness.claim("rack1")[0]

    def rerun_while_the_last_one_ends(transaction: Transaction) -> None:
        rerun(transaction, [Rerun(labels["a"])])
        harness.end("rack1", lease)
        assert harness.graph_state(labels) == "finished"

    with pytest.raises(TransactionConflict, match="ended meanwhile"):
        harness.do(rerun_while_the_last_one_ends)
    assert refused(harness.rerun(labels["a"]))[0] is Code.CONFLICT
    harness.close()
