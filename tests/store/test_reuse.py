"""Reruns, reused attempts and durations, on both databases."""

from collections.abc import Iterator

import pytest

from taskyard.core.states import ENDED, Join, On, State
from taskyard.core.structs import struct_replace
from taskyard.store.connection import Repo, Store, open_store
from taskyard.store.repo.read import EndedPrerequisite, UnfinishedTaskRow
from taskyard.store.repo.tasks import FinishedTaskRow, RerunRow, ReusedAttempt
from taskyard.store.rows import TaskRecord
from tests.store.rows import NOW, add_graph, add_tasks, move

S = State


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = open_store(database_url)
    yield store
    store.close()


def name_graph(repo: Repo, graph: int, name: str) -> None:
    add_graph(repo, graph)
    repo.graphs.add_definition(graph, ("taskyard", name, "", "", "[]", "digest"))


def running(repo: Repo, id: int, began: int) -> TaskRecord:
    """Have a task run."""
    task = move(repo, id, S.PENDING, S.WAITING)
    task.life, task.bot = struct_replace(task.life, state=S.RUNNING, attempt=1), "b1"
    repo.tasks.write_moved([(task, S.WAITING)])
    repo.attempts.add([(id, 1, "b1", "s1", "p1", 1, 1, 0, began)])
    return task


def ended(repo: Repo, id: int, began: int, until: int) -> None:
    """Have a task run and succeed."""
    task = running(repo, id, began)
    task.life, task.bot, task.moved_ms = task.life.at(S.SUCCESSFUL), None, until
    repo.tasks.write_moved([(task, S.RUNNING)])
    repo.attempts.end([(id, 1, until, "succeed", "done", 0)])


def test_a_rerun_names_its_source_graph(store: Store) -> None:
    row = RerunRow(7, ("a", "b[1,x]"), 3, 2)
    with store.write() as repo:
        add_graph(repo)
        repo.reuse.add_rerun(1, row)
        repo.reuse.add_rerun(1, row)  # a commit that nobody heard of
    with store.read() as repo:
        assert (repo.reuse.rerun(1), repo.reuse.rerun(2)) == (row, None)


def test_tasks_reuse_attempts_and_results(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2, 3)
        repo.attempts.add_results([(1, 4, '"long"')])
        repo.reuse.add([(2, 1, 1, 4)])
        repo.reuse.copy_results([(2, 1, 4)])
        assert repo.reuse.sources([1, 2]) == {2: ReusedAttempt(1, 1, 4)}
        assert repo.reuse.sources([]) == {}
        assert repo.output.result(2, 0) == '"long"'
        assert repo.reuse.finished_tasks(1, 1, 9) == [
            FinishedTaskRow(2, S.UNSCHEDULED, 0, 6, ReusedAttempt(1, 1, 4)),
            FinishedTaskRow(3, S.UNSCHEDULED, 0, None, None),
        ]
        assert [row.id for row in repo.reuse.finished_tasks(1, -1, 1)] == [1]


def test_an_unloaded_graph_is_deleted_with_its_reused_results(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1)
        repo.reuse.add_rerun(1, RerunRow(7, ("a",), 0, 1))
        repo.attempts.add_results([(9, 1, "1")])
        repo.reuse.add([(1, 9, 7, 1)])
        repo.reuse.copy_results([(1, 9, 1)])
        assert repo.graphs.delete_page(1, 2)
        assert (repo.reuse.rerun(1), repo.reuse.sources([1]), repo.output.result(1, 0)) == (None, {}, None)
        assert repo.output.result(9, 1) == "1"


def test_older_graphs_are_found_by_name_the_newest_first(store: Store) -> None:
    with store.write() as repo:
        for graph, name in ((1, "nightly"), (2, "other"), (3, "nightly"), (4, "nightly"), (5, "")):
            name_graph(repo, graph, name)
    with store.read() as repo:
        assert repo.read.graphs_named("nightly", 1, 9) == [3, 4]
        assert repo.read.graphs_named("nightly", -1, 2) == [1, 3]
        assert repo.read.graphs_named("", 1, 9) == []


@pytest.fixture
def played(store: Store) -> Store:
    """A graph in which one task has ended, one runs, and one waits for both."""
    with store.write() as repo:
        name_graph(repo, 1, "nightly")
        add_tasks(repo, 1, 2)
        add_tasks(repo, 3, join_rule="any", not_before_ms=NOW)
        add_tasks(repo, 4, loading=1)
        repo.tasks.add_definitions([(id, 1, label, "{}", None, "") for id, label in enumerate("abcd", 1)])
        repo.edges.add([(1, 3, "success"), (2, 3, "always")])
        ended(repo, 1, NOW + 5, NOW + 25)
        running(repo, 2, NOW + 7)
    return store


def test_durations_of_attempts_are_read_by_state(played: Store) -> None:
    with played.read() as repo:
        assert repo.read.attempt_durations(1, ["a", "b", "c"], [S.SUCCESSFUL]) == [("a", 20)]
        assert repo.read.attempt_durations(1, ["b"], [S.SUCCESSFUL]) == []
        assert repo.read.attempt_durations(2, ["a"], [S.SUCCESSFUL]) == []


def test_unfinished_tasks_tell_since_when_they_run(played: Store) -> None:
    with played.read() as repo:
        coming = [
            UnfinishedTaskRow(2, S.RUNNING, Join.ALL, None, "b", NOW + 7),
            UnfinishedTaskRow(3, S.UNSCHEDULED, Join.ANY, NOW, "c", None),
        ]
        assert repo.read.unfinished_tasks(1, -1, ENDED, 9) == coming
        assert repo.read.unfinished_tasks(1, 2, ENDED, 9) == coming[1:]
        assert repo.read.unfinished_tasks(1, -1, ENDED, 1) == coming[:1]


def test_the_last_ended_task_and_ended_prerequisites_are_found(played: Store) -> None:
    with played.read() as repo:
        assert (repo.read.last_ended(1, ENDED), repo.read.last_ended(2, ENDED)) == (1, None)
        assert repo.read.ended_prerequisites(3, ENDED, 9) == [EndedPrerequisite(1, On.SUCCESS, S.SUCCESSFUL, NOW + 25)]
        assert repo.read.ended_prerequisites(3, [*ENDED, S.RUNNING], 1) == [
            EndedPrerequisite(1, On.SUCCESS, S.SUCCESSFUL, NOW + 25)
        ]
        assert repo.read.ended_prerequisites(1, ENDED, 9) == []
