"""How people have work tried again: a new round, with everything fresh."""

from taskyard.core.states import Signal, State
from taskyard.lifecycle.commands import BulkOutcome, Code, Done, Refusal
from tests.lifecycle.grounds import MANY, Grounds, graph, node, rays, star
from tests.lifecycle.in_short import in_short
from tests.lifecycle.tallied import EDGES, Tallied
from tests.lifecycle.yard import Labels, chain


def refused(outcome: object) -> tuple[Code, str]:
    assert isinstance(outcome, Refusal)
    return outcome.code, outcome.text.split(": ")[-1]


def test_a_rerun_counts_every_budget_afresh(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(reruns=1, retries=1)))
    yard.hello("rack1")
    yard.end("rack1", yard.claim("rack1")[0], Signal.LOSE)
    for _ in range(2):
        yard.fail("rack1", yard.claim("rack1")[0])
    assert yard.words(labels) == {"a": "failed"}
    assert yard.rerun(labels["a"]) == Done(labels["a"], State.WAITING)
    life = yard.task(labels["a"]).life
    assert (life.round, life.attempt, life.reruns_used, life.retries_used) == (2, 3, 0, 0)
    yard.end("rack1", yard.claim("rack1")[0], Signal.LOSE)
    yard.fail("rack1", yard.claim("rack1")[0])
    assert yard.words(labels) == {"a": "waiting"}
    yard.fail("rack1", yard.claim("rack1")[0])
    assert yard.words(labels) == {"a": "failed"}
    assert yard.audits(labels["a"]) == [("ann", "rerun", "")]


def test_a_rerun_of_what_is_under_way_is_an_echo(yard: Grounds) -> None:
    labels = yard.submit(chain("a", "b"))
    assert yard.rerun(labels["a"]) == Done(labels["a"], State.WAITING, echo=True)
    assert yard.rerun(labels["b"]) == Done(labels["b"], State.UNSCHEDULED, echo=True)
    assert yard.audits(labels["a"]) == []


def test_what_cannot_be_rerun_is_refused_with_the_reason(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), b=node(), c=node("b"), late=node(deadline="10s"), e=node("a", "b")))
    yard.hello("rack1")
    yard.run("rack1", labels, "b", "late")
    yard.later(10_000)
    assert refused(yard.rerun(labels["a"])) == (Code.CONFLICT, "it is successful")
    assert refused(yard.rerun(labels["c"])) == (Code.CONFLICT, "it is blocked")
    assert refused(yard.rerun(labels["late"])) == (Code.CONFLICT, "its deadline has passed")
    assert refused(yard.rerun(labels.graph))[0] is Code.NOT_FOUND
    assert refused(yard.rerun(graph=labels["a"]))[0] is Code.NOT_FOUND


def test_a_rerun_mends_what_was_blocked_and_what_stepped_aside(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), b=node("a"), c=node("b"), d=node("a", on_impossible="skip"), e=node("d")))
    yard.hello("rack1")
    yard.run("rack1", labels, "a")
    assert yard.words(labels) == {"a": "failed", "b": "blocked", "c": "unscheduled", "d": "skipped", "e": "skipped"}
    yard.rerun(labels["a"])
    assert yard.words(labels) == {
        "a": "waiting",
        "b": "unscheduled",
        "c": "unscheduled",
        "d": "unscheduled",
        "e": "unscheduled",
    }
    for _ in range(3):
        yard.run("rack1", labels)
    assert yard.verdict(labels) == "finished"


