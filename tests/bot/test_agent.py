"""An agent takes work from a server, has it run, and reports it: with real processes, over real HTTP."""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from taskyard.bot.output_spool import GAP_LINE_MAX
from taskyard.bot.prefetch import IN_HAND_MAX
from taskyard.wire.bot_protocol import Poll
from tests.bot.fake_server import TOKEN, Answer, FakeServer, bot, serving


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving(FakeServer()) as one:
        yield one


def sh(text: str) -> dict[str, list[str]]:
    return {"command": ["/bin/sh", "-c", text]}


def test_a_command_runs_and_is_reported_with_its_output(server: FakeServer, tmp_path: Path) -> None:
    task = server.add(sh("echo out; echo err >&2"))
    with bot(server, tmp_path / "state") as one:
        report = server.report(task)
        assert one.end() == (
            0,
            "bot b1 is running with 2 slots\nending: waiting for 0 running tasks; a second signal kills them\n",
        )
    assert (report.signal, report.reason, report.exit_code, report.attempt, report.fence) == ("succeed", None, 0, 1, 7)
    assert report.stats is not None
    assert report.stats.ran_ms is not None
    assert server.printed[task] == b"out\nerr\n"
    assert [one.draining for one in server.hellos] == [False, True]
    assert len(server.goodbyes) == 1
    assert not list((tmp_path / "state").glob("work/*")), "nothing is left of it"


