"""Output, resource use, progress, checkpoints and results of attempts, on both databases."""

from collections.abc import Iterator

import pytest

from taskyard.core.structs import struct_replace
from taskyard.store.connection import Repo, Store, open_store
from taskyard.store.repo.output import OutputSize, StatsRow
from tests.store.rows import LATER, NOW, READY, add_graph, add_tasks, move
from tests.store.test_repositories import S


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = open_store(database_url)
    yield store
    store.close()


def running(repo: Repo, *ids: int, attempt: int = 1) -> None:
    """Tasks at an attempt."""
    add_graph(repo)
    add_tasks(repo, *ids)
    for id in ids:
        task = move(repo, id, *READY, S.RUNNING, bot="b1")
        source, task.life = task.state, struct_replace(task.life, state=S.STOPPING, attempt=attempt)
        repo.tasks.write_moved([(task, source)])


def test_output_is_stored_in_chunks_and_read_from_any_byte(store: Store) -> None:
    with store.write() as repo:
        running(repo, 1, 2, attempt=2)
        repo.output.add_chunks(
            [(1, 1, 1, 0, 5, b"old"), (1, 2, 1, 0, 6, b"\0ab"), (1, 2, 2, 3, 7, b"cdef"), (1, 2, 3, 7, 9, b"g")]
        )
    with store.read() as repo:
        assert repo.output.last_chunks([1, 2, 404]) == {1: OutputSize(3, 8)}
        assert repo.output.last_chunks([]) == {}
        assert repo.output.sizes(1) == {1: 3, 2: 8}
        assert repo.output.chunks(1, 2, 0, 9) == [(0, b"\0ab"), (3, b"cdef"), (7, b"g")]
        assert repo.output.chunks(1, 2, 2, 1) == [(0, b"\0ab")]
        assert repo.output.chunks(1, 2, 3, 9) == [(3, b"cdef"), (7, b"g")]
        assert repo.output.chunks(1, 2, 99, 9) == [(7, b"g")]
        assert repo.output.chunks(2, 2, 0, 9) == []
        assert repo.output.chunk_times(1, 2, 0, 0, 9) == [(0, 6), (3, 7), (7, 9)]
        assert repo.output.chunk_times(1, 2, 4, 0, 1) == [(3, 7)]
        assert repo.output.chunk_times(1, 2, 0, 8, 9) == [(7, 9)]
        assert repo.output.chunk_times(1, 2, 0, 10, 9) == []


def test_the_latest_progress_is_kept_and_a_checkpoint_outlives_its_attempt(store: Store) -> None:
    with store.write() as repo:
        running(repo, 1, 2, attempt=2)
        repo.output.set_progress([(1, 1, NOW, "old", b"one"), (1, 2, NOW, "half", None), (2, 2, NOW, None, b"\xff")])
        assert repo.output.checkpoints([1, 2]) == {1: b"one", 2: b"\xff"}
        repo.output.set_progress([(1, 2, LATER, None, b"two"), (2, 2, LATER, "begun", None)])
        assert repo.output.checkpoints([1, 2]) == {1: b"two", 2: b"\xff"}
        assert repo.output.progress([1, 2]) == {1: "half", 2: "begun"}
        assert (repo.output.checkpoints([]), repo.output.progress([])) == ({}, {})


def test_stats_are_read_as_they_were_measured(store: Store) -> None:
    with store.write() as repo:
        running(repo, 1)
        repo.output.add_stats([(1, 1, 2, 3, None, 4, None, 5, 0.25, 4, None, 5, 1)])
        assert repo.output.stats(1) == {1: StatsRow(1, 2, 3, None, 4, None, 5, 0.25, 4, None, 5, 1)}
        assert repo.output.stats(2) == {}


def test_results_go_to_dependents_by_label(store: Store) -> None:
    with store.write() as repo:
        running(repo, 1, 2, attempt=2)
        add_tasks(repo, 3)
        repo.tasks.add_definitions([(1, 1, "build", "{}", None, "", ""), (2, 1, "lint", "{}", None, "", "")])
        repo.edges.add([(1, 3, "success"), (2, 3, "success")])
        repo.attempts.add_results([(1, 1, '"old"'), (1, 2, '"new"')])
        repo.attempts.add_results([(1, 2, '"newer"')])
        assert repo.output.inputs([3]) == [(3, "build", '"newer"')]
        assert repo.output.inputs([]) == []
        assert (repo.output.result(1, 1), repo.output.result(2, 2)) == ('"old"', None)


def test_a_graph_has_each_pool_once(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        repo.graphs.add_pools(1, {"lab", "roof"})
        repo.graphs.add_pools(1, {"lab"})
