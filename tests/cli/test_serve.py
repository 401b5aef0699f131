"""`taskyard serve`: where it listens, what it prints, and how it ends."""

import json
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from taskyard.engine.engine import Engine
from taskyard.server.settings import first_token, make_seal_and_pool
from tests.cli.program import PROGRAM, taskyard
from tests.cli.server_process import ServerProcess, home_env, server_process, start_program
from tests.cli.waiting import DEADLINE_SECONDS, is_gone, read_until, until


def test_a_stopped_server_exits_with_0_and_keeps_its_data(tmp_path: Path) -> None:
    with server_process(tmp_path) as first:
        first.output("pools", "set", "lab", "--capacity", "3")
        first.program.send_signal(signal.SIGTERM)
        assert first.program.wait(DEADLINE_SECONDS) == 0
    with server_process(tmp_path) as second:
        assert second.token == "", "the first token is told once"
        assert "lab" in second.run("pools", TASKYARD_TOKEN=first.token).stdout


def test_a_bot_says_that_it_is_connected_to_what_with_which_pool_and_slots(tmp_path: Path) -> None:
    with server_process(tmp_path) as server:
        token = server.output("token", "create", "--kind", "bot", "--name", "b", "--pool", "lab")
        command = [str(PROGRAM), "bot", "--name", "rack4", "--slots", "3", "--state", str(tmp_path / "state")]
        env = server.env | {"TASKYARD_TOKEN": token}
        with subprocess.Popen(command, env=env, stderr=subprocess.PIPE) as program:
            assert program.stderr is not None
            said = f"bot rack4 is connected to {server.url}: pool lab, 3 slots\n"
            assert read_until(program.stderr.fileno(), "\n", program) == said
            program.send_signal(signal.SIGTERM)
            assert program.wait(DEADLINE_SECONDS) == 0


def test_a_second_server_on_the_same_file_is_refused_with_what_helps(tmp_path: Path) -> None:
    with server_process(tmp_path):
        second = taskyard("serve", "--port", "0", "--data", str(tmp_path), env=home_env(tmp_path))
    assert (second.returncode, second.stdout) == (1, "")
    assert "is in use by another Taskyard: stop that one first" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    with server_process(tmp_path) as one:
        port = one.url.rpartition(":")[2]
        second = taskyard(
            "serve", "--port", port, "--database", f"sqlite:///{tmp_path / 'b.db'}", env=home_env(tmp_path)
        )
    assert second.returncode == 1
    assert f"cannot serve: cannot listen on 127.0.0.1, port {port}: Address already in use; stop" in second.stderr
    assert "Traceback" not in second.stderr
    assert not (tmp_path / "b.db").exists()


def test_a_first_start_that_fails_does_not_lose_the_first_token(tmp_path: Path) -> None:
    """The port is taken; then the server is killed when it listens but has not printed its token yet."""
    data, (port, holder) = tmp_path / "data", taken_port()
    arguments = ["serve", "--port", str(port), "--data", str(data)]
    with holder:
        assert taskyard(*arguments, env=home_env(tmp_path)).returncode == 1
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4_096)
    os.set_blocking(writer, True)
    with subprocess.Popen(
        [str(PROGRAM), *arguments], env=home_env(tmp_path), stdout=writer, stderr=subprocess.PIPE
    ) as program:
        until(lambda: listens(port), "the server to listen")
        program.kill()
    os.close(reader)
    os.close(writer)
    with server_process(data) as second:
        assert second.output("graphs", "-o", "name") == ""
        assert second.token


def taken_port() -> tuple[int, socket.socket]:
    holder = socket.create_server(("127.0.0.1", 0))
    return holder.getsockname()[1], holder


