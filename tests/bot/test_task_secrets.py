"""What an attempt gets of its secrets, and where they are left: nowhere."""

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bot.fake_server import FakeServer, bot, serving
from tests.cli.waiting import until

SECRET = "canary-4b1d-value"  # noqa: S105
MEMORY = Path("/dev/shm")  # noqa: S108


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving(FakeServer()) as one:
        yield one


def given(*secrets: tuple[str, bytes, bool]) -> tuple[int, Any]:
    """The answer of a server with these secrets."""
    items = [
        {"variable": name, "body": base64.b64encode(body).decode(), "is_file": file} for name, body, file in secrets
    ]
    return 200, {"items": items}


def add(server: FakeServer, payload: dict[str, Any], *secrets: tuple[str, bytes, bool], **more: Any) -> str:
    """Queue a task that names secrets, which the server gives."""
    task = server.add({**payload, "secrets": {name: "deploy" for name, _, _ in secrets}}, **more)
    server.secrets[task] = given(*secrets)
    return task


def printed(server: FakeServer, task: str) -> str:
    return server.printed.get(task, b"").decode()


def test_a_program_gets_a_secret_as_a_variable_and_as_a_file_only_its_user_can_read(
    server: FakeServer, tmp_path: Path
) -> None:
    script = (
        'echo "$TOKEN" | rev; od -An -tx1 "$KEY"; stat -c "%a %u" "$KEY"; stat -c "%a" "$(dirname "$KEY")"; '
        'echo "$KEY"; tr "\\0" "\\n" < /proc/$$/cmdline'
    )
    secrets = (("TOKEN", SECRET.encode(), False), ("KEY", b"canary\x00bytes\n", True))
    with bot(server, tmp_path / "state") as one:
        task = add(server, {"script": script}, *secrets)
        assert server.report(task).signal == "succeed", printed(server, task)
        lines = printed(server, task).split("\n")
        path = Path(lines[4])
        assert lines[0] == SECRET[::-1]
        assert bytes.fromhex(lines[1]) == b"canary\x00bytes\n"
        assert lines[2:4] == [f"400 {os.getuid()}", "700"]
        assert not path.exists(), "it is gone with the attempt"
        assert SECRET not in printed(server, task)
        path_of_request = f"/api/v1/tasks/{task}/secrets"
        assert [headers["authorization"] for at, headers in server.requests if at == path_of_request] == [
            f"Bearer token-{task}"
        ]
        assert one.end()[0] == 0
    assert not path.parent.parent.exists(), "and so is the folder with the bot"


def test_a_function_gets_secrets_in_a_process_that_makes_no_other_call(server: FakeServer, tmp_path: Path) -> None:
    call = {"python": "tests.bot.functions:variable_and_process", "args": ["TOKEN"]}
    with bot(server, tmp_path / "state", slots=1):
        first = add(server, call, ("TOKEN", SECRET.encode(), False))
        report = server.report(first)
        assert report.signal == "succeed", printed(server, first)
        result = bytes(report.result)
        assert b"***" in result, "a secret in a result is masked"
        assert SECRET.encode() not in result
        second = server.add(call)
        assert bytes(server.report(second).result).startswith(b"[null,"), "it is not in the worker of another call"
        pids = [bytes(server.report(one).result).rpartition(b",")[2] for one in (first, second)]
        assert pids[0] != pids[1]


def test_output_is_masked_wherever_it_is_split(server: FakeServer, tmp_path: Path) -> None:
    half = len(SECRET) // 2
    split = (
        'printf %s "${TOKEN%' + "?" * (len(SECRET) - half) + '}"; sleep 0.3; printf %s "${TOKEN#' + "?" * half + '}"'
    )
    script = f'{split}; echo; echo "$TOKEN"; printf %s "$TOKEN" | base64; printf %s "user:$TOKEN" | base64; "$TOKEN"'
    with bot(server, tmp_path / "state"):
        task = add(server, {"script": script}, ("TOKEN", SECRET.encode(), False))
        assert server.report(task).signal == "fail"
    said = printed(server, task)
    lines = said.splitlines()
    assert lines[:3] == ["***", "***", lines[2]]
    assert SECRET not in said
    assert lines[2].startswith("***")
    assert len(lines[2]) < 8, lines
    assert "***" in lines[3]
    assert base64.b64encode(SECRET.encode()).decode()[:10] not in said
    assert "not found" in said
    assert "***: " in said


