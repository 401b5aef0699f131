"""Propagation to dependents: gates, handlers, mends, and continuations for many dependents."""

import pytest

from taskyard.core.states import Reason, State
from taskyard.lifecycle.commands import Done
from taskyard.lifecycle.rows import NewTasks
from taskyard.lifecycle.submit import Extension, Submitted, extend
from taskyard.lifecycle.transaction import PROPAGATED_MAX
from tests.lifecycle.graphs import MANY, chain, graph, node, rays, star
from tests.lifecycle.harness import LifecycleHarness


def test_two_unhandled_failures_and_one_success_does_not_unblock(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=node(), c=node("a", "b")))
    harness.hello("rack1")
    harness.run("rack1", labels, "a", "b")
    assert harness.state_names(labels) == {"a": "failed", "b": "failed", "c": "blocked"}
    harness.rerun(labels["a"])
    assert harness.state_names(labels) == {"a": "waiting", "b": "failed", "c": "blocked"}
    harness.run("rack1", labels)
    assert harness.state_names(labels) == {"a": "successful", "b": "failed", "c": "blocked"}
    assert harness.graph_state(labels) == "blocked"
    harness.rerun(labels["b"])
    assert harness.state_names(labels)["c"] == "unscheduled"
    assert [harness.run("rack1", labels) for _ in range(2)] == [["b"], ["c"]]
    assert (
        harness.states_passed(labels.graph) == ["running", "blocked", "running", "finished"]
        or harness.graph_state(labels) == "finished"
    )


def test_a_join_of_any_fires_once_at_the_first_met_edge(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=node(), c=node("a", "b", join="any")))
    harness.hello("rack1")
    leases = harness.start("rack1", labels)
    harness.fail("rack1", leases["a"])
    assert harness.state_names(labels)["c"] == "unscheduled"
    harness.end("rack1", leases["b"])
    assert harness.run("rack1", labels) == ["c"]
    harness.rerun(labels["a"])
    harness.run("rack1", labels)
    assert harness.states_passed(labels["c"]) == ["pending", "waiting", "running", "successful"]
    assert harness.graph_state(labels) == "finished"


def test_a_released_task_is_never_taken_back(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=node(), clean=node(always=["a"])))
    harness.hello("rack1")
    harness.fail("rack1", harness.start("rack1", labels)["a"])
    assert harness.state_names(labels)["clean"] == "waiting"
    harness.rerun(labels["a"])
    assert harness.state_names(labels)["clean"] == "waiting"


def test_a_failure_that_is_handled_lets_the_graph_finish(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=node("a"), page=node(failure=["a"]), clean=node(always=["a"])))
    harness.hello("rack1")
    harness.run("rack1", labels, "a")
    assert harness.state_names(labels) == {"a": "failed", "b": "blocked", "page": "waiting", "clean": "waiting"}
    harness.run("rack1", labels)
    assert harness.graph_state(labels) == "blocked"  # for b, which may still succeed
    harness.cancel(labels["b"])
    assert harness.graph_state(labels) == "blocked"  # a canceled task is an unhandled failure


def test_a_handled_failure_with_nothing_behind_it_finishes(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), page=node(failure=["a"])))
    harness.hello("rack1")
    harness.run("rack1", labels, "a")
    assert harness.graph_state(labels) == "running"
    harness.run("rack1", labels)
    assert harness.states_passed(labels.graph) == ["running", "finished"]


def test_a_handler_that_fails_itself_has_still_handled_the_failure(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), page=node(failure=["a"])))
    harness.hello("rack1")
    harness.run("rack1", labels, "a")
    harness.run("rack1", labels, "page")
    assert harness.graph(labels.graph).tally.unhandled == 1  # that of the handler
    assert harness.graph_state(labels) == "blocked"


def test_a_handler_that_is_canceled_before_it_ran_has_handled_nothing(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), page=node(failure=["a"])))
    harness.hello("rack1")
    harness.run("rack1", labels, "a")
    harness.cancel(labels["page"])
    assert harness.graph(labels.graph).tally.unhandled == 2
    harness.rerun(labels["page"])
    assert harness.graph_state(labels) == "running"
    harness.run("rack1", labels)
    assert harness.graph_state(labels) == "finished"


