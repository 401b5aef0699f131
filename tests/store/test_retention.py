"""Deleting a limited number of rows at once, on both databases."""

from collections.abc import Iterator

import pytest

from taskyard.core.ids import BLOCK, STEP
from taskyard.core.retention import ALL_POOLS, Kept, SettledGraph
from taskyard.core.states import GraphState
from taskyard.store.connection import Store, open_store
from taskyard.store.repo.tasks import PURGED
from tests.store.rows import LATER, NOW, add_graph, add_tasks

IDS = [(place + 1) * STEP for place in range(4)]


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = open_store(database_url)
    yield store
    store.close()


@pytest.fixture
def filled(store: Store) -> Store:
    """A settled graph of four tasks, each with three results, and a graph inside the first."""
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, *IDS)
        repo.tasks.add_definitions([(id, 1, f"t{id}", "{}", None, "", "") for id in IDS])
        repo.attempts.add_results([(id, attempt, "7") for id in IDS for attempt in (1, 2, 3)])
        assert repo.graphs.add(2, "finished", NOW, "me", (IDS[0], 1))
        for graph in (1, 2):
            repo.graphs.set_loader(graph, None)
        repo.graphs.add_definition(1, ("taskyard", "g", "", "", "[]", "d"))
        repo.events.add_answers([("k", "d", "r", None)], 1)
    return store


def test_times_are_set_and_unset(store: Store) -> None:
    with store.write() as repo:
        repo.retention.set_times([(ALL_POOLS, "output", 5), ("lab", "output", None), ("lab", "graphs", 7)])
        repo.retention.set_times([("lab", "graphs", 8)])
        repo.retention.unset_times([(ALL_POOLS, "output")])
        assert repo.retention.times().times == {("lab", Kept.OUTPUT): None, ("lab", Kept.GRAPHS): 8}


def test_settled_graphs_come_in_the_order_of_their_times_with_what_is_purged(filled: Store) -> None:
    with filled.write() as repo:
        assert repo.retention.settled((0, 0), NOW, 9) == [
            (1, GraphState.RUNNING, NOW, None, frozenset()), (2, GraphState.FINISHED, NOW, IDS[0], frozenset()),
        ]  # fmt: skip
        assert [row[0] for row in repo.retention.settled((NOW, 1), NOW, 9)] == [2]
        graph = SettledGraph(1, GraphState.RUNNING, NOW, frozenset(), frozenset())
        repo.retention.mark_part(graph, Kept.OUTPUT)
        repo.retention.mark_part(graph, Kept.RESULTS)
        assert repo.retention.purged_parts([1, 2]) == {1: {Kept.OUTPUT, Kept.RESULTS}}
        assert repo.retention.settled((0, 0), NOW, 1)[0][4] == {Kept.OUTPUT, Kept.RESULTS}
        repo.graphs.write_states([(1, "finished", 0, 0, 0, 0, LATER)])
        assert repo.retention.settled((0, 0), LATER, 9)[1][4] == frozenset(), "it settled again since"
        repo.retention.mark_part(SettledGraph(1, GraphState.FINISHED, LATER, frozenset(), frozenset()), Kept.FILES)
        assert repo.retention.purged_parts([1]) == {1: {Kept.FILES}}


def test_tasks_are_deleted_some_rows_at_once(filled: Store) -> None:
    with filled.write() as repo:
        assert repo.retention.inside(1, 9) == [2]
        repo.graphs.set_loader(1, PURGED)
        assert repo.retention.hidden(9) == [1]
        repo.retention.forget_keys([1])
        assert repo.events.answers(["k"]) == {}
        assert repo.retention.purge_part(Kept.RESULTS, IDS[:1], 2) < 1
        assert len(repo.read.results(IDS[0])) == 1
        assert repo.retention.purge_part(Kept.RESULTS, IDS[:1], 2) == 1
        assert not repo.retention.purge_tasks(IDS, 5)
        assert repo.task_list.of_graph(1, -1, 9) == IDS
        assert not repo.retention.purge_tasks(IDS, 4)
        assert repo.retention.purge_tasks(IDS, 5)
        assert repo.task_list.of_graph(1, -1, 9) == []
        assert repo.retention.purge_graph(1, 5)
        assert repo.graphs.peek([1]) == []


def test_what_belongs_to_no_graph_is_deleted_by_its_time(store: Store) -> None:
    with store.write() as repo:
        repo.tokens.add([(f"t{place}", "user", "n", "d", "[]", None, NOW, NOW + place) for place in range(3)])
        repo.events.add_audits([(NOW, "ada", "set", 0, ""), (LATER, "ada", "set", 0, "")])
        assert repo.retention.purge_tokens(LATER, 1) == 1
        assert repo.retention.purge_tokens(LATER, 9) == 1
        (first,) = repo.retention.old_audits(0, NOW, 9)
        assert repo.retention.old_audits(first, NOW, 9) == []
        assert repo.retention.purge_audits([first]) == 1
        assert repo.retention.purge_audits([]) == 0
        assert repo.retention.bots("", 9) == []
        assert repo.retention.purge_bot_events("b1", NOW, ["connected"], 9) == 0


def test_queues_that_no_task_uses_are_deleted(filled: Store) -> None:
    def text(number: int) -> str:
        return f'[["device",["{number}"]]]'

    def row(number: int, used_ms: int) -> tuple[object, ...]:
        return (number * 256, number, number, "pool:p", "p", text(number), used_ms)

    with filled.write() as repo:
        repo.queues.add([row(1, NOW), row(2, NOW), row(3, NOW), row(4, LATER), row(5, NOW)], 5)
        assert repo.retention.idle_queues(LATER, 0, 9) == [(256, "p", NOW), (512, "p", NOW), (768, "p", NOW)], (
            "the newest stays"
        )
        assert repo.retention.idle_queues(LATER, 512, 1) == [(768, "p", NOW)]
        assert repo.retention.queues_of_tasks(-1, 3) == [(id, 0) for id in IDS[:3]]
        assert repo.retention.queues_of_tasks(IDS[2], 3) == [(IDS[3], 0)]
        repo.queues.touch([512], LATER)
        assert repo.queues.with_dimensions([text(2), text(3)]) == {text(2): (512, LATER), text(3): (768, NOW)}
        assert repo.retention.purge_queues([256, 512], LATER) == 1
        assert repo.retention.purge_queues([], LATER) == 0
        assert [queue.id for queue in repo.queues.after(0)] == [512, 768, 1024, 1280]


def test_blocks_of_attempts_are_deleted_when_they_have_no_tasks(filled: Store) -> None:
    far = [BLOCK + STEP, 3 * BLOCK]
    with filled.write() as repo:
        add_tasks(repo, *far)
        repo.attempts.add([(id, 1, "b1", "s", "p", 1, 1, 0, NOW, None) for id in far])
        repo.attempts.add([(IDS[0], 1, "b2", "s", "p", 1, 1, 0, NOW, None)])
        assert repo.retention.attempt_blocks(-1, 9) == [0, 1, 3]
        assert (repo.retention.attempt_blocks(0, 1), repo.retention.attempt_blocks(3, 9)) == ([1], [])
        repo.tasks.delete([far[0]])
        repo.retention.purge_attempt_blocks([])
        repo.retention.purge_attempt_blocks([0, 3])
        assert repo.retention.attempt_blocks(-1, 9) == [0, 1, 3]
        repo.retention.purge_attempt_blocks([0, 1, 3])
        assert repo.retention.attempt_blocks(-1, 9) == [0, 3]
