"""Several servers of one database: any of them does, and one that dies, freezes or restarts costs no task."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from taskyard.sdk import Client
from taskyard.sdk.bot_http import ServerConnection
from taskyard.sdk.errors import Overloaded, Unreachable
from taskyard.wire.bot_protocol import Hello, Poll
from tests.cli.waiting import until
from tests.effort import SOAK
from tests.postgres import Postgres
from tests.servers.group import Group, group
from tests.servers.witness import attempts, overlaps

#: How often each harm is done.
ROUNDS = 20 if SOAK else 1
#: How many graphs go on beside each harm.
GRAPHS = 3


@pytest.fixture(scope="module")
def pair(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """Two servers with a bot of four slots."""
    url = postgres.fresh()
    with group(tmp_path_factory.mktemp("pair"), url) as one:
        one.start_bots(1, slots=4)
        yield one
    postgres.drop(url)


def call(folder: Path, span_s: float, *requires: str) -> dict[str, object]:
    payload = {"python": "tests.servers.witness:witnessed", "args": [str(folder), span_s]}
    return {"requires": list(requires), "task": {"payload": payload}}


class Submitter(threading.Thread):
    """Submits graphs until it is stopped, and repeats a request until it is acknowledged."""

    def __init__(self, one: Group, folder: Path) -> None:
        super().__init__(daemon=True)
        self._group, self._folder = one, folder
        self._stopping = threading.Event()
        self.acknowledged: list[str] = []
        self.fault: BaseException | None = None

    def run(self) -> None:
        tasks = {"a": call(self._folder, 0.02), "b": call(self._folder, 0.05, "a"), "c": call(self._folder, 0.02, "a")}
        try:
            with Client(self._group.urls, self._group.token, timeout_s=2.0) as client:
                while not self._stopping.wait(0.05):
                    self._submit(client, {"tasks": tasks}, f"g{len(self.acknowledged)}")
        except BaseException as fault:  # noqa: BLE001 - the test raises it
            self.fault = fault

    def _submit(self, client: Client, document: dict[str, object], key: str) -> None:
        while True:
            try:
                self.acknowledged.append(client.submit(document, key=key).graph_id)
            except (Unreachable, Overloaded):
                continue
            return

    def wait_for(self, more: int) -> None:
        """Wait until so many more graphs are acknowledged."""
        target = len(self.acknowledged) + more
        until(lambda: len(self.acknowledged) >= target or self.fault is not None, "graphs to be acknowledged")

    def stop(self) -> list[str]:
        self._stopping.set()
        self.join(120)
        if self.fault is not None:
            raise self.fault
        return self.acknowledged


def test_acknowledged_graphs_end_and_no_attempts_overlap_whatever_happens_to_servers_and_connections(
    postgres_url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "witness"
    folder.mkdir()
    with group(tmp_path, postgres_url, 3, ["--lease", "10s"]) as one:
        one.start_bots(10, slots=1)
        submitter = Submitter(one, folder)
        submitter.start()
        for number in range(ROUNDS):
            first, second, third = (one.servers[(number + place) % 3] for place in range(3))
            submitter.wait_for(GRAPHS)
            first.kill()
            submitter.wait_for(GRAPHS)
            second.database.cut()
            first.start()
            submitter.wait_for(GRAPHS)
            third.freeze()
            submitter.wait_for(GRAPHS)
            for server in one.servers:
                server.front.cut()
            submitter.wait_for(GRAPHS)
            third.thaw()
            second.database.hold()
            submitter.wait_for(GRAPHS)
            second.database.release()
            submitter.wait_for(GRAPHS)
        for id in submitter.stop():
            assert one.client.wait(id, 120).state == "finished", id
        assert overlaps(folder) == []
        assert len(attempts(folder)) == 3 * len(submitter.acknowledged)


def test_rolling_restarts_lose_no_lease_and_no_result_and_fail_no_request(pair: Group, tmp_path: Path) -> None:
    folder = tmp_path / "witness"
    folder.mkdir()
    long = pair.submit({"long": call(folder, 6.0)})
    submitter = Submitter(pair, folder)
    submitter.start()
    for server in pair.servers:
        submitter.wait_for(GRAPHS)
        assert server.stop() == 0
        submitter.wait_for(GRAPHS)
        server.start()
    for id in [*submitter.stop(), long]:
        assert pair.client.wait(id, 120).state == "finished"
    assert {tuple(numbers) for numbers in attempts(folder).values()} == {(1,)}, "nothing was tried again"


def test_an_output_and_a_graph_are_followed_at_any_server(pair: Group, tmp_path: Path) -> None:
    go = tmp_path / "go"
    clients = [pair.client_of(server) for server in pair.servers]
    script = f"echo one; until [ -e {go} ]; do sleep 0.05; done; echo two"
    made = clients[0].submit({"tasks": {"t": {"task": {"payload": {"script": script}}}}})
    follows = [client.follow(made.nameMapping["t"]) for client in clients]
    assert [next(pieces) for pieces in follows] == [b"one\n", b"one\n"]
    go.touch()
    assert [b"".join(pieces) for pieces in follows] == [b"two\n", b"two\n"]
    assert [client.wait(made.graph_id, 60).state for client in clients] == ["finished", "finished"]


def test_a_server_that_stops_answers_the_polls_that_wait_at_it(pair: Group) -> None:
    server, other = pair.servers
    client = pair.client_of(other)
    hello = Hello(bot="lone", session="s/1", dimensions={"only": ["lone"]}, slots=1)
    poll = Poll("lone", "s/1", "p1", want=1, wait_ms=600_000)

    async def act() -> int:
        connection = ServerConnection(server.url, {"authorization": f"Bearer {pair.bot_token}"})
        assert (await connection.ask("POST", "/api/v1/bot/hello", msgspec.json.encode(hello))).status == 200
        seen = client.bot("lone").last_seen_ms
        asked = asyncio.create_task(connection.ask("POST", "/api/v1/bot/poll", msgspec.json.encode(poll), 600.0))
        while client.bot("lone").last_seen_ms == seen:
            await asyncio.sleep(0.01)
        assert await asyncio.to_thread(server.stop) == 0
        return (await asked).status

    assert asyncio.run(act()) == 200
    server.start()
