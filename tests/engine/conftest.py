"""A rig on each database; it ends with a store that agrees with itself."""

from collections.abc import Iterator

import pytest

from tests.engine.rig import Rig


@pytest.fixture
def rig(database_url: str) -> Iterator[Rig]:
    with Rig(database_url) as made:
        yield made


@pytest.fixture
def file_rig(sqlite_url: str) -> Iterator[Rig]:
    """For what has nothing to do with the database."""
    with Rig(sqlite_url) as made:
        yield made