def test_a_task_is_released_after_the_end_that_releases_it_in_one_transaction_too(yard: Grounds) -> None:
    handled = node("c", failure=["s"], on_impossible="fail")
    labels = yard.submit(
        graph(a=node(), c=node(), s=node("a", on_impossible="skip"), f=handled, x=node("a", failure=["f"], join="any"))
    )
    yard.hello("rack1")
    yard.run("rack1", labels, "a", "c")
    yard.run("rack1", labels, "a", "c")
    assert yard.words(labels) == {"a": "failed", "c": "failed", "s": "skipped", "f": "skipped", "x": "blocked"}
    yard.rerun(labels["a"])
    assert (yard.words(labels)["f"], yard.words(labels)["x"]) == ("failed", "waiting")
    with yard.store.read() as repo:
        failed = [one.number for one in repo.events.of(labels["f"], 0, 99) if one.target == "failed"]
        released = [one.number for one in repo.events.of(labels["x"], 0, 99) if one.signal == "release"]
    assert max(failed) < max(released)


def test_a_task_rerun_behind_a_failure_is_blocked_again_at_once(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), b=node("a", on_impossible="fail"), c=node("a")))
    yard.cancel(labels["c"])
    yard.cancel(labels["a"])
    assert yard.words(labels) == {"a": "canceled", "b": "failed", "c": "canceled"}
    assert yard.rerun(labels["c"]) == Done(labels["c"], State.BLOCKED)
    assert yard.rerun(labels["b"]) == Done(labels["b"], State.FAILED)


def test_a_rerun_of_a_graph_takes_all_that_failed_and_what_failed_with_it(yard: Grounds) -> None:
    labels = yard.submit(
        graph(a=node(), b=node("a", on_impossible="fail"), c=node("b"), d=node(), ok=node(), stop=node(priority=255))
    )
    yard.hello("rack1")
    yard.cancel(labels["stop"])
    yard.run("rack1", labels, "a", "d")
    assert yard.words(labels) == {
        "a": "failed",
        "b": "failed",
        "c": "blocked",
        "d": "failed",
        "ok": "successful",
        "stop": "canceled",
    }
    answer = yard.rerun(graph=labels.graph)
    assert in_short(answer) == BulkOutcome(labels.graph, 4)
    assert isinstance(answer, BulkOutcome)
    assert (answer.total, answer.unblocked) == (4, 1)
    assert set(answer.tasks) == {labels[one] for one in ("a", "b", "d", "stop")}
    assert yard.words(labels) == {
        "a": "waiting",
        "b": "unscheduled",
        "c": "unscheduled",
        "d": "waiting",
        "ok": "successful",
        "stop": "waiting",
    }
    assert yard.rerun(graph=labels.graph) == BulkOutcome(labels.graph, 0, echo=True)
    assert yard.audits(labels.graph) == [("ann", "submit", "6 tasks"), ("ann", "rerun", "4 tasks")]


def test_nothing_is_rerun_in_a_graph_that_is_over(yard: Grounds) -> None:
    done = yard.submit(graph(a=node(), page=node(failure=["a"])))
    yard.hello("rack1")
    yard.run("rack1", done, "a")
    yard.run("rack1", done)
    stopped = yard.submit(chain("a"))
    yard.cancel(graph=stopped.graph)
    for labels in (done, stopped):
        assert refused(yard.rerun(labels["a"])) == (Code.CONFLICT, "run it again from a label on, as a new graph")
        assert refused(yard.rerun(graph=labels.graph)) == (
            Code.CONFLICT,
            "run it again from a label on, as a new graph",
        )


def test_a_rerun_begins_with_the_first_slice_again(yard: Grounds) -> None:
    slices = [
        {"dimensions": {"pool": "default", "gpu": "h100"}, "expires": "10s", "wait_for_capacity": True},
        {"dimensions": {"pool": "default"}},
    ]
    labels = yard.submit(graph(a=node(slices=slices)))
    yard.hello("rack1")
    first = yard.task(labels["a"]).queue
    yard.wait(10_000, awake=["rack1"])
    assert yard.task(labels["a"]).queue != first
    yard.fail("rack1", yard.claim("rack1")[0])
    yard.rerun(labels["a"])
    task = yard.task(labels["a"])
    assert (task.life.slice_index, task.queue, str(task.state)) == (0, first, "waiting")
    assert yard.claim("rack1") == ()


