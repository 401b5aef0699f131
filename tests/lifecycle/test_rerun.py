"""How people have work tried again: a new round, with everything fresh."""

from taskyard.core.states import Signal, State
from taskyard.lifecycle.commands import BulkOutcome, Code, Done, Refusal
from tests.lifecycle.counting_store import EDGES, CountingStore
from tests.lifecycle.graphs import MANY, chain, graph, node, rays, star
from tests.lifecycle.harness import Labels, LifecycleHarness, without_counts


def refused(outcome: object) -> tuple[Code, str]:
    assert isinstance(outcome, Refusal)
    return outcome.code, outcome.text.split(": ")[-1]


def test_a_rerun_counts_every_budget_afresh(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(reruns=1, retries=1)))
    harness.hello("rack1")
    harness.end("rack1", harness.claim("rack1")[0], Signal.LOSE)
    for _ in range(2):
        harness.fail("rack1", harness.claim("rack1")[0])
    assert harness.state_names(labels) == {"a": "failed"}
    assert harness.rerun(labels["a"]) == Done(labels["a"], State.WAITING)
    life = harness.task(labels["a"]).life
    assert (life.round, life.attempt, life.reruns_used, life.retries_used) == (2, 3, 0, 0)
    harness.end("rack1", harness.claim("rack1")[0], Signal.LOSE)
    harness.fail("rack1", harness.claim("rack1")[0])
    assert harness.state_names(labels) == {"a": "waiting"}
    harness.fail("rack1", harness.claim("rack1")[0])
    assert harness.state_names(labels) == {"a": "failed"}
    assert harness.audits(labels["a"]) == [("ann", "rerun", "")]


def test_a_rerun_of_what_is_under_way_is_an_echo(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a", "b"))
    assert harness.rerun(labels["a"]) == Done(labels["a"], State.WAITING, echo=True)
    assert harness.rerun(labels["b"]) == Done(labels["b"], State.UNSCHEDULED, echo=True)
    assert harness.audits(labels["a"]) == []


def test_what_cannot_be_rerun_is_refused_with_the_reason(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=node(), c=node("b"), late=node(deadline="10s"), e=node("a", "b")))
    harness.hello("rack1")
    harness.run("rack1", labels, "b", "late")
    harness.advance(10_000)
    assert refused(harness.rerun(labels["a"])) == (Code.CONFLICT, "it is successful")
    assert refused(harness.rerun(labels["c"])) == (Code.CONFLICT, "it is blocked")
    assert refused(harness.rerun(labels["late"])) == (Code.CONFLICT, "its deadline has passed")
    assert refused(harness.rerun(labels.graph))[0] is Code.NOT_FOUND
    assert refused(harness.rerun(graph=labels["a"]))[0] is Code.NOT_FOUND


def test_a_rerun_mends_blocked_and_skipped_dependents(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=node("a"), c=node("b"), d=node("a", on_impossible="skip"), e=node("d")))
    harness.hello("rack1")
    harness.run("rack1", labels, "a")
    assert harness.state_names(labels) == {
        "a": "failed",
        "b": "blocked",
        "c": "unscheduled",
        "d": "skipped",
        "e": "skipped",
    }
    harness.rerun(labels["a"])
    assert harness.state_names(labels) == {
        "a": "waiting",
        "b": "unscheduled",
        "c": "unscheduled",
        "d": "unscheduled",
        "e": "unscheduled",
    }
    for _ in range(3):
        harness.run("rack1", labels)
    assert harness.graph_state(labels) == "finished"


