"""A server for each module, and a digest of its store."""

from collections.abc import Iterator
from pathlib import Path
from shutil import copy

import pytest

from tests.hardening.store_digest import Digest, settled
from tests.server.running_server import RunningServer


@pytest.fixture(scope="module")
def url(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{copy(sqlite_template, tmp_path_factory.mktemp('yard') / 'taskyard.db')}"


@pytest.fixture(scope="module")
def server(url: str) -> Iterator[RunningServer]:
    with RunningServer(url) as made:
        yield made


@pytest.fixture
def kept(server: RunningServer, url: str) -> Digest:
    """Returns a digest of the store, once the server is idle."""
    return lambda: settled(server.engine, url)
