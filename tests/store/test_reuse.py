"""Reruns, reused attempts and durations, on both databases."""

from collections.abc import Iterator

import pytest

from taskyard.core.states import ENDED, Join, On, State
from taskyard.core.structs import struct_replace
from taskyard.store.connection import Repo, Store, open_store
from taskyard.store.queries import DuplicateKey, TransactionConflict
from taskyard.store.repo.read import EndedPrerequisite, UnfinishedTaskRow
from taskyard.store.repo.tasks import (
    UNDIGESTED_MAX,
    FinishedTaskRow,
    RerunRow,
    ReusedAttempt,
    ReuseKeyRow,
    ReusePolicyRow,
    digest_of_result,
)
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
    """Let a task run."""
    task = move(repo, id, S.PENDING, S.WAITING)
    task.life, task.bot = struct_replace(task.life, state=S.RUNNING, attempt=1), "b1"
    repo.tasks.write_moved([(task, S.WAITING)])
    repo.attempts.add([(id, 1, "b1", "s1", "p1", 1, 1, 0, began, None)])
    return task


def ended(repo: Repo, id: int, began: int, until: int) -> None:
    """Let a task run and succeed."""
    task = running(repo, id, began)
    task.life, task.bot, task.moved_ms = task.life.at(S.SUCCESSFUL), None, until
    repo.tasks.write_moved([(task, S.RUNNING)])
    repo.attempts.end([(id, 1, until, "succeed", "done", 0)])


def test_a_rerun_names_its_source_graph(store: Store) -> None:
    row = RerunRow(7, ("a", "b[1,x]"), 3, 2)
    with store.write() as repo:
        add_graph(repo)
        repo.reuse.add_rerun(1, row)
        repo.reuse.add_rerun(1, row)  # a commit without an acknowledgement
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


def test_the_first_task_with_a_key_has_it_until_it_is_deleted(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2, 3)
        repo.reuse.reserve([("k", 9, 2), ("k", 3, 3), ("l", 9, 2)])
        repo.reuse.reserve([("k", 1, 1)])
        assert repo.reuse.keys_of([1, 2, 3]) == [("k", 3), ("l", 2)]
        assert repo.reuse.with_keys([1, 2, 3]) == {2, 3}
        assert (repo.reuse.keys_of([]), repo.reuse.with_keys([])) == ([], set())
        repo.tasks.delete([3])
        assert repo.reuse.keys_of([1, 2, 3]) == [("l", 2)]


def test_reserved_keys_are_dropped_unless_they_have_a_result(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2)
        repo.reuse.reserve([("k", 9, 1), ("l", 9, 1), ("m", 9, 2)])
        repo.reuse.finish([("l", 1, 1, 1, NOW, 100)])
        repo.reuse.drop_reserved([])
        assert repo.reuse.with_keys([1, 2]) == {1, 2}
        repo.reuse.drop_reserved(["k", "l", "none"])
        assert set(repo.reuse.lock_keys(["k", "l", "m"])) == {"l", "m"}
        assert repo.reuse.lock_keys(["l"])["l"].source == 1


def test_leaders_to_be_are_looked_at_and_locked(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2)
        move(repo, 2, S.PENDING)
    with store.write() as repo:
        found = sorted((id, state) for id, state, _ in repo.reuse.states([1, 2, 3]))
        locked = sorted((id, state) for id, state, _ in repo.reuse.lock_states([1, 2, 3]))
        assert found == locked == [(1, S.UNSCHEDULED), (2, S.PENDING)]
        assert (repo.reuse.states([]), repo.reuse.lock_states([])) == ([], [])


def test_tasks_are_told_apart_by_whether_a_prerequisite_has_a_result(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2, 3, 4)
        repo.edges.add([(1, 3, "success"), (2, 4, "success"), (1, 4, "success")])
        repo.attempts.add_results([(2, 1, "1")])
        assert repo.reuse.with_results([3, 4]) == {4}
        assert repo.reuse.with_results([]) == set()


def test_the_results_that_tasks_reuse_are_copied_where_there_are_any(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2, 3)
        repo.attempts.add_results([(1, 4, '"long"')])
        repo.reuse.add([(2, 1, 1, 4), (3, 1, 1, 5)])
        repo.reuse.copy_reused_results([])
        repo.reuse.copy_reused_results([2, 3])
        assert (repo.output.result(2, 0), repo.output.result(3, 0)) == ('"long"', None)


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
        repo.tasks.add_definitions([(id, 1, label, "{}", None, "", "") for id, label in enumerate("abcd", 1)])
        repo.edges.add([(1, 3, "success"), (2, 3, "always")])
        ended(repo, 1, NOW + 5, NOW + 25)
        running(repo, 2, NOW + 7)
    return store


