"""What waits with a token ends when the token does, and one token does not take all places that there are."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

from taskyard.files.digests import CHUNK_BYTES, TreeFile, make_tree
from taskyard.server.settings import Settings
from taskyard.wire.bot_protocol import PIECE_MAX
from tests.engine.harness import wait_until
from tests.server.running_server import Answer, RunningServer, graph, task
from tests.server.test_bot_api import hello
from tests.server.test_files import offer, store


@pytest.fixture
def server(sqlite_url: str) -> Iterator[RunningServer]:
    with RunningServer(sqlite_url, Settings(followers_max=4)) as made:
        yield made


@contextmanager
def followed(server: RunningServer, path: str, token: str) -> Iterator[http.client.HTTPResponse]:
    with closing(server.connection()) as connection:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        with connection.getresponse() as answer:
            yield answer


def revoke(server: RunningServer, token: str) -> None:
    assert server.ask("DELETE", f"/api/v1/tokens/{token.split('_')[2]}").status == 200


def test_a_revoked_token_follows_no_more_though_the_task_goes_on(server: RunningServer) -> None:
    server.hello()
    made = server.submit(graph(a=task()))
    (lease,) = server.claim()
    token = server.token("pool:default:read")
    with followed(server, f"/api/v1/tasks/{made.tasks['a']}/output?follow=true", token) as stream:
        server.print(lease, 0, b"before")
        assert stream.read(6) == b"before"
        revoke(server, token)
        assert stream.read() == b"", "the stream ends, and the attempt does not"
    assert server.get(f"/api/v1/tasks/{made.tasks['a']}")["state"] == "running"
    assert server.ask("GET", f"/api/v1/tasks/{made.tasks['a']}", token=token).status == 401


def test_a_revoked_token_gets_no_more_of_an_output_that_it_is_still_reading(server: RunningServer) -> None:
    server.hello()
    made = server.submit(graph(a=task()))
    (lease,) = server.claim()
    pieces = 32 * 1_048_576 // PIECE_MAX  # far more than all buffers between server and client hold
    for number in range(pieces):
        server.print(lease, number * PIECE_MAX, b"x" * PIECE_MAX)
    token = server.token("pool:default:read")
    with followed(server, f"/api/v1/tasks/{made.tasks['a']}/output?follow=true", token) as stream:
        assert stream.read(1) == b"x"
        revoke(server, token)
        assert len(stream.read()) < (pieces - 1) * PIECE_MAX


def test_a_download_of_output_is_cut_off_when_its_token_is_revoked(server: RunningServer) -> None:
    server.hello()
    made = server.submit(graph(a=task()))
    (lease,) = server.claim()
    pieces = 32 * 1_048_576 // PIECE_MAX
    for number in range(pieces):
        server.print(lease, number * PIECE_MAX, b"x" * PIECE_MAX)
    assert_is_cut_off(server, f"/api/v1/tasks/{made.tasks['a']}/output")


def test_a_download_of_a_file_is_cut_off_when_its_token_is_revoked(server: RunningServer) -> None:
    server.hello()
    made = server.submit(graph(a=task()))
    (lease,) = server.claim()
    chunks = tuple(store(server, b"x" * CHUNK_BYTES)) * (64 * 1_048_576 // CHUNK_BYTES)
    digest = offer(server, make_tree([TreeFile("large", len(chunks) * CHUNK_BYTES, chunks)])).json["digest"]
    path = f"/api/v1/tasks/{made.tasks['a']}/files"
    said = {"pool": "default", "tree": digest}
    assert server.ask("PUT", path, said, token=server.run_token(lease)).status == 204
    assert_is_cut_off(server, f"{path}/large")


def assert_is_cut_off(server: RunningServer, path: str) -> None:
    token = server.token("pool:default:read")
    with followed(server, path, token) as answer:
        assert answer.read(1) == b"x"
        revoke(server, token)
        with pytest.raises(http.client.IncompleteRead):
            answer.read()


def test_a_revoked_token_waits_for_no_graph_any_more(server: RunningServer) -> None:
    made = server.submit(graph(a=task()))
    token = server.token("pool:default:read")
    answers: list[Answer] = []
    path = f"/api/v1/graphs/{made.id}?wait_ms=20000"
    waiting = threading.Thread(target=lambda: answers.append(server.ask("GET", path, token=token)))
    waiting.start()
    wait_until(lambda: bool(server.http.app.context.graph_waiters._waiting))
    revoke(server, token)
    waiting.join(60)
    assert [one.status for one in answers] == [401]


def test_a_poll_that_waits_with_a_revoked_token_is_given_nothing(server: RunningServer) -> None:
    token = server.token(kind="bot", pool="default")
    hello(server, token)
    answers: list[Answer] = []
    said = {"bot": "b1", "session": "s1", "want": 1, "poll": "p1", "wait_ms": 20_000}
    waiting = threading.Thread(target=lambda: answers.append(server.ask("POST", "/api/v1/bot/poll", said, token=token)))
    waiting.start()
    wait_until(lambda: len(server.engine._writer.parked_polls) == 1)
    revoke(server, token)
    made = server.submit(graph(a=task()))
    waiting.join(60)
    assert [one.json for one in answers] == [{}]
    assert server.get(f"/api/v1/tasks/{made.tasks['a']}")["state"] == "waiting"


def test_one_token_follows_at_most_half_of_the_outputs_that_can_be(server: RunningServer) -> None:
    server.hello()
    made = server.submit(graph(a=task()))
    server.claim()
    path = f"/api/v1/tasks/{made.tasks['a']}/output?follow=true"
    greedy, other = server.token("pool:default:read"), server.token("pool:default:read")
    with ExitStack() as streams:
        mine = [streams.enter_context(followed(server, path, greedy)) for _ in range(2)]
        wait_until(lambda: server.http.app.context.followers.total() == 2)
        refusal = server.ask("GET", path, token=greedy)
        assert (refusal.status, refusal.headers["retry-after"]) == (429, "1")
        assert "2 outputs are already being followed with this token" in refusal.json["detail"]
        others = [streams.enter_context(followed(server, path, other)) for _ in range(2)]
        assert [one.status for one in (*mine, *others)] == [200] * 4
