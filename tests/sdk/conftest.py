"""A server with scripted answers, and a client for it."""

from collections.abc import Iterator

import pytest

from taskyard.sdk import Client, http
from tests.sdk.faulty_server import FaultyServer, faulty_server


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with faulty_server() as one:
        yield one


@pytest.fixture
def client(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(http, "WAIT_SECONDS", 0.001)
    with Client(server.url, "a-token", timeout_s=10) as one:
        yield one
