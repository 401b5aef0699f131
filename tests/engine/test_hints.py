"""Hints between servers: what one commits is noticed at once by what waits at another; lost hints only cost time."""

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from itertools import count
from threading import Event
from typing import Any

import psycopg
import pytest

from taskyard.core.matching import canonical
from taskyard.core.states import Signal
from taskyard.engine import background
from taskyard.engine.engine import Engine
from taskyard.engine.hints import HintThread
from taskyard.lifecycle.commands import Cancel, Hello, Output, Poll, Renewed
from taskyard.lifecycle.poll import EMPTY, PollOutcome
from taskyard.lifecycle.submit import Submitted
from tests.engine.harness import WAIT_S, graph, report, task, wait_until

_POLLS = count(1)
CUT_HINTS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ~ '^(SELECT pg_notify|LISTEN)'
"""


def hints_of(engine: Engine) -> HintThread:
    assert engine.hints is not None
    return engine.hints


@contextmanager
def engines(url: str, number: int = 2, **options: Any) -> Iterator[list[Engine]]:
    """Servers on one database that know of each other."""
    with ExitStack() as stack:
        found = [stack.enter_context(Engine.open(url, name=f"s{one}", **options)) for one in range(number)]
        if options.get("events", True):
            wait_until(lambda: all(hints_of(one).others == number - 1 for one in found))
        yield found


@pytest.fixture
def two(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Engine]]:
    """Two servers that sweep once, at their start: what is noticed later is noticed by hints."""
    monkeypatch.setattr(background, "SWEEP_MS", 3_600_000)
    with engines(postgres_url) as found:
        yield found


def hello(engine: Engine, bot: str = "b1") -> None:
    engine.hello(Hello(bot, "s1", canonical({"id": bot, "pool": "default"}), 8))


def parked(engine: Engine, bot: str = "b1", want: int = 1) -> Future[Any]:
    """Park a poll."""
    poll = Poll(bot, "s1", f"w{next(_POLLS)}" if want else "", want=want, wait_ms=600_000)
    asked = engine.ask(Poll, poll)
    wait_until(lambda: asked.done() or engine._writer.parked_polls.holds(poll))
    return asked


def leases(asked: Future[Any]) -> tuple[Any, ...]:
    answer = asked.result(WAIT_S)
    assert isinstance(answer, PollOutcome), answer
    return answer.leases


def submitted(engine: Engine, *labels: str) -> int:
    answer = engine.submit(graph(**{label: task() for label in labels or ("a",)}))
    assert isinstance(answer, Submitted), answer
    return answer.graph


def test_a_task_submitted_at_one_server_is_leased_to_a_poll_that_is_parked_at_another(two: list[Engine]) -> None:
    one, other = two
    hello(one)
    for _ in range(5):
        asked = parked(one)
        submitted(other)
        (lease,) = leases(asked)
        assert one.poll(Poll("b1", "s1", f"r{next(_POLLS)}", (report(lease),))) is not None


def test_the_tasks_of_one_server_are_shared_among_the_polls_of_another(two: list[Engine]) -> None:
    one, other = two
    for bot in ("b1", "b2", "b3"):
        hello(one, bot)
    asked = [parked(one, bot, want=64) for bot in ("b1", "b2", "b3")]
    submitted(other, *"abcdef")
    assert sorted(len(leases(each)) for each in asked) == [2, 2, 2]


def test_a_task_that_a_report_at_another_server_releases_is_leased_at_once(two: list[Engine]) -> None:
    one, other = two
    hello(one)
    hello(other, "b2")
    answer = other.submit(graph(a=task(), b=task("a")))
    assert isinstance(answer, Submitted)
    (first,) = leases(other.ask(Poll, Poll("b2", "s1", "p1", want=1)))
    asked = parked(one)
    other.poll(Poll("b2", "s1", "p2", (report(first, Signal.SUCCEED),)))
    assert len(leases(asked)) == 1


def test_a_bot_that_listens_at_one_server_learns_of_a_cancel_at_another(two: list[Engine]) -> None:
    one, other = two
    hello(one)
    submitted(other)
    (lease,) = leases(one.ask(Poll, Poll("b1", "s1", "p1", want=1)))
    asked = parked(one, want=0)
    other.cancel(Cancel(lease.task))
    answer = asked.result(WAIT_S)
    assert answer.stops == (Renewed(lease.task, 1, None, stop=True),)


def test_a_parked_poll_of_a_bot_that_changed_at_another_server_is_answered(two: list[Engine]) -> None:
    one, other = two
    hello(one)
    asked = parked(one)
    other.hello(Hello("b1", "s1", canonical({"id": "b1", "pool": "default", "gpu": "one"}), 8))
    assert asked.result(WAIT_S) == EMPTY


def test_a_bot_that_repeats_its_poll_at_another_server_gets_no_lease_where_it_does_not_wait_any_more(
    two: list[Engine],
) -> None:
    """A connection that was lost without a word: the first server does not know that the bot has gone."""
    one, other = two
    hello(one)
    asked = one.ask(Poll, poll := Poll("b1", "s1", "lost", want=1, wait_ms=600_000))
    wait_until(lambda: one._writer.parked_polls.holds(poll))
    assert leases(other.ask(Poll, poll)) == ()
    assert asked.result(WAIT_S) == EMPTY
    again = parked(other)
    submitted(one)
    assert len(leases(again)) == 1


def test_waiting_requests_are_woken_by_changes_at_another_server(two: list[Engine]) -> None:
    one, other = two
    graphs, outputs = Event(), Event()
    one.listeners.graphs.append(lambda _: graphs.set())
    one.listeners.outputs.append(lambda _: outputs.set())
    hello(other)
    submitted(other)
    (lease,) = leases(other.ask(Poll, Poll("b1", "s1", "p1", want=1)))
    one.followed.follow(lease.task)
    wait_until(lambda: lease.task in other.followed._elsewhere)
    other.poll(Poll("b1", "s1", "", outputs=(Output(lease.task, 1, lease.fence, 0, b"x"),)))
    assert outputs.wait(WAIT_S)
    outputs.clear()
    other.poll(Poll("b1", "s1", "", (report(lease),)))
    assert graphs.wait(WAIT_S)
    assert outputs.wait(WAIT_S), "a follower learns of the end, too"


def test_followers_of_events_are_woken_by_commits_at_another_server(two: list[Engine]) -> None:
    one, other = two
    woken = Event()
    one.listeners.events.append(woken.set)
    one.relay.want()
    wait_until(other.relay.run_once)
    woken.clear()
    submitted(other)
    assert woken.wait(WAIT_S)


def epoch(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        ((found,),) = connection.execute("SELECT epoch FROM admission_lock").fetchall()
    return int(found)


def test_one_server_keeps_the_lock_of_passes_and_admits_what_others_submit(
    two: list[Engine], postgres_url: str
) -> None:
    one, other = two
    one.set_pool("default", 8)
    hello(one)
    assert one.schedule().ran
    wait_until(lambda: not other.schedule().ran)
    for _ in range(3):
        asked = parked(one)
        submitted(other)
        (lease,) = leases(asked)
        one.poll(Poll("b1", "s1", f"r{next(_POLLS)}", (report(lease),)))
        assert not other.schedule().ran, "the other one has the lock"
    one.stop()
    wait_until(lambda: other.schedule().ran)
    assert epoch(postgres_url) > 3


def test_everything_goes_on_without_any_hint(postgres_url: str) -> None:
    with engines(postgres_url, events=False) as (one, other):
        hello(one)
        asked = parked(one)
        submitted(other)
        assert len(leases(asked)) == 1, "a sweep finds it"


def test_hints_that_are_lost_with_their_connection_are_made_up_for(two: list[Engine], postgres_url: str) -> None:
    one, other = two
    hello(one)
    for _ in range(3):
        asked = parked(one)
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(CUT_HINTS)
        submitted(other)
        (lease,) = leases(asked)
        one.poll(Poll("b1", "s1", f"r{next(_POLLS)}", (report(lease),)))
    wait_until(lambda: hints_of(one).connected and hints_of(other).connected)
    asked = parked(one)
    submitted(other)
    assert len(leases(asked)) == 1


def test_a_server_without_others_sends_nothing_but_its_presence(postgres_url: str) -> None:
    with engines(postgres_url, 1) as (one,):
        thread = hints_of(one)
        wait_until(lambda: thread.sent > 0)
        hello(one)
        for _ in range(20):
            submitted(one)
        assert not thread._pending
    with engines(postgres_url) as (one, other):
        other.hints.stop()  # type: ignore[union-attr]
        wait_until(lambda: hints_of(one).others == 0)


def test_a_hint_that_would_be_too_long_says_that_everything_may_have_changed(two: list[Engine]) -> None:
    one, other = two
    looked = Event()
    one.listeners.everything.append(looked.set)
    thread = hints_of(other)
    with thread._lock:
        thread._pending.graphs.update(range(10**15, 10**15 + 900))
    thread._channel.wake()
    assert looked.wait(WAIT_S)


def test_what_other_programs_say_on_the_channel_is_passed_over(two: list[Engine], postgres_url: str) -> None:
    one, other = two
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for text in ("", "{}", "[1]", '{"server": 3}', '{"server": "x", "queues": {"1": "y"}}', "\u2603" * 100):
            connection.execute("SELECT pg_notify('taskyard_hints', %s)", [text])
    hello(one)
    asked = parked(one)
    submitted(other)
    assert len(leases(asked)) == 1
    assert hints_of(one).connected
