"""How dependents hear of their prerequisites: gates, handlers, mends, and notes where there are too many to tell."""

import pytest

from taskyard.core.states import Reason, State
from taskyard.lifecycle.commands import Done
from taskyard.lifecycle.rows import NewTasks
from taskyard.lifecycle.submit import Extension, Submitted, extend
from taskyard.lifecycle.transaction import PROPAGATED_MAX
from tests.lifecycle.grounds import MANY, Grounds, graph, node, rays, star
from tests.lifecycle.yard import chain


def test_two_unhandled_failures_and_one_success_does_not_unblock(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), b=node(), c=node("a", "b")))
    yard.hello("rack1")
    yard.run("rack1", labels, "a", "b")
    assert yard.words(labels) == {"a": "failed", "b": "failed", "c": "blocked"}
    yard.rerun(labels["a"])
    assert yard.words(labels) == {"a": "waiting", "b": "failed", "c": "blocked"}
    yard.run("rack1", labels)
    assert yard.words(labels) == {"a": "successful", "b": "failed", "c": "blocked"}
    assert yard.verdict(labels) == "blocked"
    yard.rerun(labels["b"])
    assert yard.words(labels)["c"] == "unscheduled"
    assert [yard.run("rack1", labels) for _ in range(2)] == [["b"], ["c"]]
    assert (
        yard.story(labels.graph) == ["running", "blocked", "running", "finished"] or yard.verdict(labels) == "finished"
    )


def test_a_join_of_any_fires_once_at_the_first_met_edge(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), b=node(), c=node("a", "b", join="any")))
    yard.hello("rack1")
    leases = yard.start("rack1", labels)
    yard.fail("rack1", leases["a"])
    assert yard.words(labels)["c"] == "unscheduled"
    yard.end("rack1", leases["b"])
    assert yard.run("rack1", labels) == ["c"]
    yard.rerun(labels["a"])
    yard.run("rack1", labels)
    assert yard.story(labels["c"]) == ["pending", "waiting", "running", "successful"]
    assert yard.verdict(labels) == "finished"


def test_a_released_task_is_never_called_back(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), b=node(), clean=node(always=["a"])))
    yard.hello("rack1")
    yard.fail("rack1", yard.start("rack1", labels)["a"])
    assert yard.words(labels)["clean"] == "waiting"
    yard.rerun(labels["a"])
    assert yard.words(labels)["clean"] == "waiting"


def test_a_failure_that_is_handled_lets_the_graph_finish(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), b=node("a"), page=node(failure=["a"]), clean=node(always=["a"])))
    yard.hello("rack1")
    yard.run("rack1", labels, "a")
    assert yard.words(labels) == {"a": "failed", "b": "blocked", "page": "waiting", "clean": "waiting"}
    yard.run("rack1", labels)
    assert yard.verdict(labels) == "blocked"  # for b, which nobody has given up
    yard.cancel(labels["b"])
    assert yard.verdict(labels) == "blocked"  # a canceled task is a failure that nobody handles


def test_a_handled_failure_with_nothing_behind_it_finishes(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), page=node(failure=["a"])))
    yard.hello("rack1")
    yard.run("rack1", labels, "a")
    assert yard.verdict(labels) == "running"
    yard.run("rack1", labels)
    assert yard.story(labels.graph) == ["running", "finished"]


def test_a_handler_that_fails_itself_has_still_handled_the_failure(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), page=node(failure=["a"])))
    yard.hello("rack1")
    yard.run("rack1", labels, "a")
    yard.run("rack1", labels, "page")
    assert yard.graph(labels.graph).tally.unhandled == 1  # that of the handler
    assert yard.verdict(labels) == "blocked"


def test_a_handler_that_is_canceled_before_it_ran_has_handled_nothing(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), page=node(failure=["a"])))
    yard.hello("rack1")
    yard.run("rack1", labels, "a")
    yard.cancel(labels["page"])
    assert yard.graph(labels.graph).tally.unhandled == 2
    yard.rerun(labels["page"])
    assert yard.verdict(labels) == "running"
    yard.run("rack1", labels)
    assert yard.verdict(labels) == "finished"


