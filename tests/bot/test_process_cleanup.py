"""No process of a run survives, whatever is killed and however it left its session; and no other is killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from taskyard.bot import process_cleanup
from taskyard.bot.ipc import StopRun
from taskyard.bot.watchdog import NAME
from tests.bot.runner_process import DAEMON, DEADLINE_S, FAR, RunnerUnderTest, lives, python, wait_for_end

#: An agent that starts a run with a daemon, a stubborn run and a worker, prints all pids, and is then killed.
AGENT = """
import sys, threading
from taskyard.bot.ipc import StartWorker
from tests.bot.runner_process import DAEMON, FAR, RunnerUnderTest, python
runner = RunnerUnderTest()
runner.start(1, *python(DAEMON + "print('on', flush=True); time.sleep(1000)"), grace_s=FAR)
runner.start(2, "/bin/sh", "-c", "trap '' TERM; echo here; sleep 1000; sleep 1000", grace_s=FAR)
runner.send(StartWorker(1))
daemon = int(runner.wait_for_output(1, b"on").split()[0])
runner.wait_for_output(2, b"here")
print(runner.process.pid, runner.started(1), daemon, runner.started(2), runner.worker_started(1)[0], flush=True)
threading.Event().wait()
"""


@pytest.fixture
def runner() -> Iterator[RunnerUnderTest]:
    with RunnerUnderTest() as made:
        yield made


def watchdogs(marker: str) -> list[int]:
    """Return the pids of a runner's watchdogs."""
    mark = f"TASKYARD_BOT={marker}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found += [int(entry.name)] if (entry / "comm").read_text() == f"{NAME}\n" else []
    return found


def outcome(runner: RunnerUnderTest, run: int) -> tuple[int | None, str | None]:
    ended = runner.ended(run)
    return ended.exit_code, ended.reason


def test_jobs_with_groups_of_their_own_end_with_their_run(runner: RunnerUnderTest) -> None:
    job = """
import os, sys, time
ready, writer = os.pipe()
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.close(writer)
    time.sleep(1000)
os.close(writer)
os.read(ready, 1)
print(job)
sys.exit(4)
"""
    runner.start(1, *python(job))
    assert outcome(runner, 1) == (4, None)
    assert not lives(int(runner.printed(1)))


@pytest.mark.parametrize("kind", ["plain", "quiet"])
def test_a_daemon_that_left_its_session_ends_with_its_run(runner: RunnerUnderTest, kind: str) -> None:
    runner.start(1, *python(DAEMON, kind))
    assert outcome(runner, 1) == (0, None)
    assert not lives(int(runner.printed(1)))


def test_the_daemon_of_a_running_run_is_left_alone(runner: RunnerUnderTest) -> None:
    runner.start(1, *python(DAEMON + "print('on', flush=True); time.sleep(1000)"))
    daemon = int(runner.wait_for_output(1, b"on").split()[0])
    runner.start(2, "/bin/true")
    runner.ended(2)
    assert lives(daemon)
    runner.send(StopRun(1))
    runner.ended(1)
    assert not lives(daemon)


def test_a_daemon_of_an_unknown_run_ends_with_the_last_run_that_may_have_left_it(
    runner: RunnerUnderTest,
) -> None:
    runner.start(1, "sleep", "1000")
    runner.started(1)
    runner.start(2, *python(DAEMON, "quiet"))
    assert outcome(runner, 2) == (0, None)
    daemon = int(runner.printed(2))
    runner.start(3, "sleep", "1000")
    runner.started(3)
    assert lives(daemon)
    runner.send(StopRun(1))
    runner.ended(1)
    assert not lives(daemon)


def test_a_chain_of_daemons_is_killed_to_the_last(runner: RunnerUnderTest) -> None:
    chain = """
import os, sys, time
for depth in range(5):
    if os.fork():
        break
    os.setsid()
    print(os.getpid(), flush=True)
if depth == 0:
    os.read(0, 1)
    time.sleep(0.3)
    sys.exit(3)
time.sleep(1000)
"""
    runner.start(1, *python(chain))
    assert outcome(runner, 1) == (3, None)
    assert [pid for pid in map(int, runner.printed(1).split()) if lives(pid)] == []


