"""A bot ends an attempt at its deadline, which counts from when the answer came that brought it, and says so."""

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
from tests.bot.running import let_pass, wait_until_stopped
from tests.bot.yard import LOST, Answer, Yard, bot, served
from tests.cli.waiting import is_gone, until

NEVER = {"script": "trap '' TERM; while :; do sleep 0.1; done", "grace": "0s"}


@dataclass
class Generous(Yard):
    """A server that gives all that it has to whoever asks for anything."""

    async def _leases(self, poll: Poll) -> list[Lease]:
        if not poll.want:
            return []
        leases = await super()._leases(poll)
        with self.changed:
            more, self.line[:] = self.line[:], []
        return [*leases, *more] if leases else leases


class Breaking(Generous):
    """A server that breaks off in the middle of answers for inputs that it does not have."""

    async def _answer(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if path.endswith("/inputs") and path.split("/")[-2] not in self.inputs:
            with self.changed:
                self.requests.append((path, headers))
            return LOST, {}
        return await super()._answer(path, headers, body)


@pytest.fixture
def yard() -> Iterator[Yard]:
    with served(Generous()) as one:
        yield one


def hang(file: Path, kind: str) -> dict[str, Any]:
    """Leave a pid in a file, and do not come back."""
    if kind == "call":
        return {"python": "tests.bot.agent_functions:hang", "args": [str(file)]}
    return {"script": f"trap '' TERM; echo $$ > {file}; while :; do sleep 0.1; done", "grace": "0s"}


def pid_in(path: Path) -> int:
    until(lambda: path.exists() and path.read_text().endswith("\n"), f"{path} is written")
    return int(path.read_text())


def test_a_deadline_counts_from_the_answer_and_a_lease_from_the_request() -> None:
    yard = Yard()
    yard.add(NEVER, deadline_ms=5_000)
    attempt = LeasedAttempts().add(yard.line[0], sent=100.0, now=119.0)
    assert (attempt.until, attempt.deadline) == (160.0, 124.0)
    assert [attempt.expiry_report(now) for now in (119.0, 123.9)] == [None, None]
    assert [report.signal for now in (124.0, 160.0) if (report := attempt.expiry_report(now))] == [
        "deadline",
        "deadline",
    ]


def test_a_call_with_a_deadline_is_alone_with_its_worker_which_ends_there() -> None:
    yard, attempts = Yard(), LeasedAttempts()
    for deadline_ms in (None, 5_000, None):
        yard.add({"python": "time:sleep"}, deadline_ms=deadline_ms)
    first, late, behind = (attempts.add(lease, sent=100.0, now=119.0) for lease in yard.line)
    worker = WarmWorker(1, ("", 0))
    assert all(worker.may_take(attempt) for attempt in (first, late, behind))
    worker.calls = {first.run: first}
    assert (worker.expires_at(), worker.may_take(late), worker.may_take(behind)) == (160.0, False, True)
    worker.calls = {late.run: late}
    assert (worker.expires_at(), worker.may_take(first), worker.may_take(behind)) == (124.0, False, False)


@pytest.mark.parametrize("kind", ["program", "call"])
def test_a_task_that_comes_to_a_poll_that_has_waited_has_all_of_its_time(yard: Yard, tmp_path: Path, kind: str) -> None:
    with bot(yard, tmp_path / "state", slots=1):
        yard.until(lambda: any(poll.want and poll.wait_ms for poll in yard.polls), "a poll waits")
        let_pass(time.monotonic() + 2)
        before = time.monotonic()
        task = yard.add(NEVER if kind == "program" else {"python": "time:sleep", "args": [1000]}, deadline_ms=1_500)
        report = yard.report(task)
    assert (report.signal, report.reason) == ("deadline", None)
    assert time.monotonic() - before >= 1.5


def test_a_deadline_has_the_grace_of_a_time_out(yard: Yard, tmp_path: Path) -> None:
    text = f"trap 'echo bye; exit 0' TERM; touch {tmp_path / 'here'}; while :; do sleep 0.02; done"
    task = yard.add({"script": text}, deadline_ms=5_000)
    with bot(yard, tmp_path / "state"):
        until((tmp_path / "here").exists, "it has begun")
        report = yard.report(task)
    assert (report.signal, report.exit_code) == ("deadline", 0)
    assert report.stats is not None
    assert yard.printed[task].endswith(b"bye\n")


def test_a_time_out_before_the_deadline_is_a_failure(yard: Yard, tmp_path: Path) -> None:
    tasks = [
        yard.add(NEVER | {"timeout": "300ms"}, deadline_ms=60_000),
        yard.add({"python": "time:sleep", "args": [1000], "timeout": "300ms"}, deadline_ms=60_000),
    ]
    with bot(yard, tmp_path / "state"):
        reports = [yard.report(task) for task in tasks]
    assert [(one.signal, one.reason) for one in reports] == [("fail", "timed_out")] * 2


@pytest.mark.parametrize("kind", ["program", "call"])
def test_the_runner_keeps_the_deadline_while_the_agent_is_frozen(yard: Yard, tmp_path: Path, kind: str) -> None:
    with bot(yard, tmp_path / "state", slots=1) as one:
        # A worker that is there already begins at once.
        assert yard.report(yard.add({"python": "tests.bot.agent_functions:nothing"})).signal == "succeed"
        task = yard.add(hang(tmp_path / "pid", kind), deadline_ms=8_000)
        pid = pid_in(tmp_path / "pid")
        one.program.send_signal(signal.SIGSTOP)
        wait_until_stopped(one.program.pid)
        until(lambda: is_gone(pid), "its lease goes on, and its deadline has passed")
        one.program.send_signal(signal.SIGCONT)
        assert yard.report(task).signal == "deadline"


@pytest.mark.parametrize("kind", ["program", "call"])
def test_what_has_not_begun_by_its_deadline_never_does_and_costs_nobody_else(
    yard: Yard, tmp_path: Path, kind: str
) -> None:
    gate, begun = tmp_path / "gate", tmp_path / "begun"
    first: dict[str, object]
    late: dict[str, object]
    if kind == "program":
        first, late = {"script": f"while [ ! -e {gate} ]; do sleep 0.02; done"}, {"script": f"touch {begun}"}
    else:
        count = {"python": "tests.bot.agent_functions:count"}
        first, late = (count | {"args": [str(tmp_path / "seen"), str(gate)]}), (count | {"args": [str(begun), ""]})
    tasks = [yard.add(first), yard.add(late, deadline_ms=200), yard.add(late, deadline_ms=200), yard.add(first)]
    with bot(yard, tmp_path / "state", slots=1):
        assert [yard.report(task).signal for task in tasks[1:3]] == ["deadline", "deadline"]
        assert tasks[0] not in yard.reports
        gate.touch()
        assert [yard.report(tasks[place]).signal for place in (0, 3)] == ["succeed", "succeed"]
    assert not begun.exists()


def test_calls_before_and_behind_one_that_ends_at_its_deadline_are_made(yard: Yard, tmp_path: Path) -> None:
    nothing = {"python": "tests.bot.agent_functions:nothing"}
    before = [yard.add(nothing) for _ in range(200)]  # so that many calls are handed to a worker at once
    late = yard.add({"python": "time:sleep", "args": [1000]}, deadline_ms=3_000)
    in_time = [yard.add(nothing, deadline_ms=600_000) for _ in range(20)]
    behind = [yard.add(nothing) for _ in range(200)]
    with bot(yard, tmp_path, slots=1):
        assert yard.report(late).signal == "deadline"
        assert {yard.report(task).signal for task in (*before, *in_time, *behind)} == {"succeed"}


def test_inputs_that_do_not_come_by_the_deadline_are_no_failure(yard: Yard, tmp_path: Path) -> None:
    task = yard.add({"script": "true"}, deadline_ms=300, inputs_apart=True)  # and the server answers 500 for them
    with bot(yard, tmp_path):
        assert yard.report(task).signal == "deadline"


def test_inputs_of_a_server_that_was_away_are_fetched_when_it_is_back(tmp_path: Path) -> None:
    yard = Breaking()
    with served(yard):
        port = int(yard.url.rpartition(":")[2])
        task = yard.add({"script": 'cat "$TASKYARD_INPUTS"'}, inputs_apart=True)
        one = bot(yard, tmp_path / "state")
        one.__enter__()
        yard.until(lambda: any(path.endswith("/inputs") for path, _ in yard.requests), "they were asked for")
    try:
        let_pass(time.monotonic() + 1)
        yard.inputs[task] = b'{"before": 1}'
        with served(yard, port):
            assert yard.report(task).signal == "succeed"
        assert yard.printed[task] == b'{"before": 1}'
    finally:
        one.__exit__(None, None, None)


def test_an_attempt_whose_inputs_do_not_come_while_its_lease_lasts_is_given_back_and_not_failed(tmp_path: Path) -> None:
    yard = Breaking(lease_ms=2_000)
    with served(yard):
        port = int(yard.url.rpartition(":")[2])
        task = yard.add({"script": "true"}, inputs_apart=True)
        one = bot(yard, tmp_path / "state")
        one.__enter__()
        yard.until(lambda: any(path.endswith("/inputs") for path, _ in yard.requests), "they were asked for")
    try:
        let_pass(time.monotonic() + 3)
        with served(yard, port):
            assert yard.report(task).signal == "return"
    finally:
        one.__exit__(None, None, None)


def test_nothing_is_renewed_past_its_deadline(yard: Yard, tmp_path: Path) -> None:
    yard.lease_ms = 900
    asked_late: list[Poll] = []
    here, told = tmp_path / "here", tmp_path / "told"

    def look(poll: Poll) -> Answer | None:
        if told.exists() and poll.renewals:
            asked_late.append(poll)
        return None

    yard.on_poll = look
    text = f"trap 'touch {told}' TERM; touch {here}; while :; do sleep 0.02 || true; done"
    task = yard.add({"script": text}, deadline_ms=4_000)
    with bot(yard, tmp_path / "state", slots=1):
        until(here.exists, "it has begun")
        report = yard.report(task)
    # It would have half a minute of grace; but its lease ends before.
    assert (report.signal, report.exit_code, asked_late) == ("deadline", -signal.SIGKILL, [])
    assert told.exists()


def test_an_idle_worker_outlives_the_deadline_of_its_last_call(yard: Yard, tmp_path: Path) -> None:
    identity = {"python": "os:getpid"}
    with bot(yard, tmp_path, slots=1):
        yard.report(yard.add(identity))
        deadline = time.monotonic() + 5
        first = yard.report(yard.add(identity, deadline_ms=5_000))
        let_pass(deadline + 1)
        again = yard.report(yard.add(identity))
    assert bytes(first.result) == bytes(again.result) != b""
