"""How runs start, print and end: different outcomes, complete output, nothing left."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskyard.bot.ipc import KillWorker, RunEnded, SetExpiry, StartWorker, StopRun, WorkerEnded
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

#: Prints that it runs, and ignores SIGTERM.
STUBBORN = "trap '' TERM; echo here; while :; do sleep 1000; done"


@pytest.fixture
def runner() -> Iterator[RunnerUnderTest]:
    with RunnerUnderTest() as made:
        yield made


def outcome(ended: RunEnded) -> tuple[int | None, str | None]:
    return ended.exit_code, ended.reason


def test_exit_code_and_signal_are_different_outcomes(runner: RunnerUnderTest) -> None:
    runner.start(1, "/bin/sh", "-c", "exit 7")
    runner.start(2, "/bin/sh", "-c", "kill -SEGV $$")
    runner.start(3, "/bin/true")
    assert [outcome(runner.ended(run)) for run in (1, 2, 3)] == [(7, None), (-signal.SIGSEGV, None), (0, None)]


def test_the_usage_of_a_run_comes_with_its_end(runner: RunnerUnderTest) -> None:
    runner.start(1, *python("x = bytearray(200_000_000); sum(range(1_000_000))"))
    ended = runner.ended(1)
    assert ended.exit_code == 0
    assert ended.memory_bytes > 200_000_000
    assert 0 < ended.cpu_s
    assert 0 < ended.ran_s


def test_a_run_has_its_own_environment_folder_and_session_and_an_empty_stdin(
    runner: RunnerUnderTest, tmp_path: Path
) -> None:
    show = 'echo "$WHO in $(pwd)"; cat; test "$(ps -o sid= -p $$)" -eq $$ && echo alone; echo "$TASKYARD_RUN"'
    env = {"PATH": os.environ["PATH"], "WHO": "Ada Ω"}
    runner.start(4, "sh", "-c", show, env=env, cwd=str(tmp_path))
    assert outcome(runner.ended(4)) == (0, None)
    assert runner.printed(4).decode() == f"Ada Ω in {tmp_path}\nalone\n{runner.marker}:4\n"


def test_signals_have_their_default_effect_in_a_run(runner: RunnerUnderTest) -> None:
    runner.start(1, "/bin/sh", "-c", "kill -PIPE $$")
    runner.start(2, "/bin/sh", "-c", "kill -TERM $$")
    runner.start(3, "/bin/sh", "-c", "kill -INT $$")
    assert [runner.ended(run).exit_code for run in (1, 2, 3)] == [-13, -15, -2]


def test_a_time_out_ends_a_run_within_its_grace(runner: RunnerUnderTest) -> None:
    runner.start(1, "/bin/sh", "-c", "trap 'echo bye; exit 3' TERM; sleep 1000 & wait", timeout_s=0.3, grace_s=FAR)
    assert outcome(runner.ended(1)) == (3, "timed_out")
    assert runner.printed(1) == b"bye\n"


def test_a_time_out_that_is_ignored_ends_in_a_kill(runner: RunnerUnderTest) -> None:
    runner.start(1, "/bin/sh", "-c", STUBBORN, timeout_s=0.3, grace_s=0.2)
    assert outcome(runner.ended(1)) == (-signal.SIGKILL, "timed_out")


def test_a_silent_run_ends_as_silent_and_not_as_timed_out(runner: RunnerUnderTest) -> None:
    runner.start(1, "/bin/sh", "-c", "echo once; exec sleep 1000", timeout_s=FAR, silence_s=0.3, grace_s=FAR)
    assert outcome(runner.ended(1)) == (-signal.SIGTERM, "silent")
    assert runner.printed(1) == b"once\n"


def test_a_run_that_prints_is_not_silent(runner: RunnerUnderTest) -> None:
    talk = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.25; done"
    runner.start(1, "/bin/sh", "-c", talk, silence_s=1.5)
    assert outcome(runner.ended(1)) == (0, None)


def test_a_stop_is_answered_within_the_grace(runner: RunnerUnderTest) -> None:
    runner.start(1, "/bin/sh", "-c", "trap 'exit 0' TERM; echo here; sleep 1000 & wait", grace_s=FAR)
    runner.wait_for_output(1, b"here")
    runner.send(StopRun(1))
    assert outcome(runner.ended(1)) == (0, "stopped")


def test_a_stop_that_is_ignored_ends_in_a_kill(runner: RunnerUnderTest) -> None:
    runner.start(1, "/bin/sh", "-c", STUBBORN, grace_s=0.2)
    runner.wait_for_output(1, b"here")
    runner.send(StopRun(1), StopRun(1))
    assert outcome(runner.ended(1)) == (-signal.SIGKILL, "stopped")


def test_a_stop_wakes_a_suspended_process(runner: RunnerUnderTest) -> None:
    runner.start(1, "/bin/sh", "-c", "kill -STOP $$", grace_s=FAR)
    pid = runner.started(1)
    wait_until_stopped(pid)
    runner.send(StopRun(1))
    assert outcome(runner.ended(1)) == (-signal.SIGTERM, "stopped")


def test_a_stop_of_an_unknown_run_changes_nothing(runner: RunnerUnderTest) -> None:
    runner.send(StopRun(99), SetExpiry({99: 0.0}, {99: 0.0}))
    runner.start(1, "/bin/true")
    assert outcome(runner.ended(1)) == (0, None)


def test_a_run_whose_lease_is_over_is_killed_without_grace(runner: RunnerUnderTest) -> None:
    runner.start(1, "/bin/sh", "-c", STUBBORN, until=time.monotonic() + 0.3, grace_s=FAR)
    assert outcome(runner.ended(1)) == (-signal.SIGKILL, "lease_over")


def test_a_run_whose_lease_is_extended_lives_on(runner: RunnerUnderTest) -> None:
    runner.start(1, "/bin/sh", "-c", "sleep 1; echo done", until=time.monotonic() + 0.5)
    runner.start(2, "/bin/sh", "-c", "sleep 1000", until=time.monotonic() + FAR)
    runner.send(SetExpiry({1: time.monotonic() + FAR, 2: time.monotonic() - 1}))
    assert outcome(runner.ended(2)) == (-signal.SIGKILL, "lease_over")
    assert outcome(runner.ended(1)) == (0, None)
    assert runner.printed(1) == b"done\n"


def test_a_program_that_cannot_be_started_says_why(runner: RunnerUnderTest, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    runner.start(1, "/no/such/program")
    runner.start(2, "no-such-program", env={"PATH": str(tmp_path)})
    runner.start(3, str(plain))
    runner.start(4, "/bin/true", cwd=str(tmp_path / "nowhere"))
    runner.start(5)
    script = tmp_path / "script"
    script.write_text("#!/no/such/shell\n")
    script.chmod(0o700)
    runner.start(6, str(script))
    runner.start(7, "/bin/true", env={"A=B": "C"})
    runner.start(8, "/bin/true", "nul\0")
    ends = [runner.ended(run) for run in range(1, 9)]
    codes = (127, 127, 126, 126, 126, 127, 126, 126)
    assert [(one.exit_code, one.reason) for one in ends] == [(code, "not_started") for code in codes]
    assert [one.note for one in ends] == [
        "cannot start '/no/such/program': there is no such program",
        "cannot start 'no-such-program': there is no such program",
        f"cannot start '{plain}': Permission denied",
        f"cannot run in the folder '{tmp_path / 'nowhere'}': No such file or directory",
        "there is no command",
        f"cannot start '{script}': its interpreter does not exist",
        "cannot start '/bin/true': illegal environment variable name",
        "cannot start '/bin/true': embedded null byte",
    ]


def test_large_output_of_a_run_arrives_complete_and_in_order(runner: RunnerUnderTest) -> None:
    count = "import sys\nfor i in range(400_000): sys.stdout.write(f'{i:09d}\\n')"
    runner.start(1, *python(count))
    runner.start(2, "/bin/sh", "-c", "echo out; echo err >&2; echo out")
    assert outcome(runner.ended(1)) == (0, None)
    assert runner.printed(1) == b"".join(b"%09d\n" % i for i in range(400_000))
    assert runner.ended(2).exit_code == 0
    assert runner.printed(2) == b"out\nerr\nout\n"


def test_output_that_the_agent_does_not_take_waits_in_the_pipe_and_is_not_silence(
    runner: RunnerUnderTest, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    write = "import sys\nfor i in range(64): sys.stdout.buffer.write(b'%08d' % i * 16384)\nopen(sys.argv[1], 'w')"
    runner.start(1, *python(write, str(done)), silence_s=0.5)
    runner.started(1)
    # For a run that is not read, time must not count as silence.
    sleep_until(time.monotonic() + 1.5)
    assert not done.exists(), "it was read although the agent did not take it"
    assert outcome(runner.ended(1)) == (0, None)
    assert runner.printed(1) == b"".join(b"%08d" % i * 16384 for i in range(64))


def test_the_last_output_before_a_crash_is_kept(runner: RunnerUnderTest) -> None:
    runner.start(1, *python("import os; os.write(1, b'x' * 60_000 + b'last'); os.abort()"))
    assert outcome(runner.ended(1)) == (-signal.SIGABRT, None)
    assert runner.printed(1) == b"x" * 60_000 + b"last"


def test_a_run_that_closes_its_output_goes_on(runner: RunnerUnderTest) -> None:
    runner.start(1, "/bin/sh", "-c", "exec >&- 2>&-; sleep 0.3; exit 5")
    assert outcome(runner.ended(1)) == (5, None)


def test_background_processes_end_with_their_run_and_cannot_hold_its_pipe(runner: RunnerUnderTest) -> None:
    runner.start(1, "/bin/sh", "-c", "sleep 1000 & echo $!; exit 4")
    assert outcome(runner.ended(1)) == (4, None)
    assert not lives(int(runner.printed(1)))


def test_the_runs_of_an_agent_end_with_it(runner: RunnerUnderTest) -> None:
    runner.start(1, "/bin/sh", "-c", STUBBORN, grace_s=FAR, timeout_s=FAR)
    runner.start(2, *python(DAEMON + "print('on', flush=True); time.sleep(1000)"))
    pid, daemon = runner.started(1), int(runner.wait_for_output(2, b"on").split()[0])
    runner.end.close()
    assert runner.process.wait(DEADLINE_S) == 0
    wait_for_end(pid)
    wait_for_end(daemon)


def test_a_run_that_survives_a_disconnect_goes_on_until_its_time_out(runner: RunnerUnderTest, tmp_path: Path) -> None:
    done = tmp_path / "done"
    script = f"echo here; sleep 0.5; echo more; touch {done}; sleep 1000"
    runner.start(1, "/bin/sh", "-c", script, survives_disconnect=True, until=time.monotonic() + 0.4, timeout_s=1.5)
    runner.send(SetExpiry({1: time.monotonic() + 60}))
    pid = runner.started(1)
    runner.wait_for_output(1, b"here")
    runner.end.close()
    assert runner.process.wait(DEADLINE_S) == 0
    wait_for_end(pid)
    assert done.exists()


def test_a_resumed_runner_kills_overdue_runs_before_it_reads_frames(runner: RunnerUnderTest) -> None:
    until = time.monotonic() + 2
    runner.start(1, "/bin/sh", "-c", STUBBORN, grace_s=FAR, until=until)
    runner.wait_for_output(1, b"here")
    os.kill(runner.process.pid, signal.SIGSTOP)
    wait_until_stopped(runner.process.pid)
    runner.send(SetExpiry({1: time.monotonic() + FAR}))
    sleep_until(until)
    os.kill(runner.process.pid, signal.SIGCONT)
    assert outcome(runner.ended(1)) == (-signal.SIGKILL, "lease_over")


def test_a_run_that_ended_by_itself_while_the_runner_was_suspended_has_no_reason(runner: RunnerUnderTest) -> None:
    until = time.monotonic() + 2
    runner.start(1, "/bin/sh", "-c", "echo here; sleep 0.2; exit 6", until=until)
    pid = runner.started(1)
    runner.wait_for_output(1, b"here")
    os.kill(runner.process.pid, signal.SIGSTOP)
    wait_for_end(pid)
    sleep_until(until)
    os.kill(runner.process.pid, signal.SIGCONT)
    assert outcome(runner.ended(1)) == (6, None)


@pytest.mark.parametrize("without", ["posix_spawn", "waitid", "memfd_create", "pidfd_open"])
def test_a_runner_works_without_optional_system_calls(without: str) -> None:
    with RunnerUnderTest(without=without) as runner:
        runner.start(1, "sh", "-c", "sleep 1000 & echo $!; exit 4")
        runner.start(2, "no-such-program")
        runner.start(3, "sleep", "1000", until=time.monotonic() + 0.2)
        runner.start(4, "sleep", "1000", timeout_s=0.2, grace_s=FAR)
        ends = [outcome(runner.ended(run)) for run in (1, 2, 3, 4)]
        assert ends == [(4, None), (127, "not_started"), (-9, "lease_over"), (-15, "timed_out")]
        assert not lives(int(runner.printed(1)))
        runner.send(StartWorker(1))
        runner.worker_started(1)
        runner.send(KillWorker(1))
        assert runner.worker_ended(1) == WorkerEnded(1, -9, "killed")


def test_signals_to_the_whole_bot_do_not_end_the_runner(runner: RunnerUnderTest) -> None:
    runner.start(1, "/bin/sh", "-c", "read x; exit 1")
    runner.ended(1)
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        runner.process.send_signal(one)
    runner.start(2, "/bin/true")
    assert outcome(runner.ended(2)) == (0, None)


def test_many_runs_at_once_all_end(runner: RunnerUnderTest) -> None:
    for run in range(200):
        runner.start(run, "/bin/sh", "-c", f"echo {run}; exit {run % 100}")
    assert [runner.ended(run).exit_code for run in range(200)] == [run % 100 for run in range(200)]
    assert [runner.printed(run) for run in range(200)] == [b"%d\n" % run for run in range(200)]
