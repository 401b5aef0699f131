"""Many threads share one scheduler: every task has one owner, and nothing runs before its prerequisites."""

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Barrier, Thread

import pytest

from taskyard import Dag, Scheduler, SchedulerError
from taskyard.local.dag import Edge, Node

THREADS = 8


@pytest.fixture(autouse=True)
def switching_often() -> Iterator[None]:
    """Let the interpreter switch threads as often as possible, so that races are found."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def together(work: Callable[[int], None]) -> None:
    """Run `work` in all threads, starting at one moment; a thread that raises fails the test."""
    barrier, raised = Barrier(THREADS), []

    def run(which: int) -> None:
        barrier.wait()
        try:
            work(which)
        except BaseException as error:  # noqa: BLE001
            raised.append(error)

    threads = [Thread(target=run, args=(which,)) for which in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert raised == []


def layered(layers: int, width: int) -> list[Edge]:
    chance = random.Random(7)
    return [
        ((layer, place), (layer - 1, other))
        for layer in range(1, layers)
        for place in range(width)
        for other in chance.sample(range(width), 3)
    ]


def test_every_task_is_fetched_by_one_thread_and_after_its_prerequisites() -> None:
    edges = layered(layers=20, width=100)
    scheduler = Scheduler(Dag.from_edges(edges, [(0, place) for place in range(100)]))
    fetched: list[Node] = []
    story: list[tuple[str, Node]] = []

    def work(which: int) -> None:
        while scheduler.available_tasks:
            for task in scheduler.available_tasks:
                try:
                    scheduler.fetch_task(task)
                except SchedulerError:
                    continue
                story.append(("fetched", task))
                fetched.append(task)
                story.append(("delivered", task))
                scheduler.deliver_task(task)

    together(work)
    assert Counter(fetched) == dict.fromkeys(scheduler._nodes, 1)
    moment = {what: place for place, what in enumerate(story)}
    assert all(moment["delivered", dst] < moment["fetched", src] for src, dst in edges)


def test_what_deliveries_return_is_everything_once() -> None:
    edges = layered(layers=20, width=100)
    scheduler = Scheduler(Dag.from_edges(edges, [(0, place) for place in range(100)]))
    first = list(scheduler.available_tasks)
    shares = [first[which::THREADS] for which in range(THREADS)]

    def work(which: int) -> None:
        share = shares[which]
        for task in share:
            scheduler.fetch_task(task)
            share.extend(scheduler.deliver_task(task))

    together(work)
    assert Counter(task for share in shares for task in share) == dict.fromkeys(scheduler._nodes, 1)


def test_rows_that_overlap_go_to_one_thread_as_a_whole() -> None:
    """A refused row has met a row that was fetched: none was turned away by one that came to nothing itself."""
    rows = [range(which * 500, which * 500 + 3_000) for which in range(THREADS)]
    scheduler = Scheduler(Dag.from_edges([], range(10_000)))
    for _ in range(30):
        scheduler.reset()
        fetched: list[range] = []

        def work(which: int, fetched: list[range] = fetched) -> None:
            with suppress(SchedulerError):
                scheduler.fetch_tasks(rows[which])
                fetched.append(rows[which])

        together(work)
        owned = Counter(task for row in fetched for task in row)
        assert set(owned.values()) == {1}
        assert all(owned.keys() & row for row in rows)
        assert owned.keys() | set(scheduler.unknown_tasks) == set(range(10_000))


def test_failures_and_second_tries_from_all_sides_leave_no_trace() -> None:
    tasks = range(200)
    scheduler = Scheduler(Dag.from_edges([("top", task) for task in tasks]))

    def work(which: int) -> None:
        for task in tasks[which::THREADS]:
            for _ in range(5):
                scheduler.fetch_task(task, failed_ok=True)
                scheduler.fail_task(task)
            scheduler.fetch_task(task, failed_ok=True)
            scheduler.deliver_task(task)

    together(work)
    assert (scheduler.blocked_tasks, scheduler.available_tasks) == ({}, {"top"})
