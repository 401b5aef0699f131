"""Servers that share one database in PostgreSQL; it has to agree with itself in the end."""

from collections.abc import Callable, Iterator

import pytest

from tests.races.servers import Server, Watch

Open = Callable[[int], list[Server]]


@pytest.fixture
def servers(postgres_url: str) -> Iterator[Open]:
    """Open as many servers as a test wants."""
    watch = Watch()
    opened: list[Server] = []

    def open_some(count: int) -> list[Server]:
        opened.extend(Server(postgres_url, watch, f"b{number + 1}") for number in range(count))
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