def test_a_rerun_finds_out_how_its_prerequisites_went_on_without_reading_an_edge(yard: Grounds) -> None:
    names = [f"t{place}" for place in range(30)]
    labels = yard.submit({"tasks": {**{name: node() for name in names}, "end": node(*names), "clean": node(*names)}})
    yard.hello("rack1")
    for label in ("end", "clean"):
        yard.cancel(labels[label])
    yard.run("rack1", labels, "t7")
    yard.store = tallied = Tallied(yard.store)
    assert yard.rerun(labels["end"]) == Done(labels["end"], State.BLOCKED)
    assert tallied.most(EDGES) == 0
    yard.rerun(labels["t7"])
    yard.run("rack1", labels)
    assert yard.rerun(labels["clean"]) == Done(labels["clean"], State.WAITING)
    assert yard.words(labels)["end"] == "waiting"


def failed_star(yard: Grounds, document: dict[str, object]) -> Labels:
    labels = yard.submit(document)
    yard.hello("rack1")
    yard.run("rack1", labels, "hub")
    yard.run_continuations()
    assert yard.census(labels) == {"failed": MANY + 1}
    return labels


def test_a_large_rerun_goes_page_by_page_and_no_task_fails_again_for_being_early(yard: Grounds) -> None:
    document = star(on_impossible="fail")
    nodes = document["tasks"]
    assert isinstance(nodes, dict)
    # The hub is the youngest here: by its key alone it would come last.
    labels = failed_star(yard, {"tasks": {**{label: nodes[label] for label in reversed(nodes)}}})
    assert in_short(yard.rerun(graph=labels.graph)) == BulkOutcome(labels.graph, 0, promised=True)
    assert len(yard.notes()) == 6  # the hub has so much to tell that it goes alone
    yard.run_continuations()
    assert yard.census(labels) == {"unscheduled": MANY, "waiting": 1}
    assert {yard.task(id).life.round for id in list(labels.values())[::500]} == {2}
    yard.run("rack1", labels)
    yard.run_continuations()
    assert yard.census(labels) == {"successful": 1, "waiting": MANY}


def test_a_large_rerun_ends_with_its_graph(yard: Grounds) -> None:
    labels = failed_star(yard, star(on_impossible="fail"))
    yard.rerun(graph=labels.graph)
    yard.take_up(yard.notes()[0])
    yard.cancel(graph=labels.graph)
    yard.run_continuations()
    assert set(yard.census(labels)) == {"canceled", "failed"}
    assert yard.graph(labels.graph).tally.active == 0
    assert len(rays(labels)) == MANY


def test_a_task_that_fails_by_policy_is_rerun_once_it_knows_of_the_mend(yard: Grounds) -> None:
    labels = failed_star(yard, star(on_impossible="fail"))
    ray = max(rays(labels).values())
    yard.rerun(labels["hub"])
    assert in_short(yard.rerun(ray)) == BulkOutcome(ray, 0, promised=True)
    assert str(yard.task(ray).state) == "failed"
    yard.run_continuations()
    assert yard.census(labels) == {"failed": MANY - 1, "unscheduled": 1, "waiting": 1}


def test_a_failure_that_has_much_to_tell_and_what_failed_with_it_are_rerun_in_turn(yard: Grounds) -> None:
    nodes = {
        "hub": node(),
        **{f"ray{place}": node("hub") for place in range(1_100)},
        "end": node("hub", on_impossible="fail"),
    }
    labels = yard.submit({"tasks": nodes})
    yard.hello("rack1")
    yard.run("rack1", labels, "hub")
    yard.run_continuations()
    assert yard.census(labels) == {"blocked": 1_100, "failed": 2}
    assert in_short(yard.rerun(graph=labels.graph)) == BulkOutcome(labels.graph, 0, promised=True)
    yard.run_continuations()
    assert yard.census(labels) == {"unscheduled": 1_101, "waiting": 1}