def test_results_progress_and_checkpoints_keep_no_secret(server: FakeServer, tmp_path: Path) -> None:
    server.lease_ms = 600
    script = (
        'printf \'{"url": "https://u:%s@host"}\' "$TOKEN" > "$TASKYARD_RESULT"; '
        'echo "at $TOKEN" > "$TASKYARD_PROGRESS"; echo "state $TOKEN" > "$TASKYARD_CHECKPOINT"; '
        "while ! [ -e go ]; do sleep 0.05; [ $SECONDS -lt 60 ] || exit 9; done"
    )
    with bot(server, tmp_path / "state"):
        task = add(server, {"script": script, "shell": "bash", "cwd": str(tmp_path)}, ("TOKEN", SECRET.encode(), False))
        server.wait_until(lambda: task in server.progress, "its progress")
        (tmp_path / "go").touch()
        report = server.report(task)
    assert server.progress[task] == "at ***"
    assert task not in server.checkpoints
    assert (report.signal, bytes(report.result)) == ("succeed", b'{"url": "https://u:***@host"}')
    assert printed(server, task) == "taskyard: a checkpoint had a secret in it and was not kept\n"


def test_a_secret_that_is_no_text_fails_as_a_variable_and_says_what_to_do(server: FakeServer, tmp_path: Path) -> None:
    with bot(server, tmp_path / "state"):
        for body in (b"canary\x00bytes", b"canary\xffbytes"):
            task = add(server, {"command": ["true"]}, ("TOKEN", body, False))
            report = server.report(task)
            assert (report.signal, report.exit_code) == ("fail", 126)
            assert "no text: ask for a file, with file: true" in printed(server, task)
            assert "canary" not in printed(server, task)


def test_an_attempt_whose_secrets_cannot_be_had_is_given_back_and_costs_nothing(
    server: FakeServer, tmp_path: Path
) -> None:
    with bot(server, tmp_path / "state", slots=1):
        task = add(server, {"command": ["touch", str(tmp_path / "ran")]}, ("TOKEN", b"", False))
        server.secrets[task] = (409, {"code": "no_secret", "detail": "there is no secret default/deploy"})
        assert server.report(task).signal == "return"
        after = server.add({"command": ["true"]})
        assert server.report(after).signal == "succeed", "the slot is free again"
        assert any("there is no secret default/deploy" in one.text for one in server.troubles)
    assert not (tmp_path / "ran").exists()


def test_an_attempt_that_ends_while_its_secrets_are_fetched_frees_its_slot(server: FakeServer, tmp_path: Path) -> None:
    with bot(server, tmp_path / "state", slots=1):
        with server.changed:  # short programs, so that the bot takes the last two tasks together
            for _ in range(20):
                server.add({"command": ["true"]})
            task = add(server, {"command": ["true"]}, ("TOKEN", b"", False), deadline_ms=2_000)
            server.secrets[task] = (503, {"code": "unavailable"})
            after = server.add({"python": "gc:enable"})  # the runner queues no calls
        assert server.report(task).signal in ("return", "deadline")
        assert server.report(after).signal == "succeed"


def test_what_a_killed_bot_left_in_memory_is_removed_when_it_is_back(server: FakeServer, tmp_path: Path) -> None:
    if not os.access(MEMORY, os.W_OK):
        pytest.skip("this system has no file system in memory")
    script = f'echo "$KEY" > {tmp_path}/path.new; mv {tmp_path}/path.new {tmp_path}/path; sleep 600'
    with bot(server, tmp_path / "state") as one:
        task = add(server, {"script": script}, ("KEY", SECRET.encode(), True))
        until((tmp_path / "path").exists, "the path of the file")
        left = Path((tmp_path / "path").read_text().strip())
        assert left.is_relative_to(MEMORY)
        one.program.kill()
        one.program.wait()
    assert left.parent.parent.exists()
    hellos = len(server.hellos)
    with bot(server, tmp_path / "state"):
        server.wait_until(lambda: len(server.hellos) > hellos, "the next bot")
        assert not left.parent.parent.exists()
    assert task not in server.reports
