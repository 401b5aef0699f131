"""The files that task and bot exchange: whatever a task does with them affects that task and no other."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from taskyard.bot.workdir import PROGRESS_FILE_MAX, Workdir, WorkdirPool, remove_tree
from taskyard.wire.bot_protocol import CHECKPOINT_MAX, RESULT_MAX, Lease, Report
from tests.bot.fake_server import FakeServer, bot, serving

FILES = {"result": RESULT_MAX, "checkpoint": CHECKPOINT_MAX, "progress": PROGRESS_FILE_MAX}
#: What a task does, and the message about it.
ACTIONS = {
    "mkdir {}": "the {name} cannot be read: it is a folder, not a file",
    "mkfifo {}": "the {name} cannot be read: it is a named pipe, not a file",
    "ln -s /etc/hostname {}": "the {name} cannot be read: it is a link, not a file",
    "ln -s /no/such {}": "the {name} cannot be read: it is a link, not a file",
    "ln -s /dev/zero {}": "the {name} cannot be read: it is a link, not a file",
    "truncate -s 1T {}": "the {name} is larger than {size} bytes",
}
CASES = [(name, action) for name in FILES for action in ACTIONS]
#: The uid of a user without rights, where tests run as root.
NOBODY = 65_534


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving(FakeServer(lease_ms=1_500)) as one:
        yield one


@contextmanager
def as_nobody() -> Iterator[Path]:
    """Be a user without rights; yield a folder of that user."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.geteuid()
        if before == 0:
            os.chown(folder, NOBODY, -1)
            os.seteuid(NOBODY)
        try:
            yield Path(folder)
        finally:
            os.seteuid(before)


def wait_for_renewals(server: FakeServer, task: str) -> None:
    """Wait until a running task was renewed more than once, which reads its files."""
    server.wait_until(lambda: sum(one.task == task for poll in server.polls for one in poll.renewals) >= 2, "renewals")


def summary(report: Report) -> tuple[str, str | None, int | None]:
    return report.signal, report.reason, report.exit_code


