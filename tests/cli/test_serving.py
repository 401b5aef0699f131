"""Servers that are started by hand: where they listen, what they print, and how they end."""

import json
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import taskyard
from tests.cli.waiting import DEADLINE_SECONDS, is_gone, read_until, until
from tests.cli.yard import at_home, started, yard


def test_a_server_ends_well_when_it_is_told_to_and_keeps_what_it_was_given(tmp_path: Path) -> None:
    with yard(tmp_path) as first:
        first.told("pools", "set", "lab", "--capacity", "3")
        first.program.send_signal(signal.SIGTERM)
        assert first.program.wait(DEADLINE_SECONDS) == 0
    with yard(tmp_path) as second:
        assert second.token == "", "the first token is told once"
        assert "lab" in second.run("pools", TASKYARD_TOKEN=first.token).stdout


def test_a_second_server_on_the_same_file_is_refused_with_what_helps(tmp_path: Path) -> None:
    with yard(tmp_path):
        second = taskyard("serve", "--port", "0", "--data", str(tmp_path), env=at_home(tmp_path))
    assert (second.returncode, second.stdout) == (1, "")
    assert "is in use by another Taskyard: stop that one first" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with yard(tmp_path) as one:
        port = one.url.rpartition(":")[2]
        second = taskyard(
            "serve", "--port", port, "--database", f"sqlite:///{tmp_path / 'b.db'}", env=at_home(tmp_path)
        )
    assert second.returncode == 1
    assert "cannot serve: " in second.stderr
    assert "Traceback" not in second.stderr


def test_nobody_serves_strangers_without_tokens(tmp_path: Path) -> None:
    done = taskyard("serve", "--host", "0.0.0.0", "--no-auth", "--data", str(tmp_path), env=at_home(tmp_path))  # noqa: S104
    assert (done.returncode, done.stdout) == (1, "")
    assert "authentication is off" in done.stderr
    assert not (tmp_path / "taskyard.db").exists()


def test_without_tokens_this_machine_may_do_everything(tmp_path: Path) -> None:
    with yard(tmp_path, "--no-auth") as one:
        assert one.run("pools", "set", "lab", TASKYARD_TOKEN="").returncode == 0


def test_an_admin_token_is_kept_in_a_file_and_made_again_when_that_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "admin.token"
    with yard(tmp_path, "--admin-token", str(file)) as one:
        assert file.read_text().strip() == one.token
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.unlink()
    with yard(tmp_path, "--admin-token", str(file)) as one:
        assert one.run("token", "list", TASKYARD_TOKEN=file.read_text().strip()).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_is_found_by_the_other_commands_and_ends_with_all_it_started(number: signal.Signals, tmp_path: Path) -> None:
    env = at_home(tmp_path)
    with started(["up", "--port", "0", "--bots", "0"], tmp_path) as program:
        assert program.stdout is not None
        said = dict(line.split("=", 1) for line in _two_lines(program.stdout.fileno(), program).split())
        pools = taskyard("pools", "-o", "json", env=env)
        assert [pool["name"] for pool in json.loads(pools.stdout)] == ["default"]
        children = _children(program.pid)
        program.send_signal(number)
        assert program.wait(DEADLINE_SECONDS) == 0
    assert set(said) == {"TASKYARD_URL", "TASKYARD_TOKEN"}
    assert len(children) == 1
    assert all(map(is_gone, children))
    assert stat.S_IMODE((tmp_path / ".config/taskyard/config.toml").stat().st_mode) == 0o600


def test_up_knows_its_tokens_again_and_refuses_a_folder_that_is_in_use(tmp_path: Path) -> None:
    tokens = []
    for _ in range(2):
        with started(["up", "--port", "0", "--bots", "0"], tmp_path) as program:
            assert program.stdout is not None
            tokens.append(_two_lines(program.stdout.fileno(), program).split("TOKEN=")[1])
            second = taskyard("up", "--port", "0", "--bots", "0", env=at_home(tmp_path))
            assert (second.returncode, second.stdout) == (1, "")
            assert "is in use by another Taskyard" in second.stderr
    assert tokens[0] == tokens[1]


def test_what_up_started_ends_when_up_is_killed(tmp_path: Path) -> None:
    with started(["up", "--port", "0", "--bots", "0"], tmp_path) as program:
        assert program.stdout is not None
        _two_lines(program.stdout.fileno(), program)
        children = _children(program.pid)
        program.kill()
        program.wait(DEADLINE_SECONDS)
        until(lambda: all(map(is_gone, children)), "the server to end")


def _two_lines(stream: int, program: subprocess.Popen[bytes]) -> str:
    text = read_until(stream, "TOKEN=", program)
    return text if text.endswith("\n") else text + read_until(stream, "\n", program)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