def test_a_handler_of_a_success_steps_aside_and_takes_what_hangs_on_it_along(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), page=node(failure=["a"]), b=node("page"), c=node(always=["b"])))
    yard.hello("rack1")
    yard.run("rack1", labels)
    assert yard.words(labels) == {"a": "successful", "page": "skipped", "b": "skipped", "c": "skipped"}
    assert yard.why(labels["page"]) == (State.SKIPPED, Reason.CONDITION)
    assert yard.verdict(labels) == "finished"


@pytest.mark.parametrize(("policy", "state"), [("hold", "blocked"), ("fail", "failed"), ("skip", "skipped")])
def test_the_policy_says_what_becomes_of_a_task_whose_prerequisite_failed(
    yard: Grounds, policy: str, state: str
) -> None:
    labels = yard.submit(graph(a=node(), b=node("a", on_impossible=policy)))
    yard.hello("rack1")
    yard.run("rack1", labels, "a")
    assert yard.words(labels) == {"a": "failed", "b": state}
    yard.rerun(labels["a"])
    assert yard.words(labels) == {"a": "waiting", "b": "failed" if policy == "fail" else "unscheduled"}


def test_an_extension_of_a_failed_task_begins_blocked_and_its_handler_runs(yard: Grounds) -> None:
    document = graph(a=node())
    labels = yard.submit(document)
    yard.hello("rack1")
    yard.run("rack1", labels, "a")
    assert yard.verdict(labels) == "blocked"
    more = yard.prepared(graph(a=node(), b=node("a"), page=node(failure=["a"])))
    ids = {**more.new_tasks.ids, "a": labels["a"]}
    new_tasks = NewTasks(
        labels.graph, [more.graph.tasks["b"], more.graph.tasks["page"]], ids, yard.now, substitutes=False
    )
    assert yard.do(lambda transaction: extend(transaction, [Extension(new_tasks, 0, "me")])) == [
        Submitted(labels.graph)
    ]
    assert yard.words(ids) == {"a": "failed", "b": "blocked", "page": "waiting"}
    assert yard.graph(labels.graph).tally.unhandled == 0
    yard.run("rack1", ids)
    assert yard.words(ids) == {"a": "failed", "b": "blocked", "page": "successful"}


def test_a_success_is_propagated_to_many_dependents_page_by_page(yard: Grounds) -> None:
    labels = yard.submit(star())
    yard.hello("rack1")
    yard.run("rack1", labels)
    assert yard.census(labels) == {"successful": 1, "unscheduled": MANY}
    assert yard.verdict(labels) == "running"
    assert yard.graph(labels.graph).tally.active == 1  # the note
    assert yard.run_continuations() == 3
    assert yard.census(labels) == {"successful": 1, "waiting": MANY}


def test_a_failure_and_its_mend_are_propagated_to_many_dependents(yard: Grounds) -> None:
    labels = yard.submit(star())
    yard.hello("rack1")
    yard.run("rack1", labels, "hub")
    assert yard.verdict(labels) == "running"  # somebody among the untold may still deal with it
    yard.run_continuations()
    assert yard.census(labels) == {"blocked": MANY, "failed": 1}
    assert yard.verdict(labels) == "blocked"
    yard.rerun(labels["hub"])
    yard.run_continuations()
    assert yard.census(labels) == {"unscheduled": MANY, "waiting": 1}


def test_a_mend_is_propagated_after_an_open_continuation(yard: Grounds) -> None:
    labels = yard.submit(star())
    yard.hello("rack1")
    yard.run("rack1", labels, "hub")
    assert yard.take_up(yard.notes()[0]) is False
    assert yard.census(labels) == {"blocked": 1_000, "failed": 1, "unscheduled": MANY - 1_000}
    yard.rerun(labels["hub"])
    yard.run("rack1", labels)
    assert [(note.source, note.target) for note in yard.notes()] == [
        ("running", "failed"),
        ("failed", "unscheduled"),
        ("running", "successful"),
    ]
    yard.run_continuations()
    assert yard.census(labels) == {"successful": 1, "waiting": MANY}


