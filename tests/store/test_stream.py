"""The tables of the stream of events on both databases."""

from collections.abc import Iterator

import pytest

from taskyard.core.states import Millis
from taskyard.core.structs import struct_replace
from taskyard.store.connection import Repo, Store, open_store
from taskyard.store.repo.events import TargetRow, encode_fact, encode_transition
from tests.store.rows import LATER, NOW, add_graph

CREATED = encode_fact(encode_transition(None, "running", None), None, None, None)


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = open_store(database_url)
    yield store
    store.close()


def add_events(repo: Repo, graph: int, count: int, at: int = NOW) -> None:
    """A graph with some events, one in each row."""
    add_graph(repo, graph)
    repo.graphs.set_loader(graph, None)
    for number in range(count):
        repo.events.add(Millis(at), [(graph, number, [(graph, [CREATED])])])
    repo.graphs.write_states([(graph, "running", 0, 0, 0, count, NOW)])


def test_the_state_of_the_stream_is_written_by_who_has_locked_it(store: Store) -> None:
    with store.write() as repo:
        state = repo.stream.wait()
        assert repo.stream.lock() == repo.stream.read() == state
        repo.stream.write(struct_replace(state, last=7, gone=3, wanted_until_ms=LATER, skipped=True))
    with store.read() as repo:
        found = repo.stream.read()
    assert (found.last, found.gone, found.wanted_until_ms, found.skipped) == (7, 3, LATER, True)


def test_events_are_read_by_their_numbers_and_trimmed_from_the_oldest_on(store: Store) -> None:
    with store.write() as repo:
        for graph in (1, 2):
            add_events(repo, graph, 2)
        repo.stream.add([(1, 1, 1), (2, 2, 1), (3, 1, 2), (4, 2, 2)])
        events, last = repo.stream.page(1, 2)
        assert ([(number, one.graph, one.number) for number, one in events], last) == ([(2, 2, 1), (3, 1, 2)], 3)
        assert repo.stream.page(4, 2) == ([], 4)
        repo.stream.trim(3, 2)
        assert [number for number, _ in repo.stream.page(0, 9)[0]] == [3, 4]


def test_old_events_are_passed_over_page_by_page(store: Store) -> None:
    with store.write() as repo:
        for graph in (1, 2):
            add_events(repo, graph, 1)
        add_events(repo, 3, 1, at=LATER)
        assert [repo.stream.skip(Millis(LATER), 1) for _ in range(3)] == [1, 1, 0]
        assert [one.graph for one in repo.events.unpublished(9)] == [3]


def test_a_target_only_advances_and_keeps_its_position_when_it_is_added_again(store: Store) -> None:
    with store.write() as repo:
        repo.targets.add("broker", 5, Millis(NOW))
        assert repo.targets.advance("broker", 7, Millis(LATER))
        assert not repo.targets.advance("broker", 6, Millis(LATER))
        assert not repo.targets.advance("broker", 7, Millis(LATER))
        repo.targets.add("broker", 9, Millis(LATER))
        assert repo.targets.all() == [TargetRow("broker", 7, NOW, LATER)]
        assert [repo.targets.remove("broker") for _ in range(2)] == [True, False]


def test_the_oldest_event_that_a_target_has_not_got_is_found(store: Store) -> None:
    with store.write() as repo:
        add_events(repo, 1, 1)
        add_events(repo, 2, 1, at=LATER)
        repo.stream.add([(1, 1, 1), (2, 2, 1)])
        assert repo.targets.oldest_undelivered() is None
        repo.targets.add("ahead", 1, Millis(NOW))
        assert repo.targets.oldest_undelivered() == LATER
        repo.targets.add("behind", 0, Millis(NOW))
        assert repo.targets.oldest_undelivered() == NOW


def test_graphs_with_events_that_have_no_number_matter_only_to_targets(store: Store) -> None:
    with store.write() as repo:
        for graph in (1, 2):
            add_events(repo, graph, 1)
        repo.events.mark_published([(1, 1)])
        assert repo.targets.unnumbered([1, 2]) == set()
        repo.targets.add("broker", 0, Millis(NOW))
        assert repo.targets.unnumbered([1, 2]) == {2}