def test_a_failure_handler_of_a_success_is_skipped_with_its_dependents(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), page=node(failure=["a"]), b=node("page"), c=node(always=["b"])))
    harness.hello("rack1")
    harness.run("rack1", labels)
    assert harness.state_names(labels) == {"a": "successful", "page": "skipped", "b": "skipped", "c": "skipped"}
    assert harness.why(labels["page"]) == (State.SKIPPED, Reason.CONDITION)
    assert harness.graph_state(labels) == "finished"


@pytest.mark.parametrize(("policy", "state"), [("hold", "blocked"), ("fail", "failed"), ("skip", "skipped")])
def test_the_policy_decides_about_a_task_whose_prerequisite_failed(
    harness: LifecycleHarness, policy: str, state: str
) -> None:
    labels = harness.submit(graph(a=node(), b=node("a", on_impossible=policy)))
    harness.hello("rack1")
    harness.run("rack1", labels, "a")
    assert harness.state_names(labels) == {"a": "failed", "b": state}
    harness.rerun(labels["a"])
    assert harness.state_names(labels) == {"a": "waiting", "b": "failed" if policy == "fail" else "unscheduled"}


def test_an_extension_of_a_failed_task_begins_blocked_and_its_handler_runs(harness: LifecycleHarness) -> None:
    document = graph(a=node())
    labels = harness.submit(document)
    harness.hello("rack1")
    harness.run("rack1", labels, "a")
    assert harness.graph_state(labels) == "blocked"
    more = harness.new_graph(graph(a=node(), b=node("a"), page=node(failure=["a"])))
    ids = {**more.new_tasks.ids, "a": labels["a"]}
    new_tasks = NewTasks(
        labels.graph, [more.graph.tasks["b"], more.graph.tasks["page"]], ids, harness.now, substitutes=False
    )
    assert harness.do(lambda transaction: extend(transaction, [Extension(new_tasks, 0, "me")])) == [
        Submitted(labels.graph)
    ]
    assert harness.state_names(ids) == {"a": "failed", "b": "blocked", "page": "waiting"}
    assert harness.graph(labels.graph).tally.unhandled == 0
    harness.run("rack1", ids)
    assert harness.state_names(ids) == {"a": "failed", "b": "blocked", "page": "successful"}


def test_a_success_is_propagated_to_many_dependents_page_by_page(harness: LifecycleHarness) -> None:
    labels = harness.submit(star())
    harness.hello("rack1")
    harness.run("rack1", labels)
    assert harness.count_states(labels) == {"successful": 1, "unscheduled": MANY}
    assert harness.graph_state(labels) == "running"
    assert harness.graph(labels.graph).tally.active == 1  # the note
    assert harness.run_continuations() == 3
    assert harness.count_states(labels) == {"successful": 1, "waiting": MANY}


def test_a_failure_and_its_mend_are_propagated_to_many_dependents(harness: LifecycleHarness) -> None:
    labels = harness.submit(star())
    harness.hello("rack1")
    harness.run("rack1", labels, "hub")
    assert harness.graph_state(labels) == "running"  # a handler that is not reached yet may still handle it
    harness.run_continuations()
    assert harness.count_states(labels) == {"blocked": MANY, "failed": 1}
    assert harness.graph_state(labels) == "blocked"
    harness.rerun(labels["hub"])
    harness.run_continuations()
    assert harness.count_states(labels) == {"unscheduled": MANY, "waiting": 1}


def test_a_mend_is_propagated_after_an_open_continuation(harness: LifecycleHarness) -> None:
    labels = harness.submit(star())
    harness.hello("rack1")
    harness.run("rack1", labels, "hub")
    assert harness.run_continuation(harness.continuations()[0]) is False
    assert harness.count_states(labels) == {"blocked": 1_000, "failed": 1, "unscheduled": MANY - 1_000}
    harness.rerun(labels["hub"])
    harness.run("rack1", labels)
    assert [(note.source, note.target) for note in harness.continuations()] == [
        ("running", "failed"),
        ("failed", "unscheduled"),
        ("running", "successful"),
    ]
    harness.run_continuations()
    assert harness.count_states(labels) == {"successful": 1, "waiting": MANY}


