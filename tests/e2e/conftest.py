"""Yards for these tests, on both databases: those that many tests share, and one that a test has alone."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.yard import HASTY, Yard, yard
from tests.postgres import Postgres


@pytest.fixture(scope="package", params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """A server with a bot of four slots, which takes whatever names no other."""
    folder = tmp_path_factory.mktemp("yard")
    with _database(request, folder) as url, yard(folder, url) as one:
        one.bot("main", slots=4)
        yield one


@pytest.fixture
def alone(database_url: str, tmp_path: Path) -> Iterator[Yard]:
    """A server without bots, for one test that does with it what it wants."""
    with yard(tmp_path, database_url) as one:
        yield one


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def hasty(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """A server whose leases last seconds, without bots."""
    folder = tmp_path_factory.mktemp("hasty")
    with _database(request, folder) as url, yard(folder, url, HASTY, lease="3s") as one:
        yield one


@pytest.fixture
def brief(database_url: str, tmp_path: Path) -> Iterator[Yard]:
    """A server whose leases last seconds, and which waits after each of them as long as any."""
    with yard(tmp_path, database_url, lease="5s") as one:
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
