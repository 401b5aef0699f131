"""Files of servers and bots can be read by their owner only, whatever the umask is and whatever existed before."""

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from taskyard.private_files import make_file, make_folder
from tests.cli.program import graph, script, taskyard
from tests.cli.server_process import home_env, start_program
from tests.cli.waiting import is_gone, read_until

#: Umasks that remove no permissions, and all.
UMASKS = [0o000, 0o777]
NOBODY = 65_534
DATABASE = ("taskyard.db", "taskyard.db-wal", "taskyard.db-shm", "taskyard.db.lock")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def open_to_others(top: Path) -> list[str]:
    """List the paths in a folder, with the folder, that the group or others can access."""
    return [str(one) for one in everything(top) if not one.is_symlink() and mode(one) & 0o077]


def everything(top: Path) -> Iterator[Path]:
    yield top
    yield from top.rglob("*")


@pytest.mark.parametrize("umask", UMASKS)
def test_a_database_and_its_new_folder_are_for_their_owner_alone(tmp_path: Path, umask: int) -> None:
    data = tmp_path / "above" / "data"
    token = tmp_path / "tokens" / "admin"
    arguments = ["serve", "--port", "0", "--data", str(data), "--admin-token", str(token)]
    with start_program(arguments, tmp_path, umask) as program:
        assert program.stdout is not None
        read_until(program.stdout.fileno(), "TASKYARD_URL=", program)
        assert {name: mode(data / name) for name in DATABASE} == dict.fromkeys(DATABASE, 0o600)
        assert [mode(one) for one in (data, data.parent, token.parent)] == [0o700] * 3
        assert mode(token) == 0o600


def test_what_was_open_to_others_is_narrowed(tmp_path: Path) -> None:
    data, token = tmp_path / "data", tmp_path / "admin"
    arguments = ["serve", "--port", "0", "--data", str(data), "--admin-token", str(token)]
    for umask in (-1, 0):
        with start_program(arguments, tmp_path, umask) as program, ExitStack() as stack:
            assert program.stdout is not None
            read_until(program.stdout.fileno(), "TASKYARD_URL=", program)
            assert open_to_others(data) == []
            # As after a crash: the files beside the database stay where they are.
            program.kill()
            stack.callback(program.wait)
        data.chmod(0o755)
        token.chmod(0o644)
        for file in data.iterdir():
            file.chmod(0o666)
    with start_program(arguments, tmp_path) as program:
        assert program.stdout is not None
        read_until(program.stdout.fileno(), "TASKYARD_URL=", program)
        assert (open_to_others(data), mode(token)) == ([], 0o600)


def test_the_current_folder_keeps_its_mode_and_the_files_in_it_are_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    database = f"sqlite:///{tmp_path / 'other.db'}"
    for name, options in (("taskyard.db", []), ("other.db", ["--database", database])):
        with start_program(["serve", "--port", "0", *options], tmp_path, 0, cwd=tmp_path) as program:
            assert program.stdout is not None
            read_until(program.stdout.fileno(), "TASKYARD_URL=", program)
            assert (mode(tmp_path), mode(tmp_path / name)) == (0o755, 0o600)
            assert open_to_others(tmp_path) == [str(tmp_path), str(tmp_path / "stderr")]


def test_everything_of_a_server_with_bots_is_for_their_owner_alone(tmp_path: Path) -> None:
    home, data = tmp_path / "home", tmp_path / "home" / ".local" / "share" / "taskyard"
    home.mkdir(mode=0o755)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with start_program(["up", "--port", "0", "--slots", "1"], home, 0) as program:
        assert program.stdout is not None
        read_until(program.stdout.fileno(), "TASKYARD_TOKEN=", program)
        task = script(f'echo shown; echo "{{}}" > "$TASKYARD_RESULT"; read line < {pipe}')
        made = taskyard("submit", "-", document=graph({"a": task}), env=home_env(home))
        assert made.returncode == 0, made.stderr
        with pipe.open("w"):  # opens when the task does
            # The place of an attempt is the task's own, in a folder that others cannot enter.
            work = data / "bots" / "1" / "work"
            assert [one for one in open_to_others(data) if not one.startswith(f"{work}/")] == []
            assert open_to_others(home / ".config" / "taskyard") == []
    is_gone(program.pid)


def test_the_files_of_a_run_are_for_their_owner_alone(tmp_path: Path) -> None:
    pipe, told = tmp_path / "pipe", tmp_path / "told"
    os.mkfifo(pipe)
    look = f"""
        find "$TMPDIR" -path "*/work/*" -prune -o \\( -perm /077 ! -type l \\) -print > {told}
        ls "$TMPDIR" >> {told}
    """
    tasks = {"a": script(look, env={"TMPDIR": str(tmp_path / "tmp")})}
    (tmp_path / "tmp").mkdir(mode=0o700)
    done = taskyard("run", "-", document=graph(tasks), env=home_env(tmp_path) | {"TMPDIR": str(tmp_path / "tmp")})
    assert done.returncode == 0, done.stderr
    (folder,) = told.read_text().split()
    assert folder.startswith("taskyard-run-")


# Of others.


def as_nobody(act: Callable[[], object]) -> str:
    """Call a function as another user in a child process; return its exception."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        try:
            act()
            said = "nothing"
        except BaseException as fault:  # noqa: BLE001 - it is told
            said = f"{type(fault).__name__}: {fault}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as told:
        return told.read()


@pytest.mark.skipif(os.geteuid() != 0, reason="to become another user takes root")
def test_what_belongs_to_another_user_and_is_open_is_refused_with_the_command_that_mends_it() -> None:
    # Folders of pytest are closed to others, at every level.
    with tempfile.TemporaryDirectory() as server:
        Path(server).chmod(0o755)
        file, folder = Path(server, "taskyard.db"), Path(server, "data")
        file.touch()
        folder.mkdir()
        file.chmod(0o666)
        folder.chmod(0o777)
        assert f"have its owner run `chmod 600 {file}`" in as_nobody(lambda: make_file(file))
        assert f"have its owner run `chmod 700 {folder}`" in as_nobody(lambda: make_folder(folder))


def test_two_that_make_the_same_folder_or_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    for _ in range(2):
        make_folder(tmp_path / "a" / "b")
        make_file(tmp_path / "a" / "b" / "c")
        (tmp_path / "a" / "b" / "c").write_text("kept")
    make_file(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").read_text() == "kept"
