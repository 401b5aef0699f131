"""A frozen runner: the agent notices, reports it, starts nothing, and goes on when the runner does."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from taskyard.bot.engines.local import RUNNER_FROZEN
from taskyard.bot.runner_client import FROZEN_SECONDS, PING_SECONDS, Heartbeat
from taskyard.bot.watchdog import NAME
from tests.bot.fake_server import FakeServer, bot, serving
from tests.bot.runner_process import wait_for_end, wait_until_stopped


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving(FakeServer()) as one:
        yield one


def number_in(server: FakeServer, task: str) -> int:
    """Wait for a task to print a number."""
    server.wait_until(lambda: server.printed.get(task, b"").endswith(b"\n"), "it prints")
    return int(server.printed[task])


def runner_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@contextmanager
def frozen(server: FakeServer, runner: int) -> Iterator[None]:
    """Freeze a runner, and wait until the bot has reported it."""
    os.kill(runner, signal.SIGSTOP)
    try:
        wait_until_stopped(runner)
        server.wait_until(lambda: server.hellos[-1].maintenance == RUNNER_FROZEN, "it says that its runner is frozen")
        yield
    finally:
        os.kill(runner, signal.SIGCONT)


def test_nothing_is_started_or_renewed_while_the_runner_is_frozen_and_all_goes_on_afterwards(
    server: FakeServer, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    task = server.add({"script": f"echo $$; until [ -e {gate} ]; do sleep 0.1; done"})
    with bot(server, tmp_path / "state", slots=2):
        runner = runner_of(number_in(server, task))
        with frozen(server, runner):
            server.wait_until(lambda: server.troubles, "the event of the bot")
            assert server.troubles[0].text.startswith(f"the runner, process {runner}, does not answer")
            polls = len(server.polls)
            after = server.add({"script": "true"})  # this server gives tasks even to a bot in maintenance
            server.wait_until(
                lambda: any(after in {one.task for one in leases} for leases in server.given.values()), "it is given"
            )
            assert not [one for poll in server.polls[polls:] for one in poll.renewals]
            assert after not in server.reports
        server.wait_until(lambda: server.hellos[-1].maintenance is None, "it says that all is well")
        gate.touch()
        assert {server.report(one).signal for one in (task, after)} == {"succeed"}


@pytest.mark.parametrize("kind", ["program", "call"])
def test_a_time_out_is_enforced_though_the_runner_is_frozen(server: FakeServer, tmp_path: Path, kind: str) -> None:
    program = {"script": "echo $$; sleep 1000", "timeout": "6s", "grace": "0s"}
    call = {"python": "tests.bot.agent_functions:say_pid_and_sleep", "timeout": "6s"}
    task = server.add(program if kind == "program" else call)
    with bot(server, tmp_path / "state"):
        pid = number_in(server, task)
        with frozen(server, runner_of(pid)):
            wait_for_end(pid)
        assert (server.report(task).signal, server.report(task).reason) == ("fail", "timed_out")


def test_a_watchdog_that_dies_is_an_event_of_the_bot_and_costs_no_attempt(server: FakeServer, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    task = server.add({"script": f"echo $$; until [ -e {gate} ]; do sleep 0.1; done"})
    with bot(server, tmp_path / "state"):
        runner = psutil.Process(runner_of(number_in(server, task)))
        (watchdog,) = (one.pid for one in runner.children() if one.name().startswith(NAME))
        os.kill(watchdog, signal.SIGKILL)
        server.wait_until(lambda: server.troubles, "the event of the bot")
        assert server.troubles[0].text == f"the watchdog, process {watchdog}, died; the runner starts another one"
        gate.touch()
        assert server.report(task).signal == "succeed"


def test_a_runner_that_does_not_answer_counts_as_frozen_within_seconds() -> None:
    heartbeat, now = Heartbeat(), 100.0
    assert heartbeat.tick(now)
    heartbeat.answered()
    asked_at = None
    for _ in range(1_000):
        now += 0.05
        if heartbeat.tick(now):
            asked_at = now
        if heartbeat.is_frozen:
            break
    assert asked_at is not None
    assert asked_at == pytest.approx(100.0 + PING_SECONDS, abs=0.1)
    assert now == pytest.approx(100.0 + PING_SECONDS + FROZEN_SECONDS, abs=0.2)
    heartbeat.answered()
    assert not heartbeat.is_frozen


def test_an_agent_that_was_frozen_itself_does_not_blame_the_runner() -> None:
    heartbeat = Heartbeat()
    assert heartbeat.tick(100.0)
    heartbeat.tick(100.0 + 3_600)
    assert not heartbeat.is_frozen
