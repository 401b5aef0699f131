"""What is stored about bots beside their sessions: snapshots, caches, failures, and names of those that are gone."""

from collections.abc import Iterator

import pytest

from taskyard.core.states import Millis, Signal, State
from taskyard.store.connection import Repo, Store, open_store
from taskyard.store.repo.bots import SnapshotRow
from tests.store.rows import LATER, NOW, add_graph, add_tasks, move

S = State
LINUX = '[["os",["Linux"]]]'
KEY = "npm.0123456789abcdef"
OTHER_KEY = "pip.0123456789abcdef"


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = open_store(database_url)
    yield store
    store.close()


def add_bots(repo: Repo, *ids: str) -> None:
    repo.bots.begin_sessions([(id, "p", "s", "", 1, NOW, NOW, "", None, None, 0) for id in ids])
    repo.bots.set_dimensions([(id, LINUX) for id in ids])


def test_equal_snapshots_are_stored_once_and_stay_while_a_bot_or_a_recent_attempt_has_them(store: Store) -> None:
    with store.write() as repo:
        add_bots(repo, "b1", "b2")
        repo.bots.set_snapshots(NOW, [("b1", 7, LINUX, "1.0"), ("b2", 7, LINUX, "1.0")])
        repo.bots.set_snapshots(NOW, [("b2", 8, LINUX, "1.1")])
        assert repo.bots.snapshots([7, 8, 9]) == {
            7: SnapshotRow((("os", ("Linux",)),), "1.0"),
            8: SnapshotRow((("os", ("Linux",)),), "1.1"),
        }
        assert (repo.bots.read(["b1"])["b1"].snapshot, repo.bots.read(["b2"])["b2"].snapshot) == (7, 8)
        assert repo.bots.delete_snapshots(LATER, 9) == 0
        repo.bots.set_snapshots(LATER, [("b1", 8, LINUX, "1.1")])
        assert repo.bots.delete_snapshots(LATER, 9) == 0  # until now a bot had it
        assert repo.bots.delete_snapshots(Millis(LATER + 1), 9) == 1
        assert set(repo.bots.snapshots([7, 8])) == {8}


def test_a_bot_holds_what_it_reported_until_its_next_hello(store: Store) -> None:
    with store.write() as repo:
        add_bots(repo, "b1")
        before = repo.bots.callers(["b1"])["b1"].changes
        repo.bots.set_caches([("b1", f"{KEY} {OTHER_KEY}")])
        assert repo.bots.callers(["b1"])["b1"].changes == before + 1
        assert repo.bots.read(["b1"])["b1"].caches == {KEY, OTHER_KEY}
        repo.bots.set_dimensions([("b1", LINUX)])
        assert repo.bots.read(["b1"])["b1"].caches == frozenset()


def test_failures_of_a_bot_are_a_change_of_it(store: Store) -> None:
    with store.write() as repo:
        add_bots(repo, "b1")
        before = repo.bots.callers(["b1"])["b1"].changes
        repo.bots.set_failures([("b1", 3, NOW)])
        bot = repo.bots.read(["b1"])["b1"]
        assert (bot.failures, bot.failed_ms, repo.bots.callers(["b1"])["b1"].changes) == (3, NOW, before + 1)


def test_dead_bots_without_tasks_are_deleted_with_their_rows_and_their_names_stay(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1)
        add_bots(repo, "b1", "b2", "b3", "b4")
        move(repo, 1, S.PENDING, S.WAITING, S.RUNNING, bot="b2")
        repo.bots.set_settings([("b1", "burnt", None, 0, 0)])
        repo.bots.add_events([("b1", id, NOW, "connected", None, None, "") for id in ("fd", "fe", "ff")])
        repo.bots.mark_missing(["b1", "b2"])
        repo.bots.end_sessions(["b3"])
        every = ["b1", "b2", "b3", "b4"]
        assert repo.bots.dead(every, NOW, 9) == []
        assert repo.bots.dead(every, LATER, 9) == ["b1", "b3"]
        assert (repo.bots.dead(every[1:], LATER, 9), repo.bots.dead(every, LATER, 1)) == (["b3"], ["b1"])
        assert repo.bots.delete_events(["b1"], 2) == 2
        assert [row[1] for row in repo.bots.events("b1", 9)] == ["fd"], "the oldest go first"
        assert repo.bots.delete_events(["b1", "b3"], 2) == 1
        repo.bots.bind_names([("b1", "p", LATER), ("b3", "q", LATER)])
        repo.bots.delete(["b1", "b3"], LATER)
        assert set(repo.bots.read(["b1", "b2", "b3", "b4"])) == {"b2", "b4"}
        assert repo.bots.callers(["b1"]) == {}
        assert repo.bots.bound_names(["b1", "b2", "b3"]) == {"b1": "p", "b3": "q"}
        repo.bots.unbind_names(["b1"])
        assert repo.bots.bound_names(["b1", "b3"]) == {"b3": "q"}


