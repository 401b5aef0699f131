"""A yard on each of the two databases; when a test is over, its store is counted afresh."""

from collections.abc import Iterator

import pytest

from tests.lifecycle.grounds import Grounds
from tests.lifecycle.recount import recount
from tests.store.check_cache import check_row_cache


@pytest.fixture
def yard(database_url: str) -> Iterator[Grounds]:
    """A store with people, bots and a clock around it, that has to agree with itself in the end."""
    one = Grounds(database_url)
    try:
        yield one
        with one.store.read() as repo:
            recount(repo)
        check_row_cache(one.store)
    finally:
        one.close()