def test_an_agent_that_is_killed_takes_everything_with_it() -> None:
    with subprocess.Popen([sys.executable, "-c", AGENT], stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        pids = [int(pid) for pid in agent.stdout.readline().split()]
        assert len(pids) == 5
        assert all(lives(pid) for pid in pids)
        agent.kill()
    for pid in pids:
        wait_for_end(pid)


def test_the_watchdog_kills_what_a_killed_runner_left(runner: RunnerUnderTest) -> None:
    runner.start(1, *python(DAEMON + "print('on', flush=True); time.sleep(1000)"), grace_s=FAR)
    daemon, pid = int(runner.wait_for_output(1, b"on").split()[0]), runner.started(1)
    (watchdog,) = watchdogs(runner.marker)
    runner.process.kill()
    for one in (daemon, pid, watchdog):
        wait_for_end(one)


def test_a_runner_that_ends_takes_its_watchdog_with_it(runner: RunnerUnderTest) -> None:
    runner.start(1, *python("print('on', flush=True); time.sleep(1000)"), grace_s=FAR)
    runner.wait_for_output(1, b"on")
    (watchdog,) = watchdogs(runner.marker)
    runner.end.close()
    assert runner.process.wait(DEADLINE_S) == 0
    wait_for_end(watchdog)


def test_what_a_killed_runner_left_can_be_killed_by_mark_with_its_watchdog(runner: RunnerUnderTest) -> None:
    runner.start(1, *python(DAEMON + "print('on', flush=True); time.sleep(1000)"), grace_s=FAR)
    daemon, pid = int(runner.wait_for_output(1, b"on").split()[0]), runner.started(1)
    (watchdog,) = watchdogs(runner.marker)
    os.kill(watchdog, signal.SIGSTOP)
    runner.process.kill()
    runner.process.wait(DEADLINE_S)
    assert sorted(process_cleanup.kill_marked(runner.marker)) == sorted([watchdog, daemon, pid])
    assert not lives(daemon)
    assert not lives(pid)
    assert process_cleanup.kill_marked(runner.marker) == []


def test_only_processes_with_the_mark_are_killed() -> None:
    marker = f"test-{uuid4().hex}"
    marks: list[dict[str, str]] = [
        {"TASKYARD_BOT": marker},
        {"TASKYARD_BOT": f"{marker}1"},
        {"OTHER": f"TASKYARD_BOT={marker}"},
        {},
        {"TASKYARD_BOT": marker},
    ]
    sleepers = [subprocess.Popen(["/bin/sleep", "1000"], env=env) for env in marks]
    try:
        assert process_cleanup.kill_marked(marker, spare=[sleepers[4].pid]) == [sleepers[0].pid]
        assert [lives(one.pid) for one in sleepers] == [False, True, True, True, True]
    finally:
        for one in sleepers:
            one.kill()
            one.wait()


def test_a_marked_process_that_kills_by_mark_spares_itself_and_its_ancestors() -> None:
    marker = f"test-{uuid4().hex}"
    clear = f"from taskyard.bot import process_cleanup; print(process_cleanup.kill_marked({marker!r}))"
    env = {**os.environ, "TASKYARD_BOT": marker}
    with subprocess.Popen(["/bin/sleep", "1000"], env=env) as other:
        script = 'echo begin; "$0" -c "$1"; echo end'
        done = subprocess.run(
            ["/bin/sh", "-c", script, sys.executable, clear], env=env, capture_output=True, text=True, check=True
        )
        assert other.wait(DEADLINE_S) == -signal.SIGKILL
    assert done.stdout == f"begin\n[{other.pid}]\nend\n"


def test_a_run_can_delete_its_own_folder(runner: RunnerUnderTest, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    runner.start(1, "/bin/sh", "-c", f"rmdir {own}; exit 2", cwd=str(own))
    assert outcome(runner, 1) == (2, None)
    runner.start(2, "/bin/true", until=time.monotonic() + FAR)
    assert outcome(runner, 2) == (0, None)
