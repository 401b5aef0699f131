"""A bot ends an attempt at its deadline, counted from the answer that brought it, and reports that."""

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from taskyard.bot.attempts import LeasedAttempts
from taskyard.bot.pyworker.pool import WarmWorker
from taskyard.wire.bot_protocol import Lease, Poll
from tests.bot.fake_server import LOST, Answer, FakeServer, bot, serving
from tests.bot.runner_process import sleep_until, wait_until_stopped
from tests.cli.waiting import is_gone, until

NEVER = {"script": "trap '' TERM; while :; do sleep 0.1; done", "grace": "0s"}


@dataclass
class EagerServer(FakeServer):
    """Gives all of its tasks to any bot that asks for one."""

    async def _leases(self, poll: Poll) -> list[Lease]:
        if not poll.want:
            return []
        leases = await super()._leases(poll)
        with self.changed:
            more, self.queue[:] = self.queue[:], []
        return [*leases, *more] if leases else leases


class InputlessServer(EagerServer):
    """Cuts off its answers to requests for inputs that it does not have."""

    async def _answer(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if path.endswith("/inputs") and path.split("/")[-2] not in self.inputs:
            with self.changed:
                self.requests.append((path, headers))
            return LOST, {}
        return await super()._answer(path, headers, body)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving(EagerServer()) as one:
        yield one


def hang(file: Path, kind: str) -> dict[str, Any]:
    """Write a pid to a file, and never return."""
    if kind == "call":
        return {"python": "tests.bot.agent_functions:hang", "args": [str(file)]}
    return {"script": f"trap '' TERM; echo $$ > {file}; while :; do sleep 0.1; done", "grace": "0s"}


def pid_in(path: Path) -> int:
    until(lambda: path.exists() and path.read_text().endswith("\n"), f"{path} is written")
    return int(path.read_text())


def test_a_deadline_counts_from_the_answer_and_a_lease_from_the_request() -> None:
    server = FakeServer()
    server.add(NEVER, deadline_ms=5_000)
    attempt = LeasedAttempts().add(server.queue[0], sent=100.0, now=119.0)
    assert (attempt.until, attempt.deadline) == (160.0, 124.0)
    assert [attempt.expiry_report(now) for now in (119.0, 123.9)] == [None, None]
    assert [report.signal for now in (124.0, 160.0) if (report := attempt.expiry_report(now))] == [
        "deadline",
        "deadline",
    ]


def test_a_call_with_a_deadline_is_alone_with_its_worker_which_ends_there() -> None:
    server, attempts = FakeServer(), LeasedAttempts()
    for deadline_ms in (None, 5_000, None):
        server.add({"python": "time:sleep"}, deadline_ms=deadline_ms)
    first, late, behind = (attempts.add(lease, sent=100.0, now=119.0) for lease in server.queue)
    worker = WarmWorker(1, ("", 0))
    assert all(worker.may_take(attempt) for attempt in (first, late, behind))
    worker.calls = {first.run: first}
    assert (worker.expires_at(), worker.may_take(late), worker.may_take(behind)) == (160.0, False, True)
    worker.calls = {late.run: late}
    assert (worker.expires_at(), worker.may_take(first), worker.may_take(behind)) == (124.0, False, False)


@pytest.mark.parametrize("kind", ["program", "call"])
def test_a_task_given_to_a_parked_poll_has_all_of_its_time(server: FakeServer, tmp_path: Path, kind: str) -> None:
    with bot(server, tmp_path / "state", slots=1):
        server.wait_until(lambda: any(poll.want and poll.wait_ms for poll in server.polls), "a poll waits")
        sleep_until(time.monotonic() + 2)
        before = time.monotonic()
        task = server.add(NEVER if kind == "program" else {"python": "time:sleep", "args": [1000]}, deadline_ms=1_500)
        report = server.report(task)
    assert (report.signal, report.reason) == ("deadline", None)
    assert time.monotonic() - before >= 1.5


def test_a_deadline_has_the_grace_of_a_time_out(server: FakeServer, tmp_path: Path) -> None:
    text = f"trap 'echo bye; exit 0' TERM; touch {tmp_path / 'here'}; while :; do sleep 0.02; done"
    task = server.add({"script": text}, deadline_ms=5_000)
    with bot(server, tmp_path / "state"):
        until((tmp_path / "here").exists, "it has begun")
        report = server.report(task)
    assert (report.signal, report.exit_code) == ("deadline", 0)
    assert report.stats is not None
    assert server.printed[task].endswith(b"bye\n")


def test_a_time_out_before_the_deadline_is_a_failure(server: FakeServer, tmp_path: Path) -> None:
    tasks = [
        server.add(NEVER | {"timeout": "300ms"}, deadline_ms=60_000),
        server.add({"python": "time:sleep", "args": [1000], "timeout": "300ms"}, deadline_ms=60_000),
    ]
    with bot(server, tmp_path / "state"):
        reports = [server.report(task) for task in tasks]
    assert [(one.signal, one.reason) for one in reports] == [("fail", "timed_out")] * 2


@pytest.mark.parametrize("kind", ["program", "call"])
def test_the_runner_keeps_the_deadline_while_the_agent_is_frozen(server: FakeServer, tmp_path: Path, kind: str) -> None:
    with bot(server, tmp_path / "state", slots=1) as one:
        # A worker that runs already begins at once.
        assert server.report(server.add({"python": "tests.bot.agent_functions:nothing"})).signal == "succeed"
        task = server.add(hang(tmp_path / "pid", kind), deadline_ms=8_000)
        pid = pid_in(tmp_path / "pid")
        one.program.send_signal(signal.SIGSTOP)
        wait_until_stopped(one.program.pid)
        until(lambda: is_gone(pid), "its lease goes on, and its deadline has passed")
        one.program.send_signal(signal.SIGCONT)
        assert server.report(task).signal == "deadline"


@pytest.mark.parametrize("kind", ["program", "call"])
def test_an_attempt_past_its_deadline_never_begins_and_affects_no_other(
    server: FakeServer, tmp_path: Path, kind: str
) -> None:
    gate, begun = tmp_path / "gate", tmp_path / "begun"
    first: dict[str, object]
    late: dict[str, object]
    if kind == "program":
        first, late = {"script": f"while [ ! -e {gate} ]; do sleep 0.02; done"}, {"script": f"touch {begun}"}
    else:
        count = {"python": "tests.bot.agent_functions:count"}
        first, late = (count | {"args": [str(tmp_path / "seen"), str(gate)]}), (count | {"args": [str(begun), ""]})
    tasks = [server.add(first), server.add(late, deadline_ms=200), server.add(late, deadline_ms=200), server.add(first)]
    with bot(server, tmp_path / "state", slots=1):
        assert [server.report(task).signal for task in tasks[1:3]] == ["deadline", "deadline"]
        assert tasks[0] not in server.reports
        gate.touch()
        assert [server.report(tasks[place]).signal for place in (0, 3)] == ["succeed", "succeed"]
    assert not begun.exists()


def test_calls_before_and_behind_one_killed_at_its_deadline_are_made(server: FakeServer, tmp_path: Path) -> None:
    nothing = {"python": "tests.bot.agent_functions:nothing"}
    before = [server.add(nothing) for _ in range(200)]  # so that many calls are sent to a worker at once
    late = server.add({"python": "time:sleep", "args": [1000]}, deadline_ms=3_000)
    in_time = [server.add(nothing, deadline_ms=600_000) for _ in range(20)]
    behind = [server.add(nothing) for _ in range(200)]
    with bot(server, tmp_path, slots=1):
        assert server.report(late).signal == "deadline"
        assert {server.report(task).signal for task in (*before, *in_time, *behind)} == {"succeed"}


def test_inputs_that_do_not_arrive_by_the_deadline_end_as_deadline(server: FakeServer, tmp_path: Path) -> None:
    task = server.add({"script": "true"}, deadline_ms=300, inputs_apart=True)  # and the server answers 500 for them
    with bot(server, tmp_path):
        assert server.report(task).signal == "deadline"


def test_inputs_are_fetched_once_the_server_is_available_again(tmp_path: Path) -> None:
    server = InputlessServer()
    with serving(server):
        port = int(server.url.rpartition(":")[2])
        task = server.add({"script": 'cat "$TASKYARD_INPUTS"'}, inputs_apart=True)
        one = bot(server, tmp_path / "state")
        one.__enter__()
        server.wait_until(lambda: any(path.endswith("/inputs") for path, _ in server.requests), "they were asked for")
    try:
        sleep_until(time.monotonic() + 1)
        server.inputs[task] = b'{"before": 1}'
        with serving(server, port):
            assert server.report(task).signal == "succeed"
        assert server.printed[task] == b'{"before": 1}'
    finally:
        one.__exit__(None, None, None)


def test_an_attempt_whose_inputs_do_not_arrive_before_its_lease_ends_is_returned(tmp_path: Path) -> None:
    server = InputlessServer(lease_ms=2_000)
    with serving(server):
        port = int(server.url.rpartition(":")[2])
        task = server.add({"script": "true"}, inputs_apart=True)
        one = bot(server, tmp_path / "state")
        one.__enter__()
        server.wait_until(lambda: any(path.endswith("/inputs") for path, _ in server.requests), "they were asked for")
    try:
        sleep_until(time.monotonic() + 3)
        with serving(server, port):
            assert server.report(task).signal == "return"
    finally:
        one.__exit__(None, None, None)


def test_nothing_is_renewed_past_its_deadline(server: FakeServer, tmp_path: Path) -> None:
    server.lease_ms = 900
    asked_late: list[Poll] = []
    here, asked = tmp_path / "here", tmp_path / "asked"

    def look(poll: Poll) -> Answer | None:
        if asked.exists() and poll.renewals:
            asked_late.append(poll)
        return None

    server.on_poll = look
    text = f"trap 'touch {asked}' TERM; touch {here}; while :; do sleep 0.02 || true; done"
    task = server.add({"script": text}, deadline_ms=4_000)
    with bot(server, tmp_path / "state", slots=1):
        until(here.exists, "it has begun")
        report = server.report(task)
    # It has half a minute of grace, but its lease ends before that.
    assert (report.signal, report.exit_code) == ("deadline", -signal.SIGKILL)
    assert len(asked_late) <= 1, "only a request that was under way at the deadline may renew"
    assert asked.exists()


def test_an_idle_worker_outlives_the_deadline_of_its_last_call(server: FakeServer, tmp_path: Path) -> None:
    identity = {"python": "os:getpid"}
    with bot(server, tmp_path, slots=1):
        server.report(server.add(identity))
        deadline = time.monotonic() + 5
        first = server.report(server.add(identity, deadline_ms=5_000))
        sleep_until(deadline + 1)
        again = server.report(server.add(identity))
    assert bytes(first.result) == bytes(again.result) != b""