def test_a_later_continuation_of_a_task_waits_for_the_earlier_one(yard: Grounds) -> None:
    labels = yard.submit(star())
    yard.hello("rack1")
    yard.run("rack1", labels, "hub")
    yard.rerun(labels["hub"])
    early, late = yard.notes()
    assert yard.take_up(late) is False
    assert [note.cursor > 0 for note in yard.notes()] == [True, False]
    assert [yard.take_up(late) for _ in range(5)] == [False, False, False, False, True]
    assert yard.take_up(early) is None
    assert yard.notes() == []


def test_a_dependent_that_is_rerun_while_a_continuation_is_open_learns_everything_once(yard: Grounds) -> None:
    labels = yard.submit(star())
    yard.hello("rack1")
    ends = sorted(rays(labels).values())
    for id in (ends[0], ends[-1]):
        yard.cancel(id)
    yard.run("rack1", labels, "hub")
    yard.take_up(yard.notes()[0])
    for id in (ends[0], ends[-1]):
        assert yard.rerun(id) == Done(id, yard.task(id).state)
    assert yard.task(ends[0]).state == "blocked"  # it asks, and the page that tells has passed
    assert yard.task(ends[-1]).state == "unscheduled"  # it will hear
    yard.run_continuations()
    assert yard.census(labels) == {"blocked": MANY, "failed": 1}
    yard.rerun(labels["hub"])
    yard.run_continuations()
    yard.run("rack1", labels)
    yard.run_continuations()
    assert yard.census(labels) == {"successful": 1, "waiting": MANY}


def test_the_last_of_many_handlers_still_counts(yard: Grounds) -> None:
    document = star()
    labels = yard.submit(document)
    last = max(rays(labels), key=lambda label: labels[label])
    other = yard.submit({"tasks": {**document["tasks"], last: node(failure=["hub"])}})  # type: ignore[dict-item]
    yard.hello("rack1")
    leases = {**yard.start("rack1", {"hub": labels["hub"], "other": other["hub"]})}
    yard.fail("rack1", leases["other"])
    yard.run_continuations()
    assert yard.census(other) == {"blocked": MANY - 1, "failed": 1, "waiting": 1}
    assert yard.task(other["hub"]).handlers.open == 1
    yard.fail("rack1", leases["hub"])
    yard.run_continuations()
    assert [yard.graph(one.graph).tally.unhandled for one in (labels, other)] == [1, 0]
    yard.run("rack1", other)
    assert yard.task(other["hub"]).handlers.ran == 1


def test_many_handlers_of_one_failure_are_all_counted(yard: Grounds) -> None:
    labels = yard.submit({"tasks": {"hub": node(), **{f"h{place}": node(always=["hub"]) for place in range(MANY)}}})
    yard.hello("rack1")
    yard.run("rack1", labels, "hub")
    yard.take_up(yard.notes()[0])
    ran = yard.run("rack1", labels)  # some of those that know already
    assert len(ran) == 256
    yard.run_continuations()
    handlers = yard.task(labels["hub"]).handlers
    assert (handlers.ran, handlers.open) == (256, MANY - 256)


def test_a_long_skip_cascade_goes_on_in_one_transaction(yard: Grounds) -> None:
    names = [f"t{place}" for place in range(PROPAGATED_MAX + 500)]
    document = chain(*names)
    document["tasks"]["t0"] = node(failure=["first"])  # type: ignore[index]
    document["tasks"]["first"] = node()  # type: ignore[index]
    labels = yard.submit(document)
    yard.hello("rack1")
    yard.run("rack1", labels)
    yard.run_continuations()
    assert yard.census(labels) == {"skipped": PROPAGATED_MAX + 500, "successful": 1}
    assert yard.verdict(labels) == "finished"
