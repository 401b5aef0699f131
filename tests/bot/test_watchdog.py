"""The watchdog enforces the deadlines of a frozen runner, and of no other."""

import os
import signal
import time
from collections.abc import Iterator
from math import inf
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from taskyard.bot import watchdog
from taskyard.bot.ipc import KillWorker, RunEnded, SetExpiry, StartWorker, StopRun, WatchdogDied
from taskyard.bot.watchdog import (
    LATE_SECONDS,
    LOOK_SECONDS,
    NAME,
    Deadlines,
    TooManyProcesses,
    owner_name,
    owner_number,
)
from taskyard.core.fleet import GUARD_MS
from tests.bot.runner_process import (
    DAEMON,
    DEADLINE_S,
    FAR,
    RunnerUnderTest,
    lives,
    python,
    sleep_until,
    wait_for_end,
    wait_until_stopped,
)

ON = "print('on', flush=True); time.sleep(1000)"
POLITE = "trap 'echo asked; exit 7' TERM; echo on; while :; do sleep 0.1; done"
STUBBORN = "trap '' TERM; echo on; while :; do sleep 0.1; done"
#: How long a start may take on a slow machine; and how much is left of a lease after it.
SOON_SECONDS = 10.0
LEFT_SECONDS = 1.0


@pytest.fixture
def runner() -> Iterator[RunnerUnderTest]:
    with RunnerUnderTest() as made:
        yield made


def freeze(runner: RunnerUnderTest) -> None:
    os.kill(runner.process.pid, signal.SIGSTOP)
    wait_until_stopped(runner.process.pid)


def freeze_before_the_end_of(runner: RunnerUnderTest, run: int) -> None:
    """Shorten a lease, and freeze the runner once it knows that."""
    runner.send(SetExpiry(runs={run: time.monotonic() + LEFT_SECONDS}))
    runner.start(99, "/bin/true")
    runner.ended(99)
    freeze(runner)


def thaw(runner: RunnerUnderTest) -> None:
    os.kill(runner.process.pid, signal.SIGCONT)