def listens(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


def test_a_printed_token_is_valid_and_one_that_could_not_be_printed_is_not_stored(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'some.db'}"
    shown: list[str] = []
    with Engine.open(url) as engine:
        make_seal_and_pool(engine)
        for fault in (OSError("nobody reads"), KeyboardInterrupt()):
            with pytest.raises(type(fault)):
                first_token(engine, raising(fault))
        assert first_token(engine, shown.append) == shown[0]
        assert first_token(engine, shown.append) is None
    assert len(shown) == 1


def raising(fault: BaseException) -> Callable[[str], None]:
    def show(_: str) -> None:
        raise fault

    return show


def test_a_database_that_is_deleted_under_a_server_is_noticed_and_nothing_is_acknowledged_any_more(
    tmp_path: Path,
) -> None:
    with server_process(tmp_path) as one:
        file = tmp_path / "taskyard.db"
        until(lambda: status_of(one, "/readyz") == 200, "the server to be ready")
        file.rename(tmp_path / "aside.db")
        until(
            lambda: "taskyard.db was deleted while it was in use" in (tmp_path / "stderr").read_text(), "it to be said"
        )
        until(lambda: status_of(one, "/readyz") == 503, "the server not to be ready")
        made = one.run("submit", "-", document=json.dumps({"tasks": {"a": {"task": {"payload": {"noop": True}}}}}))
        assert made.returncode != 0
        assert not file.exists()
        (tmp_path / "aside.db").rename(file)
        until(lambda: status_of(one, "/readyz") == 200, "the server to be ready again")


def test_the_first_word_of_routing_keys_is_a_setting_of_serve(tmp_path: Path) -> None:
    with server_process(tmp_path, "--scheduler-id", "farm-1") as one:
        graph = one.output(
            "submit", "-", "-o", "name", document='{"tasks": {"a": {"task": {"payload": {"noop": true}}}}}'
        )
        seen = one.client.graph(graph)
    assert (seen.schedulerId, seen.routing.partition(".")[0]) == ("farm-1", "farm-1")


def status_of(one: ServerProcess, path: str) -> int:
    try:
        with urllib.request.urlopen(one.url + path, timeout=DEADLINE_SECONDS) as answer:  # noqa: S310 - our server
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code


def test_a_start_that_waits_for_a_locked_database_says_so(tmp_path: Path) -> None:
    file = tmp_path / "taskyard.db"
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with start_program(["serve", "--port", "0", "--data", str(tmp_path)], tmp_path) as program:
        said = f"another program has locked the database {file}: waiting for it"
        until(lambda: said in (tmp_path / "stderr").read_text(), "it to be said")
        holder.execute("ROLLBACK")
        holder.close()
        assert program.stdout is not None
        read_until(program.stdout.fileno(), "TASKYARD_URL=", program)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--database", "sqlite:///{folder}/no/some.db"], "{folder}/no/some.db cannot be opened: there is no folder"),
        (
            ["--database", "sqlite:///{folder}/text"],
            "the database {folder}/text cannot be used: file is not a database",
        ),
        (["--host", "192.0.2.1"], "cannot listen on 192.0.2.1, port 0: "),
        (["--data", "{folder}/text"], "{folder}/text"),
    ],
)
def test_what_keeps_a_server_from_its_work_is_named(tmp_path: Path, options: list[str], wanted: str) -> None:
    (tmp_path / "text").write_text("something that is no database " * 1_000)
    done = taskyard("serve", "--port", "0", *(one.format(folder=tmp_path) for one in options), env=home_env(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert wanted.format(folder=tmp_path) in done.stderr
    assert "Traceback" not in done.stderr


def test_without_tokens_a_server_listens_on_this_machine_only(tmp_path: Path) -> None:
    done = taskyard("serve", "--host", "0.0.0.0", "--no-auth", "--data", str(tmp_path), env=home_env(tmp_path))  # noqa: S104
    assert (done.returncode, done.stdout) == (1, "")
    assert "authentication is off" in done.stderr
    assert not (tmp_path / "taskyard.db").exists()


def test_without_tokens_this_machine_may_do_everything(tmp_path: Path) -> None:
    with server_process(tmp_path, "--no-auth") as one:
        assert one.run("pools", "set", "lab", TASKYARD_TOKEN="").returncode == 0


def test_an_admin_token_is_kept_in_a_file_and_made_again_when_that_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "admin.token"
    with server_process(tmp_path, "--admin-token", str(file)) as one:
        assert file.read_text().strip() == one.token
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.unlink()
    with server_process(tmp_path, "--admin-token", str(file)) as one:
        made = file.read_text().strip()
        assert one.run("token", "list", TASKYARD_TOKEN=made).returncode == 0
        audited = one.run("audit", "--actor", "serve --admin-token", "-o", "json", TASKYARD_TOKEN=made)
        (row,) = json.loads(audited.stdout)
        assert (row["action"], row["note"]) == ("make_token", f"{made.split('_')[2]}: user admin")


def test_how_many_tasks_a_request_may_ask_for_is_a_setting(tmp_path: Path) -> None:
    noops = {"task": {"payload": {"noop": True}}, "matrix": {"n": [1, 2, 3, 4]}}
    with server_process(tmp_path, "--tasks-max", "3") as one:
        refused = one.run("submit", "-", document=json.dumps({"tasks": {"a": noops}}))
        assert refused.returncode == 2
        assert "has 4 tasks; the limit per request is 3" in refused.stderr
    for number in ("0", "1000001"):
        done = taskyard("serve", "--port", "0", "--data", str(tmp_path), "--tasks-max", number, env=home_env(tmp_path))
        assert (done.returncode, done.stdout) == (2, ""), number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_is_found_by_the_other_commands_and_ends_with_all_it_started(number: signal.Signals, tmp_path: Path) -> None:
    env = home_env(tmp_path)
    with start_program(["up", "--port", "0", "--bots", "0"], tmp_path) as program:
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
        with start_program(["up", "--port", "0", "--bots", "0"], tmp_path) as program:
            assert program.stdout is not None
            tokens.append(_two_lines(program.stdout.fileno(), program).split("TOKEN=")[1])
            second = taskyard("up", "--port", "0", "--bots", "0", env=home_env(tmp_path))
            assert (second.returncode, second.stdout) == (1, "")
            assert "is in use by another Taskyard" in second.stderr
    assert tokens[0] == tokens[1]


def test_what_up_started_ends_when_up_is_killed(tmp_path: Path) -> None:
    with start_program(["up", "--port", "0", "--bots", "0"], tmp_path) as program:
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
