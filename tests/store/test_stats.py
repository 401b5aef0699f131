"""Counts of pools in minutes, on both databases."""

from collections.abc import Iterator

import pytest

from taskyard.core.states import Millis
from taskyard.store.connection import Store, open_store
from taskyard.store.repo.stats import PoolMinute

MINUTE = 60_000


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = open_store(database_url)
    yield store
    store.close()


def test_counts_of_a_minute_add_up_and_what_waits_is_what_waited_last(store: Store) -> None:
    with store.write() as repo:
        repo.stats.add([(MINUTE, "lab", 1, 2, 3, 4, 5, 6, 7, 8, 9), (MINUTE, "ops", 1, 0, 0, 0, 0, 0, 0, 0, 0)])
        repo.stats.add([(MINUTE, "lab", 10, 20, 30, 40, 50, 60, 70, 3, 2)])
    with store.read() as repo:
        assert repo.stats.since(Millis(0), None) == [
            PoolMinute(MINUTE, "lab", 11, 22, 33, 44, 55, 66, 77, 3, 2),
            PoolMinute(MINUTE, "ops", 1, 0, 0, 0, 0, 0, 0, 0, 0),
        ]


def test_counts_are_read_by_time_and_pool_and_old_ones_are_deleted(store: Store) -> None:
    zeros = (0,) * 9
    with store.write() as repo:
        repo.stats.add([(place * MINUTE, pool, *zeros) for place in (3, 2, 1) for pool in ("ops", "lab")])

        def keys(at: int, pools: frozenset[str] | None) -> list[tuple[int, str]]:
            return [(row.minute_ms // MINUTE, row.pool) for row in repo.stats.since(Millis(at), pools)]

        assert keys(2 * MINUTE, None) == [(2, "lab"), (2, "ops"), (3, "lab"), (3, "ops")]
        assert keys(2 * MINUTE + 1, frozenset({"lab", "none"})) == [(3, "lab")]
        assert keys(0, frozenset()) == []
        repo.stats.delete_before(Millis(3 * MINUTE))
        assert keys(0, None) == [(3, "lab"), (3, "ops")]
