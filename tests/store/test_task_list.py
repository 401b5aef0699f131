"""What tasks are found by, on both databases."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from taskyard.core.ids import BLOCK, STEP
from taskyard.core.states import State
from taskyard.store.connection import Store, open_store
from taskyard.store.queries import Row
from taskyard.store.repo.task_list import BLOCKS_MAX
from tests.store.rows import NOW, add_graph, add_tasks, move

S = State
#: Ten tasks that were made one after the other.
IDS = [(place + 1) * STEP for place in range(10)]


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = open_store(database_url)
    yield store
    store.close()


@pytest.fixture
def filled(store: Store) -> Store:
    """Ten tasks: the first eight have the tag `a:b`, in two runs; the third and the last have `c:d`."""
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, *IDS)
        repo.tasks.add_tags([("a:b", IDS[4], IDS[0]), ("a:b", IDS[7], IDS[5])])
        repo.tasks.add_tags([("c:d", IDS[2], IDS[2]), ("c:d", IDS[9], IDS[9])])
        repo.tasks.add_definitions([(IDS[0], 1, "t", "{}", None, "t1", "ada")])
    return store


def test_runs_are_read_as_tasks_from_any_place_on(filled: Store) -> None:
    with filled.read() as repo:
        for place, after in enumerate([-1, *IDS]):
            for count in range(1, 11):
                assert repo.task_list.with_tag("a:b", after, count) == IDS[place:8][:count]
        assert repo.task_list.with_tag("a:b", IDS[1] - 1, 2) == IDS[1:3]
        assert repo.task_list.with_tag("c:d", -1, 10) == [IDS[2], IDS[9]]
        assert repo.task_list.tagged(IDS, "a:b") == IDS[:8]
        assert repo.task_list.tagged(IDS, "c:d") == [IDS[2], IDS[9]]
        assert repo.task_list.tagged([], "c:d") == repo.task_list.tagged(IDS, "e:f") == []


def test_tasks_are_found_by_state_bot_and_graph(filled: Store) -> None:
    with filled.write() as repo:
        move(repo, IDS[3], S.PENDING, S.CANCELED)
        move(repo, IDS[5], S.PENDING, S.WAITING, S.RUNNING, bot="b1")
        repo.attempts.add([(id, 1, "b1", "s", "p", 1, 1, 0, NOW, None) for id in (IDS[5], IDS[7])])
        repo.attempts.add([(IDS[5], 2, "b1", "s", "p", 1, 1, 0, NOW, None)])
        repo.graphs.set_loader(1, None)
        repo.graphs.add_pools(1, {"lab"})
    with filled.read() as repo:
        assert repo.task_list.in_state(S.CANCELED, -1, 9) == [IDS[3]]
        assert repo.task_list.in_state(S.CANCELED, IDS[3], 9) == []
        assert repo.task_list.held(-1, 9) == [IDS[5]]
        assert repo.task_list.of_bot("b1", -1, 9) == [IDS[5], IDS[7]]
        assert repo.task_list.of_bot("b1", IDS[5], 9) == [IDS[7]]
        assert repo.task_list.tried_by(IDS, "b1") == [IDS[5], IDS[7]]
        assert repo.task_list.of_graph(1, IDS[7], 9) == IDS[8:]
        assert repo.task_list.all(IDS[7], 1) == [IDS[8]]
        assert repo.task_list.visible(IDS[2:6], [S.CANCELED, S.RUNNING], {"lab"}) == [
            (IDS[3], S.CANCELED), (IDS[5], S.RUNNING),
        ]  # fmt: skip
        assert len(repo.task_list.visible(IDS, [], None)) == 10
        assert repo.task_list.visible(IDS, [], {"other"}) == []
        assert repo.task_list.owners(IDS) == {IDS[0]: ("t1", "ada")}


def test_tasks_of_a_bot_are_found_among_those_of_others_in_any_number_of_blocks(store: Store) -> None:
    ids = [place * BLOCK for place in range(1, 2 * BLOCKS_MAX + 3)]
    of_bot = sorted([*ids, *(id + STEP for id in ids[::3])])
    with store.write() as repo:
        repo.attempts.add([attempt(id, "b1") for id in of_bot])
        repo.attempts.add([attempt(id + 2 * STEP, "b2") for id in ids])
    with store.write() as repo:
        repo.attempts.add([attempt(id, "b1", number=2) for id in ids[::2]])
    with store.read() as repo:
        assert repo.task_list.of_bot("b1", -1, 1_000) == of_bot
        assert repo.task_list.of_bot("b0", -1, 1_000) == repo.task_list.of_bot("b1", of_bot[-1], 1_000) == []
        for after in (ids[0], ids[0] + 5, ids[3] + STEP, ids[BLOCKS_MAX - 1], ids[BLOCKS_MAX]):
            for count in (1, 3, BLOCKS_MAX, 3 * BLOCKS_MAX):
                assert repo.task_list.of_bot("b1", after, count) == [id for id in of_bot if id > after][:count]


def test_a_block_whose_transaction_was_rolled_back_is_stored_by_the_next_attempt_there(store: Store) -> None:
    with suppress(RuntimeError), store.write() as repo:
        repo.attempts.add([attempt(IDS[0], "b1")])
        raise RuntimeError
    with store.write() as repo:
        repo.attempts.add([attempt(IDS[0], "b1")])
    with store.read() as repo:
        assert repo.task_list.of_bot("b1", -1, 9) == [IDS[0]]


def attempt(task: int, bot: str, number: int = 1) -> Row:
    return (task, number, bot, "s", "p", number, 1, 0, NOW, None)


def test_children_are_watched_until_their_attempt_has_ended(filled: Store) -> None:
    with filled.write() as repo:
        move(repo, IDS[5], S.PENDING, S.WAITING, S.RUNNING, bot="b1")
        attempt = repo.tasks.get([IDS[5]])[IDS[5]].life.attempt
        for graph in (2, 3):
            add_graph(repo, graph)
            repo.task_list.add_child(graph, IDS[5], attempt if graph == 2 else attempt + 1)
        assert repo.task_list.orphans(9) == [], "both are still being loaded"
        for graph in (2, 3):
            repo.graphs.set_loader(graph, None)
    with filled.write() as repo:
        assert repo.task_list.has_watched_children()
        assert repo.task_list.orphans(9) == [(3, IDS[5], attempt + 1)]
        assert repo.task_list.children(IDS[5], 9) == [2, 3]
        assert repo.task_list.parents([2, 3, 4])[2] == (IDS[5], attempt)
        repo.task_list.forget_children([2, 3])
        assert not repo.task_list.has_watched_children()


def test_deleted_tasks_take_their_tags_with_them(filled: Store) -> None:
    with filled.write() as repo:
        repo.tasks.delete(IDS[:5])
        assert repo.task_list.with_tag("a:b", -1, 9) == IDS[5:8]
        repo.tasks.delete(IDS[5:])
        assert repo.task_list.with_tag("a:b", -1, 9) == repo.task_list.with_tag("c:d", -1, 9) == []
