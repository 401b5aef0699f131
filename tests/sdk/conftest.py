"""A server that misbehaves, and a client for it."""

from collections.abc import Iterator

import pytest

from taskyard.sdk import Client, http
from tests.sdk.wayward import Wayward, wayward


@pytest.fixture
def server() -> Iterator[Wayward]:
    with wayward() as one:
        yield one


@pytest.fixture
def client(server: Wayward, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(http, "WAIT_SECONDS", 0.001)
    with Client(server.url, "a-token", timeout_s=10) as one:
        yield one
