"""The row cache saves reads and never differs from the database."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from taskyard.core.graph.state import Tally
from taskyard.core.states import GraphState, Millis, State
from taskyard.store import row_cache
from taskyard.store.connection import Repo, Store, open_store
from taskyard.store.repo.admission import PoolRow
from taskyard.store.rows import TaskRecord
from tests.store.check_cache import check_row_cache
from tests.store.rows import NOW, add_graph, add_tasks

S = State


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with filled(database_url) as store:
        yield store


@pytest.fixture
def sqlite(sqlite_url: str) -> Iterator[Store]:
    with filled(sqlite_url) as store:
        yield store


@contextmanager
def filled(url: str) -> Iterator[Store]:
    """A store with a graph, three tasks and a bot; at the end its cache must agree with the database."""
    store = open_store(url)
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2, 3)
        repo.bots.begin_sessions([("b", "p", "s", "", 1, NOW, NOW, "", None, None, 0)])
        repo.bots.set_dimensions([("b", "[]")])
    yield store
    check_row_cache(store)
    store.close()


def take(repo: Repo, id: int, *targets: State, bot: str | None = None) -> TaskRecord:
    """Move a task that is in the cache."""
    task = repo.tasks.get([id])[id]
    for target in targets:
        source, task.life = task.state, task.life.at(target)
        task.bot = bot if target is S.RUNNING else None
        repo.tasks.write_moved([(task, source)])
    return task


def write_elsewhere(store: Store, text: str) -> None:
    """Write as another process would."""
    connection = sqlite3.connect(store.url.removeprefix("sqlite:///"))
    with connection:
        connection.execute(text)
    connection.close()


def test_a_transaction_sees_one_object_per_task(store: Store) -> None:
    with store.write() as repo:
        first = repo.tasks.get([2, 1, 404])
        assert list(first) == [2, 1]
        assert repo.tasks.get([1])[1] is first[1] is repo.tasks.cached(1)
        assert repo.tasks.cached(404) is None


def test_a_new_task_without_prerequisites_is_cached_as_it_would_be_read(store: Store) -> None:
    with store.write() as repo:
        add_tasks(repo, 4, rules='{"reruns":2}', due_ms=NOW + 1, priority=7, is_constrained=1)
        add_tasks(repo, 5, awaited=1)
        known = repo.tasks.cached(4)
        assert repo.tasks.read([4]) == [known]
        assert repo.tasks.cached(5) is None


def test_new_tasks_take_at_most_half_of_the_cache(sqlite: Store) -> None:
    with sqlite.write() as repo:
        add_tasks(repo, *range(10, 10 + row_cache.CACHED_MAX // 2))
        assert repo.tasks.cached(10) is None


def test_the_cache_of_the_only_writer_outlives_a_transaction(sqlite: Store) -> None:
    with sqlite.write() as repo:
        task = take(repo, 1, S.PENDING)
    with sqlite.write() as repo:
        assert repo.tasks.cached(1) is task
        assert repo.tasks.read([1]) == [task]


def test_the_cache_of_one_of_several_writers_ends_with_its_transaction(postgres_url: str) -> None:
    store = open_store(postgres_url)
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1)
        repo.tasks.get([1])
    with store.write() as repo:
        assert repo.tasks.cached(1) is None
    store.close()


def test_a_rollback_clears_the_cache(store: Store) -> None:
    def fail(repo: Repo) -> None:
        take(repo, 1, S.PENDING)
        raise RuntimeError

    with pytest.raises(RuntimeError), store.write() as repo:
        fail(repo)
    with store.write() as repo:
        assert repo.tasks.get([1])[1].state is S.UNSCHEDULED


def test_a_write_of_another_process_clears_the_cache(sqlite: Store) -> None:
    with sqlite.write() as repo:
        repo.tasks.get([1])
        repo.bots.callers(["b"])
    write_elsewhere(sqlite, "UPDATE task SET weight = 7 WHERE id = 1")
    write_elsewhere(sqlite, "UPDATE bot SET changes = 7")
    with sqlite.write() as repo:
        assert repo.tasks.get([1])[1].weight == 7
        assert repo.bots.callers(["b"])["b"].changes == 7


@pytest.mark.parametrize("method", ["end_leases", "mark_loaded", "delete"])
def test_a_statement_that_bypasses_the_cache_clears_it_after_the_transaction(sqlite: Store, method: str) -> None:
    with sqlite.write() as repo:
        task = take(repo, 1, S.PENDING, S.WAITING, S.RUNNING, bot="b")
        task.lease_until_ms = task.due_ms = NOW
        repo.tasks.write_unmoved([task])
        repo.tasks.get([2])
    with sqlite.write() as repo:
        if method == "end_leases":
            repo.tasks.end_leases([("b", "", "", NOW - 5, NOW - 4)])
        else:
            getattr(repo.tasks, method)([2])
        assert repo.tasks.cached(2) is not None
    with sqlite.write() as repo:
        assert repo.cache.tasks == {}


def test_a_bot_is_cached_until_its_row_changes(sqlite: Store) -> None:
    with sqlite.write() as repo:
        assert repo.bots.callers(["b", "nobody"]).keys() == {"b"}
        repo.bots.record_polls([("b", "p1", NOW, "")])
        assert repo.bots.callers(["b"])["b"].recent_polls == "p1"
        repo.bots.mark_missing(["b"])
        assert repo.bots.callers(["b"])["b"].missing
        repo.bots.record_polls([("b", "p2\np1", NOW, "")])
        assert not repo.bots.callers(["b"])["b"].missing
        before = repo.bots.callers(["b"])["b"].changes
        repo.bots.set_settings([("b", "broken", None, 0, 0)])
        assert repo.bots.callers(["b"])["b"].changes == before + 1
        repo.bots.end_sessions(["b"])
        assert repo.bots.callers(["b"])["b"].changes == before + 2
        repo.bots.begin_sessions([("b", "p", "t", "s", 1, NOW, NOW, "", None, None, 0)])
        assert (repo.bots.callers(["b"])["b"].session, repo.bots.callers(["b"])["b"].recent_polls) == ("t", "")
        check = repo.cache.bots["b"]
    with sqlite.write() as repo:
        assert repo.bots.callers(["b"])["b"] is check


def test_a_full_cache_is_cleared(sqlite: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_cache, "CACHED_MAX", 2)
    with sqlite.write() as repo:
        assert len(repo.tasks.get([1, 2, 3])) == 3
    with sqlite.write() as repo:
        assert repo.tasks.cached(1) is None


def test_a_cached_graph_has_its_written_state(store: Store) -> None:
    with store.write() as repo:
        assert repo.graphs.get(1).events == 0
        repo.graphs.write_states([(1, "blocked", 1, 2, 3, 4, NOW)])
        known = repo.graphs.get(1)
        assert (known.state, known.tally, known.events) == (GraphState.BLOCKED, Tally(1, 2, 3), 4)
    with store.write() as repo:
        assert repo.graphs.get_locked([1]) == [known] == repo.graphs.peek([1])


@pytest.mark.parametrize("method", ["mark_canceled", "set_loader", "set_created", "count_extension"])
def test_a_change_of_a_graph_evicts_it(store: Store, method: str) -> None:
    with store.write() as repo:
        before = repo.graphs.get(1)
        match method:
            case "set_loader":
                repo.graphs.set_loader(1, "a loader")
            case "count_extension":
                repo.graphs.count_extension(1, 7)
            case _:
                getattr(repo.graphs, method)(1, Millis(NOW + 7))
        assert repo.graphs.get(1) != before
        assert [repo.graphs.get(1)] == repo.graphs.peek([1]) == repo.graphs.get_locked([1])


def test_a_repair_bypasses_the_cache(sqlite: Store) -> None:
    with sqlite.write() as repo:
        known = repo.graphs.get(1)
    with sqlite.write() as repo:
        repo.cache.bypass()
        assert repo.graphs.get(1) == known
        repo.doctor.repair_graphs([(1, "running", 0, 0, 0, 9, 0, 0, None)])
        assert repo.graphs.get_locked([1])[0].events == 9
    with sqlite.write() as repo:
        assert repo.cache.graphs == {}


def test_pools_and_queues_are_read_again_after_a_change(store: Store) -> None:
    with store.write() as repo:
        assert repo.admission.locked_pools() == []
        repo.admission.set_pool(PoolRow("p", 3, False))
        assert repo.admission.locked_pools() == [PoolRow("p", 3, False)]
        newest = repo.queues.after(-1)[-1].number if repo.queues.after(-1) else 0
        assert repo.queues.after(newest) == []
        repo.queues.add([(77, newest + 1, 5, "any", "", '[["os",["x"]]]', 0)], newest + 1)
        assert [queue.id for queue in repo.queues.after(newest)] == [77]
        assert repo.queues.after(newest + 1) == []
        assert [queue.id for queue in repo.queues.after(newest)] == [77]
