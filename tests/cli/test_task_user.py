"""Tasks cannot read the tokens of a bot and of `up`.

Running tasks as another user needs root. Without root, the tests check that it is refused.
"""

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.bot.fake_server import ROOT, TOKEN, FakeServer, serving
from tests.cli.program import graph, taskyard
from tests.cli.server_process import home_env, start_program
from tests.cli.waiting import read_until

IS_ROOT = os.geteuid() == 0
#: The user who runs the tasks of these tests.
NOBODY = pwd.getpwnam("nobody")
REFUSAL = "only root can run tasks as another user"


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving(FakeServer()) as one:
        yield one


@contextmanager
def bot(server: FakeServer, folder: Path, *options: str, **how: Any) -> Iterator["subprocess.Popen[str]"]:
    """Run `taskyard bot`, with its token on stdin."""
    env = {name: text for name, text in os.environ.items() if not name.startswith("TASKYARD_")}
    words = ["bot", "--url", server.url, "--name", "b1", "--slots", "1", "--state", str(folder), "--token-file", "-"]
    program = subprocess.Popen(
        [sys.executable, "-m", "taskyard", *words, *options],
        cwd=ROOT,
        env=env,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **how,
    )
    try:
        assert program.stdin is not None
        program.stdin.write(f"{TOKEN}\n")
        program.stdin.close()
        yield program
    finally:
        program.kill()
        program.wait()
        assert program.stderr is not None
        sys.stderr.write(program.stderr.read())
        program.stderr.close()


def is_refused(server: FakeServer, folder: Path) -> bool:
    """Check that a bot without root refuses to run tasks as another user."""
    with bot(server, folder, "--user", "nobody") as one:
        assert one.wait(60) == 1
        assert one.stderr is not None
        said = one.stderr.read()
    assert REFUSAL in said
    return not server.hellos


def ran(server: FakeServer, script: str, **more: Any) -> tuple[str, str]:
    """Run a script; return its exit code and output."""
    task = server.add({"script": script}, **more)
    report = server.report(task)
    return report.signal, server.printed.get(task, b"").decode()


def test_tasks_run_as_the_given_user(server: FakeServer, tmp_path: Path) -> None:
    if not IS_ROOT:
        assert is_refused(server, tmp_path / "state")
        return
    with bot(server, tmp_path / "state", "--user", "nobody"):
        who = 'echo "$(id -u) $(id -g) $HOME $USER"; touch here; echo 7 > "$TASKYARD_RESULT"'
        task = server.add({"script": who})
        report = server.report(task)
    assert (report.signal, bytes(report.result)) == ("succeed", b"7"), server.printed
    assert server.printed[task].decode() == f"{NOBODY.pw_uid} {NOBODY.pw_gid} {NOBODY.pw_dir} nobody\n"


def test_a_task_of_another_user_cannot_have_the_bot_read_a_file_for_it(server: FakeServer, tmp_path: Path) -> None:
    if not IS_ROOT:
        assert is_refused(server, tmp_path / "state")
        return
    secret = tmp_path / "secret"
    secret.write_text('"only root may read this"')
    secret.chmod(0o600)
    with bot(server, tmp_path / "state", "--user", "nobody"):
        for variable in ("TASKYARD_CHECKPOINT", "TASKYARD_RESULT", "TASKYARD_PROGRESS"):
            task = server.add({"script": f'rm -f "${variable}"; ln -s {secret} "${variable}"; echo linked'})
            report = server.report(task)
            assert server.printed[task].startswith(b"linked")
            assert b"only root" not in bytes(report.result)
            assert b"only root" not in server.printed.get(task, b"")
        signal, said = ran(server, f"cat {secret}")
    assert signal == "fail"
    assert "only root" not in said
    assert not any(b"only root" in one for one in server.checkpoints.values())
    assert not any("only root" in one for one in server.progress.values())


def test_a_task_of_another_user_finds_the_bots_token_nowhere(server: FakeServer, tmp_path: Path) -> None:
    if not IS_ROOT:
        assert is_refused(server, tmp_path / "state")
        return
    look = "for one in /proc/[0-9]*; do (tr '\\0' '\\n' < $one/environ; tr '\\0' '\\n' < $one/cmdline) 2>&1; done"
    with bot(server, tmp_path / "state", "--user", "nobody") as one:
        _, said = ran(server, f"{look} | grep -a -e '{TOKEN[:4]}[-]{TOKEN[5:]}' || true; ls {tmp_path}/state || true")
        assert TOKEN not in said
        signal, said = ran(server, f"kill -9 {one.pid}")
        assert (signal, one.poll()) == ("fail", None), "a task cannot end the bot"