def watchdog_of(runner: RunnerUnderTest, but: int = 0) -> int:
    """Wait for a watchdog that is not `but`; return its pid."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        children = psutil.Process(runner.process.pid).children()
        found = [one.pid for one in children if one.pid != but and one.name().startswith(NAME)]
        if found:
            return int(found[0])
        os.sched_yield()
    raise AssertionError("the runner has no watchdog")


def how(runner: RunnerUnderTest, run: int) -> tuple[int | None, str | None]:
    ended = runner.ended(run)
    return ended.exit_code, ended.reason


def test_the_watchdog_kills_an_attempt_of_a_frozen_runner_after_its_lease_with_all_it_left(
    runner: RunnerUnderTest,
) -> None:
    runner.start(1, *python(DAEMON + ON))
    daemon, pid = int(runner.wait_for_output(1, b"on").split()[0]), runner.started(1)
    freeze_before_the_end_of(runner, 1)
    for one in (pid, daemon):
        wait_for_end(one)
    thaw(runner)
    assert how(runner, 1) == (-signal.SIGKILL, "lease_over")


def test_the_watchdog_kills_the_daemon_of_an_ended_run_of_a_frozen_runner(runner: RunnerUnderTest) -> None:
    runner.start(1, *python(DAEMON), until=time.monotonic() + SOON_SECONDS)
    pid = runner.started(1)
    freeze(runner)
    wait_for_end(pid)
    thaw(runner)
    assert how(runner, 1) == (0, None)
    assert not lives(int(runner.printed(1)))


def test_the_watchdog_enforces_time_outs_and_deadlines_with_their_grace(runner: RunnerUnderTest) -> None:
    runner.start(1, "/bin/sh", "-c", POLITE, timeout_s=SOON_SECONDS, grace_s=FAR)
    runner.start(2, "/bin/sh", "-c", STUBBORN, timeout_s=SOON_SECONDS, grace_s=1.0)
    runner.start(3, "/bin/sh", "-c", STUBBORN, timeout_s=SOON_SECONDS)
    runner.start(4, "/bin/sh", "-c", STUBBORN, timeout_s=FAR)
    runner.start(5, "/bin/sh", "-c", STUBBORN, timeout_s=FAR, deadline=time.monotonic() + SOON_SECONDS)
    for run in (1, 2, 3, 4, 5):
        runner.wait_for_output(run, b"on")
    freeze(runner)
    for run in (1, 2, 3, 5):
        wait_for_end(runner.started(run))
    assert lives(runner.started(4)), "its time has not come"
    thaw(runner)
    assert [how(runner, run) for run in (1, 2, 3, 5)] == [
        (7, "timed_out"),
        (-signal.SIGKILL, "timed_out"),
        (-signal.SIGKILL, "timed_out"),
        (-signal.SIGKILL, "deadline"),
    ]
    assert b"asked" in runner.printed(1)


def test_the_watchdog_kills_a_stopped_run_after_its_grace(runner: RunnerUnderTest) -> None:
    runner.start(1, "/bin/sh", "-c", "trap 'echo asked' TERM; echo on; while :; do sleep 0.1; done", grace_s=2.0)
    runner.wait_for_output(1, b"on")
    runner.send(StopRun(1))
    runner.wait_for_output(1, b"asked")
    freeze(runner)
    wait_for_end(runner.started(1))
    thaw(runner)
    assert how(runner, 1) == (-signal.SIGKILL, "stopped")


def test_the_watchdog_kills_a_worker_after_the_lease_of_its_call(runner: RunnerUnderTest) -> None:
    runner.send(StartWorker(1), StartWorker(2))
    first, second = runner.worker_started(1)[0], runner.worker_started(2)[0]
    runner.send(SetExpiry(workers={1: time.monotonic() + SOON_SECONDS}))
    runner.start(1, "/bin/true")
    runner.ended(1)  # it has read the new lease
    freeze(runner)
    wait_for_end(first)
    assert lives(second), "it has nothing in hand"
    thaw(runner)
    assert runner.worker_ended(1).reason == "lease_over"
    runner.send(KillWorker(2))


def test_a_watchdog_that_dies_is_replaced_by_one_that_enforces_all_deadlines(runner: RunnerUnderTest) -> None:
    runner.start(1, *python(DAEMON + ON))
    daemon, pid = int(runner.wait_for_output(1, b"on").split()[0]), runner.started(1)
    killed: list[int] = []
    for _ in range(2):
        killed.append(watchdog_of(runner, but=killed[-1] if killed else 0))
        os.kill(killed[-1], signal.SIGKILL)
        runner.read_until(lambda: WatchdogDied(killed[-1]) in runner.frames)
    watchdog_of(runner, but=killed[-1])
    freeze_before_the_end_of(runner, 1)
    for one in (pid, daemon):
        wait_for_end(one)
    thaw(runner)
    assert how(runner, 1) == (-signal.SIGKILL, "lease_over")


def test_a_watchdog_that_replaced_another_kills_everything_after_the_runner(runner: RunnerUnderTest) -> None:
    runner.start(1, "/bin/sleep", "1000")
    pid, first = runner.started(1), watchdog_of(runner)
    os.kill(first, signal.SIGKILL)
    second = watchdog_of(runner, but=first)
    os.kill(runner.process.pid, signal.SIGKILL)
    for one in (pid, second):
        wait_for_end(one)
    assert runner.end.recv(65_536) or not runner.end.recv(1), "the agent sees the end of its runner"


def test_the_watchdog_ends_what_is_silent_for_too_long(runner: RunnerUnderTest, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    for run, script in enumerate(
        (
            "echo on; exec sleep 1000",
            POLITE,
            "while :; do echo on; sleep 0.1; done",
            f"echo on; until [ -e {gate} ]; do sleep 0.1; done; echo once; exec sleep 1000",
        ),
        start=1,
    ):
        runner.start(run, "/bin/sh", "-c", script, silence_s=5.0, grace_s=0.0 if run != 2 else FAR)
        runner.wait_for_output(run, b"on")
    freeze(runner)
    gate.touch()
    for run in (1, 2, 4):
        wait_for_end(runner.started(run))
    assert lives(runner.started(3)), "it prints"
    thaw(runner)
    assert [how(runner, run) for run in (1, 2, 4)] == [
        (-signal.SIGKILL, "silent"),
        (7, "silent"),
        (-signal.SIGKILL, "silent"),
    ]
    runner.start(99, "/bin/true")
    runner.ended(99)
    assert not [one for one in runner.frames if isinstance(one, RunEnded) and one.run == 3]
    assert b"once" in runner.printed(4)


def test_the_watchdog_leaves_a_run_alone_that_may_outlive_its_lease(runner: RunnerUnderTest) -> None:
    runner.start(1, "/bin/sleep", "1000", survives_disconnect=True)
    runner.start(2, "/bin/sleep", "1000")
    freeze_before_the_end_of(runner, 2)
    wait_for_end(runner.started(2))
    assert lives(runner.started(1))
    thaw(runner)
    runner.send(StopRun(1))


def test_the_watchdog_uses_the_latest_expiry(runner: RunnerUnderTest) -> None:
    until = time.monotonic() + SOON_SECONDS
    runner.start(1, "/bin/sleep", "1000", until=until)
    runner.start(2, "/bin/sleep", "1000", until=until)
    runner.send(SetExpiry(runs={1: time.monotonic() + FAR}))
    runner.start(3, "/bin/true")
    runner.ended(3)
    freeze(runner)
    wait_for_end(runner.started(2))
    sleep_until(until + LATE_SECONDS + 3 * LOOK_SECONDS)
    assert lives(runner.started(1))


def test_an_overdue_attempt_is_seen_within_half_of_the_servers_guard() -> None:
    deadlines = Deadlines()
    place = deadlines.add(owner_number(1, is_worker=False), 0.0)
    deadlines.set_times(place, 100.0, inf, inf)
    assert deadlines.overdue(100.0 + LATE_SECONDS - 0.001) == set()
    assert len(deadlines.overdue(100.0 + LATE_SECONDS)) == 1
    # The watchdog acts when it has seen it twice; half of the guard time is left for the rest.
    assert LATE_SECONDS + 2 * LOOK_SECONDS < GUARD_MS / 1000 / 2


def test_records_are_reused_and_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "PROCESSES_MAX", 2)
    deadlines = Deadlines()
    first, second = deadlines.add(1, 0.0), deadlines.add(2, 0.0)
    with pytest.raises(TooManyProcesses):
        deadlines.add(3, 0.0)
    deadlines.set_times(first, 1.0, inf, inf)
    deadlines.set_times(second, 1.0, inf, inf)
    deadlines.remove(first)
    assert [owner for _, owner in deadlines.overdue(FAR)] == [2]
    assert deadlines.add(3, 0.0) == first
    assert [owner for _, owner in deadlines.overdue(FAR)] == [2], "a new one has no deadline yet"


def test_owner_names_match_the_marks() -> None:
    assert [owner_name(owner_number(number, is_worker=kind)) for number in (0, 7) for kind in (False, True)] == [
        "0",
        "worker-0",
        "7",
        "worker-7",
    ]
