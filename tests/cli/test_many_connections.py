"""More connections than a server may open files: strangers cannot lock out bots, users and health checks."""

import http.client
import json
import resource
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.program import PROGRAM
from tests.cli.server_process import ServerProcess, home_env, stop_program
from tests.cli.waiting import DEADLINE_SECONDS, read_until

FILES = 128
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


@contextmanager
def limited(folder: Path, soft: int, hard: int) -> Iterator[ServerProcess]:
    """A server with a limit of open files."""
    command = ["sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$0" "$@"', str(PROGRAM)]
    arguments = ["serve", "--port", "0", "--data", str(folder), "-o", "json"]
    with (
        (folder / "stderr").open("wb") as stderr,
        subprocess.Popen(
            [*command, *arguments], env=home_env(folder), stdout=subprocess.PIPE, stderr=stderr
        ) as program,
    ):
        try:
            assert program.stdout is not None
            told = json.loads(read_until(program.stdout.fileno(), "\n", program))
            yield ServerProcess(folder, told["url"], told["token"] or "", program)
        finally:
            stop_program(program)


def bodiless(path: str) -> bytes:
    """A request whose body is never sent."""
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n".encode()


def connected(one: ServerProcess) -> socket.socket:
    server = urlsplit(one.url)
    return socket.create_connection((server.hostname, server.port), DEADLINE_SECONDS)


def ask(one: ServerProcess, method: str, path: str, token: str = "", body: object = None) -> int:
    line = http.client.HTTPConnection(urlsplit(one.url).netloc, timeout=DEADLINE_SECONDS)
    try:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        line.request(method, path, None if body is None else json.dumps(body), headers)
        return line.getresponse().status
    finally:
        line.close()


def test_a_server_opens_as_many_files_as_it_may(tmp_path: Path) -> None:
    with limited(tmp_path, 256, 1_000) as one:
        assert resource.prlimit(one.program.pid, resource.RLIMIT_NOFILE) == (1_000, 1_000)


@pytest.mark.parametrize(
    "said",
    [b"", b"GET /", HEALTH, bodiless("/api/v1/bot/poll")],
    ids=["silent", "slow", "idle", "without a body"],
)
def test_more_connections_than_files_lock_out_no_client(tmp_path: Path, said: bytes) -> None:
    with limited(tmp_path, FILES, FILES) as one, ExitStack() as opened:
        bot = one.client.new_token("bot", "a bot", pool="default").token
        assert ask(one, "POST", "/api/v1/bot/hello", bot, {"bot": "b1", "session": "s1"}) == 200
        waiting = opened.enter_context(connected(one))
        poll = json.dumps({"bot": "b1", "session": "s1", "poll": "p", "want": 1, "wait_ms": 50_000}).encode()
        head = f"POST /api/v1/bot/poll HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {bot}\r\n"
        waiting.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(poll) + poll)
        for number in range(2 * FILES):
            line = opened.enter_context(connected(one))
            line.sendall(said)
            if said == HEALTH:
                assert line.recv(1_000).startswith(b"HTTP/1.1 200")
            if number % 32 == 0:
                assert ask(one, "GET", "/healthz") == 200
        assert ask(one, "GET", "/readyz") == 200
        assert ask(one, "POST", "/api/v1/bot/poll", bot, {"bot": "b1", "session": "s1"}) == 200
        assert ask(one, "GET", "/api/v1/graphs", one.token) == 200
        # What was being answered meanwhile goes on: the poll that waits is given the first task.
        work = {"tasks": {"a": {"task": {"payload": {"command": ["true"]}}}}}
        assert ask(one, "POST", "/api/v1/graphs", one.token, work) == 201
        assert waiting.recv(1_000).startswith(b"HTTP/1.1 200")
        assert "Traceback" not in (tmp_path / "stderr").read_text()


def test_unread_answers_do_not_lock_out_other_clients(tmp_path: Path) -> None:
    request = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
    with limited(tmp_path, FILES, FILES) as one, ExitStack() as opened:
        server = urlsplit(one.url)
        for number in range(FILES):
            line = opened.enter_context(socket.socket())
            line.settimeout(DEADLINE_SECONDS)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)  # what does not fit stays with the server
            line.connect((server.hostname, server.port))
            line.sendall(request * 60)
            if number % 32 == 0:
                assert ask(one, "GET", "/healthz") == 200
        assert ask(one, "GET", "/readyz") == 200
        assert ask(one, "GET", "/api/v1/graphs", one.token) == 200
