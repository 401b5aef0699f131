"""An engine harness on each of the two databases; it checks the store when the test ends."""

from collections.abc import Iterator

import pytest

from tests.engine.harness import EngineHarness


@pytest.fixture
def harness(database_url: str) -> Iterator[EngineHarness]:
    with EngineHarness(database_url) as made:
        yield made


@pytest.fixture
def sqlite_harness(sqlite_url: str) -> Iterator[EngineHarness]:
    """For tests that do not depend on the database."""
    with EngineHarness(sqlite_url) as made:
        yield made
