"""Overload: requests of people are refused, bots are served, and accepted work is kept."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

from taskyard import Client
from taskyard.server.settings import Settings
from tests.hardening.raw_http import connected, head, said_on, status
from tests.server.running_server import WAIT_S, Answer, RunningServer, graph, task, wide

FLOOD, LINES = 400, 32
NO_BOT = "ty_bot_" + "a" * 22 + "_" + "b" * 43
BOT = {"bot": "b1", "session": "s1"}


@pytest.fixture
def narrow(sqlite_template: Path, tmp_path: Path) -> Iterator[RunningServer]:
    """A server with little room: four at once, two of one caller, eight that wait for the writer."""
    url = f"sqlite:///{copy(sqlite_template, tmp_path / 'taskyard.db')}"
    with RunningServer(url, Settings(in_flight_max=4, queue_max=8, waiting_max=64)) as made:
        yield made


@contextmanager
def writer_held(server: RunningServer) -> Iterator[None]:
    """Keep the writer from writing: whatever is to be written waits."""
    holds, free = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        holds.set()
        assert free.wait(WAIT_S)

    with ThreadPoolExecutor(1) as aside:
        held = aside.submit(server.engine.transact, hold)
        assert holds.wait(WAIT_S)
        try:
            yield
        finally:
            free.set()
            held.result(WAIT_S)


def is_put_off(answer: Answer) -> bool:
    problem = answer.headers["content-type"] == "application/problem+json" and answer.json["code"] == "overloaded"
    return answer.status == 429 and problem and answer.headers["retry-after"] == "1"


def test_a_flood_of_submits_is_refused_while_every_renewal_gets_through_and_accepted_work_is_kept(
    narrow: RunningServer,
) -> None:
    bot = narrow.token(kind="bot", pool="default")
    callers = [narrow.token("pool:default:submit") for _ in range(4)]
    mine = narrow.submit(graph(a=task()))
    narrow.ask("POST", "/api/v1/bot/hello", BOT, token=bot)
    first = narrow.ask("POST", "/api/v1/bot/poll", BOT | {"poll": "p", "want": 1}, token=bot).json["leases"][0]
    renewal = BOT | {"renewals": [{name: first[name] for name in ("task", "attempt", "fence")}]}

    def submit(number: int) -> Answer:
        return narrow.ask("POST", "/api/v1/graphs", wide(40), token=callers[number % 4])

    with ThreadPoolExecutor(LINES) as crowd:
        asked = [crowd.submit(submit, number) for number in range(FLOOD)]
        renewed = 0
        while not all(one.done() for one in asked):
            shown = narrow.ask("POST", "/api/v1/bot/poll", renewal, token=bot)
            assert (shown.status, [one["task"] for one in shown.json["renewed"]]) == (200, [mine.tasks["a"]])
            renewed += 1
    answers = [one.result() for one in asked]
    taken = [one.json["graph_id"] for one in answers if one.status == 201]
    assert Counter(one.status for one in answers) == {201: len(taken), 429: FLOOD - len(taken)}
    assert all(is_put_off(one) for one in answers if one.status == 429)
    assert (renewed > 0, 0 < len(taken) < FLOOD) == (True, True)
    assert stored(narrow) == {mine.id, *taken}


def stored(server: RunningServer) -> set[str]:
    found: set[str] = set()
    cursor = ""
    for _ in range(100):
        page: Any = server.get(f"/api/v1/graphs?limit=200{cursor}")
        found |= {one["id"] for one in page["items"]}
        if page["next"] is None:
            return found
        cursor = f"&cursor={page['next']}"
    raise AssertionError("the list has no end")


def test_when_the_queue_of_the_writer_is_long_changes_are_refused_and_reads_and_bots_are_not(
    narrow: RunningServer,
) -> None:
    bot = narrow.token(kind="bot", pool="default")
    narrow.ask("POST", "/api/v1/bot/hello", BOT, token=bot)
    with ThreadPoolExecutor(16) as crowd:
        with writer_held(narrow):
            polls = [crowd.submit(narrow.ask, "POST", "/api/v1/bot/poll", BOT, token=bot) for _ in range(8)]
            until_waiting(narrow, 8)
            assert is_put_off(narrow.ask("POST", "/api/v1/graphs", graph(a=task())))
            assert is_put_off(narrow.ask("PUT", "/api/v1/pools/lab", {}))
            assert narrow.ask("GET", "/api/v1/graphs").status == 200
            polls.append(crowd.submit(narrow.ask, "POST", "/api/v1/bot/poll", BOT, token=bot))
            until_waiting(narrow, 9)
        assert {one.result(WAIT_S).status for one in polls} == {200}
    narrow.submit(graph(a=task()))


def until_waiting(server: RunningServer, wanted: int) -> None:
    """Wait until so much waits for the writer; what the server does by itself counts, too."""
    until(server, lambda: server.engine.writer_thread.waiting >= wanted)


def until_inside(server: RunningServer, wanted: int) -> None:
    """Wait until so many requests of people are under way."""
    doors: Any = server.http.app._user_api
    until(server, lambda: doors._app._app._running >= wanted)


def until(server: RunningServer, holds: Callable[[], bool]) -> None:
    """Wait until a condition holds; each check is a request, which lets the server go on."""
    for _ in range(10_000):
        if holds():
            return
        server.ask("GET", "/healthz")
    raise AssertionError("it never came to that")


def test_a_new_bot_connects_while_every_thread_of_the_user_api_waits(sqlite_template: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{copy(sqlite_template, tmp_path / 'taskyard.db')}"
    with RunningServer(url, Settings(threads_max=2)) as server, ThreadPoolExecutor(8) as crowd:
        bot = server.token(kind="bot", pool="default")
        server.hello()
        with writer_held(server):
            asked = [crowd.submit(server.ask, "POST", "/api/v1/graphs", wide(1)) for _ in range(2)]
            until_inside(server, 2)
            asked.append(crowd.submit(server.ask, "POST", "/api/v1/bot/poll", BOT, token=bot))
            # Its token has to be looked up, too; and this answer does not need the writer.
            assert server.ask("POST", "/api/v1/bot/poll", BOT, token=NO_BOT).status == 401
        assert [one.result(WAIT_S).status for one in asked] == [201, 201, 200]


def test_one_caller_cannot_take_the_room_of_all_others(narrow: RunningServer) -> None:
    greedy, modest = narrow.token("pool:default:submit"), narrow.token("pool:default:submit")
    with ThreadPoolExecutor(4) as crowd:
        with writer_held(narrow):
            inside = [crowd.submit(narrow.ask, "POST", "/api/v1/graphs", wide(1), token=greedy) for _ in range(2)]
            until_inside(narrow, 2)
            assert is_put_off(narrow.ask("GET", "/api/v1/graphs", token=greedy))
            inside.append(crowd.submit(narrow.ask, "POST", "/api/v1/graphs", wide(1), token=modest))
            until_inside(narrow, 3)
        assert [one.result(WAIT_S).status for one in inside] == [201] * 3


def test_requests_that_only_wait_take_no_place_of_others(narrow: RunningServer) -> None:
    made = narrow.submit(graph(a=task()))
    narrow.hello()
    (lease,) = narrow.claim()
    waits = [f"/api/v1/graphs/{made.id}?wait_ms=20000", f"/api/v1/tasks/{made.tasks['a']}/output?follow=true"]
    lines = []
    for number in range(12):
        connection = connected(narrow)
        lines.append((connection, connection.__enter__()))
        lines[-1][1].sendall(head(narrow, "GET", waits[number % 2]))
        assert narrow.ask("GET", f"/api/v1/graphs/{made.id}").status == 200
    assert narrow.ask("POST", f"/api/v1/graphs/{made.id}/cancel").status == 200
    narrow.end(lease)
    for connection, raw in lines:
        assert status(said_on(raw)) == 200
        connection.__exit__(None, None, None)


def test_refused_clients_repeat_their_requests_and_all_are_served(narrow: RunningServer) -> None:
    token = narrow.token("pool:default:submit")

    def submit(number: int) -> str:
        with Client(narrow.http.url, token) as client:
            return str(client.submit(graph(a=task()), key=f"k{number}").graph_id)

    with ThreadPoolExecutor(4) as crowd:
        with writer_held(narrow):
            asked = [crowd.submit(submit, number) for number in range(4)]
            until_inside(narrow, 2)
        ids = {one.result(WAIT_S) for one in asked}
    assert len(ids) == 4
    assert stored(narrow) == ids
