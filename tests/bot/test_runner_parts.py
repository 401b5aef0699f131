"""The parts of the runner that need no process: timers, frames and the outbox."""

import signal
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskyard.bot.ipc import FRAME_MAX, LENGTH, FrameBuffer
from taskyard.bot.pyworker.protocol import NO_CALL, Outbox
from taskyard.bot.runner import EndTimer
from tests.each_row import each_row

KILL, TERM = signal.SIGKILL, signal.SIGTERM


def checked(timer: EndTimer, *moments: float) -> list[tuple[float, signal.Signals]]:
    return [(moment, by) for moment in moments if (by := timer.check(moment)) is not None]


def test_the_end_of_a_lease_allows_no_grace() -> None:
    timer = EndTimer(0.0, until=5.0, timeout_s=4.0, grace_s=10.0)
    assert checked(timer, 3.9, 4.0, 4.9, 5.0, 6.0) == [(4.0, TERM), (5.0, KILL)]
    assert timer.reason == "timed_out"
    assert timer.due() == inf


@each_row(
    ("timer", "signals", "why"),
    [
        (EndTimer(0.0, until=2.0), [(2.0, KILL)], "lease_over"),
        (EndTimer(0.0, timeout_s=2.0), [(2.0, KILL)], "timed_out"),
        (EndTimer(0.0, timeout_s=2.0, grace_s=1.0), [(2.0, TERM), (3.0, KILL)], "timed_out"),
        (EndTimer(0.0, silence_s=2.0, grace_s=1.0), [(2.0, TERM), (3.0, KILL)], "silent"),
        (EndTimer(0.0, timeout_s=2.0, silence_s=2.0), [(2.0, KILL)], "timed_out"),
        (EndTimer(0.0, deadline=2.0, grace_s=1.0), [(2.0, TERM), (3.0, KILL)], "deadline"),
        (EndTimer(0.0, deadline=2.0, timeout_s=2.5), [(2.0, KILL)], "deadline"),
        (EndTimer(0.0, deadline=1.8, timeout_s=1.9), [(2.0, KILL)], "deadline"),
        (EndTimer(0.0, deadline=1.9, timeout_s=1.8), [(2.0, KILL)], "timed_out"),
        (EndTimer(0.0, deadline=1.9, silence_s=1.8), [(2.0, KILL)], "deadline"),
        (EndTimer(0.0, until=2.5, deadline=2.0, grace_s=1.0), [(2.0, TERM), (2.5, KILL)], "deadline"),
        (EndTimer(0.0, until=2.0, deadline=2.0), [(2.0, KILL)], "lease_over"),
        (EndTimer(0.0), [], None),
    ],
)
def test_each_timer_has_its_signal(
    timer: EndTimer, signals: list[tuple[float, signal.Signals]], why: str | None
) -> None:
    assert checked(timer, 1.0, 2.0, 2.5, 3.0, 4.0) == signals
    assert timer.reason == why


def test_silence_counts_from_the_last_output_and_only_while_output_is_read() -> None:
    timer = EndTimer(0.0, silence_s=2.0)
    timer.saw_output(3.0)
    assert timer.due() == 5.0
    timer.pause_silence()
    assert checked(timer, 100.0) == []
    timer.saw_output(100.0)
    assert checked(timer, 101.0, 102.0) == [(102.0, KILL)]


def test_a_second_stop_changes_nothing() -> None:
    timer = EndTimer(0.0, grace_s=3.0)
    assert [timer.request_stop("stopped", 1.0), timer.request_stop("stopped", 2.0)] == [TERM, None]
    assert timer.due() == 4.0


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(1, 30), min_size=1))
def test_frames_are_complete_however_the_stream_is_cut(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(LENGTH.pack(len(body)) + body for body in bodies)
    intake, found, start, turn = FrameBuffer(), [], 0, 0
    while start < len(stream):
        end = start + cuts[turn % len(cuts)]
        found += intake.feed(stream[start:end])
        start, turn = end, turn + 1
    assert found == bodies


def test_a_frame_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="larger than any frame"):
        FrameBuffer().feed(LENGTH.pack(FRAME_MAX + 1))


def test_an_outbox_keeps_what_was_not_sent() -> None:
    outbox = Outbox(None)
    outbox.set_current(NO_CALL)
    assert [outbox.add(b"one"), outbox.add(b"two"), outbox.add(b"x" * Outbox.size())] == [True, True, False]
    assert bytes(outbox.unsent()) == b"onetwo"
    outbox.clear()
    assert bytes(outbox.unsent()) == b""
    outbox.set_current(7, 30)
    assert outbox.current() == (7, 30)
