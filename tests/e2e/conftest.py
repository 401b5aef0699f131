"""Clusters on both databases: some are shared by many tests, others belong to one test."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.cluster import SHORT_LEASES, Cluster, cluster
from tests.postgres import Postgres


@pytest.fixture(scope="package", params=["sqlite", "postgres"])
def shared_cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A server with a bot of four slots, for tasks that name no other bot."""
    folder = tmp_path_factory.mktemp("cluster")
    with _database(request, folder) as url, cluster(folder, url) as one:
        one.bot("main", slots=4)
        yield one


@pytest.fixture
def own_cluster(database_url: str, tmp_path: Path) -> Iterator[Cluster]:
    """A server without bots, for one test."""
    with cluster(tmp_path, database_url) as one:
        yield one


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def short_lease_cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A server whose leases last seconds, without bots."""
    folder = tmp_path_factory.mktemp("short_lease")
    with _database(request, folder) as url, cluster(folder, url, SHORT_LEASES, lease="3s") as one:
        yield one


@pytest.fixture
def guarded_cluster(database_url: str, tmp_path: Path) -> Iterator[Cluster]:
    """A server whose leases last seconds, with the usual guard time after each."""
    with cluster(tmp_path, database_url, lease="5s") as one:
        yield one


@contextmanager
def _database(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{shutil.copy(request.getfixturevalue('sqlite_template'), folder / 'taskyard.db')}"
        return
    server = request.getfixturevalue("postgres")
    assert isinstance(server, Postgres)
    url = server.fresh()
    try:
        yield url
    finally:
        server.drop(url)
