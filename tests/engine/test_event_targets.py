"""Targets of the stream of events: numbered while there is one, and kept until every target has got them."""

import pytest

from taskyard.bus import relay
from taskyard.core.durations import DAY_MS
from taskyard.core.retention import Kept
from taskyard.engine.failpoints import Boundary
from tests.engine.harness import EngineHarness, graph, noop
from tests.engine.test_retention import deleted, keep
from tests.lifecycle.harness import Labels


def add_target(harness: EngineHarness, name: str = "broker") -> int:
    """Add a target; return where it begins."""
    harness.engine.transact(lambda transaction: relay.add_target(transaction.repo, name, transaction.now))
    return position(harness, name)


def position(harness: EngineHarness, name: str = "broker") -> int:
    with harness.store.read() as repo:
        return next(one.position for one in repo.targets.all() if one.name == name)


def advance(harness: EngineHarness, to: int, name: str = "broker") -> None:
    harness.engine.transact(lambda transaction: transaction.repo.targets.advance(name, to, transaction.now))


def run(harness: EngineHarness) -> Labels:
    made = harness.submit(graph(a=noop()))
    harness.settle()
    return made


def backlog(harness: EngineHarness, name: str = "broker") -> list[tuple[int, int, int]]:
    """The events that a target has not got: the number in the stream, the graph and the number there."""
    harness.engine.relay.run_once()
    with harness.store.read() as repo:
        events, _ = repo.stream.page(position(harness, name), 1_000)
    return [(number, one.graph, one.number) for number, one in events]


def last_number(harness: EngineHarness, labels: Labels) -> int:
    return harness.graph(labels.graph).events


def test_a_target_gets_what_happens_after_it_was_added_however_long_nobody_asks(harness: EngineHarness) -> None:
    run(harness)
    harness.clock.advance(relay.MARGIN_MS + 1)
    first = add_target(harness)
    harness.clock.advance(10 * relay.WANTED_MS)
    made = run(harness)
    found = backlog(harness)
    assert [(number - first, id) for number, id, _ in found] == [
        (count, made.graph) for count in range(1, last_number(harness, made) + 1)
    ]
    advance(harness, found[-1][0])
    assert backlog(harness) == []


def test_a_target_that_is_added_again_and_a_follower_leave_the_others_where_they_are(harness: EngineHarness) -> None:
    first = add_target(harness)
    run(harness)
    before = backlog(harness)
    harness.clock.advance(10 * relay.WANTED_MS)
    assert add_target(harness) == first
    add_target(harness, "another")
    harness.engine.relay.want()
    assert backlog(harness) == before
    assert backlog(harness, "another") == []


def test_the_stream_is_trimmed_only_up_to_the_lowest_position(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "KEPT_MAX", 2)
    add_target(harness)
    add_target(harness, "behind")
    run(harness)
    found = backlog(harness, "behind")
    advance(harness, found[-1][0])
    run(harness)
    assert backlog(harness, "behind")[: len(found)] == found
    advance(harness, found[-1][0], "behind")
    run(harness)
    harness.engine.relay.run_once()
    with harness.store.read() as repo:
        assert repo.stream.page(0, 1)[0][0][0] == found[-1][0] + 1


def test_without_targets_and_followers_nothing_is_numbered(harness: EngineHarness) -> None:
    add_target(harness)
    harness.engine.transact(lambda transaction: transaction.repo.targets.remove("broker"), Boundary.RELAY)
    before = harness.engine.relay.run_once()
    run(harness)
    assert not before
    assert not harness.engine.relay.run_once()
    with harness.store.read() as repo:
        assert repo.stream.page(0, 9)[0] == []


def test_a_graph_whose_events_a_target_has_not_got_is_kept(harness: EngineHarness) -> None:
    keep(harness, 1, Kept.GRAPHS)
    first = add_target(harness)
    made = run(harness)
    harness.clock.advance(2 * DAY_MS)
    harness.engine.retention.run_once()  # not numbered yet
    assert not deleted(harness, made)
    found = backlog(harness)
    harness.engine.retention.run_once()  # numbered
    assert not deleted(harness, made)
    assert found[0][0] == first + 1
    advance(harness, found[-1][0])
    harness.engine.retention.run_once()
    assert deleted(harness, made)
