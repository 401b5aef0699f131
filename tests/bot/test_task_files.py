"""The files by which task and bot speak: whatever a task does with them is felt by that task, and by nobody else."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from taskyard.bot.workdir import PROGRESS_FILE_MAX, RESULT_MAX, Workdir, WorkdirPool, remove_tree
from taskyard.wire.bot_protocol import CHECKPOINT_MAX, Lease, Report
from tests.bot.yard import Yard, bot, served

FILES = {"result": RESULT_MAX, "checkpoint": CHECKPOINT_MAX, "progress": PROGRESS_FILE_MAX}
#: What a task does, and what is said of it.
DEEDS = {
    "mkdir {}": "the {name} cannot be read: it is a folder, not a file",
    "mkfifo {}": "the {name} cannot be read: it is a named pipe, not a file",
    "ln -s /etc/hostname {}": "the {name} cannot be read: it is a link, not a file",
    "ln -s /no/such {}": "the {name} cannot be read: it is a link, not a file",
    "ln -s /dev/zero {}": "the {name} cannot be read: it is a link, not a file",
    "truncate -s 1T {}": "the {name} is larger than {size} bytes",
}
CASES = [(name, deed) for name in FILES for deed in DEEDS]
#: Nobody in particular, where tests run as the one who may do everything.
NOBODY = 65_534


@pytest.fixture
def yard() -> Iterator[Yard]:
    with served(Yard(lease_ms=1_500)) as one:
        yield one


@contextmanager
def as_nobody() -> Iterator[Path]:
    """Be somebody to whom files can be closed; give a folder."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.geteuid()
        if before == 0:
            os.chown(folder, NOBODY, -1)
            os.seteuid(NOBODY)
        try:
            yield Path(folder)
        finally:
            os.seteuid(before)


def wait_for_renewals(yard: Yard, task: str) -> None:
    """Wait until a task that runs was renewed, and so its files were looked at, more than once."""
    yard.until(lambda: sum(one.task == task for poll in yard.polls for one in poll.renewals) >= 2, "renewals")


def in_short(report: Report) -> tuple[str, str | None, int | None]:
    return report.signal, report.reason, report.exit_code


