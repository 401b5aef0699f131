"""What a writer knows by heart: it saves reading, and is never what is not there."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from taskyard.core.graph.state import Tally
from taskyard.core.states import GraphState, Millis, State
from taskyard.store import rows
from taskyard.store.connection import Store, Txn, open_store
from taskyard.store.repo.admission import PoolRow
from taskyard.store.rows import TaskRecord
from tests.store.by_heart import check_memory
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
    """A store with a graph, three tasks and a bot; in the end it knows nothing that is not so."""
    store = open_store(url)
    with store.write() as txn:
        add_graph(txn)
        add_tasks(txn, 1, 2, 3)
        txn.bots.begin([("b", "p", "s", "", 1, NOW, NOW, "", None, None, 0)])
        txn.bots.set_dimensions([("b", "[]")])
    yield store
    check_memory(store)
    store.close()


def take(txn: Txn, id: int, *targets: State, bot: str | None = None) -> TaskRecord:
    """Move a task that is recalled."""
    task = txn.tasks.recall([id])[id]
    for target in targets:
        source, task.life = task.state, task.life.at(target)
        task.bot = bot if target is S.RUNNING else None
        txn.tasks.carry([(task, source)])
    return task


def write_elsewhere(store: Store, text: str) -> None:
    """Write as another program would."""
    connection = sqlite3.connect(store.url.removeprefix("sqlite:///"))
    with connection:
        connection.execute(text)
    connection.close()


def test_in_one_transaction_a_task_is_one_thing(store: Store) -> None:
    with store.write() as txn:
        first = txn.tasks.recall([2, 1, 404])
        assert list(first) == [2, 1]
        assert txn.tasks.recall([1])[1] is first[1] is txn.tasks.known(1)
        assert txn.tasks.known(404) is None


def test_whoever_was_just_born_and_awaits_nobody_is_known_as_it_would_be_read(store: Store) -> None:
    with store.write() as txn:
        add_tasks(txn, 4, rules='{"reruns":2}', due_ms=NOW + 1, priority=7, excludes=1)
        add_tasks(txn, 5, awaited=1)
        known = txn.tasks.known(4)
        assert txn.tasks.look([4]) == [known]
        assert txn.tasks.known(5) is None


def test_what_is_just_born_takes_no_more_than_half_of_the_memory(sqlite: Store) -> None:
    with sqlite.write() as txn:
        add_tasks(txn, *range(10, 10 + rows.KEPT_MAX // 2))
        assert txn.tasks.known(10) is None


def test_the_only_writer_knows_from_one_transaction_to_the_next(sqlite: Store) -> None:
    with sqlite.write() as txn:
        task = take(txn, 1, S.PENDING)
    with sqlite.write() as txn:
        assert txn.tasks.known(1) is task
        assert txn.tasks.look([1]) == [task]


def test_one_writer_among_many_knows_nothing_for_longer_than_a_transaction(postgres_url: str) -> None:
    store = open_store(postgres_url)
    with store.write() as txn:
        add_graph(txn)
        add_tasks(txn, 1)
        txn.tasks.recall([1])
    with store.write() as txn:
        assert txn.tasks.known(1) is None
    store.close()


def test_what_was_undone_is_forgotten(store: Store) -> None:
    def fail(txn: Txn) -> None:
        take(txn, 1, S.PENDING)
        raise RuntimeError

    with pytest.raises(RuntimeError), store.write() as txn:
        fail(txn)
    with store.write() as txn:
        assert txn.tasks.recall([1])[1].state is S.UNSCHEDULED


def test_what_somebody_else_wrote_is_read(sqlite: Store) -> None:
    with sqlite.write() as txn:
        txn.tasks.recall([1])
        txn.bots.greet(["b"])
    write_elsewhere(sqlite, "UPDATE task SET weight = 7 WHERE id = 1")
    write_elsewhere(sqlite, "UPDATE bot SET version = 7")
    with sqlite.write() as txn:
        assert txn.tasks.recall([1])[1].weight == 7
        assert txn.bots.greet(["b"])["b"].version == 7


@pytest.mark.parametrize("verb", ["let_go", "unhide", "drop"])
def test_what_is_written_past_the_memory_is_read_in_the_next_transaction(sqlite: Store, verb: str) -> None:
    with sqlite.write() as txn:
        task = take(txn, 1, S.PENDING, S.WAITING, S.RUNNING, bot="b")
        task.lease_until_ms = task.due_ms = NOW
        txn.tasks.keep([task])
        txn.tasks.recall([2])
    with sqlite.write() as txn:
        if verb == "let_go":
            txn.tasks.let_go([("b", "", NOW - 5, NOW - 4)])
        else:
            getattr(txn.tasks, verb)([2])
        assert txn.tasks.known(2) is not None
    with sqlite.write() as txn:
        assert txn.memory.tasks == {}


def test_a_bot_is_greeted_by_heart_until_something_else_is_said_about_it(sqlite: Store) -> None:
    with sqlite.write() as txn:
        assert txn.bots.greet(["b", "nobody"]).keys() == {"b"}
        txn.bots.see([("b", "p1", NOW, "")])
        assert txn.bots.greet(["b"])["b"].polls == "p1"
        txn.bots.miss(["b"])
        assert txn.bots.greet(["b"])["b"].missing
        txn.bots.see([("b", "p2\np1", NOW, "")])
        assert not txn.bots.greet(["b"])["b"].missing
        before = txn.bots.greet(["b"])["b"].version
        txn.bots.set_settings([("b", "broken", None, 0, 0)])
        assert txn.bots.greet(["b"])["b"].version == before + 1
        txn.bots.end(["b"])
        assert txn.bots.greet(["b"])["b"].version == before + 2
        txn.bots.begin([("b", "p", "t", "s", 1, NOW, NOW, "", None, None, 0)])
        assert (txn.bots.greet(["b"])["b"].session, txn.bots.greet(["b"])["b"].polls) == ("t", "")
        check = txn.memory.bots["b"]
    with sqlite.write() as txn:
        assert txn.bots.greet(["b"])["b"] is check


def test_no_more_is_known_than_fits(sqlite: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "KEPT_MAX", 2)
    with sqlite.write() as txn:
        assert len(txn.tasks.recall([1, 2, 3])) == 3
    with sqlite.write() as txn:
        assert txn.tasks.known(1) is None


def test_a_graph_is_known_as_it_was_turned(store: Store) -> None:
    with store.write() as txn:
        assert txn.graphs.recall(1).events == 0
        txn.graphs.turn([(1, "blocked", 1, 2, 3, 4, NOW)])
        known = txn.graphs.recall(1)
        assert (known.state, known.tally, known.events) == (GraphState.BLOCKED, Tally(1, 2, 3), 4)
    with store.write() as txn:
        assert txn.graphs.hold([1]) == [known] == txn.graphs.peek([1])


@pytest.mark.parametrize("verb", ["cancel", "set_loader", "set_created", "count_extension"])
def test_whatever_is_said_about_a_graph_is_read_anew(store: Store, verb: str) -> None:
    with store.write() as txn:
        before = txn.graphs.recall(1)
        match verb:
            case "set_loader":
                txn.graphs.set_loader(1, "somebody")
            case "count_extension":
                txn.graphs.count_extension(1, 7)
            case _:
                getattr(txn.graphs, verb)(1, Millis(NOW + 7))
        assert txn.graphs.recall(1) != before
        assert [txn.graphs.recall(1)] == txn.graphs.peek([1]) == txn.graphs.hold([1])


def test_who_mends_what_is_stored_goes_by_it(sqlite: Store) -> None:
    with sqlite.write() as txn:
        known = txn.graphs.recall(1)
    with sqlite.write() as txn:
        txn.memory.distrust()
        assert txn.graphs.recall(1) == known
        mended = (1, "running", 0, 0, 0, 9, 0, 0, NOW, NOW, None, None)
        txn.care.mend_graphs([mended])
        assert txn.graphs.hold([1])[0].events == 9
    with sqlite.write() as txn:
        assert txn.memory.graphs == {}


def test_pools_and_queues_are_read_when_there_is_something_new(store: Store) -> None:
    with store.write() as txn:
        assert txn.passes.relied_on_pools() == []
        txn.passes.set_pool("p", 3, from_bots=False)
        assert txn.passes.relied_on_pools() == [PoolRow("p", 3, False)]
        newest = txn.queues.after(-1)[-1].number if txn.queues.after(-1) else 0
        assert txn.queues.after(newest) == []
        txn.queues.add([(77, newest + 1, 5, "any", "", '[["os",["x"]]]')], newest + 1)
        assert [queue.id for queue in txn.queues.after(newest)] == [77]
        assert txn.queues.after(newest + 1) == []
        assert [queue.id for queue in txn.queues.after(newest)] == [77]
