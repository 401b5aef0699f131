"""A harness on each of the two databases; after each test, every stored count is checked against the rows."""

from collections.abc import Iterator

import pytest

from tests.lifecycle.harness import LifecycleHarness
from tests.lifecycle.recount import recount
from tests.store.check_cache import check_row_cache


@pytest.fixture
def harness(database_url: str) -> Iterator[LifecycleHarness]:
    """A harness whose store must be consistent when the test ends."""
    one = LifecycleHarness(database_url)
    try:
        yield one
        with one.store.read() as repo:
            recount(repo)
        check_row_cache(one.store)
    finally:
        one.close()