def test_waiting_tasks_with_caches_are_found_by_queue(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2, 3, 4, caches=KEY)
        add_tasks(repo, 5)
        for id in (1, 2, 3, 5):
            move(repo, id, S.PENDING, S.WAITING)
        move(repo, 3, S.RUNNING, bot="b1")
        assert repo.tasks.any_with_caches([7, 0], 1)
        assert not repo.tasks.any_with_caches([7], 1)
        assert not repo.tasks.any_with_caches([], 1)
        assert repo.tasks.caches_of([4, 5]) == {4: KEY}
        window = {row[0]: row for row in repo.tasks.claim_window([0], 2)}
        assert [tuple(row) for row in repo.tasks.claim_candidates([0], 2)] == [
            tuple(row[:5]) for row in window.values()
        ]
        assert len(window) == 2
        assert {id: row[5:] for id, row in window.items()} == {1: (None, KEY), 2: (None, KEY)}
        add_tasks(repo, 6, caches=KEY)
        move(repo, 6, S.PENDING, S.WAITING)
        for id in (1, 2):
            move(repo, id, S.RUNNING, bot="b1")
        assert repo.tasks.any_with_caches([0], 2)  # it is the second, behind one without caches
        assert not repo.tasks.any_with_caches([0], 1)


def test_holders_of_tasks_and_the_bots_that_lost_one_are_found(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2)
        repo.queues.add([(256, 1, 1, "pool:p", "p", LINUX, 0)], 1)
        add_tasks(repo, 3, 4, queue_id=256)
        move(repo, 3, S.PENDING, S.WAITING, S.RUNNING, bot="b1")
        assert repo.tasks.holders([1, 3, 4]) == ["b1"]
        repo.attempts.add([(3, number, f"b{number % 2}", "s", "p", 1, 1, 0, NOW, None) for number in (1, 2, 3, 4)])
        ends = [(3, number, LATER, Signal.LOSE.text, why, None) for number, why in enumerate(["bot_lost"] * 3, 1)]
        repo.attempts.end([*ends, (3, 4, LATER, Signal.LOSE.text, "returned", None)])
        assert repo.attempts.lost_by(3, 1, ["returned"]) == ["b0", "b1"]
        assert repo.attempts.lost_by(3, 2, []) == []


def test_queues_of_roots_are_read_in_pages_with_what_waits_in_them(store: Store) -> None:
    with store.write() as repo:
        repo.queues.add([(256, 1, 1, "pool:p", "p", LINUX, 0), (512, 2, 2, "pool:q", "q", "[]", 0)], 2)
        add_graph(repo)
        add_tasks(repo, 1, 2, queue_id=256)
        for id in (1, 2):
            move(repo, id, S.PENDING, S.WAITING)
        assert [queue.id for queue in repo.read.queues_of_roots(["pool:p", "pool:q"], 0, 9)] == [256, 512]
        assert [queue.id for queue in repo.read.queues_of_roots(["pool:p", "pool:q"], 1, 9)] == [512]
        assert repo.read.waiting_in([256, 512], 9) == {256: 2, 512: 0}
        assert repo.read.waiting_in([256], 1) == {256: 1}


def test_sessions_are_replaced_and_keep_the_older_ones(store: Store) -> None:
    with store.write() as repo:
        add_bots(repo, "b2", "b1", "b3")
        assert repo.bots.sessions() == [("b1", "s", ""), ("b2", "s", ""), ("b3", "s", "")]
        before = repo.bots.callers(["b1"])["b1"].changes
        repo.bots.replace_sessions([("b1", "t1", "s"), ("b2", "t2", "s\nr")])
        assert repo.bots.callers(["b1"])["b1"].changes == before + 1
        assert repo.bots.sessions() == [("b1", "t1", "s"), ("b2", "t2", "s\nr"), ("b3", "s", "")]
