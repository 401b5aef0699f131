"""A server for each test: on a file, or on each of the two databases."""

from collections.abc import Iterator

import pytest

from tests.server.yard import Yard


@pytest.fixture
def yard(sqlite_url: str) -> Iterator[Yard]:
    with Yard(sqlite_url) as made:
        yield made


@pytest.fixture
def either(database_url: str) -> Iterator[Yard]:
    """On each of the two databases."""
    with Yard(database_url) as made:
        yield made