def test_a_task_is_released_after_the_end_that_releases_it_in_one_transaction_too(harness: LifecycleHarness) -> None:
    handled = node("c", failure=["s"], on_impossible="fail")
    labels = harness.submit(
        graph(a=node(), c=node(), s=node("a", on_impossible="skip"), f=handled, x=node("a", failure=["f"], join="any"))
    )
    harness.hello("rack1")
    harness.run("rack1", labels, "a", "c")
    harness.run("rack1", labels, "a", "c")
    assert harness.state_names(labels) == {"a": "failed", "c": "failed", "s": "skipped", "f": "skipped", "x": "blocked"}
    harness.rerun(labels["a"])
    assert (harness.state_names(labels)["f"], harness.state_names(labels)["x"]) == ("failed", "waiting")
    with harness.store.read() as repo:
        failed = [one.number for one in repo.events.of(labels["f"], 0, 99) if one.target == "failed"]
        released = [one.number for one in repo.events.of(labels["x"], 0, 99) if one.signal == "release"]
    assert max(failed) < max(released)


def test_a_task_rerun_behind_a_failure_is_blocked_again_at_once(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=node("a", on_impossible="fail"), c=node("a")))
    harness.cancel(labels["c"])
    harness.cancel(labels["a"])
    assert harness.state_names(labels) == {"a": "canceled", "b": "failed", "c": "canceled"}
    assert harness.rerun(labels["c"]) == Done(labels["c"], State.BLOCKED)
    assert harness.rerun(labels["b"]) == Done(labels["b"], State.FAILED)


def test_a_rerun_of_a_graph_takes_all_that_failed_and_what_failed_with_it(harness: LifecycleHarness) -> None:
    labels = harness.submit(
        graph(a=node(), b=node("a", on_impossible="fail"), c=node("b"), d=node(), ok=node(), stop=node(priority=255))
    )
    harness.hello("rack1")
    harness.cancel(labels["stop"])
    harness.run("rack1", labels, "a", "d")
    assert harness.state_names(labels) == {
        "a": "failed",
        "b": "failed",
        "c": "blocked",
        "d": "failed",
        "ok": "successful",
        "stop": "canceled",
    }
    answer = harness.rerun(graph=labels.graph)
    assert without_counts(answer) == BulkOutcome(labels.graph, 4)
    assert isinstance(answer, BulkOutcome)
    assert (answer.total, answer.unblocked) == (4, 1)
    assert set(answer.tasks) == {labels[one] for one in ("a", "b", "d", "stop")}
    assert harness.state_names(labels) == {
        "a": "waiting",
        "b": "unscheduled",
        "c": "unscheduled",
        "d": "waiting",
        "ok": "successful",
        "stop": "waiting",
    }
    assert harness.rerun(graph=labels.graph) == BulkOutcome(labels.graph, 0, echo=True)
    assert harness.audits(labels.graph) == [("ann", "submit", "6 tasks"), ("ann", "rerun", "4 tasks")]


def test_nothing_is_rerun_in_a_graph_that_is_over(harness: LifecycleHarness) -> None:
    done = harness.submit(graph(a=node(), page=node(failure=["a"])))
    harness.hello("rack1")
    harness.run("rack1", done, "a")
    harness.run("rack1", done)
    stopped = harness.submit(chain("a"))
    harness.cancel(graph=stopped.graph)
    for labels in (done, stopped):
        assert refused(harness.rerun(labels["a"])) == (Code.CONFLICT, "run it again from a label on, as a new graph")
        assert refused(harness.rerun(graph=labels.graph)) == (
            Code.CONFLICT,
            "run it again from a label on, as a new graph",
        )


def test_a_rerun_begins_with_the_first_slice_again(harness: LifecycleHarness) -> None:
    slices = [
        {"dimensions": {"pool": "default", "gpu": "h100"}, "expires": "10s", "wait_for_capacity": True},
        {"dimensions": {"pool": "default"}},
    ]
    labels = harness.submit(graph(a=node(slices=slices)))
    harness.hello("rack1")
    first = harness.task(labels["a"]).queue
    harness.wait(10_000, awake=["rack1"])
    assert harness.task(labels["a"]).queue != first
    harness.fail("rack1", harness.claim("rack1")[0])
    harness.rerun(labels["a"])
    task = harness.task(labels["a"])
    assert (task.life.slice_index, task.queue, str(task.state)) == (0, first, "waiting")
    assert harness.claim("rack1") == ()


