"""Calls in warm workers: results, failures and output; and no call affects the next one."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from taskyard.bot.ipc import FrameBuffer, KillWorker, SetExpiry, StartWorker, WorkerEnded, encode_frame
from taskyard.bot.pyworker import protocol
from taskyard.bot.pyworker.protocol import (
    Call,
    CallOutput,
    CallRaised,
    CallReturned,
    CallsGivenBack,
    FromWorker,
    WorkerLeaving,
)
from tests.bot.runner_process import DEADLINE_S, RunnerUnderTest, lives, wait_for_end

HERE = "tests.bot.functions"


class WorkerUnderTest:
    """A worker of a runner, and all frames that it sent so far."""

    __test__ = False

    def __init__(self, runner: RunnerUnderTest, number: int = 1) -> None:
        runner.send(StartWorker(number))
        self.pid, self.end = runner.worker_started(number)
        self.end.settimeout(DEADLINE_S)
        self.frames: list[FromWorker] = []
        self._intake = FrameBuffer()

    def send(self, *calls: Call) -> None:
        self.end.sendall(b"".join(encode_frame(one) for one in calls))

    def read_until(self, enough: Callable[[], bool]) -> None:
        while not enough():
            try:
                body = self.end.recv(131_072)
            except ConnectionResetError:  # it left without having read all calls
                body = b""
            if not body:
                return
            self.take(body, self._intake)

    def take(self, body: bytes, intake: FrameBuffer) -> None:
        self.frames += [protocol.decode_from_worker(one) for one in intake.feed(body)]

    def answers(self) -> list[CallReturned | CallRaised]:
        return [one for one in self.frames if isinstance(one, CallReturned | CallRaised)]

    def answer(self, run: int) -> CallReturned | CallRaised:
        self.read_until(lambda: any(one.run == run for one in self.answers()))
        return next(one for one in self.answers() if one.run == run)

    def call(self, function: str, *args: Any, **more: Any) -> Any:
        """Call a function and give its result."""
        answer = self.ask(function, *args, **more)
        assert isinstance(answer, CallReturned), answer
        return msgspec.json.decode(answer.result) if answer.result else None

    def ask(self, function: str, *args: Any, **more: Any) -> CallReturned | CallRaised:
        run = len(self.answers()) + 1000
        self.send(called(run, function, *args, **more))
        return self.answer(run)

    def output(self, run: int) -> bytes:
        whole = bytearray()
        for one in self.frames:
            if isinstance(one, CallOutput) and one.run == run:
                whole[one.start : one.start + len(one.body)] = one.body
        return bytes(whole)

    def leaving(self) -> str:
        """Wait for the end; return the reason."""
        self.read_until(lambda: False)
        return "; ".join(one.reason for one in self.frames if isinstance(one, WorkerLeaving))


def called(run: int, function: str, *args: Any, **more: Any) -> Call:
    name = function if ":" in function else f"{HERE}:{function}"
    return Call(run, name, **{"args": msgspec.Raw(msgspec.json.encode(args)), **more})


@pytest.fixture
def runner() -> Iterator[RunnerUnderTest]:
    with RunnerUnderTest("--worker-memory-max", "200000000") as made:
        yield made


@pytest.fixture
def worker(runner: RunnerUnderTest) -> WorkerUnderTest:
    return WorkerUnderTest(runner)


def test_results_come_back_as_json(worker: WorkerUnderTest) -> None:
    assert worker.call("add", 2, 3) == 5
    assert worker.call("add", args=msgspec.Raw(b'{"first": 4}')) == 5
    assert worker.call("nothing") is None
    assert worker.call("Counter.three") == 3
    assert worker.call("ATTRIBUTE", 1) == 2
    assert worker.call("later", 21) == 42
    assert worker.call("math:hypot", 3, 4) == 5.0


def test_many_calls_are_answered_in_their_order(worker: WorkerUnderTest) -> None:
    worker.send(*(called(run, "add", run, run) for run in range(5000)))
    worker.answer(4999)
    assert [one.run for one in worker.answers()] == list(range(5000))
    assert all(isinstance(one, CallReturned) and bytes(one.result) == b"%d" % (one.run * 2) for one in worker.answers())


def test_an_exception_comes_with_the_callers_part_of_its_traceback(worker: WorkerUnderTest) -> None:
    for function, args in (("fail", ["no luck"]), ("later_not", [])):
        answer = worker.ask(function, *args)
        assert isinstance(answer, CallRaised)
        first, second, *_ = answer.traceback_text.splitlines()
        assert first == "Traceback (most recent call last):"
        assert "tests/bot/functions.py" in second
        assert "taskyard/bot" not in answer.traceback_text
        assert answer.traceback_text.splitlines()[-1] in {"ValueError: no luck", "ValueError: later"}
    assert worker.call("add", 1) == 2


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (called(1, "no.such:thing"), "there is no module 'no' for 'no.such:thing'"),
        (called(1, "tests.bot.none:thing"), "there is no module 'tests.bot.none' for 'tests.bot.none:thing'"),
        (called(1, "missing"), "the module 'tests.bot.functions' has no 'missing'"),
        (called(1, "NUMBER"), "'tests.bot.functions:NUMBER' is not a function: it is of type int"),
        (called(1, f"{HERE}:"), "'tests.bot.functions:' does not name a function: write it as module:function"),
        (called(1, "add", args=msgspec.Raw(b"3")), "the arguments are neither a list nor an object"),
        (
            called(1, "Counter"),
            "the function's return value is not JSON: Encoding objects of type Counter is unsupported",
        ),
        (
            called(1, "large", 100, result_max=50),
            "the function returned 102 bytes of JSON; a result has at most 50",
        ),
        (called(1, "add"), "TypeError: add() missing 1 required positional argument: 'first'"),
        (called(1, "exit_with", 3), "the function called sys.exit with 3"),
        (called(1, "exit_with", "why not"), "the function called sys.exit with 1: why not"),
        (called(1, "nothing", cwd="/no/such"), "FileNotFoundError: [Errno 2] No such file or directory: '/no/such'"),
    ],
    ids=lambda one: one.function if isinstance(one, Call) else "",
)
def test_a_wrong_function_or_result_is_explained(worker: WorkerUnderTest, call: Call, text: str) -> None:
    worker.send(call, called(2, "add", 1))
    answer = worker.answer(1)
    assert isinstance(answer, CallRaised)
    assert answer.traceback_text.splitlines()[-1] == text
    assert answer.exit_code == (3 if text.endswith("with 3") else 1)
    assert isinstance(worker.answer(2), CallReturned)


def test_a_module_with_a_missing_import_shows_where(worker: WorkerUnderTest) -> None:
    answer = worker.ask("tests.bot.broken:anything")
    assert isinstance(answer, CallRaised)
    assert "tests/bot/broken.py" in answer.traceback_text
    assert "No module named 'no_such_module_anywhere'" in answer.traceback_text


def test_the_output_of_a_call_is_sent_before_its_answer(worker: WorkerUnderTest) -> None:
    worker.send(called(1, "print_in_all_ways"), called(2, "nothing"), called(3, "print_in_all_ways"))
    worker.answer(3)
    assert [worker.output(run) for run in (1, 2, 3)] == [
        b"one\ntwo\nthree\nfour\nfive",
        b"",
        b"one\ntwo\nthree\nfour\nfive",
    ]
    order = [type(one).__name__ for one in worker.frames if not (isinstance(one, CallOutput) and one.start)]
    assert order == ["CallOutput", "CallReturned", "CallReturned", "CallOutput", "CallReturned"]


def test_much_output_of_a_call_arrives_complete_and_in_order(worker: WorkerUnderTest) -> None:
    worker.send(called(1, "print_lines", 500_000))
    worker.answer(1)
    assert worker.output(1) == b"".join(b"%09d\n" % line for line in range(500_000))


def test_a_result_larger_than_the_outbox_arrives_complete(worker: WorkerUnderTest) -> None:
    assert worker.call("large", 3_000_000, result_max=4_000_000) == "x" * 3_000_000


def test_output_and_earlier_answers_are_sent_while_a_call_runs(worker: WorkerUnderTest, tmp_path: Path) -> None:
    worker.send(called(1, "nothing"), called(2, "print_and_wait", str(tmp_path / "go")))
    worker.read_until(lambda: worker.output(2) == b"here\n")
    assert isinstance(worker.answer(1), CallReturned)
    (tmp_path / "go").touch()
    assert isinstance(worker.answer(2), CallReturned)


def test_a_call_that_kills_its_worker_loses_no_answer_and_no_output(
    runner: RunnerUnderTest, worker: WorkerUnderTest
) -> None:
    worker.send(called(1, "print_in_all_ways"), called(2, "add", 1), called(3, "exit_at_once"), called(4, "nothing"))
    worker.read_until(lambda: False)
    ended = runner.worker_ended(1)
    assert (ended.exit_code, ended.reason, ended.run) == (9, None, 3)
    worker.take(ended.unsent, FrameBuffer())
    assert {one.run for one in worker.answers()} == {1, 2}
    assert worker.output(3) == b"last words\n"


def test_folder_and_environment_are_restored_for_the_next_call(worker: WorkerUnderTest, tmp_path: Path) -> None:
    before = worker.call("folder_and_variables", "PATH", "CHANGED", "OWN")
    worker.send(called(1, "change_folder_and_environment"), called(2, "replace_environ_and_output"))
    worker.answer(2)
    own = worker.call("folder_and_variables", "OWN", "PATH", cwd=str(tmp_path), env={"OWN": "Ω", "PATH": "/bin"})
    assert own == [str(tmp_path), "Ω", "/bin"]
    assert (
        worker.call("folder_and_variables", "PATH", "CHANGED", "OWN")
        == before
        == [os.getcwd(), os.environ["PATH"], None, None]
    )
    worker.send(called(3, "print_in_all_ways"))
    worker.answer(3)
    assert worker.output(3).startswith(b"one\n")


def test_a_call_can_read_the_inputs_and_the_checkpoint_of_its_task(worker: WorkerUnderTest) -> None:
    assert worker.call("inputs_and_checkpoint", inputs=msgspec.Raw(b'{"build": [1, 2]}'), checkpoint=b"half") == [
        {"build": [1, 2]},
        "half",
    ]
    assert worker.call("inputs_and_checkpoint") == [{}, None]


@pytest.mark.parametrize(
    ("function", "args", "reason"),
    [
        ("leak", [300_000_000], "more than 200000000 bytes of memory are in use after a call"),
        ("leave_thread", [], "a call left a thread behind"),
        ("leave_process", [], "a call left a process behind"),
        ("close_output", [], "a call closed the output"),
    ],
)
def test_a_worker_in_which_a_call_left_something_makes_no_other_call(
    runner: RunnerUnderTest, worker: WorkerUnderTest, function: str, args: list[Any], reason: str
) -> None:
    worker.send(called(1, function, *args), called(2, "nothing"))
    assert worker.leaving() == reason
    assert [(type(one), one.run) for one in worker.answers()] == [(CallReturned, 1)]
    ended = runner.worker_ended(1)
    assert (ended.exit_code, ended.reason, ended.run, ended.unsent) == (0, None, None, b"")


def test_a_process_that_a_call_left_ends_with_the_worker(runner: RunnerUnderTest, worker: WorkerUnderTest) -> None:
    left = worker.call("leave_process")
    runner.worker_ended(1)
    assert not lives(left)


def test_ended_children_and_forks_of_a_worker_do_no_harm(worker: WorkerUnderTest) -> None:
    assert worker.call("leave_ended_process") is None
    assert worker.call("return_twice") == worker.pid
    assert worker.call("add", 1) == 2
    assert [one.run for one in worker.answers()] == [1000, 1001, 1002]


def test_the_usage_of_a_call_comes_with_its_answer(worker: WorkerUnderTest) -> None:
    usage = worker.ask("burn", 0.2).usage
    assert usage.ran_s >= 0.2
    assert usage.cpu_s >= 0.2
    assert usage.memory_bytes > 1_000_000


def test_a_killed_worker_is_gone_at_once(runner: RunnerUnderTest, worker: WorkerUnderTest, tmp_path: Path) -> None:
    worker.send(called(7, "print_and_wait", str(tmp_path / "never")))
    worker.read_until(lambda: worker.output(7) == b"here\n")
    runner.send(KillWorker(1))
    ended = runner.worker_ended(1)
    assert (ended.exit_code, ended.reason, ended.run) == (-signal.SIGKILL, "killed", 7)


def test_a_worker_is_killed_when_the_lease_of_its_call_ends_and_an_idle_one_lives_on(
    runner: RunnerUnderTest, tmp_path: Path
) -> None:
    busy, idle = WorkerUnderTest(runner, 1), WorkerUnderTest(runner, 2)
    busy.send(called(7, "print_and_wait", str(tmp_path / "never")))
    busy.read_until(lambda: busy.output(7) == b"here\n")
    runner.send(SetExpiry(workers={1: time.monotonic() + 0.2, 2: None}))
    ended = runner.worker_ended(1)
    assert (ended.exit_code, ended.reason, ended.run) == (-signal.SIGKILL, "lease_over", 7)
    assert idle.call("add", 1) == 2


@pytest.mark.parametrize("who", ["agent", "runner"])
def test_a_worker_ends_with_its_agent_and_with_its_runner(runner: RunnerUnderTest, tmp_path: Path, who: str) -> None:
    worker = WorkerUnderTest(runner)
    worker.send(called(7, "print_and_wait", str(tmp_path / "never")))
    worker.read_until(lambda: worker.output(7) == b"here\n")
    if who == "agent":
        runner.end.close()
    else:
        runner.process.kill()
    wait_for_end(worker.pid)


def test_a_worker_ends_when_its_socket_is_closed(runner: RunnerUnderTest, worker: WorkerUnderTest) -> None:
    worker.call("nothing")
    worker.end.shutdown(socket.SHUT_RDWR)
    assert runner.worker_ended(1) == WorkerEnded(1, 0)


def test_calls_behind_a_long_one_are_returned_and_never_begun(worker: WorkerUnderTest, tmp_path: Path) -> None:
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    worker.send(called(1, "wait_for", str(gate)), called(2, "touch", str(seen)), called(3, "touch", str(seen)))
    worker.read_until(lambda: any(isinstance(one, CallsGivenBack) for one in worker.frames))
    worker.send(called(4, "touch", str(seen)))  # this one arrives while the worker is not reading
    worker.read_until(lambda: sum(isinstance(one, CallsGivenBack) for one in worker.frames) == 2)
    gate.touch()
    worker.answer(1)
    assert worker.call("add", 1) == 2, "it goes on with what comes then"
    assert [one.runs for one in worker.frames if isinstance(one, CallsGivenBack)] == [[2, 3], [4]]
    assert [one.run for one in worker.answers()] == [1, 1001]
    assert not seen.exists()


def test_no_call_of_a_stream_of_short_ones_is_returned(worker: WorkerUnderTest) -> None:
    # Together they take about as long as the time between two checks of a long call.
    worker.send(*(called(run, "burn", 0.002) for run in range(1, 61)))
    worker.answer(60)
    assert [one.run for one in worker.answers()] == list(range(1, 61))
