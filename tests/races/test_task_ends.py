"""Tasks that end at the same moment on several servers: no dependent is released twice, and none is forgotten."""

from collections import Counter
from collections.abc import Callable

import pytest

from taskyard.core.states import State
from taskyard.lifecycle.commands import BulkOutcome, Cancel, Done, Lease, Refusal
from tests.engine.harness import WAIT_S, graph, task
from tests.lifecycle.harness import Labels
from tests.races.conftest import Open
from tests.races.servers import COMMIT, Server, ended, run_in_lockstep, wait_for_lock_wait

#: How often two parents end together.
PAIRS = 1_000
#: How often the last two tasks of a graph end at once.
GRAPHS = 150
#: How many parents one child has.
PARENTS = 200


def by_bot(servers: list[Server]) -> list[dict[int, Lease]]:
    """Let each bot take what only it can run."""
    return [server.claim_all() for server in servers]


def ending(server: Server, lease: Lease) -> Callable[[], Done | Refusal]:
    return lambda: server.end(lease)


def two_sided(servers: Open) -> list[Server]:
    """Two servers whose bots run different tasks."""
    both = servers(2)
    for server, pool in zip(both, ("left", "right"), strict=True):
        server.hello(pool=pool)
    return both


def on(pool: str, *requires: str) -> dict[str, object]:
    return task(*requires, dimensions={"pool": pool})


def test_two_parents_that_end_at_once_release_their_child_once(servers: Open) -> None:
    both = two_sided(servers)
    nodes: dict[str, object] = {}
    for number in range(PAIRS):
        nodes[f"a{number}"] = on("left")
        nodes[f"b{number}"] = on("right")
        nodes[f"c{number}"] = on("nowhere", f"a{number}", f"b{number}")
    labels = both[0].submit(graph(**nodes))
    both[0].settle()
    left, right = by_bot(both)
    answers = run_in_lockstep(
        [ending(both[0], left[labels[f"a{number}"]]) for number in range(PAIRS)],
        [ending(both[1], right[labels[f"b{number}"]]) for number in range(PAIRS)],
    )
    assert {done for pair in answers for done in pair} == {
        Done(labels[f"{side}{number}"], State.SUCCESSFUL) for side in "ab" for number in range(PAIRS)
    }
    found = both[0].audit()
    assert Counter(found.signals(labels[f"c{number}"])["release"] for number in range(PAIRS)) == {1: PAIRS}
    assert Counter(both[0].states(labels).values()) == {"successful": 2 * PAIRS, "waiting": PAIRS}


@pytest.mark.parametrize("first", [0, 1])
def test_the_second_parent_waits_for_the_row_of_the_child_and_sees_the_first(servers: Open, first: int) -> None:
    both = two_sided(servers)
    labels = both[0].submit(graph(a=on("left"), b=on("right"), c=on("nowhere", "a", "b")))
    leases = [next(iter(taken.values())) for taken in by_bot(both)]
    early, late = both[first], both[1 - first]
    with early.halted(COMMIT) as halt:
        ending_first = early.in_thread(early.end, leases[first])
        halt.reached()
        ending_then = late.in_thread(late.end, leases[1 - first])
        wait_for_lock_wait(early.url)
    assert isinstance(ending_first.result(WAIT_S), Done)
    assert isinstance(ending_then.result(WAIT_S), Done)
    assert early.states(labels) == {"a": "successful", "b": "successful", "c": "waiting"}


def test_the_last_two_tasks_of_a_graph_finish_it_once(servers: Open) -> None:
    both = two_sided(servers)
    graphs = [both[0].submit(graph(a=on("left"), b=on("right"))) for _ in range(GRAPHS)]
    left, right = by_bot(both)
    run_in_lockstep(
        [ending(both[0], left[labels["a"]]) for labels in graphs],
        [ending(both[1], right[labels["b"]]) for labels in graphs],
    )
    found = both[0].audit()
    assert {tuple(found.ends(labels.graph)) for labels in graphs} == {("running", "finished")}


def test_many_parents_on_many_servers_release_their_child_once(servers: Open) -> None:
    four = servers(4)
    for server in four:
        server.hello()
    parents = [f"p{number}" for number in range(PARENTS)]
    labels = four[0].submit(graph(**{label: task() for label in parents}, child=task(*parents), end=task("child")))
    share = PARENTS // len(four)
    leases = [server.claim(share) for server in four]
    answers = run_in_lockstep(
        *([ending(server, lease) for lease in mine] for server, mine in zip(four, leases, strict=True))
    )
    assert {isinstance(done, Done) for row in answers for done in row} == {True}
    assert sum(server.store.lost for server in four) <= PARENTS
    found = four[0].audit()
    assert found.signals(labels["child"]) == {"release": 1, "admit": 1}
    assert four[0].states(labels)["end"] == "unscheduled"


def test_many_results_in_each_of_many_polls_release_a_child_once(servers: Open) -> None:
    four = servers(4)
    for server in four:
        server.hello()
    parents = [f"p{number}" for number in range(PARENTS)]
    # The child has the lowest key, so a transaction that propagates to it locks its row after those with higher keys.
    labels = four[0].submit(graph(child=task(*parents), **{label: task() for label in parents}))
    leases = [server.claim(PARENTS // len(four)) for server in four]

    def tell(server: Server, some: tuple[Lease, ...]) -> Callable[[], object]:
        return lambda: server.poll(reports=tuple(map(ended, some)))

    run_in_lockstep(
        *(
            [tell(server, mine[place : place + 5]) for place in range(0, len(mine), 5)]
            for server, mine in zip(four, leases, strict=True)
        )
    )
    found = four[0].audit()
    assert found.signals(labels["child"]) == {"release": 1, "admit": 1}


def test_two_that_wait_for_each_other_are_both_answered(servers: Open) -> None:
    """The end of a task locks its child after it; the cancel of the graph locks them by their keys: child, task."""
    one, two = servers(2)
    one.hello()
    labels = one.submit(graph(child=task("parent"), parent=task()))
    (lease,) = one.claim()
    assert labels["child"] < labels["parent"]
    with one.halted("lock_tasks", 2) as halt:  # the child, after the parent
        ending_it = one.in_thread(one.end, lease)
        halt.reached()
        canceling = two.in_thread(two.engine.cancel, Cancel(graph=labels.graph))
        wait_for_lock_wait(one.url)
    assert isinstance(ending_it.result(WAIT_S), Done)
    assert isinstance(canceling.result(WAIT_S), BulkOutcome)
    assert one.store.lost + two.store.lost >= 1
    one.settle()
    settled(one, labels)


def settled(server: Server, labels: Labels) -> None:
    """The graph is canceled, and the state of its task depends on whether its bot reported in time."""
    states = server.states(labels)
    assert server.graph_state(labels.graph) == "canceled"
    assert states["child"] == "canceled"
    assert states["parent"] in {"successful", "canceled"}