@pytest.mark.parametrize("size", [1_000, 1_001, 3_000_000])
@pytest.mark.parametrize("kind", ["script", "call"])
def test_output_beyond_the_limit_is_cut_and_marked_and_the_outcome_stays(
    server: FakeServer, tmp_path: Path, kind: str, size: int
) -> None:
    script = {"script": f"yes 1234567 | head -c {size}"}
    call = {"python": "tests.bot.agent_functions:print_much", "args": [size]}
    task = server.add(script if kind == "script" else call)
    with bot(server, tmp_path / "state", output_max=1_000):
        report = server.report(task)
    assert (report.signal, report.exit_code, report.truncated) == ("succeed", 0, size > 1_000)
    printed = (b"1234567\n" * (size // 8 + 1))[:size]
    if size <= 1_000:
        assert server.printed[task] == printed
        return
    head, line, tail = printed[:750], server.printed[task][750:].splitlines()[1], printed[-(250 - GAP_LINE_MAX) :]
    assert line.decode().startswith(f"taskyard: {size - 750 - len(tail)} bytes of output were dropped here; ")
    assert server.printed[task] == head + b"\n" + line + b"\n" + tail


def test_reports_and_the_next_request_for_work_are_one_request(server: FakeServer, tmp_path: Path) -> None:
    tasks = [server.add({"command": ["true"]}) for _ in range(4)]
    with bot(server, tmp_path, slots=1):
        for task in tasks:
            server.report(task)
    reporting = [poll for poll in server.polls if poll.reports]
    assert all(poll.want > 0 and poll.wait_ms == 0 for poll in reporting), (
        "a request that reports asks for work as well, and never waits"
    )
    names = [poll.poll for poll in server.polls if poll.want]
    assert len(set(names)) == len(names), "every request for work has a name of its own"


@dataclass
class SlowServer(FakeServer):
    """Delays the answers to a bot with many attempts, until two of its requests came at once."""

    under_way: int = 0  # requests of such a bot under way
    together: int = 0  # the most of them at once
    in_hand: int = 0  # the most that a bot ever had

    async def _poll(self, poll: Poll) -> Answer:
        full = self._in_hand() > 100
        self.under_way += full
        deadline = time.monotonic() + 0.5
        while full and self.together < 2 and time.monotonic() < deadline:
            self.together = max(self.together, self.under_way)
            await asyncio.sleep(0.001)
        answer = await super()._poll(poll)
        self.under_way -= full
        self.in_hand = max(self.in_hand, self._in_hand())
        return answer

    def _in_hand(self) -> int:
        return sum(map(len, self.given.values())) - len(self.reports)


def test_while_short_calls_end_faster_than_answers_come_two_requests_are_under_way(tmp_path: Path) -> None:
    with serving(SlowServer()) as server:
        assert isinstance(server, SlowServer)
        tasks = [server.add({"python": "gc:enable"}) for _ in range(6_000)]
        with bot(server, tmp_path):
            server.wait_until(lambda: len(server.reports) == len(tasks), "all reports")
    assert sum(len(poll.reports) for poll in server.polls) == len(tasks), "each end is reported once"
    assert {report.signal for report in server.reports.values()} == {"succeed"}
    assert server.together == 2
    # For the server, a bot has an ended attempt until it is reported.
    assert 100 < server.in_hand <= 2 * IN_HAND_MAX, "many are in hand, and no more than the bound"


def test_a_result_goes_out_while_a_request_for_work_is_parked(server: FakeServer, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    long = server.add(sh(f"while [ ! -e {gate} ]; do sleep 0.02; done"))
    with bot(server, tmp_path / "state", slots=2):
        server.wait_until(lambda: [poll.want for poll in server.polls][-1:] == [1], "a request for the other slot")
        gate.touch()
        assert server.report(long).signal == "succeed"
    reporting = [poll for poll in server.polls if poll.reports]
    assert [poll.want for poll in reporting] == [0]


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ("exit 3", ("fail", "exit_code", 3)),
        ("kill -TERM $$", ("fail", "signaled", -15)),
        ("sleep 60", ("fail", "timed_out", -15)),
    ],
)
def test_a_failed_attempt_says_how_it_ended(
    server: FakeServer, tmp_path: Path, script: str, outcome: tuple[str, str, int]
) -> None:
    task = server.add({"script": script, "timeout": "1s"})
    with bot(server, tmp_path):
        report = server.report(task)
    assert (report.signal, report.reason, report.exit_code) == outcome


def test_a_silent_attempt_ends_as_silent(server: FakeServer, tmp_path: Path) -> None:
    task = server.add({"script": "echo begun; sleep 60", "io_timeout": "200ms"})
    with bot(server, tmp_path):
        assert server.report(task).reason == "silent"
    assert server.printed[task] == b"begun\n"


def test_a_script_stops_at_its_first_failing_line_in_a_fresh_folder(server: FakeServer, tmp_path: Path) -> None:
    task = server.add({"script": "ls -A; touch left; false; echo never"})
    other = server.add({"script": "ls -A"})
    with bot(server, tmp_path, slots=1):
        assert (server.report(task).signal, server.report(other).signal) == ("fail", "succeed")
    assert (server.printed.get(task), server.printed.get(other)) == (None, None)


def test_a_missing_program_or_folder_fails_with_a_message(server: FakeServer, tmp_path: Path) -> None:
    program, folder = server.add({"command": ["/no/such"]}), server.add({"command": ["true"], "cwd": "/no/folder"})
    with bot(server, tmp_path):
        assert (server.report(program).exit_code, server.report(folder).exit_code) == (127, 126)
    assert b"/no/such" in server.printed[program]
    assert server.printed[folder] == b"taskyard: cwd: there is no folder /no/folder\n"


def test_an_unsupported_kind_fails_with_a_message(server: FakeServer, tmp_path: Path) -> None:
    task = server.add({"approval": "Ship it?"})
    with bot(server, tmp_path):
        assert server.report(task).signal == "fail"
    assert (
        server.printed[task]
        == b"taskyard: this bot runs command, script, python, ansible and git; it cannot run approval\n"
    )


def test_a_task_gets_its_identity_and_never_the_bots_token(server: FakeServer, tmp_path: Path) -> None:
    task = server.add({"command": ["env"], "env": {"OWN": "1", "TASKYARD_TOKEN": "forged"}})
    with bot(server, tmp_path):
        server.report(task)
    env = dict(line.partition("=")[::2] for line in server.printed[task].decode().splitlines())
    ours = {"TASKYARD_URL": server.url, "TASKYARD_TOKEN": f"token-{task}", "TASKYARD_TASK_ID": task, "OWN": "1"}
    assert {name: env[name] for name in ours} == ours
    assert (env["TASKYARD_GRAPH_ID"], env["TASKYARD_LABEL"], env["TASKYARD_ATTEMPT"]) == ("g" * 32, "it", "1")
    assert TOKEN not in server.printed[task].decode()
    assert "HIDDEN" not in env


def test_a_result_is_published_and_inputs_are_found(server: FakeServer, tmp_path: Path) -> None:
    copy = 'cat "$TASKYARD_INPUTS" > "$TASKYARD_RESULT"'
    along = server.add({"script": copy}, inputs={"a": 1})
    apart = server.add({"script": copy}, inputs_apart=True)
    none = server.add({"script": copy})
    server.inputs[apart] = b'{"b": [2]}'
    with bot(server, tmp_path):
        results = [json.loads(bytes(server.report(task).result)) for task in (along, apart, none)]
    assert results == [{"a": 1}, {"b": [2]}, {}]
    asked = [headers["authorization"] for path, headers in server.requests if path.endswith("/inputs")]
    assert asked == [f"Bearer token-{apart}"]


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ('echo "{" > "$TASKYARD_RESULT"', b"taskyard: the result is not JSON"),
        ('head -c 262145 /dev/zero > "$TASKYARD_RESULT"', b"taskyard: the result is larger than 262144 bytes"),
    ],
)
def test_an_invalid_result_fails_the_attempt(server: FakeServer, tmp_path: Path, script: str, complaint: bytes) -> None:
    task = server.add({"script": script})
    with bot(server, tmp_path):
        report = server.report(task)
    assert (report.signal, report.reason, bytes(report.result)) == ("fail", "bad_result", b"")
    assert server.printed[task].splitlines()[-1].startswith(complaint)


