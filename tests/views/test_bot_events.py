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
from tests.lifecycle.grounds import Grounds, graph, node


@pytest.fixture
def yard(database_url: str) -> Iterator[Grounds]:
    yard = Grounds(database_url)
    yield yard
    yard.close()


def told(yard: Grounds, bot: str, page: int = 100) -> list[BotEventView]:
    """Read all of it, page by page."""
    found: list[BotEventView] = []
    after: tuple[int, str] | None = NEWEST
    with yard.store.read() as repo:
        while after is not None:
            items, after = events(repo, bot, after, page)
            found += items
    return found


def life(yard: Grounds) -> dict[str, str]:
    """Let a bot run something, ail and come again; name its tasks."""
    labels = yard.submit(graph(a=node(), b=node()))
    yard.hello("rack1")
    yard.hello("rack2")
    (lease,) = yard.claim("rack1")
    yard.later(10)
    yard.end("rack1", lease, Signal.FAIL, 3)
    yard.later(10)
    yard.do(lambda transaction: record_error(transaction, "rack1", "s1", "its disk is full", (labels["a"], 1)))
    yard.later(10)
    yard.claim("rack1")
    return {label: text_of(Key(id)) for label, id in labels.items()}


def test_attempts_are_sorted_between_the_stored_events_of_a_bot(yard: Grounds) -> None:
    names = life(yard)
    assert [(one.kind, one.task, one.attempt, one.note) for one in told(yard, "rack1")] == [
        ("task_started", names["b"], 1, ""),
        ("error", names["a"], 1, "its disk is full"),
        ("task_ended", names["a"], 1, "fail: exit_code"),
        ("task_started", names["a"], 1, ""),
        ("connected", None, None, ""),
    ]
    assert [one.kind for one in told(yard, "rack2")] == ["connected"]


@pytest.mark.parametrize("page", [1, 2, 4])
def test_pages_have_each_event_once(yard: Grounds, page: int) -> None:
    life(yard)
    assert told(yard, "rack1", page) == told(yard, "rack1")


def test_a_running_attempt_is_shown_however_old_its_task_is(yard: Grounds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bots, "EVENTS_LOOKED_MAX", 0)
    life(yard)
    assert [one.kind for one in told(yard, "rack1")] == ["task_started", "error", "connected"]


def test_an_ended_session_records_no_complaints(yard: Grounds) -> None:
    life(yard)
    yard.hello("rack1", session="s2")
    refused = [yard.do(partial(record_error, bot=id, session="s1", text="late")) for id in ("rack1", "nobody")]
    assert [one and str(one.code) for one in refused] == ["session_replaced"] * 2
