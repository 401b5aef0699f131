"""The worked catalogue, launched on a real server and a real bot: updates, plays, a workflow."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from taskyard.wire.documents import read_documents
from tests.cli.test_operations import NAMES, git, prepare
from tests.cli.waiting import until
from tests.e2e.cluster import Cluster, Graph
from tests.effort import SOAK

#: Plays take seconds each and know nothing of the database: one is enough here, and another module has the other.
pytestmark = pytest.mark.parametrize(
    "shared_cluster", ["sqlite", "postgres"] if SOAK else ["postgres"], indirect=True, scope="package"
)


@pytest.fixture
def folder(shared_cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """A folder with the repository of the example, whose documents are applied."""
    file = prepare(tmp_path)
    documents = [document for _, document in read_documents(file.read_bytes())]
    shared_cluster.client.apply([one for one in documents if isinstance(one, dict)])
    yield tmp_path
    for kind, name in NAMES:
        shared_cluster.client.delete_document(kind, name)


def launched(cluster: Cluster, name: str, kind: str = "template", **variables: object) -> Graph:
    made = cluster.client.launch(name, variables, kind=kind)
    assert made.graph_id is not None
    return Graph(cluster, made.graph_id, dict(made.nameMapping))


def linked(graph: Graph) -> dict[str, str]:
    return {one.resource: one.graph_id or "" for one in graph.cluster.client.graph(graph.id).links}


def test_a_job_gets_the_files_of_its_project_and_the_hosts_of_its_inventory(
    shared_cluster: Cluster, folder: Path
) -> None:
    graph = launched(shared_cluster, "deploy", version="1.2")
    graph.finished()
    assert (folder / "deployed" / "version").read_text() == "1.2\n"
    project = graph.task("project:site").result
    assert (project["revision"], project["branch"]) == (git(folder, "rev-parse", "main").strip(), "main")
    assert graph.task("source:here/groups").result["hosts"] == 1
    assert graph.task("job").result["totals"]["hosts"] == 1
    again = launched(shared_cluster, "deploy", version="1.3")
    again.finished()
    assert linked(again) == linked(graph), "the updates are fresh enough"
    assert (folder / "deployed" / "version").read_text() == "1.3\n"


def test_a_workflow_stops_at_a_check_that_fails_and_goes_on_when_it_is_launched_again(
    shared_cluster: Cluster, folder: Path
) -> None:
    client = shared_cluster.client
    failed = launched(shared_cluster, "release", version="new")
    until(lambda: client.graph(failed.id).settled, "the workflow")
    assert failed.states() == {"workflow": "failed"}
    assert not (folder / "deployed").exists()
    again = client.relaunch(failed.id, from_failed=True)
    assert again.graph_id is not None
    until(lambda: client.graph(str(again.graph_id)).settled, "the second try")
    assert client.graph(again.graph_id).counts == {"failed": 1}, "the version is still none"
    good = launched(shared_cluster, "release", version="2.0")
    good.finished()
    assert (folder / "deployed" / "version").read_text() == "2.0\n"
    statuses = {one.graph_id: one.status for one in client.launches(name="release")}
    assert (statuses[failed.id], statuses[good.id]) == ("failed", "successful")


def test_an_update_of_a_repository_that_is_gone_fails_the_job(shared_cluster: Cluster, folder: Path) -> None:
    (folder / "site.git").rename(folder / "away.git")
    graph = launched(shared_cluster, "deploy", version="1.2")
    until(lambda: shared_cluster.client.graph(graph.id).settled, "the launch")
    assert graph.states()["job"] == "failed"
    assert "the update that it stands for did not succeed" in shared_cluster.client.why(graph.names["job"]).sentence
    (folder / "away.git").rename(folder / "site.git")
    again = shared_cluster.client.relaunch(graph.id)
    assert again.graph_id is not None
    Graph(shared_cluster, again.graph_id, dict(again.nameMapping)).finished()


def test_a_module_runs_on_the_hosts_of_an_inventory(shared_cluster: Cluster, folder: Path) -> None:
    shared_cluster.client.launch("here", kind="inventory")
    launched(shared_cluster, "deploy", version="1.2").finished()
    made = shared_cluster.client.ad_hoc("here", "ping")
    assert made.graph_id is not None
    graph = Graph(shared_cluster, made.graph_id, dict(made.nameMapping))
    graph.finished()
    assert list(graph.task("job").result["hosts"]) == ["localhost"]
    assert folder.exists()
