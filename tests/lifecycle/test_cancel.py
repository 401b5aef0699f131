"""How people end work: a task, what is behind it, a graph."""

import pytest

from taskyard.core.ids import Key, text_of
from taskyard.core.states import Reason, Signal, State
from taskyard.lifecycle.commands import BulkOutcome, Cancel, Code, Done, Refusal, Report, Rerun
from taskyard.lifecycle.report import end_attempts
from taskyard.lifecycle.rerun import rerun
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.queries import TransactionConflict
from tests.lifecycle.grounds import MANY, Grounds, graph, node, star
from tests.lifecycle.in_short import in_short
from tests.lifecycle.yard import chain

KEY = 8_693_923_365_000_000_000


def refused(outcome: object) -> tuple[Code, str]:
    assert isinstance(outcome, Refusal)
    return outcome.code, outcome.text.split(": ")[-1]


def test_an_unstarted_task_is_canceled_at_once_and_counts_as_a_failure(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), b=node("a"), page=node(failure=["a"])))
    assert yard.cancel(labels["a"]) == Done(labels["a"], State.CANCELED)
    assert yard.words(labels) == {"a": "canceled", "b": "blocked", "page": "waiting"}
    assert yard.why(labels["a"]) == (State.CANCELED, Reason.ASKED)
    assert yard.audits(labels["a"]) == [("ann", "cancel", "")]


@pytest.mark.parametrize("state", ["unscheduled", "blocked", "pending", "waiting"])
def test_whatever_has_not_started_can_be_canceled(yard: Grounds, state: str) -> None:
    fields = {"not_before": "1h"} if state == "pending" else {}
    labels = yard.submit(graph(a=node(), b=node("a"), c=node(**fields)))
    if state == "blocked":
        yard.cancel(labels["a"])
    label = "b" if state in {"unscheduled", "blocked"} else "c"
    assert yard.words(labels)[label] == state
    assert yard.cancel(labels[label]) == Done(labels[label], State.CANCELED)


def test_a_running_task_is_stopped_first_and_whatever_it_says_then_it_is_canceled(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(reruns=3), b=node(), c=node()))
    yard.hello("rack1")
    leases = yard.start("rack1", labels)
    for label in leases:
        assert yard.cancel(labels[label]) == Done(labels[label], State.STOPPING)
        assert yard.cancel(labels[label]) == Done(labels[label], State.STOPPING, echo=True)
    assert yard.why(labels["a"]) == (State.STOPPING, Reason.STOP_ASKED)
    yard.end("rack1", leases["a"], Signal.FAIL, exit_code=1)
    yard.end("rack1", leases["b"], Signal.SUCCEED)
    yard.end("rack1", leases["c"], Signal.LOSE)
    assert yard.census(labels) == {"canceled": 3}
    assert yard.why(labels["a"]) == (State.CANCELED, Reason.ASKED)
    assert yard.cancel(labels["a"]) == Done(labels["a"], State.CANCELED, echo=True)
    assert yard.audits(labels["a"]) == [("ann", "cancel", "")]


def test_what_has_ended_cannot_be_canceled_and_what_is_not_there_neither(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), b=node(), page=node(failure=["a"])))
    yard.hello("rack1")
    yard.run("rack1", labels, "b")
    assert refused(yard.cancel(labels["a"])) == (Code.CONFLICT, "it is successful")
    assert refused(yard.cancel(labels["b"])) == (Code.CONFLICT, "it is failed")
    assert refused(yard.cancel(labels["page"])) == (Code.CONFLICT, "it is skipped")
    assert refused(yard.cancel(KEY))[0] is Code.NOT_FOUND
    assert refused(yard.cancel(graph=KEY))[0] is Code.NOT_FOUND
    assert yard.audits(labels["a"]) == []


def test_a_canceled_graph_ends_every_task_and_starts_no_handler(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), b=node("a"), run=node(), page=node(failure=["a", "run"], join="any")))
    yard.hello("rack1")
    lease = yard.claim("rack1")[0]
    assert lease.task == labels["a"]
    assert yard.cancel(graph=labels.graph) == BulkOutcome(labels.graph, 4)
    assert yard.words(labels) == {"a": "stopping", "b": "canceled", "run": "canceled", "page": "canceled"}
    assert yard.verdict(labels) == "canceling"
    yard.end("rack1", lease, Signal.FAIL, exit_code=1)
    assert yard.claim("rack1") == ()
    assert yard.census(labels) == {"canceled": 4}
    assert yard.story(labels.graph) == ["running", "canceling", "canceled"]
    assert yard.cancel(graph=labels.graph) == BulkOutcome(labels.graph, 0, echo=True)
    assert yard.audits(labels.graph) == [("ann", "submit", "4 tasks"), ("ann", "cancel", "")]


