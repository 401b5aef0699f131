"""Servers in processes of their own that are killed or frozen while they publish."""

import http.client
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from taskyard.sdk import Client
from tests.amqp.subscriber import Received, Subscriber, in_order
from tests.amqp.yard import new_scheduler_id
from tests.brokers import RabbitMQ
from tests.cli.program import PROGRAM
from tests.cli.server_process import home_env, stop_program
from tests.cli.waiting import read_until, until

NOOPS = 40


@dataclass(frozen=True)
class Served:
    """A server process."""

    program: subprocess.Popen[bytes]
    client: Client
    url: str
    token: str

    def submit(self) -> str:
        """Submit a graph of no-ops; return its id."""
        nodes = {f"t{number}": {"task": {"payload": {"noop": True}}} for number in range(NOOPS)}
        return str(self.client.submit({"tasks": nodes}).graph_id)

    def logged(self, graph: str) -> list[str]:
        return [one.id for one in self.client.events(graph)]

    def has_link(self, link: str) -> bool:
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=60)
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {self.token}"})
        with closing(connection), connection.getresponse() as answer:
            return f'taskyard_amqp_link{{link="{link}"}} 1.0' in answer.read().decode()


@contextmanager
def serving(folder: Path, broker: RabbitMQ, database: str, scheduler_id: str, **env: str) -> Iterator[Served]:
    folder.mkdir(exist_ok=True)
    file = folder / "broker.url"
    file.write_text(f"{broker.url}\n", encoding="utf-8")
    token = folder.parent / "admin.token"
    options = ["--database", database, "--scheduler-id", scheduler_id, "--amqp-file", str(file), "--port", "0"]
    command = [str(PROGRAM), "serve", *options, "--admin-token", str(token), "-o", "json"]
    with (
        (folder / "stderr").open("ab") as stderr,
        subprocess.Popen(
            command, env=home_env(folder) | env, stdout=subprocess.PIPE, stderr=stderr, cwd=folder
        ) as program,
    ):
        try:
            assert program.stdout is not None
            said = json.loads(read_until(program.stdout.fileno(), "\n", program))
            shown = token.read_text(encoding="utf-8").strip()
            yield Served(program, Client(said["url"], shown), said["url"], shown)
        finally:
            if program.poll() is None:
                program.send_signal(signal.SIGCONT)
                stop_program(program)


def repeated(received: list[Received]) -> set[str]:
    ids = [one.id for one in received]
    return {id for id in ids if ids.count(id) > 1}


def finished(received: list[Received]) -> set[str]:
    return {one.place[0] for one in received if one.kind == "graph.finished"}


def test_what_was_not_noted_as_published_comes_again_with_the_same_id(
    sqlite_url: str, rabbitmq: RabbitMQ, tmp_path: Path
) -> None:
    """The server is killed between the confirmation of the broker and the commit of the position."""
    scheduler_id = new_scheduler_id()
    with Subscriber(rabbitmq.url, scheduler_id) as subscriber:
        with serving(
            tmp_path / "one", rabbitmq, sqlite_url, scheduler_id, TASKYARD_FAIL="delivered.before:exit"
        ) as one:
            graph = one.submit()
            assert one.program.wait(60) == -signal.SIGKILL
        with serving(tmp_path / "one", rabbitmq, sqlite_url, scheduler_id) as two:
            subscriber.until(lambda received: {one.id for one in received} == set(two.logged(graph)))
            repeats = [one for one in subscriber.until(lambda found: len(repeated(found)) > 0) if one.place[1] == 1]
    assert [one.body for one in repeats] == [repeats[0].body] * 2, "the first event came once before and once after"
    assert in_order(subscriber.first_deliveries())


def test_a_frozen_publisher_that_wakes_does_not_publish_beside_its_successor(
    postgres_url: str, rabbitmq: RabbitMQ, tmp_path: Path
) -> None:
    scheduler_id = new_scheduler_id()
    with ExitStack() as stack:
        subscriber = stack.enter_context(Subscriber(rabbitmq.url, scheduler_id))
        one = stack.enter_context(serving(tmp_path / "one", rabbitmq, postgres_url, scheduler_id))
        until(lambda: one.has_link("publishing"), "the first server to publish")
        two = stack.enter_context(serving(tmp_path / "two", rabbitmq, postgres_url, scheduler_id))
        until(lambda: two.has_link("standby"), "the second server to stand by")
        graphs = [one.submit() for _ in range(5)]
        subscriber.until(bool)
        os.kill(one.program.pid, signal.SIGSTOP)
        graphs += [two.submit() for _ in range(5)]
        until(lambda: two.has_link("publishing"), "the second server to publish")
        subscriber.until(lambda received: finished(received) == set(graphs))
        taken_over = len(subscriber.received)
        os.kill(one.program.pid, signal.SIGCONT)
        until(lambda: one.has_link("standby"), "the first server to stand by")
        graphs += [server.submit() for server in (one, two)]
        subscriber.until(lambda received: finished(received) == set(graphs))
        assert in_order(subscriber.first_deliveries())
        late = subscriber.received[taken_over:]
        assert len(late) == len({one.id for one in late}), "only one server publishes"
        expected = [id for graph in graphs for id in two.logged(graph)]
    assert {one.id for one in subscriber.received} == set(expected)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--amqp", "amqp://yard:secret@broker/yard"], "can read the password"),
        (["--amqp", "http://broker"], "amqp://HOST/VHOST"),
        (["--amqp-file", "no-such-file"], "cannot read the URL of the broker from no-such-file"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused(tmp_path: Path, options: list[str], said: str) -> None:
    done = subprocess.run(
        [str(PROGRAM), "serve", *options],
        env=home_env(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said in done.stderr
    assert done.returncode in {1, 2}
    assert "secret" not in done.stderr