def test_whatever_is_in_the_place_of_a_file_fails_that_task_alone(yard: Yard, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    tasks = {
        case: yard.add(
            {"script": f"{case[1].format(f'$TASKYARD_{case[0].upper()}')}; until [ -e {gate} ]; do sleep 0.1; done"}
        )
        for case in CASES
    }
    with bot(yard, tmp_path / "state", slots=len(tasks)):
        for task in tasks.values():
            wait_for_renewals(yard, task)
        gate.touch()
        for (name, deed), task in tasks.items():
            assert in_short(yard.report(task)) == ("fail", "bad_result", 0), (name, deed)
            said = DEEDS[deed].format(name=name, size=FILES[name])
            assert yard.printed[task].decode().startswith(f"taskyard: {said}"), (name, deed)
        after = [yard.add({"script": 'cat "$TASKYARD_INPUTS"'}) for _ in range(len(tasks))]
        assert {in_short(yard.report(one)) for one in after} == {("succeed", None, 0)}, "no slot is lost"
    assert (yard.progress, yard.checkpoints) == ({}, {})


def test_what_failed_by_itself_keeps_its_reason(yard: Yard, tmp_path: Path) -> None:
    task = yard.add({"script": 'mkdir "$TASKYARD_CHECKPOINT"; echo "{" > "$TASKYARD_RESULT"; exit 3'})
    with bot(yard, tmp_path):
        assert in_short(yard.report(task)) == ("fail", "exit_code", 3)
    assert yard.printed[task] == b"taskyard: the checkpoint cannot be read: it is a folder, not a file\n"


def test_a_function_that_leaves_a_folder_fails_and_the_next_call_is_made(yard: Yard, tmp_path: Path) -> None:
    call = {"python": "tests.bot.agent_functions:leave_folder", "args": ["TASKYARD_CHECKPOINT"]}
    first, second = yard.add(call), yard.add({"python": "os:getpid"})
    with bot(yard, tmp_path, slots=1):
        assert in_short(yard.report(first)) == ("fail", "bad_result", 0)
        assert in_short(yard.report(second)) == ("succeed", None, 0)
    assert yard.printed[first] == b"taskyard: the checkpoint cannot be read: it is a folder, not a file\n"


@pytest.mark.parametrize(
    ("function", "args", "said"),
    [
        ("set_of_one", [], "the function's return value is not JSON"),
        ("large", [RESULT_MAX], f"the function returned {RESULT_MAX + 2} bytes of JSON"),
    ],
)
def test_what_a_function_returns_and_is_no_result_fails_the_call(
    yard: Yard, tmp_path: Path, function: str, args: list[int], said: str
) -> None:
    task = yard.add({"python": f"tests.bot.agent_functions:{function}", "args": args})
    with bot(yard, tmp_path):
        assert in_short(yard.report(task)) == ("fail", "bad_result", 1)
    assert yard.printed[task].decode().startswith(said)


def test_progress_that_no_server_takes_is_not_sent(yard: Yard, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    wait = f"until [ -e {gate} ]; do sleep 0.1; done"
    empty = yard.add({"script": f': > "$TASKYARD_PROGRESS"; {wait}'})
    odd = yard.add({"script": f'printf "a\\0b\\377" > "$TASKYARD_PROGRESS"; {wait}'})
    with bot(yard, tmp_path / "state"):
        for task in (empty, odd):
            wait_for_renewals(yard, task)
        gate.touch()
        assert {yard.report(task).signal for task in (empty, odd)} == {"succeed"}
    assert yard.progress == {odd: "ab"}


def test_each_attempt_has_inputs_of_its_own_that_only_it_can_have_changed(yard: Yard, tmp_path: Path) -> None:
    change = 'chmod u+w "$TASKYARD_INPUTS"; echo \'{"forged": 1}\' > "$TASKYARD_INPUTS"; ln "$TASKYARD_INPUTS" here'
    look = 'stat -c %a "$TASKYARD_INPUTS"; cat "$TASKYARD_INPUTS"'
    with bot(yard, tmp_path, slots=1):
        for _ in range(3):  # each is given the place of the one before
            task, after = yard.add({"script": change}), yard.add({"script": look})
            given = yard.add({"script": look}, inputs={"a": 1})
            assert {yard.report(one).signal for one in (task, after, given)} == {"succeed"}
            assert (yard.printed[after], yard.printed[given]) == (b"444\n{}", b'444\n{"a":1}')


@pytest.fixture
def swift_folder(tmp_path: Path) -> Iterator[Path]:
    """Give a folder in memory, where this machine has one: there a file is made in some microseconds."""
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
def test_what_the_quickest_call_leaves_is_seen_and_reaches_no_other(
    yard: Yard, swift_folder: Path, function: str, argument: str, left: tuple[str, str | None, int]
) -> None:
    call = {"python": f"tests.bot.agent_functions:{function}", "args": [argument]}
    with bot(yard, swift_folder / "state", slots=1):
        tasks = [yard.add(call, submitter="ada") for _ in range(200)]
        assert {in_short(yard.report(one)) for one in tasks} == {left}
        after = [yard.add({"python": "tests.bot.agent_functions:read_inputs"}, submitter="ben") for _ in range(50)]
        found = {(*in_short(yard.report(one)), bytes(yard.report(one).result)) for one in after}
    assert found == {("succeed", None, 0, b'"{}"')}


@pytest.mark.parametrize("text", ["\xff\xff\xff\xff", "\0\0\0\4junk"])
def test_a_call_that_writes_to_the_socket_of_its_worker_comes_to_an_end_alone(
    yard: Yard, tmp_path: Path, text: str
) -> None:
    garbles = [yard.add({"python": "tests.bot.agent_functions:garble", "args": [text]}) for _ in range(6)]
    after = yard.add({"python": "os:getpid"})
    with bot(yard, tmp_path, slots=1):
        # It succeeded if its answer could still be read: from the memory that the worker shares with the runner.
        ends = {(yard.report(one).signal, yard.report(one).reason) for one in garbles}
        assert ends <= {("fail", "signaled"), ("succeed", None)}
        assert yard.report(after).signal == "succeed"


def test_inputs_that_fit_into_no_frame_reach_a_function(yard: Yard, tmp_path: Path) -> None:
    task = yard.add({"python": "tests.bot.agent_functions:many_inputs"}, inputs_apart=True)
    yard.inputs[task] = json.dumps({str(label): "x" * 1_000_000 for label in range(20)}).encode()
    with bot(yard, tmp_path):
        assert bytes(yard.report(task).result) == b"20000000"


def lease() -> Lease:
    return Lease("t", 1, 1, 1, "g", "l", payload=None, token="")  # type: ignore[arg-type]


def test_what_a_task_closed_or_replaced_is_said_and_removed() -> None:
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


def test_files_in_a_folder_that_is_a_link_are_not_read(tmp_path: Path) -> None:
    workdir = WorkdirPool(tmp_path).take()
    place, other = Path(workdir.file("result")).parent, tmp_path / "other"
    other.mkdir()
    (other / "result").write_text("1")
    place.rename(tmp_path / "gone")
    place.symlink_to(other)
    assert workdir.read_files(succeeded=True).faults == ("the result cannot be read: Not a directory",)


def test_a_place_that_is_taken_is_passed_over(tmp_path: Path) -> None:
    for number in ("1", "2"):
        (tmp_path / number).mkdir()
    assert WorkdirPool(tmp_path).take().folder == f"{tmp_path}/3/folder"


def test_removing_follows_no_link(tmp_path: Path) -> None:
    kept, gone = tmp_path / "kept", tmp_path / "gone"
    kept.mkdir(mode=0o500)
    (kept / "file").touch()
    gone.mkdir()
    (gone / "link").symlink_to(kept)
    remove_tree(str(gone))
    assert (gone.exists(), (kept / "file").exists(), kept.stat().st_mode & 0o777) == (False, True, 0o500)


def test_a_room_that_nobody_touched_is_used_again_as_it_is(tmp_path: Path) -> None:
    workdirs = WorkdirPool(tmp_path)
    workdir: Workdir = workdirs.take()
    workdir.prepare(lease(), b"1")
    assert workdir.reset()
    workdir.mark_clean()
    assert Path(workdir.file("inputs")).read_bytes() == b"{}"