def test_a_handler_that_ends_after_its_graph_was_canceled_upsets_no_count(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), b=node(), page=node(failure=["a", "b"], join="any")))
    yard.hello("rack1")
    yard.fail("rack1", yard.start("rack1", labels, 1)["a"])
    lease = yard.start("rack1", labels)["page"]
    yard.cancel(graph=labels.graph)
    assert yard.end("rack1", lease) == Done(labels["page"], State.CANCELED)
    assert yard.cancel(labels["a"], subtree=True) == BulkOutcome(labels["a"], 0, echo=True)


def test_a_skipped_task_of_a_canceled_graph_stays_where_it_is(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), b=node("a", on_impossible="skip"), c=node()))
    yard.hello("rack1")
    yard.fail("rack1", yard.start("rack1", labels, 1)["a"])
    yard.cancel(graph=labels.graph)
    assert yard.words(labels) == {"a": "failed", "b": "skipped", "c": "canceled"}


def test_a_graph_where_nothing_moves_any_more_becomes_canceled_too(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node()))
    yard.hello("rack1")
    yard.run("rack1", labels, "a")
    assert yard.verdict(labels) == "blocked"
    assert yard.cancel(graph=labels.graph) == BulkOutcome(labels.graph, 0)
    assert yard.story(labels.graph) == ["running", "blocked", "canceled"]


def test_a_finished_graph_cannot_be_canceled(yard: Grounds) -> None:
    labels = yard.submit(chain("a"))
    yard.hello("rack1")
    yard.run("rack1", labels)
    assert refused(yard.cancel(graph=labels.graph)) == (Code.CONFLICT, "it is finished")
    assert refused(yard.cancel(labels["a"], subtree=True)) == (Code.CONFLICT, "it is finished")
    assert yard.verdict(labels) == "finished"


def test_a_large_graph_is_canceled_at_once_and_its_tasks_page_by_page(yard: Grounds) -> None:
    labels = yard.submit(star())
    assert yard.cancel(graph=labels.graph) == BulkOutcome(labels.graph, 0, promised=True)
    assert yard.verdict(labels) == "canceling"
    yard.hello("rack1")
    assert yard.claim("rack1", 5) == ()
    assert yard.run_continuations() == 6
    assert yard.verdict(labels) == "canceled"
    assert yard.census(labels) == {"canceled": MANY + 1}
    assert yard.graph(labels.graph).tally.active == 0


def test_a_graph_is_canceled_during_the_propagation_to_dependents(yard: Grounds) -> None:
    labels = yard.submit(star())
    yard.hello("rack1")
    yard.run("rack1", labels)
    yard.take_up(yard.notes()[0])
    leases = yard.claim("rack1", 2)
    yard.cancel(graph=labels.graph)
    yard.run_continuations()
    assert yard.census(labels) == {"canceled": MANY - 2, "stopping": 2, "successful": 1}
    for lease in leases:
        yard.end("rack1", lease)
    assert yard.graph(labels.graph).tally.active == 0


def test_a_subtree_is_canceled_without_starting_a_handler_in_it(yard: Grounds) -> None:
    labels = yard.submit(
        graph(a=node(), b=node("a"), page=node(failure=["b"]), c=node(always=["page"]), other=node(), d=node("other"))
    )
    assert in_short(yard.cancel(labels["b"], subtree=True)) == BulkOutcome(labels["b"], 3)
    assert yard.words(labels) == {
        "a": "waiting",
        "b": "canceled",
        "page": "canceled",
        "c": "canceled",
        "other": "waiting",
        "d": "unscheduled",
    }
    assert yard.cancel(labels["b"], subtree=True) == BulkOutcome(labels["b"], 0, echo=True)
    assert yard.audits(labels["b"]) == [("ann", "cancel", "and all behind it, 3 tasks")]


def test_several_tasks_of_a_graph_are_canceled_with_all_behind_them(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), b=node("a"), c=node("b", "x"), x=node(), y=node("x"), other=node()))
    wish = Cancel(graph=labels.graph, tasks=(labels["b"], labels["y"]), actor="ann")
    assert yard.wish(wish) == BulkOutcome(labels.graph, 3, total=3)
    assert yard.words(labels) == {
        "a": "waiting",
        "b": "canceled",
        "c": "canceled",
        "x": "waiting",
        "y": "canceled",
        "other": "waiting",
    }
    assert yard.wish(wish) == BulkOutcome(labels.graph, 0, echo=True)
    told = f"only task {text_of(Key(labels['b']))} and 1 more and all behind, 3 tasks"
    assert yard.audits(labels.graph) == [("ann", "submit", "6 tasks"), ("ann", "cancel", told)]


