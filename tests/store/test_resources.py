"""Queries about what tasks take of bots, and about what is wanted, on both databases."""

from collections.abc import Iterator

import pytest

from taskyard.core.matching import canonical
from taskyard.core.states import QUEUED, Reason, State
from taskyard.store.connection import Store, open_store
from taskyard.store.repo.bots import encode_dimensions
from taskyard.store.repo.read import DemandRow
from tests.store.rows import NOW, READY, add_graph, add_tasks, move

SMALL, LARGE = canonical({"pool": "lab"}), canonical({"pool": "lab", "slots": ">=4 taken"})


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    """Two bots; queue 1 with tasks 1 to 3, of which b1 holds 1; queue 2 with task 4 and, pending, task 5."""
    store = open_store(database_url)
    with store.write() as repo:
        repo.bots.begin_sessions([(bot, "lab", "s1", "", 4, NOW, NOW, "", None, None, 0) for bot in ("b1", "b2")])
        repo.bots.set_dimensions([(bot, encode_dimensions(SMALL)) for bot in ("b1", "b2")])
        repo.queues.add([(1, 1, 11, "pool:lab", "lab", encode_dimensions(SMALL), 0)], 1)
        repo.queues.add([(2, 2, 22, "pool:lab", "lab", encode_dimensions(LARGE), 0)], 2)
        add_graph(repo)
        add_tasks(repo, 1, 2, 3, queue_id=1)
        add_tasks(repo, 4, 5, queue_id=2, created_ms=NOW + 5)
        move(repo, 1, *READY, State.RUNNING, bot="b1")
        for id in (2, 3, 4):
            move(repo, id, *READY)
        move(repo, 5, State.PENDING)
        repo.admission.set_holds([(5, "no_bot", None, None, None, None)])
    yield store
    store.close()


def test_what_bots_hold_is_found_with_its_queues(store: Store) -> None:
    with store.write() as repo:
        assert repo.bots.held(["b1", "b2", "b3"]) == [("b1", 1, 1)]
    with store.read() as repo:
        assert repo.read.held_of_queues([1, 2]) == [("b1", 1, 1)]
        assert repo.read.held_of_queues([2]) == []
        assert repo.read.queues_with_text(" taken") == {2: LARGE}


def test_the_queues_are_found_whose_first_tasks_come_first(store: Store) -> None:
    with store.write() as repo:
        assert [tuple(row) for row in repo.tasks.first_queues((2, 1, 3), 9)] == [(1, 100, NOW, 2), (2, 100, NOW + 5, 4)]
        assert [row[0] for row in repo.tasks.first_queues((2, 1, 3), 1)] == [1]


def test_a_bot_is_kept_free_for_one_task_at_a_time(store: Store) -> None:
    with store.write() as repo:
        repo.bots.reserve([("b1", 4), ("b2", 1)])
        assert sorted(repo.bots.reservations(["b1", "b2"], QUEUED)) == [("b1", 4, 2), ("b2", 1, -1)]
        assert [(bot.id, task) for bot, task in repo.bots.reserved_for([4, 5])] == [("b1", 4)]
        assert repo.bots.reserved_for([]) == []
    with store.read() as repo:
        assert repo.read.kept_bots(QUEUED) == {"b1": LARGE}
    with store.write() as repo:
        repo.bots.reserve([("b1", None)])
        assert repo.bots.reservations(["b1"], QUEUED) == []


def test_the_demand_is_counted_by_queue(store: Store) -> None:
    with store.read() as repo:
        found = sorted(repo.read.demand("lab", READY[:1], Reason.NO_BOT), key=lambda one: one.queue)
        assert found == [DemandRow(1, "lab", SMALL, 2, NOW, 0, 1), DemandRow(2, "lab", LARGE, 1, NOW + 5, 1, 0)]
        assert repo.read.demand("other", READY[:1], Reason.NO_BOT) == []
        assert len(repo.read.demand("", READY[:1], Reason.NO_BOT)) == 2
