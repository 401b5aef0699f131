"""Several servers of one database: any of them does, and one that dies, freezes or restarts costs no task."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskyard.sdk import Client
from taskyard.sdk.errors import Overloaded, Unreachable
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
            first.restart()
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


def test_a_server_that_stops_answers_its_parked_poll_at_once(pair: Group) -> None:
    until(lambda: all(bot.busy == 0 for bot in pair.client.bots()), "the bot waits for work")
    server = pair.servers[0]
    server.stop()
    assert "Cancel" not in server.log, "no request had to be cut off"
    server.start()
