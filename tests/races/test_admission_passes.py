"""Passes of several servers: one at a time, no task is admitted that must not be, and none is forgotten."""

from collections import Counter

import pytest

from taskyard.lifecycle.admission.pools import add_pool_contenders, set_pool
from taskyard.lifecycle.admission.scheduler import LOCK_MS, PassOutcome
from taskyard.lifecycle.commands import Done
from taskyard.store.repo.admission import PoolRow
from tests.engine.harness import WAIT_S, graph, task
from tests.lifecycle.harness import Labels
from tests.races import invariants
from tests.races.conftest import Open
from tests.races.servers import COMMIT, Server, run_concurrently, wait_for_lock_wait, watched

Pair = tuple[Server, Server]
#: How many tasks contend for a few keys and one pool.
MANY = 120
CAPACITY = 6
POOL = {"pool": "default"}


def mutex(*keys: str) -> list[dict[str, str]]:
    return [
        {"key": key} | ({"party": party} if party else {}) for key, _, party in (one.partition("/") for one in keys)
    ]


def held(*keys: str, **said: object) -> dict[str, object]:
    return task(mutexes=mutex(*keys), **said)


def contending(servers: list[Server]) -> Labels:
    """A pool with little capacity, and many tasks for it, with mutexes that exclude each other."""
    servers[0].engine.transact(lambda transaction: set_pool(transaction, PoolRow("default", CAPACITY, False), "ann"))
    keys = [("door",), ("door/in",), ("door/in", "room1"), ("room1",), ("room2",), ()]
    nodes = {f"t{number}": held(*keys[number % len(keys)]) for number in range(MANY)}
    return servers[0].submit(graph(**nodes))


@pytest.mark.parametrize(("count", "threads"), [(3, 1), (2, 4)], ids=["three servers", "eight threads on two servers"])
def test_passes_at_once_never_admit_too_much_and_drop_no_task(servers: Open, count: int, threads: int) -> None:
    several = servers(count)
    for server in several:
        server.hello()
    labels = contending(several)
    found: list[object] = []

    def run(server: Server) -> int:
        """Pass, take one, end it, until all is done."""
        ran = 0
        while several[0].graph_state(labels.graph) == "running":
            server.engine.schedule()
            for lease in server.claim(1):
                ran += isinstance(server.end(lease), Done)
        return ran

    with watched(several, found):
        ran = run_concurrently(*(lambda server=server: run(server) for server in several * threads))
    assert found == []
    assert sum(ran) == MANY
    assert set(several[0].states(labels).values()) == {"successful"}
    assert admissions(several[0], labels) == {1: MANY}, "a task was admitted twice"


def test_a_server_that_finds_a_pass_in_progress_returns_at_once(pair: Pair) -> None:
    one, two = pair
    one.submit(graph(a=held("k")))
    with one.halted(COMMIT, 2) as halt:  # the lock is taken, and the page is written
        passing = one.in_thread(one.engine.schedule)
        halt.reached()
        assert two.engine.schedule() == PassOutcome(ran=False)
    assert passing.result(WAIT_S).admitted == 1


def test_a_task_that_comes_during_a_pass_is_admitted_by_it(pair: Pair) -> None:
    one, two = pair
    first = one.submit(graph(a=held("k")))
    with one.halted(COMMIT, 2) as halt:
        passing = one.in_thread(one.engine.schedule)
        halt.reached()
        late = two.submit(graph(a=held("other")))
        assert not two.engine.schedule().ran
    assert passing.result(WAIT_S).admitted == 2
    assert (one.states(first), one.states(late)) == ({"a": "waiting"}, {"a": "waiting"})


def test_a_pass_that_was_replaced_while_it_slept_writes_nothing(pair: Pair) -> None:
    one, two = pair
    labels = one.submit(graph(a=held("k"), b=held("k")))
    with one.halted("extend_admission_lock") as halt:  # it has thought, and is about to write
        passing = one.in_thread(one.engine.schedule)
        halt.reached()
        one.clock.advance(LOCK_MS + 1)
        assert two.engine.schedule().admitted == 1
        (lease,) = two.claim()
        assert lease.task == labels["a"]
        assert isinstance(two.end(lease), Done)
        assert two.engine.schedule().admitted == 1
    # It would have admitted `a`, which has ended, beside `b`, which holds the key by now.
    assert passing.result(WAIT_S) == PassOutcome(ran=False, epoch=1)
    assert one.states(labels) == {"a": "successful", "b": "waiting"}
    assert one.engine.schedule().admitted == 0


@pytest.mark.parametrize("place", ["lock_tasks", COMMIT])
def test_a_mutex_that_is_released_during_a_pass_is_given_to_the_next_task(pair: Pair, place: str) -> None:
    one, two = pair
    labels = one.submit(graph(a=held("k"), b=held("k")))
    assert one.engine.schedule().admitted == 1
    (lease,) = two.claim()
    other = one.submit(graph(c=held("other")))
    with one.halted(place, 2 if place == COMMIT else 1) as halt:
        passing = one.in_thread(one.engine.schedule)
        halt.reached()
        assert isinstance(two.end(lease), Done)
    assert passing.result(WAIT_S).admitted == 2
    assert one.states(labels) == {"a": "successful", "b": "waiting"}
    assert one.states(other) == {"c": "waiting"}


def test_a_task_that_comes_while_its_pool_gets_a_capacity_is_counted_there(pair: Pair) -> None:
    one, two = pair
    with one.halted(COMMIT) as halt:  # it was admitted at once: its pool had no capacity
        coming = one.in_thread(one.submit, graph(a=task(dimensions=POOL), b=task(dimensions=POOL)))
        halt.reached()
        limiting = two.in_thread(limit, two)
        wait_for_lock_wait(one.url)
    labels = coming.result(WAIT_S)
    limiting.result(WAIT_S)
    assert set(one.states(labels).values()) == {"waiting"}
    with one.store.read() as repo:
        assert {task.needs_admission for task in repo.tasks.read(list(labels.values()))} == {True}


def admissions(server: Server, labels: Labels) -> Counter[int]:
    """Count how often each task was admitted."""
    facts = invariants.read(server.url)
    return Counter(facts.signals(id)["admit"] for id in labels.values())


def limit(server: Server) -> None:
    server.engine.transact(lambda transaction: set_pool(transaction, PoolRow("default", CAPACITY, False), "ann"))
    while server.engine.transact(lambda transaction: add_pool_contenders(transaction, "default")):
        pass
