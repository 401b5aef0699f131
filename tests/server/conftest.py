"""A server for each test: on a file, or on each of the two databases."""

from collections.abc import Iterator

import pytest

from tests.server.running_server import RunningServer


@pytest.fixture
def server(sqlite_url: str) -> Iterator[RunningServer]:
    with RunningServer(sqlite_url) as made:
        yield made


@pytest.fixture
def either_server(database_url: str) -> Iterator[RunningServer]:
    """On each of the two databases."""
    with RunningServer(database_url) as made:
        yield made
