"""Servers that share one PostgreSQL database; each test ends with an audit of the store."""

from collections.abc import Callable, Iterator

import pytest

from tests.races.servers import Server, SharedClock

Open = Callable[[int], list[Server]]


@pytest.fixture
def servers(postgres_url: str) -> Iterator[Open]:
    """Opens as many servers as a test needs."""
    clock = SharedClock()
    opened: list[Server] = []

    def open_some(count: int) -> list[Server]:
        opened.extend(Server(postgres_url, clock, f"b{number + 1}") for number in range(count))
        return opened

    try:
        yield open_some
        opened[0].audit()
    finally:
        for server in opened:
            server.close()


@pytest.fixture
def pair(servers: Open) -> tuple[Server, Server]:
    """Two servers, each with a bot."""
    one, two = servers(2)
    one.hello()
    two.hello()
    return one, two
