"""`taskyard events -f`, while its server is killed and started again."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from taskyard.sdk import Client
from tests.cli.program import PROGRAM
from tests.cli.server_process import ServerProcess, server_process
from tests.engine.harness import wait_until

GRAPHS = 20
DOCUMENT = {
    "tasks": {"a": {"task": {"payload": {"noop": True}}}, "b": {"requires": ["a"], "task": {"payload": {"noop": True}}}}
}


@contextmanager
def follower(server: ServerProcess, said: Path, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
    """The command, which prints to a file."""
    command = [str(PROGRAM), "events", "-f", "-o", "jsonl", *options]
    with said.open("wb") as stdout, subprocess.Popen(command, env=server.env, stdout=stdout) as program:
        try:
            yield program
        finally:
            program.terminate()
            program.wait(60)


def printed(said: Path) -> list[Any]:
    """The events that were printed."""
    return [json.loads(line) for line in said.read_bytes().split(b"\n")[:-1]]


def ended(client: Client, count: int = GRAPHS) -> list[str]:
    """Run graphs to their end."""
    ids = [client.submit(DOCUMENT).graph_id for _ in range(count)]
    return [client.wait(id, 60).id for id in ids]


def has(said: Path, graphs: list[str]) -> bool:
    """Whether the end of every graph was printed."""
    return {one["graph_id"] for one in printed(said) if one["kind"] == "graph.finished"} >= set(graphs)


def test_a_follower_misses_nothing_when_its_server_is_killed_and_started_again(tmp_path: Path) -> None:
    said = tmp_path / "events"
    with server_process(tmp_path) as server, follower(server, said) as program:
        client = Client(server.url, server.token)
        wait_until(lambda: bool(ended(client, 1)) and bool(printed(said)))
        graphs = ended(client)
        late = [client.submit(DOCUMENT).graph_id for _ in range(GRAPHS)]
        server.program.send_signal(signal.SIGKILL)
        server.program.wait(60)
        with server_process(tmp_path, port=str(urlsplit(server.url).port)):
            late = [client.wait(id, 60).id for id in late]
            graphs += late + ended(client)
            wait_until(lambda: has(said, graphs))
            assert program.poll() is None
            found = printed(said)
            assert len({one["id"] for one in found}) == len(found), "no event comes twice"
            for id in graphs:
                assert [one["id"] for one in found if one["graph_id"] == id] == [one.id for one in client.events(id)]