def test_a_later_continuation_of_a_task_waits_for_the_earlier_one(harness: LifecycleHarness) -> None:
    labels = harness.submit(star())
    harness.hello("rack1")
    harness.run("rack1", labels, "hub")
    harness.rerun(labels["hub"])
    early, late = harness.continuations()
    assert harness.run_continuation(late) is False
    assert [note.cursor > 0 for note in harness.continuations()] == [True, False]
    assert [harness.run_continuation(late) for _ in range(5)] == [False, False, False, False, True]
    assert harness.run_continuation(early) is None
    assert harness.continuations() == []


def test_a_dependent_that_is_rerun_while_a_continuation_is_open_learns_everything_once(
    harness: LifecycleHarness,
) -> None:
    labels = harness.submit(star())
    harness.hello("rack1")
    ends = sorted(rays(labels).values())
    for id in (ends[0], ends[-1]):
        harness.cancel(id)
    harness.run("rack1", labels, "hub")
    harness.run_continuation(harness.continuations()[0])
    for id in (ends[0], ends[-1]):
        assert harness.rerun(id) == Done(id, harness.task(id).state)
    assert harness.task(ends[0]).state == "blocked"  # it checks its gate, and the page that reaches it has passed
    assert harness.task(ends[-1]).state == "unscheduled"  # it will be reached
    harness.run_continuations()
    assert harness.count_states(labels) == {"blocked": MANY, "failed": 1}
    harness.rerun(labels["hub"])
    harness.run_continuations()
    harness.run("rack1", labels)
    harness.run_continuations()
    assert harness.count_states(labels) == {"successful": 1, "waiting": MANY}


def test_the_last_of_many_handlers_still_counts(harness: LifecycleHarness) -> None:
    document = star()
    labels = harness.submit(document)
    last = max(rays(labels), key=lambda label: labels[label])
    other = harness.submit({"tasks": {**document["tasks"], last: node(failure=["hub"])}})  # type: ignore[dict-item]
    harness.hello("rack1")
    leases = {**harness.start("rack1", {"hub": labels["hub"], "other": other["hub"]})}
    harness.fail("rack1", leases["other"])
    harness.run_continuations()
    assert harness.count_states(other) == {"blocked": MANY - 1, "failed": 1, "waiting": 1}
    assert harness.task(other["hub"]).handlers.open == 1
    harness.fail("rack1", leases["hub"])
    harness.run_continuations()
    assert [harness.graph(one.graph).tally.unhandled for one in (labels, other)] == [1, 0]
    harness.run("rack1", other)
    assert harness.task(other["hub"]).handlers.ran == 1


def test_many_handlers_of_one_failure_are_all_counted(harness: LifecycleHarness) -> None:
    labels = harness.submit({"tasks": {"hub": node(), **{f"h{place}": node(always=["hub"]) for place in range(MANY)}}})
    harness.hello("rack1")
    harness.run("rack1", labels, "hub")
    harness.run_continuation(harness.continuations()[0])
    ran = harness.run("rack1", labels)  # some of those that know already
    assert len(ran) == 256
    harness.run_continuations()
    handlers = harness.task(labels["hub"]).handlers
    assert (handlers.ran, handlers.open) == (256, MANY - 256)


def test_a_long_skip_cascade_goes_on_in_one_transaction(harness: LifecycleHarness) -> None:
    names = [f"t{place}" for place in range(PROPAGATED_MAX + 500)]
    document = chain(*names)
    document["tasks"]["t0"] = node(failure=["first"])  # type: ignore[index]
    document["tasks"]["first"] = node()  # type: ignore[index]
    labels = harness.submit(document)
    harness.hello("rack1")
    harness.run("rack1", labels)
    harness.run_continuations()
    assert harness.count_states(labels) == {"skipped": PROPAGATED_MAX + 500, "successful": 1}
    assert harness.graph_state(labels) == "finished"
