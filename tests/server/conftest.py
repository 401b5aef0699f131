"""A server for each test: on a file, or on each of the two databases."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from taskyard.engine.keyring import add_key
from tests.server.running_server import RunningServer


@pytest.fixture
def server(sqlite_url: str) -> Iterator[RunningServer]:
    with RunningServer(sqlite_url) as made:
        yield made


@pytest.fixture
def either_server(database_url: str, tmp_path: Path) -> Iterator[RunningServer]:
    """On each of the two databases, with a key for secrets."""
    add_key(tmp_path / "secrets.key")
    with RunningServer(database_url, secrets_key_file=tmp_path / "secrets.key") as made:
        yield made
