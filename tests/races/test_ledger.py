"""The checker finds what it is there to find: every history that was doctored is refused."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from taskyard.core.states import Signal
from tests.lifecycle.yard import Yard, chain
from tests.races import ledger

#: One change to a sound history, and a part of what the checker says about it.
DOCTORED = {
    "an attempt that never was": ("DELETE FROM attempt WHERE number = 1", "has the attempts"),
    "attempts that overlap": ("UPDATE attempt SET ended_ms = ended_ms + 9 WHERE number = 1", "overlap"),
    "a fence that falls": ("UPDATE attempt SET fence = 1 WHERE number = 2", "does not rise"),
    "an attempt without an end": ("UPDATE attempt SET ended_ms = NULL WHERE number = 2", "open attempts"),
    "a round that ended well twice": ("UPDATE attempt SET signal = 'succeed'", "ended with succeed"),
    "an event that is missing": (
        "DELETE FROM event WHERE number = (SELECT min(number) FROM event WHERE number > 1)",
        "the events of graph",
    ),
    "a task that jumped": (
        "UPDATE task SET previous_state = state, state = 'canceled' WHERE state = 'waiting'",
        "its events end at",
    ),
    "a verdict of nobody": ("UPDATE graph SET state = 'finished'", "its events say"),
    "an end too early": ("UPDATE graph SET state = 'finished'", "is finished with"),
    "an event that nobody is told": ("UPDATE graph SET events_published = 1", "is told"),
    "a child that came first": (
        "UPDATE edge SET on_end = 'failure' WHERE dependent_id IN (SELECT id FROM task WHERE state = 'waiting')",
        "was released while",
    ),
    "two who exclude each other": (
        "INSERT INTO task_mutex (task_id, key, party) SELECT id, 'k', NULL FROM task",
        "is held by",
    ),
    "a pool that carries too much": (
        "INSERT INTO pool (name, capacity, from_bots) SELECT DISTINCT pool, 1, 0 FROM queue WHERE pool <> ''",
        "carries 2 of 1",
    ),
}


@pytest.fixture
def url(sqlite_url: str) -> str:
    """A chain whose first task failed once and then ended well, its second waiting; and another that waits."""
    yard = Yard(sqlite_url)
    document = chain("a", "b", dimensions={"pool": "default"})
    document["tasks"]["a"]["reruns"] = 1  # type: ignore[index]
    yard.hello("b1")
    yard.submit(document)
    for signal in (Signal.FAIL, Signal.SUCCEED):
        yard.later(1)
        (lease,) = yard.claim("b1")
        yard.later(1)
        yard.end("b1", lease, signal)
        yard.later(1)
    yard.submit(chain("c", dimensions={"pool": "default"}))
    yard.close()
    return sqlite_url


def test_a_sound_history_is_not_complained_about(url: str) -> None:
    assert ledger.faults(ledger.read(url)) == []


@pytest.mark.parametrize("name", DOCTORED)
def test_a_doctored_history_is_refused(url: str, name: str) -> None:
    text, complaint = DOCTORED[name]
    with closing(sqlite3.connect(Path(url.removeprefix("sqlite:///")))) as connection:
        assert connection.execute(text).rowcount > 0
        connection.commit()
    assert any(complaint in fault for fault in ledger.faults(ledger.read(url)))