def test_other_programs_of_the_bots_user_cannot_read_its_memory(server: FakeServer, tmp_path: Path) -> None:
    # Who is root shows whom a process lets look into it by its group, others by its user.
    how = {"group": NOBODY.pw_gid} if IS_ROOT else {}
    with bot(server, tmp_path / "state", **how) as one:
        server.wait_until(lambda: server.hellos, "the bot")
        seen = Path(f"/proc/{one.pid}/environ")
        assert (seen.stat().st_gid if IS_ROOT else seen.stat().st_uid) == 0, "the kernel lets others look into it"
        if not IS_ROOT:
            with pytest.raises(PermissionError):
                seen.read_bytes()
        assert TOKEN not in seen.parent.joinpath("cmdline").read_text()


def test_a_token_file_can_be_removed_as_it_is_read(server: FakeServer, tmp_path: Path) -> None:
    file = tmp_path / "bot.token"
    file.write_text(f"{TOKEN}\n")
    with bot(server, tmp_path / "state", "--token-file", str(file), "--remove-token-file"):
        server.wait_until(lambda: server.hellos, "the bot")
    assert not file.exists()
    assert server.requests[0][1]["authorization"] == f"Bearer {TOKEN}"


def test_a_token_that_every_process_could_read_is_refused(server: FakeServer, tmp_path: Path) -> None:
    done = taskyard("bot", "--url", server.url, "--token", TOKEN, env=home_env(tmp_path))
    assert (done.returncode, server.hellos) == (2, [])
    assert "set TASKYARD_TOKEN, or use --token-file PATH" in done.stderr
    assert TOKEN not in done.stderr


def test_a_missing_token_file_is_reported(tmp_path: Path) -> None:
    done = taskyard("bot", "--token-file", str(tmp_path / "none"), env=home_env(tmp_path))
    assert done.returncode == 1
    assert done.stderr == f"taskyard: cannot read the token from {tmp_path / 'none'}: No such file or directory\n"


def test_a_missing_user_is_reported(tmp_path: Path) -> None:
    done = taskyard("bot", "--user", "nosuchuser", env=home_env(tmp_path))
    assert done.returncode == 1
    assert ("there is no user 'nosuchuser'" if IS_ROOT else REFUSAL) in done.stderr
    done = taskyard("up", "--user", "root", env=home_env(tmp_path))
    assert done.returncode == 1
    assert ("'root' is root: name a user without special rights" if IS_ROOT else REFUSAL) in done.stderr


def test_under_up_the_admin_token_is_out_of_reach_of_tasks_of_another_user(tmp_path: Path) -> None:
    if not IS_ROOT:
        done = taskyard("up", "--port", "0", "--user", "nobody", env=home_env(tmp_path))
        assert done.returncode == 1
        assert REFUSAL in done.stderr
        return
    tmp_path.chmod(0o755)
    data = tmp_path / "data"
    with start_program(["up", "--port", "0", "--user", "nobody", "--data", str(data)], tmp_path) as program:
        assert program.stdout is not None
        read_until(program.stdout.fileno(), "TASKYARD_TOKEN=", program)
        admin = (data / "admin.token").read_text().strip()
        assert not list(data.glob("*bot*.token")), "the token of the bots is in no file"
        script = f"id -u; cat {data}/* {data}/*/* || true; cat /proc/[0-9]*/environ || true"
        tasks = {"look": {"task": {"payload": {"script": script}}}}
        done = taskyard("submit", "--wait", "-o", "json", "-", document=graph(tasks), env=home_env(tmp_path))
        assert done.returncode == 0, done.stderr
        made = json.loads(done.stdout)
        seen = taskyard("logs", f"{made['id']}/look", env=home_env(tmp_path)).stdout
    assert seen.startswith(f"{NOBODY.pw_uid}\n")
    assert admin not in seen
    assert "ty_bot_" not in seen
    assert "ty_user_" not in seen


def test_up_keeps_the_token_of_its_bots_in_no_file_and_ends_that_of_its_last_start(tmp_path: Path) -> None:
    data, tokens = tmp_path / "data", []
    for _ in range(2):
        with start_program(["up", "--port", "0", "--data", str(data)], tmp_path) as program:
            assert program.stdout is not None
            read_until(program.stdout.fileno(), "TASKYARD_TOKEN=", program)
            done = taskyard("token", "list", "-o", "json", env=home_env(tmp_path))
            tokens = [one for one in json.loads(done.stdout) if one["kind"] == "bot"]
        kept = b"".join(file.read_bytes() for file in data.rglob("*") if file.is_file())
        assert b"ty_bot_" not in kept
    assert len(tokens) == 2
    assert [one["revoked_ms"] is None for one in tokens].count(True) == 1