def test_a_checkpoint_is_given_to_the_attempt_and_sent_back(server: FakeServer, tmp_path: Path) -> None:
    task = server.add(
        {"script": 'cat "$TASKYARD_CHECKPOINT"; echo two > "$TASKYARD_CHECKPOINT"; exit 1'}, checkpoint=b"one\n"
    )
    with bot(server, tmp_path):
        assert server.report(task).signal == "fail"
    assert (server.printed[task], server.checkpoints[task]) == (b"one\n", b"two\n")


def test_long_output_arrives_complete_and_in_order(server: FakeServer, tmp_path: Path) -> None:
    task = server.add({"command": ["seq", "1", "700000"]})
    with bot(server, tmp_path):
        assert server.report(task).truncated is False
    assert server.printed[task] == "".join(f"{number}\n" for number in range(1, 700_001)).encode()


def test_output_is_sent_while_the_attempt_runs(server: FakeServer, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    task = server.add(sh(f"echo begun; while [ ! -e {gate} ]; do sleep 0.02; done; echo done"))
    with bot(server, tmp_path / "state", slots=1):
        server.wait_until(lambda: server.printed.get(task) == b"begun\n", "output before the end")
        gate.touch()
        server.report(task)
    assert server.printed[task] == b"begun\ndone\n"


def test_functions_are_called_in_warm_workers(server: FakeServer, tmp_path: Path) -> None:
    calls = [
        server.add({"python": "os:getpid"}),
        server.add({"python": "operator:add", "args": [1, 2]}),
        server.add({"python": "tests.bot.agent_functions:talk", "args": {"text": "hello"}}),
        server.add({"python": "tests.bot.agent_functions:inputs"}, inputs={"a": 1}),
        server.add({"python": "tests.bot.agent_functions:environment", "env": {"OWN": "1"}}),
        server.add({"python": "os:getpid"}),
    ]
    with bot(server, tmp_path, slots=1):
        first, total, _, inputs, environment, last = [
            json.loads(bytes(server.report(task).result) or b"null") for task in calls
        ]
    assert first == last, "one worker makes all of them"
    assert (total, inputs, environment) == (3, {"a": 1}, [calls[4], "token-" + calls[4], "1"])
    assert server.printed == {calls[2]: b"hello\n"}


def test_the_traceback_of_a_function_is_its_output(server: FakeServer, tmp_path: Path) -> None:
    task, missing = server.add({"python": "tests.bot.agent_functions:fail"}), server.add({"python": "no_such_module:f"})
    with bot(server, tmp_path):
        reports = [server.report(one) for one in (task, missing)]
    assert [(one.signal, one.reason, one.exit_code) for one in reports] == [("fail", "exit_code", 1)] * 2
    assert server.printed[task].endswith(b"ValueError: as requested\n")
    assert b"no_such_module" in server.printed[missing]


def test_a_worker_that_dies_fails_its_call_and_no_other(server: FakeServer, tmp_path: Path) -> None:
    before = [server.add({"python": "tests.bot.agent_functions:nothing"}) for _ in range(10)]
    dying = server.add({"python": "tests.bot.agent_functions:die"})
    after = [server.add({"python": "tests.bot.agent_functions:nothing"}) for _ in range(10)]
    with bot(server, tmp_path, slots=1):
        ends = {task: server.report(task) for task in (*before, dying, *after)}
    assert {one.signal for task, one in ends.items() if task != dying} == {"succeed"}
    assert (ends[dying].signal, ends[dying].reason, ends[dying].exit_code) == ("fail", "signaled", -9)
    assert server.printed == {dying: b"taskyard: the worker that made this call died (signal 9)\n"}


def test_a_call_is_killed_at_its_time_out(server: FakeServer, tmp_path: Path) -> None:
    task = server.add({"python": "time:sleep", "args": [60], "timeout": "1s"})
    after = server.add({"python": "tests.bot.agent_functions:nothing"})
    with bot(server, tmp_path, slots=1):
        assert (server.report(task).reason, server.report(after).signal) == ("timed_out", "succeed")


def test_calls_behind_one_that_hangs_go_to_another_worker_once_each(server: FakeServer, tmp_path: Path) -> None:
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    count = {"python": "tests.bot.agent_functions:count", "args": [str(seen), ""]}
    before = [server.add(count) for _ in range(300)]  # so that many calls are sent to a worker at once
    hangs = server.add(count | {"args": [str(seen), str(gate)]})
    behind = [server.add(count) for _ in range(100)]
    with bot(server, tmp_path / "state", slots=2):
        for task in (*before, *behind):
            assert server.report(task).signal == "succeed"
        assert hangs not in server.reports
        gate.touch()
        assert server.report(hangs).signal == "succeed"
    assert sorted(seen.read_text().split()) == sorted((*before, hangs, *behind))
