"""The tables of launches, of the updates of resources, and of links."""

from collections.abc import Iterator

import pytest

from taskyard.core.states import State
from taskyard.store.connection import Repo, Store, open_store
from taskyard.store.repo.launches import LaunchRow, LinkRow, UpdateRow
from tests.store.rows import add_graph, add_tasks, move

S = State
WAITS = (S.RUNNING,)


@pytest.fixture
def repo(database_url: str) -> Iterator[Repo]:
    """Graph 1 with the tasks 11 and 12, and graph 2 with the task 21: newer ids are smaller."""
    store: Store = open_store(database_url)
    with store.write() as found:
        for graph, tasks in ((1, (11, 12)), (2, (21,))):
            add_graph(found, graph)
            found.graphs.set_loader(graph, None)
            add_tasks(found, *tasks, graph_id=graph)
        yield found
    store.close()


def launched(graph: int, kind: str = "job_template", name: str = "deploy") -> LaunchRow:
    return LaunchRow(graph, kind, name, 3, "manual", '{"x":1}', "{}", "ann", relaunch_of=7)


def test_launches_are_listed_by_template_and_pool_newest_first(repo: Repo) -> None:
    repo.launches.add([launched(1), launched(2, "project", "web")])
    repo.graphs.add_pools(2, ["lab"])
    assert repo.launches.of([1, 2, 3]) == {1: launched(1), 2: launched(2, "project", "web")}
    assert [row.graph for row in repo.launches.page("", "", None, -1, 9)] == [1, 2]
    assert [row.graph for row in repo.launches.page("", "", None, 1, 9)] == [2]
    assert [row.graph for row in repo.launches.page("project", "web", None, -1, 9)] == [2]
    assert [row.graph for row in repo.launches.page("", "", {"lab"}, -1, 9)] == [2]
    assert repo.launches.page("project", "deploy", None, -1, 9) == []


def test_the_last_launch_of_each_name_is_found(repo: Repo) -> None:
    repo.launches.add([launched(1), launched(2)])
    assert repo.launches.last([("job_template", "deploy"), ("project", "deploy")]) == [launched(1)]
    assert repo.launches.last([]) == []


def test_the_newest_update_and_the_newest_good_one_are_found(repo: Repo) -> None:
    repo.launches.add_updates(
        [(11, "project:web", "d1", 1), (12, "project:web", "d1", 1), (21, "project:web", "d2", 2)]
    )
    assert repo.launches.newest_update("project:web", "d1") == UpdateRow(11, 1)
    assert repo.launches.newest_update("project:web", "d3") is None
    assert repo.launches.good_update("project:web", "d1") is None
    move(repo, 12, S.SUCCESSFUL)
    assert repo.launches.good_update("project:web", "d1") == UpdateRow(12, 1)
    assert repo.launches.resources([11, 99]) == {11: "project:web"}


def test_the_graph_with_the_newest_good_update_of_a_resource_is_current(repo: Repo) -> None:
    repo.launches.add([launched(1, "project", "web"), launched(2, "project", "web")])
    repo.launches.add_updates([(11, "project:web", "d1", 1), (21, "project:web", "d2", 2)])
    assert repo.launches.current_updates([1, 2]) == set()
    move(repo, 21, S.SUCCESSFUL)
    assert repo.launches.current_updates([1, 2]) == {2}
    move(repo, 11, S.SUCCESSFUL)
    assert repo.launches.current_updates([1, 2]) == {1}


def test_links_are_found_by_their_update_and_state(repo: Repo) -> None:
    row = LinkRow(21, "project:web", 11, 1, "join")
    repo.launches.add([launched(1, "project", "web")])
    repo.launches.add_updates([(11, "project:web", "d1", 1)])
    repo.launches.add_links([row])
    repo.launches.copy_links([(12, 21)])
    assert repo.launches.links([21, 12, 11]) == {21: row, 12: LinkRow(12, "project:web", 11, 1, "join")}
    assert repo.launches.links_to([11], WAITS, 9) == []
    waiting = repo.launches.links_to([11], (S.UNSCHEDULED,), 9)
    assert [link.task for link in waiting] == [21, 12], "the oldest first: newer ids are smaller"
    assert repo.launches.links_to([11], (S.UNSCHEDULED,), 1) == [row]
    assert repo.launches.graphs_linked_to(1, 9) == [1, 2]
    assert repo.launches.overdue_links("server", "command", (S.UNSCHEDULED,), 9) == []


def test_the_result_and_the_files_of_an_update_are_copied_to_its_links(repo: Repo) -> None:
    repo.launches.add_links([LinkRow(21, "project:web", 11, 1, "join")])
    repo.attempts.add_results([(11, 0, '{"revision":"abc"}')])
    repo.files.set_outputs([(11, 0, "lab", "a" * 64, 2, 30)])
    repo.files.set_artifacts([(11, 0, "log", "lab", "b" * 64, "log.txt", 3, "text/plain")])
    assert repo.launches.result_sizes([11, 21]) == {11: 18}
    repo.launches.copy_results([21])
    assert repo.read.last_results([21]) == {21: '{"revision":"abc"}'}
    repo.files.copy_attempt(12, 0, 21)
    for task in (21, 12):
        (files,) = repo.files.outputs(task).values()
        assert (files.pool, files.tree) == ("lab", "a" * 64)


def test_a_launch_is_deleted_with_its_graph(repo: Repo) -> None:
    repo.launches.add([launched(1)])
    repo.launches.add_updates([(11, "project:web", "d1", 1)])
    repo.launches.add_links([LinkRow(12, "project:web", 11, 1, "update")])
    repo.graphs.set_loader(1, "me")
    assert repo.graphs.delete_page(1, 9)
    assert repo.launches.of([1]) == {}
    assert repo.launches.links([12]) == {}
