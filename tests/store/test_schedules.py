"""The table of schedules on both databases."""

from collections.abc import Iterator

import pytest

from taskyard.core.states import Millis
from taskyard.store.connection import Repo, Store, open_store
from taskyard.store.repo.catalogue import DocumentRow
from taskyard.store.repo.launches import LaunchRow
from taskyard.store.repo.schedules import SchedulePlan
from tests.store.rows import LATER, NOW, add_graph


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = open_store(database_url)
    yield store
    store.close()


def document(name: str, version: int = 1, kind: str = "schedule") -> DocumentRow:
    return DocumentRow(kind, name, "ops", version, "{}", Millis(NOW), "ann")


def names(repo: Repo) -> list[str]:
    return [one.name for one in repo.schedules.unplanned(10)]


def test_a_schedule_is_unplanned_until_its_version_is_planned(store: Store) -> None:
    with store.write() as repo:
        repo.catalogue.save([document("a"), document("b"), document("c", kind="project")], [], 3)
        assert names(repo) == ["a", "b"]
        repo.schedules.save(SchedulePlan("a", 1, Millis(LATER)))
        assert (names(repo), repo.schedules.unplanned(0)) == (["b"], [])
        repo.catalogue.save([document("a", 2)], [], 3)
        assert names(repo) == ["a", "b"]
    with store.write() as repo:
        assert repo.schedules.lock("a") == SchedulePlan("a", 1, Millis(LATER))
        assert repo.schedules.lock("b") is None


def test_the_plan_of_a_deleted_schedule_is_found_and_forgotten(store: Store) -> None:
    with store.write() as repo:
        repo.catalogue.save([document("a")], [], 3)
        for name in ("a", "gone"):
            repo.schedules.save(SchedulePlan(name, 1, None))
        assert repo.schedules.lost(10) == ["gone"]
        repo.schedules.forget(["gone"])
        assert repo.schedules.plans(["a", "gone"]) == {"a": SchedulePlan("a", 1, None)}


def test_due_schedules_are_found_in_the_order_of_their_times(store: Store) -> None:
    with store.write() as repo:
        repo.catalogue.save([document("a"), document("b"), document("old", 2)], [], 3)
        plans = [("a", 1, NOW), ("b", 1, NOW - 1), ("old", 1, NOW - 2)]
        for name, version, next_ms in plans:
            repo.schedules.save(SchedulePlan(name, version, Millis(next_ms)))
        repo.schedules.save(SchedulePlan("never", 1, None))
    with store.read() as repo:
        found = repo.schedules.due(Millis(NOW), 10)
        assert [(one.schedule.name, one.planned) for one in found] == [("b", NOW - 1), ("a", NOW)]
        assert repo.schedules.due(Millis(NOW - 2), 10) == []
        assert repo.schedules.next_due() == NOW - 2


def test_the_newest_launch_of_a_schedule_is_found(store: Store) -> None:
    with store.write() as repo:
        for graph, due_ms in ((8, NOW), (7, LATER)):
            add_graph(repo, graph)
            launch = LaunchRow(graph, "job_template", "j", 1, "scheduled", "{}", "{}", "x", "a", Millis(due_ms))
            repo.launches.add([launch])
        assert repo.schedules.last_launches(["a", "b"]) == {"a": 7}
        assert not repo.schedules.is_earlier_launch_active("a", Millis(NOW))
        assert not repo.schedules.is_earlier_launch_active("a", Millis(LATER))
        repo.graphs.write_states([(8, "running", 1, 0, 0, 0, NOW)])
        assert repo.schedules.is_earlier_launch_active("a", Millis(LATER))
