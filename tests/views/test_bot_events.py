"""The events of a bot: stored events and attempts in one list by time."""

from collections.abc import Iterator
from functools import partial

import pytest

from taskyard.core.ids import Key, text_of
from taskyard.core.states import Signal
from taskyard.lifecycle.bot_sessions import record_error
from taskyard.views import bots
from taskyard.views.bots import NEWEST, events
from taskyard.wire.api import BotEventView
from tests.lifecycle.graphs import graph, node
from tests.lifecycle.harness import LifecycleHarness


@pytest.fixture
def harness(database_url: str) -> Iterator[LifecycleHarness]:
    harness = LifecycleHarness(database_url)
    yield harness
    harness.close()


def shown(harness: LifecycleHarness, bot: str, page: int = 100) -> list[BotEventView]:
    """Read all of it, page by page."""
    found: list[BotEventView] = []
    after: tuple[int, str] | None = NEWEST
    with harness.store.read() as repo:
        while after is not None:
            items, after = events(repo, bot, after, page)
            found += items
    return found


def life(harness: LifecycleHarness) -> dict[str, str]:
    """Let a bot run tasks, report an error and restart; return its tasks."""
    labels = harness.submit(graph(a=node(), b=node()))
    harness.hello("rack1")
    harness.hello("rack2")
    (lease,) = harness.claim("rack1")
    harness.advance(10)
    harness.end("rack1", lease, Signal.FAIL, 3)
    harness.advance(10)
    harness.do(lambda transaction: record_error(transaction, "rack1", "s1", "its disk is full", (labels["a"], 1)))
    harness.advance(10)
    harness.claim("rack1")
    return {label: text_of(Key(id)) for label, id in labels.items()}


def test_attempts_are_sorted_between_the_stored_events_of_a_bot(harness: LifecycleHarness) -> None:
    names = life(harness)
    assert [(one.kind, one.task, one.attempt, one.note) for one in shown(harness, "rack1")] == [
        ("task_started", names["b"], 1, ""),
        ("error", names["a"], 1, "its disk is full"),
        ("task_ended", names["a"], 1, "fail: exit_code"),
        ("task_started", names["a"], 1, ""),
        ("connected", None, None, ""),
    ]
    assert [one.kind for one in shown(harness, "rack2")] == ["connected"]


@pytest.mark.parametrize("page", [1, 2, 4])
def test_pages_have_each_event_once(harness: LifecycleHarness, page: int) -> None:
    life(harness)
    assert shown(harness, "rack1", page) == shown(harness, "rack1")


def test_a_running_attempt_is_shown_however_old_its_task_is(
    harness: LifecycleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bots, "EVENTS_LOOKED_MAX", 0)
    life(harness)
    assert [one.kind for one in shown(harness, "rack1")] == ["task_started", "error", "connected"]


def test_an_ended_session_records_no_complaints(harness: LifecycleHarness) -> None:
    life(harness)
    harness.hello("rack1", session="s2")
    refused = [harness.do(partial(record_error, bot=id, session="s1", text="late")) for id in ("rack1", "nobody")]
    assert [one and str(one.code) for one in refused] == ["session_replaced"] * 2