def test_a_rerun_finds_out_how_its_prerequisites_went_on_without_reading_an_edge(harness: LifecycleHarness) -> None:
    names = [f"t{place}" for place in range(30)]
    labels = harness.submit({"tasks": {**{name: node() for name in names}, "end": node(*names), "clean": node(*names)}})
    harness.hello("rack1")
    for label in ("end", "clean"):
        harness.cancel(labels[label])
    harness.run("rack1", labels, "t7")
    harness.store = counting = CountingStore(harness.store)
    assert harness.rerun(labels["end"]) == Done(labels["end"], State.BLOCKED)
    assert counting.most(EDGES) == 0
    harness.rerun(labels["t7"])
    harness.run("rack1", labels)
    assert harness.rerun(labels["clean"]) == Done(labels["clean"], State.WAITING)
    assert harness.state_names(labels)["end"] == "waiting"


def failed_star(harness: LifecycleHarness, document: dict[str, object]) -> Labels:
    labels = harness.submit(document)
    harness.hello("rack1")
    harness.run("rack1", labels, "hub")
    harness.run_continuations()
    assert harness.count_states(labels) == {"failed": MANY + 1}
    return labels


def test_a_large_rerun_goes_page_by_page_and_no_task_fails_again_for_being_early(harness: LifecycleHarness) -> None:
    document = star(on_impossible="fail")
    nodes = document["tasks"]
    assert isinstance(nodes, dict)
    # The hub is the youngest here: by its key alone it would come last.
    labels = failed_star(harness, {"tasks": {**{label: nodes[label] for label in reversed(nodes)}}})
    assert without_counts(harness.rerun(graph=labels.graph)) == BulkOutcome(labels.graph, 0, promised=True)
    assert len(harness.continuations()) == 6  # the hub has so many dependents that it moves alone
    harness.run_continuations()
    assert harness.count_states(labels) == {"unscheduled": MANY, "waiting": 1}
    assert {harness.task(id).life.round for id in list(labels.values())[::500]} == {2}
    harness.run("rack1", labels)
    harness.run_continuations()
    assert harness.count_states(labels) == {"successful": 1, "waiting": MANY}


def test_a_large_rerun_ends_with_its_graph(harness: LifecycleHarness) -> None:
    labels = failed_star(harness, star(on_impossible="fail"))
    harness.rerun(graph=labels.graph)
    harness.run_continuation(harness.continuations()[0])
    harness.cancel(graph=labels.graph)
    harness.run_continuations()
    assert set(harness.count_states(labels)) == {"canceled", "failed"}
    assert harness.graph(labels.graph).tally.active == 0
    assert len(rays(labels)) == MANY


def test_a_task_that_fails_by_policy_is_rerun_once_it_knows_of_the_mend(harness: LifecycleHarness) -> None:
    labels = failed_star(harness, star(on_impossible="fail"))
    ray = max(rays(labels).values())
    harness.rerun(labels["hub"])
    assert without_counts(harness.rerun(ray)) == BulkOutcome(ray, 0, promised=True)
    assert str(harness.task(ray).state) == "failed"
    harness.run_continuations()
    assert harness.count_states(labels) == {"failed": MANY - 1, "unscheduled": 1, "waiting": 1}


def test_a_failure_with_many_dependents_and_those_that_failed_with_it_are_rerun_in_turn(
    harness: LifecycleHarness,
) -> None:
    nodes = {
        "hub": node(),
        **{f"ray{place}": node("hub") for place in range(1_100)},
        "end": node("hub", on_impossible="fail"),
    }
    labels = harness.submit({"tasks": nodes})
    harness.hello("rack1")
    harness.run("rack1", labels, "hub")
    harness.run_continuations()
    assert harness.count_states(labels) == {"blocked": 1_100, "failed": 2}
    assert without_counts(harness.rerun(graph=labels.graph)) == BulkOutcome(labels.graph, 0, promised=True)
    harness.run_continuations()
    assert harness.count_states(labels) == {"unscheduled": 1_101, "waiting": 1}