def test_tasks_of_another_graph_are_no_part_of_this_one(yard: Grounds) -> None:
    labels, others = yard.submit(chain("a", "b")), yard.submit(chain("c"))
    for graph_id, task in ((labels.graph, others["c"]), (labels.graph, 404), (404, labels["a"])):
        assert refused(yard.wish(Cancel(graph=graph_id, tasks=(task,))))[0] is Code.NOT_FOUND
    assert yard.census(labels) == {"waiting": 1, "unscheduled": 1}


def test_what_is_behind_a_task_that_has_ended_can_still_be_canceled(yard: Grounds) -> None:
    labels = yard.submit(chain("a", "b", "c"))
    yard.hello("rack1")
    yard.run("rack1", labels)
    assert in_short(yard.cancel(labels["a"], subtree=True)) == BulkOutcome(labels["a"], 2)
    assert yard.words(labels) == {"a": "successful", "b": "canceled", "c": "canceled"}


def test_a_large_subtree_is_canceled_from_its_leaves_up(yard: Grounds) -> None:
    document = star()
    document["tasks"]["page"] = node(failure=["hub"])  # type: ignore[index]
    document["tasks"]["end"] = node(always=[f"ray{place}" for place in range(3)], join="any")  # type: ignore[index]
    labels = yard.submit(document)
    assert in_short(yard.cancel(labels["hub"], subtree=True)) == BulkOutcome(labels["hub"], 0, promised=True)
    notes = yard.notes()
    assert len(notes) == 7  # the hub has so much to tell that it goes alone
    assert yard.take_up(notes[-1]) is False  # which holds the hub; the first is taken up in its place
    assert yard.words({"hub": labels["hub"]}) == {"hub": "waiting"}
    yard.run_continuations()
    assert yard.census(labels) == {"canceled": MANY + 3}
    assert {yard.story(labels[label])[-1] for label in ("page", "end")} == {"canceled"}
    assert "pending" not in yard.story(labels["page"]) + yard.story(labels["end"])
    assert yard.verdict(labels) == "blocked"


def test_who_did_not_know_that_the_graph_was_canceled_tries_again(postgres_url: str) -> None:
    yard = Grounds(postgres_url)
    nodes = {f"t{place}": node() for place in range(1_100)}
    labels = yard.submit({"tasks": nodes | {"a": node(priority=1), "page": node(failure=["a"])}})
    yard.hello("rack1")
    lease = yard.start("rack1", labels, 1)["a"]
    report = Report(lease.task, lease.attempt, lease.fence, Signal.FAIL, exit_code=1)

    def fail_while_somebody_cancels(transaction: Transaction) -> None:
        end_attempts(transaction, [("rack1", report)])
        assert str(transaction.lock_tasks([labels["page"]])[labels["page"]].state) == "waiting"
        assert yard.cancel(graph=labels.graph) == BulkOutcome(labels.graph, 0, promised=True)

    with pytest.raises(TransactionConflict, match="canceled meanwhile"):
        yard.do(fail_while_somebody_cancels)
    assert yard.fail("rack1", lease) == Done(labels["a"], State.FAILED)
    yard.run_continuations()
    assert yard.census(labels) == {"canceled": 1_101, "failed": 1}
    yard.close()


def test_a_graph_that_finishes_meanwhile_is_not_brought_back_by_a_rerun(postgres_url: str) -> None:
    yard = Grounds(postgres_url)
    labels = yard.submit(graph(a=node(), page=node(failure=["a"]), last=node("page")))
    yard.hello("rack1")
    yard.run("rack1", labels, "a")
    yard.run("rack1", labels)
    lease = yard.claim("rack1")[0]

    def rerun_while_the_last_one_ends(transaction: Transaction) -> None:
        rerun(transaction, [Rerun(labels["a"])])
        yard.end("rack1", lease)
        assert yard.verdict(labels) == "finished"

    with pytest.raises(TransactionConflict, match="ended meanwhile"):
        yard.do(rerun_while_the_last_one_ends)
    assert refused(yard.rerun(labels["a"]))[0] is Code.CONFLICT
    yard.close()