def test_durations_of_attempts_are_read_by_state(played: Store) -> None:
    with played.read() as repo:
        assert repo.read.attempt_durations(1, ["a", "b", "c"], [S.SUCCESSFUL]) == [("a", 20)]
        assert repo.read.attempt_durations(1, ["b"], [S.SUCCESSFUL]) == []
        assert repo.read.attempt_durations(2, ["a"], [S.SUCCESSFUL]) == []


def test_unfinished_tasks_have_the_start_of_their_attempt(played: Store) -> None:
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


# The keys of idempotent tasks.


def test_a_key_has_one_leader_and_the_newest_result(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2)
        repo.reuse.lead([("k1", 1), ("k2", 1)], ())
        assert repo.reuse.lock_keys(["k1", "k3"]) == {"k1": ReuseKeyRow("k1", 1, None, None, None, None, None)}
        assert set(repo.reuse.lock_led([1, 2])) == {"k1", "k2"}
        repo.attempts.add_results([(1, 4, '"long"')])
        repo.files.set_artifacts([(1, 5, name, "default", "1" * 64, name, 1, "") for name in "ab"])
        repo.reuse.finish([("k1", 1, 7, 4, NOW, 100), ("k2", 1, 7, 5, NOW, 100), ("k4", 1, 7, 6, NOW, 100)])
        assert repo.reuse.lock_led([1, 2]) == {}
        assert repo.reuse.lock_keys(["k1", "k2", "k4"]) == {
            "k1": ReuseKeyRow("k1", None, 1, 7, 4, 6, NOW),
            "k2": ReuseKeyRow("k2", None, 1, 7, 5, 200, NOW),
            "k4": ReuseKeyRow("k4", None, 1, 7, 6, None, NOW),
        }
        repo.reuse.lead([("k1", 2)], {"k1"})
        repo.reuse.change_leaders([("k1", None)])
        assert repo.reuse.lock_keys(["k1"])["k1"].source == 1
        repo.reuse.lead([("k1", 2), ("k3", 2)], {"k1"})
        repo.reuse.change_leaders([("k3", None)])
        assert set(repo.reuse.lock_keys(["k1", "k3"])) == {"k1"}
        repo.reuse.forget([])
        repo.reuse.forget([1])
        assert repo.reuse.lock_keys(["k1", "k2"]) == {"k1": ReuseKeyRow("k1", 2, None, None, None, None, None)}


def test_a_second_leader_of_a_key_is_a_conflict(store: Store) -> None:
    with store.write() as repo:
        repo.reuse.lead([("k1", 1)], ())

    def lead() -> None:
        with store.write() as repo:
            repo.reuse.lead([("k2", 2), ("k1", 2)], ())

    with pytest.raises((TransactionConflict, DuplicateKey)):
        lead()
    with store.read() as repo:
        assert set(repo.reuse.lock_keys(["k1", "k2"])) == {"k1"}


def test_followers_come_by_priority_and_age(store: Store) -> None:
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2, 3, 4)
        repo.reuse.lead([("k1", 9)], ())
        repo.reuse.add_followers([(1, "k1", 100, 5), (2, "k1", 100, 4), (3, "k1", 50, 6), (4, "k0", 1, 1)])
        assert repo.reuse.followers(["k1", "k0"], 3) == [("k0", 4), ("k1", 3), ("k1", 2)]
        assert repo.reuse.followers([], 3) == []
        assert repo.reuse.leaders([1, 4]) == {1: 9}
        repo.reuse.delete_followers([])
        repo.reuse.delete_followers([2, 3])
        assert repo.reuse.followers(["k1"], 9) == [("k1", 1)]


def test_pools_say_what_they_reuse(store: Store) -> None:
    rows = [ReusePolicyRow("default", None, True), ReusePolicyRow("lab", 5_000, False)]
    with store.write() as repo:
        for row in (ReusePolicyRow("lab", 1, True), *rows):
            repo.reuse.set_policy(row)
    with store.read() as repo:
        assert repo.reuse.policies() == rows


def test_tasks_receive_short_results_whole_and_of_long_ones_the_digest(store: Store) -> None:
    short, long = "1" * UNDIGESTED_MAX, "2" * (UNDIGESTED_MAX + 1)
    with store.write() as repo:
        add_graph(repo)
        add_tasks(repo, 1, 2, 3, 4)
        repo.tasks.add_definitions([(id, 1, f"t{id}", "{}", None, "", "") for id in (1, 2)])
        repo.edges.add([(1, 3, "success"), (2, 3, "always"), (2, 4, "success")])
        for id, body in ((1, short), (2, long)):
            running(repo, id, NOW)
            repo.attempts.add_results([(id, 1, body)])
        found = [(3, "t1", short, None), (3, "t2", None, digest_of_result(long))]
        assert sorted(repo.reuse.received([3])) == found
        assert len(repo.reuse.received([3, 4])) == 3
        repo.reuse.add([(3, 1, 1, 1)])
        assert repo.reuse.originals([1, 2, 3]) == {3: 1}
        repo.reuse.copy_results([(3, 2, 1)])
        assert repo.output.result(3, 0) == long
