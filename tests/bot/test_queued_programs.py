"""Programs that the runner has queued: those behind one that takes long have not begun, whatever happens."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskyard.bot.begun_attempts import read_earlier
from taskyard.wire.bot_protocol import Report
from tests.bot.fake_server import FakeServer, bot, serving
from tests.cli.waiting import until

#: Enough for the bot to learn that programs are short, and more than it queues for one slot.
SHORT, LONG = 300, 40


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving(FakeServer()) as one:
        yield one


def programs(server: FakeServer, script: str, count: int) -> list[str]:
    """Add programs that the bot cannot distinguish from the others made here."""
    return [server.add({"command": ["/bin/sh", "-c", script]}) for _ in range(count)]


def have_begun(state: Path, among: list[str]) -> set[str]:
    """Return what the next instance of the bot would report."""
    return {one.task for one in read_earlier(state / "begun") or ()} & set(among)


def summary(report: Report) -> tuple[str, str | None]:
    return report.signal, report.reason


def test_programs_queued_behind_a_long_one_have_not_begun(server: FakeServer, tmp_path: Path) -> None:
    state, gate = tmp_path / "state", tmp_path / "gate"
    short = programs(server, "true", SHORT)
    first, *behind = programs(server, f"until [ -e {gate} ]; do sleep 0.1; done", LONG)
    with bot(server, state, slots=1):
        until(lambda: all(one in server.reports for one in short), "the short ones have ended")
        until(lambda: have_begun(state, [first, *behind]) == {first}, "what waits is taken back")
        server.wait_until(
            lambda: any(one.task == first for poll in server.polls for one in poll.begun), "its begin is reported"
        )
        gate.touch()
        assert {summary(server.report(one)) for one in (first, *behind)} == {("succeed", None)}


def test_programs_queued_in_a_killed_runner_are_lost_before_they_began(server: FakeServer, tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    stop = f"echo $PPID > {stopped}.new; mv {stopped}.new {stopped}; kill -STOP $PPID; sleep 1000"
    once = f"[ -e {stopped} ] || {{ {stop}; }}"
    programs(server, "true", SHORT)
    tasks = programs(server, once, LONG)
    with bot(server, tmp_path / "state", slots=1):
        until(stopped.exists, "the runner is about to be stopped")
        os.kill(int(stopped.read_text()), signal.SIGKILL)
        found = [summary(server.report(one)) for one in tasks]
    assert found.count(("lose", None)) <= 1, "only the first has begun"
    assert set(found) <= {("lose", None), ("lose", "returned"), ("succeed", None)}
