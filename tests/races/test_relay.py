"""The relay of two servers: one numbers at a time, and one that is frozen or cut off changes nothing."""

from collections.abc import Iterator

import psycopg
import pytest

from taskyard.bus.relay import read_stream
from tests.crash.test_frozen_passes import IDLE, TERMINATE_IDLE
from tests.engine.harness import WAIT_S, graph, task, wait_until
from tests.races.servers import COMMIT, Server, SharedClock

Pair = tuple[Server, Server]


@pytest.fixture
def pair(postgres_url: str) -> Iterator[Pair]:
    """Two servers that share a clock, while somebody follows events."""
    clock = SharedClock()
    one, two = (Server(postgres_url, clock, name) for name in ("b1", "b2"))
    try:
        one.engine.relay.want()
        yield one, two
    finally:
        one.close()
        two.close()


def streamed(server: Server) -> list[tuple[int, int, int]]:
    """The number in the stream, the graph and the number there of every event."""
    with server.store.read() as repo:
        state = repo.stream.read()
        return [(number, one.graph, one.number) for number, one in read_stream(repo, state.gone, 1_000).events]


def logged(server: Server) -> list[tuple[int, int]]:
    """The graph and the number of every event in the log."""
    with psycopg.connect(server.url) as connection:
        found = connection.execute("SELECT id, events FROM graph ORDER BY id").fetchall()
    return [(id, number) for id, events in found for number in range(1, events + 1)]


def check(server: Server) -> None:
    """Every event is in the stream once, numbered without gaps and in the order of its graph."""
    found = streamed(server)
    assert [number for number, *_ in found] == list(range(found[0][0], found[0][0] + len(found)))
    assert sorted((id, number) for _, id, number in found) == logged(server)
    for graph_id in {id for _, id, _ in found}:
        numbers = [number for _, id, number in found if id == graph_id]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("place", ["update_stream", COMMIT])
def test_while_one_numbers_the_other_waits_for_nothing(pair: Pair, place: str) -> None:
    one, two = pair
    one.engine.relay.run_once()
    one.submit(graph(a=task(), b=task()))
    with one.halted(place) as halt:
        numbering = one.in_thread(one.engine.relay.run_once)
        halt.reached()
        two.submit(graph(c=task()))
        two.engine.relay.run_once()
        assert streamed(two) == []
    assert numbering.result(WAIT_S)
    two.engine.relay.run_once()
    check(two)


@pytest.mark.parametrize("place", ["insert_streamed_events", COMMIT])
def test_a_relay_that_is_cut_off_while_it_is_frozen_changes_nothing(pair: Pair, place: str) -> None:
    one, two = pair
    one.engine.relay.run_once()
    one.submit(graph(a=task(), b=task()))
    with one.halted(place) as halt:
        numbering = one.in_thread(one.engine.relay.run_once)
        halt.reached()
        with psycopg.connect(one.url, autocommit=True) as connection:  # as PostgreSQL does by itself after 10 s
            connection.execute(TERMINATE_IDLE)
            wait_until(lambda: connection.execute(IDLE).fetchone() == (0,))
        two.submit(graph(c=task()))
        two.engine.relay.run_once()
        check(two)
        before = streamed(two)
    numbering.exception(WAIT_S)
    assert streamed(two) == before
    one.submit(graph(d=task()))
    one.engine.relay.run_once()
    assert streamed(two)[: len(before)] == before
    check(two)
