"""The checker of invariants finds every violation: each history that was tampered with is rejected."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from taskyard.core.states import Signal
from tests.lifecycle.graphs import chain
from tests.lifecycle.harness import BaseHarness
from tests.races import invariants

#: One change to a valid history, and a part of what the checker reports about it.
TAMPERED = {
    "a missing attempt": ("DELETE FROM attempt WHERE number = 1", "has the attempts"),
    "overlapping attempts": ("UPDATE attempt SET ended_ms = ended_ms + 9 WHERE number = 1", "overlap"),
    "a falling fence": ("UPDATE attempt SET fence = 1 WHERE number = 2", "does not rise"),
    "an attempt without an end": ("UPDATE attempt SET ended_ms = NULL WHERE number = 2", "open attempts"),
    "two successes in one round": ("UPDATE attempt SET signal = 'succeed'", "ended with succeed"),
    "a missing event": (
        "DELETE FROM event WHERE number = (SELECT min(number) FROM event WHERE number > 1)",
        "the events of graph",
    ),
    "a task in a state without an event": (
        "UPDATE task SET previous_state = state, state = 'canceled' WHERE state = 'waiting'",
        "its events end at",
    ),
    "a graph in a state without an event": ("UPDATE graph SET state = 'finished'", "its events say"),
    "a graph that is finished too early": ("UPDATE graph SET state = 'finished'", "is finished with"),
    "an event that is not published": ("UPDATE graph SET events_published = 1", "are published"),
    "a dependent that ran first": (
        "UPDATE edge SET on_end = 'failure' WHERE dependent_id IN (SELECT id FROM task WHERE state = 'waiting')",
        "was released while",
    ),
    "two holders of one mutex": (
        "INSERT INTO task_mutex (task_id, key, party) SELECT id, 'k', NULL FROM task",
        "is held by",
    ),
    "a pool over capacity": (
        "INSERT INTO pool (name, capacity, from_bots) SELECT DISTINCT pool, 1, 0 FROM queue WHERE pool <> ''",
        "carries 2 of 1",
    ),
}


@pytest.fixture
def url(sqlite_url: str) -> str:
    """A chain whose first task failed once and then succeeded, its second waiting; and another waiting task."""
    harness = BaseHarness(sqlite_url)
    document = chain("a", "b", dimensions={"pool": "default"})
    document["tasks"]["a"]["reruns"] = 1  # type: ignore[index]
    harness.hello("b1")
    harness.submit(document)
    for signal in (Signal.FAIL, Signal.SUCCEED):
        harness.advance(1)
        (lease,) = harness.claim("b1")
        harness.advance(1)
        harness.end("b1", lease, signal)
        harness.advance(1)
    harness.submit(chain("c", dimensions={"pool": "default"}))
    harness.close()
    return sqlite_url


def test_a_valid_history_has_no_violations(url: str) -> None:
    assert invariants.violations(invariants.read(url)) == []


@pytest.mark.parametrize("name", TAMPERED)
def test_a_history_that_was_tampered_with_has_a_violation(url: str, name: str) -> None:
    text, complaint = TAMPERED[name]
    with closing(sqlite3.connect(Path(url.removeprefix("sqlite:///")))) as connection:
        assert connection.execute(text).rowcount > 0
        connection.commit()
    assert any(complaint in violation for violation in invariants.violations(invariants.read(url)))
