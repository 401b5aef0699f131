"""What refers to files: inputs of tasks, outputs of attempts, and artifacts, on both databases."""

from collections.abc import Iterator

import pytest

from taskyard.store.connection import Store, open_store
from taskyard.store.repo.files import ArtifactRow, AttemptFilesRow, PrerequisiteFiles
from tests.store.rows import add_graph, add_tasks
from tests.store.test_output import running


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = open_store(database_url)
    yield store
    store.close()


def test_outputs_and_artifacts_of_attempts_are_kept_and_replaced(store: Store) -> None:
    with store.write() as repo:
        running(repo, 1)
        repo.files.set_outputs([(1, 1, "p", "old", 1, 1), (1, 2, "p", "two", 2, 20)])
        repo.files.set_outputs([(1, 1, "q", "one", 1, 10)])
        repo.files.set_artifacts([(1, 1, name, "p", "one", "a/b", 3, "text/plain") for name in ("b", "a", "c")])
        repo.files.set_artifacts([(1, 1, "c", "p", "two", "c", 4, "text/html")])
    a, b, c = (ArtifactRow(name, "p", "one", "a/b", 3, "text/plain") for name in "abc")
    c = ArtifactRow("c", "p", "two", "c", 4, "text/html")
    with store.read() as repo:
        assert repo.files.outputs(1) == {
            1: AttemptFilesRow(1, "q", "one", 1, 10),
            2: AttemptFilesRow(2, "p", "two", 2, 20),
        }
        assert repo.files.outputs(2) == {}
        assert repo.files.artifacts(1, 1, "", 9) == [a, b, c]
        assert repo.files.artifacts(1, 1, "a", 1) == [b]
        assert (repo.files.artifact(1, 1, "c"), repo.files.artifact(1, 2, "c")) == (c, None)


def test_a_tree_is_used_while_a_task_an_attempt_or_an_artifact_names_it(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2)
        repo.files.add_input_trees([(1, "in"), (2, "in"), (2, "more")])
        repo.files.set_outputs([(1, 1, "p", "out", 1, 1)])
        repo.files.set_artifacts([(1, 1, "n", "p", "named", "a", 1, "text/plain")])
        every = {"in", "more", "out", "named", "none"}
        assert repo.files.used_trees(every) == every - {"none"}
        assert repo.files.used_trees(set()) == set()
        repo.files.delete([1])
        assert repo.files.used_trees(every) == {"in", "more"}
        repo.files.delete([2])
        repo.files.delete([])
        assert repo.files.used_trees(every) == set()


def test_a_task_that_reuses_an_attempt_has_its_files(store: Store) -> None:
    with store.write() as repo:
        running(repo, 1, attempt=4)
        add_tasks(repo, 2, 3)
        repo.files.set_outputs([(1, 3, "p", "older", 1, 1), (1, 4, "p", "tree", 2, 20)])
        repo.files.set_artifacts([(1, 4, "n", "p", "tree", "a", 1, "text/plain")])
        repo.reuse.add([(2, 1, 1, 4), (3, 1, 1, 1)])
        repo.files.copy([2, 3])
        repo.files.copy([])
        assert repo.files.outputs(2) == {0: AttemptFilesRow(0, "p", "tree", 2, 20)}
        assert repo.files.artifact(2, 0, "n") == ArtifactRow("n", "p", "tree", "a", 1, "text/plain")
        assert (repo.files.outputs(3), repo.files.artifacts(3, 0, "", 9)) == ({}, [])


def test_dependents_see_the_outputs_of_the_last_attempts_of_their_prerequisites(store: Store) -> None:
    with store.write() as repo:
        running(repo, 1, 2, attempt=2)
        add_tasks(repo, 3)
        repo.tasks.add_definitions([(id, 1, f"t{id}", "{}", None, "", "") for id in (1, 2)])
        repo.edges.add([(1, 3, "success"), (2, 3, "always")])
        repo.files.set_outputs([(1, 1, "p", "older", 1, 1), (1, 2, "p", "tree", 2, 20), (2, 1, "p", "gone", 1, 1)])
    with store.read() as repo:
        found = sorted(repo.files.outputs_of_prerequisites([3]), key=lambda one: one.label)
        assert [(one.task, one.pool, one.tree) for one in found] == [(3, "p", "tree"), (3, None, None)]
        assert isinstance(found[0], PrerequisiteFiles)
        assert repo.files.outputs_of_prerequisites([]) == []
