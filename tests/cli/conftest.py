"""One server for all tests that only ask it things."""

from collections.abc import Iterator

import pytest

from tests.cli.yard import Yard, yard


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """A server without bots that no test ends."""
    with yard(tmp_path_factory.mktemp("shared")) as one:
        yield one