def test_anything_in_the_place_of_a_file_fails_that_task_alone(server: FakeServer, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    tasks = {
        case: server.add(
            {"script": f"{case[1].format(f'$TASKYARD_{case[0].upper()}')}; until [ -e {gate} ]; do sleep 0.1; done"}
        )
        for case in CASES
    }
    with bot(server, tmp_path / "state", slots=len(tasks)):
        for task in tasks.values():
            wait_for_renewals(server, task)
        gate.touch()
        for (name, action), task in tasks.items():
            assert summary(server.report(task)) == ("fail", "bad_result", 0), (name, action)
            message = ACTIONS[action].format(name=name, size=FILES[name])
            assert server.printed[task].decode().startswith(f"taskyard: {message}"), (name, action)
        after = [server.add({"script": 'cat "$TASKYARD_INPUTS"'}) for _ in range(len(tasks))]
        assert {summary(server.report(one)) for one in after} == {("succeed", None, 0)}, "no slot is lost"
    assert (server.progress, server.checkpoints) == ({}, {})


def test_a_failed_attempt_with_bad_files_keeps_its_reason(server: FakeServer, tmp_path: Path) -> None:
    task = server.add({"script": 'mkdir "$TASKYARD_CHECKPOINT"; echo "{" > "$TASKYARD_RESULT"; exit 3'})
    with bot(server, tmp_path):
        assert summary(server.report(task)) == ("fail", "exit_code", 3)
    assert server.printed[task] == b"taskyard: the checkpoint cannot be read: it is a folder, not a file\n"


def test_a_function_that_leaves_a_folder_fails_and_the_next_call_is_made(server: FakeServer, tmp_path: Path) -> None:
    call = {"python": "tests.bot.agent_functions:leave_folder", "args": ["TASKYARD_CHECKPOINT"]}
    first, second = server.add(call), server.add({"python": "os:getpid"})
    with bot(server, tmp_path, slots=1):
        assert summary(server.report(first)) == ("fail", "bad_result", 0)
        assert summary(server.report(second)) == ("succeed", None, 0)
    assert server.printed[first] == b"taskyard: the checkpoint cannot be read: it is a folder, not a file\n"


@pytest.mark.parametrize(
    ("function", "args", "message"),
    [
        ("complex_number", [], "the function's return value is not JSON"),
        ("large", [RESULT_MAX], f"the function returned {RESULT_MAX + 2} bytes of JSON"),
    ],
)
def test_an_invalid_return_value_fails_the_call(
    server: FakeServer, tmp_path: Path, function: str, args: list[int], message: str
) -> None:
    task = server.add({"python": f"tests.bot.agent_functions:{function}", "args": args})
    with bot(server, tmp_path):
        assert summary(server.report(task)) == ("fail", "bad_result", 1)
    assert server.printed[task].decode().startswith(message)


def test_progress_that_the_server_would_refuse_is_not_sent(server: FakeServer, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    wait = f"until [ -e {gate} ]; do sleep 0.1; done"
    empty = server.add({"script": f': > "$TASKYARD_PROGRESS"; {wait}'})
    odd = server.add({"script": f'printf "a\\0b\\377" > "$TASKYARD_PROGRESS"; {wait}'})
    with bot(server, tmp_path / "state"):
        for task in (empty, odd):
            wait_for_renewals(server, task)
        gate.touch()
        assert {server.report(task).signal for task in (empty, odd)} == {"succeed"}
    assert server.progress == {odd: "ab"}


def test_changed_inputs_of_one_attempt_reach_no_other(server: FakeServer, tmp_path: Path) -> None:
    change = 'chmod u+w "$TASKYARD_INPUTS"; echo \'{"forged": 1}\' > "$TASKYARD_INPUTS"; ln "$TASKYARD_INPUTS" here'
    look = 'stat -c %a "$TASKYARD_INPUTS"; cat "$TASKYARD_INPUTS"'
    with bot(server, tmp_path, slots=1):
        for _ in range(3):  # each gets the folder of the one before
            task, after = server.add({"script": change}), server.add({"script": look})
            given = server.add({"script": look}, inputs={"a": 1})
            assert {server.report(one).signal for one in (task, after, given)} == {"succeed"}
            assert (server.printed[after], server.printed[given]) == (b"444\n{}", b'444\n{"a":1}')


@pytest.fixture
def fast_folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder in memory, where the machine has one: there a file is created in microseconds."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder with a name of its own is made there
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield Path(folder)


@pytest.mark.parametrize(
    ("function", "argument", "left"),
    [
        ("forge_inputs", "[]", ("succeed", None, 0)),
        ("leave_folder", "TASKYARD_CHECKPOINT", ("fail", "bad_result", 0)),
    ],
)
def test_files_left_by_the_fastest_calls_are_noticed_and_reach_no_other(
    server: FakeServer, fast_folder: Path, function: str, argument: str, left: tuple[str, str | None, int]
) -> None:
    call = {"python": f"tests.bot.agent_functions:{function}", "args": [argument]}
    with bot(server, fast_folder / "state", slots=1):
        tasks = [server.add(call, submitter="ada") for _ in range(200)]
        assert {summary(server.report(one)) for one in tasks} == {left}
        after = [server.add({"python": "tests.bot.agent_functions:read_inputs"}, submitter="ben") for _ in range(50)]
        found = {(*summary(server.report(one)), bytes(server.report(one).result)) for one in after}
    assert found == {("succeed", None, 0, b'"{}"')}


@pytest.mark.parametrize("text", ["\xff\xff\xff\xff", "\0\0\0\4junk"])
def test_a_call_that_writes_to_its_workers_socket_ends_alone(server: FakeServer, tmp_path: Path, text: str) -> None:
    calls = [server.add({"python": "tests.bot.agent_functions:write_to_sockets", "args": [text]}) for _ in range(6)]
    after = server.add({"python": "os:getpid"})
    with bot(server, tmp_path, slots=1):
        # A call succeeded if its answer could still be read, from the outbox that its worker shares with the runner.
        ends = {(server.report(one).signal, server.report(one).reason) for one in calls}
        assert ends <= {("fail", "signaled"), ("succeed", None)}
        assert server.report(after).signal == "succeed"


def test_inputs_larger_than_a_frame_reach_a_function(server: FakeServer, tmp_path: Path) -> None:
    task = server.add({"python": "tests.bot.agent_functions:many_inputs"}, inputs_apart=True)
    server.inputs[task] = json.dumps({str(label): "x" * 1_000_000 for label in range(20)}).encode()
    with bot(server, tmp_path):
        assert bytes(server.report(task).result) == b"20000000"


def lease() -> Lease:
    return Lease("t", 1, 1, 1, "g", "l", payload=None, token="")  # type: ignore[arg-type]


def test_files_and_folders_without_access_rights_are_reported_and_removed() -> None:
    with as_nobody() as folder:
        workdirs = WorkdirPool(folder)
        workdir = workdirs.take()
        workdir.prepare(lease(), None)
        result = Path(workdir.file("result"))
        result.write_text("1")
        result.chmod(0)
        assert workdir.read_files(succeeded=True).faults == ("the result cannot be read: Permission denied",)
        (Path(workdir.folder) / "closed" / "within").mkdir(parents=True)
        (Path(workdir.folder) / "closed").chmod(0)
        workdir.remove()
        assert list(folder.iterdir()) == []


def test_files_behind_a_linked_folder_are_not_read(tmp_path: Path) -> None:
    workdir = WorkdirPool(tmp_path).take()
    place, other = Path(workdir.file("result")).parent, tmp_path / "other"
    other.mkdir()
    (other / "result").write_text("1")
    place.rename(tmp_path / "gone")
    place.symlink_to(other)
    assert workdir.read_files(succeeded=True).faults == ("the result cannot be read: Not a directory",)


def test_existing_folders_are_skipped(tmp_path: Path) -> None:
    for number in ("1", "2"):
        (tmp_path / number).mkdir()
    assert WorkdirPool(tmp_path).take().folder == f"{tmp_path}/3/folder"


def test_removing_a_tree_follows_no_link(tmp_path: Path) -> None:
    kept, gone = tmp_path / "kept", tmp_path / "gone"
    kept.mkdir(mode=0o500)
    (kept / "file").touch()
    gone.mkdir()
    (gone / "link").symlink_to(kept)
    remove_tree(str(gone))
    assert (gone.exists(), (kept / "file").exists(), kept.stat().st_mode & 0o777) == (False, True, 0o500)


def test_a_reset_workdir_has_empty_inputs(tmp_path: Path) -> None:
    workdirs = WorkdirPool(tmp_path)
    workdir: Workdir = workdirs.take()
    workdir.prepare(lease(), b"1")
    assert workdir.reset()
    workdir.mark_clean()
    assert Path(workdir.file("inputs")).read_bytes() == b"{}"
