"""The stream of events: resumed by id, filtered by right, bounded, and the same on every server of a database."""

import http.client
import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from copy import copy
from typing import Any

import pytest

from taskyard.bus import relay
from taskyard.core.states import Signal
from taskyard.engine.engine import Engine
from taskyard.server.routes import events as routes
from taskyard.server.serve import Server
from taskyard.server.settings import Settings
from tests.engine.harness import wait_until
from tests.server.running_server import Made, RunningServer, graph, task

LINES_MAX = 10_000


class Stream:
    """A stream of events that a test reads."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.answer = answer
        self.position = ""

    def message(self) -> dict[str, str] | None:
        """Read the next message, comments left out; None if the stream has ended."""
        found: dict[str, str] = {}
        for _ in range(LINES_MAX):
            line = self.answer.readline().decode()
            if not line:
                return None
            name, _, value = line.rstrip("\n").partition(": ")
            if name:
                found[name] = value
            elif found:
                break
        self.position = found.get("id", self.position)
        return found

    def event(self) -> Any:
        """Read the next event."""
        for _ in range(LINES_MAX):
            found = self.message()
            assert found is not None, "the stream has ended"
            if "data" in found:
                return {"position": int(found["id"]), "name": found.get("event", "")} | json.loads(found["data"])
        raise AssertionError("there is no event")

    def until(self, kind: str) -> list[Any]:
        """Read events until one of a kind."""
        found = [self.event()]
        while found[-1].get("kind") != kind:
            found.append(self.event())
        return found


@contextmanager
def streamed(
    server: RunningServer, query: str = "", position: str | None = None, token: str | None = None
) -> Iterator[Stream]:
    headers = {"Authorization": f"Bearer {token or server.admin}"}
    if position is not None:
        headers["Last-Event-ID"] = position
    with closing(server.connection()) as connection:
        connection.request("GET", f"/api/v1/events{query}", headers=headers)
        with connection.getresponse() as answer:
            assert answer.status == 200, answer.read()
            assert answer.headers["content-type"].startswith("text/event-stream")
            stream = Stream(answer)
            stream.message()  # where it begins
            yield stream


def at_once(server: RunningServer, query: str = "", position: str = "", token: str | None = None) -> list[Any]:
    """The events after a position that there are now."""
    found = []
    with streamed(server, f"?follow=false{query}", position, token) as stream:
        for _ in range(LINES_MAX):
            message = stream.message()
            if message is None:
                break
            if "data" in message:
                found.append(
                    {"position": int(message["id"]), "name": message.get("event", "")} | json.loads(message["data"])
                )
    return found


def run(server: RunningServer, document: object) -> Made:
    """Run a graph to its end."""
    made = server.submit(document)
    for _ in range(len(made.tasks)):
        for lease in server.claim():
            server.end(lease)
    return made


def logged(server: RunningServer, made: Made) -> list[str]:
    return [one["id"] for one in server.get(f"/api/v1/graphs/{made.id}/events?limit=200")["items"]]


def revoke(server: RunningServer, token: str) -> None:
    assert server.ask("DELETE", f"/api/v1/tokens/{token.split('_')[2]}").status == 200


def test_a_follower_gets_every_event_in_order_with_numbers_without_gaps(either_server: RunningServer) -> None:
    either_server.hello()
    with streamed(either_server) as stream:
        first = int(stream.position)
        made = run(either_server, graph(a=task(), b=task("a"), c=task("b")))
        found = stream.until("graph.finished")
    assert [one["id"] for one in found] == logged(either_server, made)
    assert [one["position"] for one in found] == list(range(first + 1, first + 1 + len(found)))


def test_a_follower_that_comes_back_gets_what_it_missed_with_the_same_ids(either_server: RunningServer) -> None:
    either_server.hello()
    with streamed(either_server) as stream:
        begin = stream.position
        one = run(either_server, graph(a=task()))
        seen = [stream.event(), stream.event()]
    two = run(either_server, graph(a=task(), b=task("a")))
    with streamed(either_server, position=stream.position) as stream:
        rest = stream.until("graph.finished") + stream.until("graph.finished")
    for made in (one, two):  # the events of one graph are in order, those of two are not
        assert [each["id"] for each in seen + rest if each["graph_id"] == made.id] == logged(either_server, made)
    again = at_once(either_server, position=begin)
    assert again == seen + rest


def test_nothing_is_numbered_while_nobody_follows_and_old_events_are_passed_over(
    either_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    either_server.hello()
    for _ in range(3):
        run(either_server, graph(a=task()))
    with either_server.engine.store.read() as repo:
        assert (repo.stream.read().last, repo.stream.page(0, 9)) == (0, ([], 0))
        assert not relay.has_work(repo, either_server.engine.clock.now())
    monkeypatch.setattr(relay, "MARGIN_MS", -1)  # as if they were older
    monkeypatch.setattr(relay, "PAGE_MAX", 2)
    with streamed(either_server) as stream:
        wait_until(lambda: not _has_work(either_server))
        made = run(either_server, graph(a=task()))
        assert [one["id"] for one in stream.until("graph.finished")] == logged(either_server, made)


def test_events_are_chosen_by_graph_task_kind_and_pool(server: RunningServer) -> None:
    server.hello()
    server.hello("b2", "lab")
    with streamed(server) as stream:
        begin = stream.position
        one, two = server.submit(graph(a=task(), b=task())), server.submit(graph(c=task(dimensions={"pool": "lab"})))
        for lease in server.claim():
            server.end(lease)
        (lease,) = server.claim("b2")
        server.end(lease, bot="b2", signal=Signal.FAIL)
        stream.until("graph.blocked")
    for query, wanted in (
        (f"&graph={one.id}", logged(server, one)),
        (f"&graph={two.id}", logged(server, two)),
        ("&pool=lab", logged(server, two)),
    ):
        assert [each["id"] for each in at_once(server, query, begin)] == wanted
    assert {each["label"] for each in at_once(server, f"&task={one.tasks['a']}", begin)} == {"a"}
    found = at_once(server, "&kind=task.failed&kind=graph.finished", begin)
    assert sorted((each["kind"], each["graph_id"]) for each in found) == [
        ("graph.finished", one.id),
        ("task.failed", two.id),
    ]


def test_a_token_gets_only_the_events_of_its_pools(server: RunningServer) -> None:
    server.hello()
    lab, both = server.token("pool:lab:read"), server.token("pool:lab:read", "pool:default:read")
    with streamed(server) as stream:
        begin = stream.position
        one = run(server, graph(a=task()))
        stream.until("graph.finished")
    assert at_once(server, position=begin, token=lab) == []
    assert [each["id"] for each in at_once(server, position=begin, token=both)] == logged(server, one)
    for query, token, status in (
        ("?pool=default", lab, 403),
        (f"?graph={one.id}", lab, 403),
        (f"?task={one.tasks['a']}", lab, 403),
        ("", server.token("pool:lab:submit"), 403),
        ("?graph=7ffffffffffffff8", both, 404),
    ):
        assert server.ask("GET", f"/api/v1/events{query}", token=token).status == status
    assert server.ask("GET", "/api/v1/events?kind=task.odd").paths == ["kind"]
    assert server.ask("GET", "/api/v1/events?graph=odd").paths == ["graph"]
    odd = server.ask("GET", "/api/v1/events", headers={"Last-Event-ID": "odd"})
    assert odd.paths == ["Last-Event-ID"]


def test_a_running_task_follows_its_own_graph_alone(server: RunningServer) -> None:
    server.hello()
    with streamed(server) as stream:
        begin = stream.position
        other = run(server, graph(a=task()))
        own = server.submit(graph(b=task()))
        (lease,) = server.claim()
        seen = [stream.event() for _ in (*logged(server, other), *logged(server, own))]
        assert {each["graph_id"] for each in seen} == {own.id, other.id}
    found = at_once(server, position=begin, token=server.run_token(lease))
    assert [each["id"] for each in found] == logged(server, own)


def test_a_follower_whose_events_are_not_kept_any_more_is_told(
    either_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "KEPT_MAX", 3)
    either_server.hello()
    with streamed(either_server) as stream:
        begin = stream.position
        made = run(either_server, graph(a=task()))
        stream.until("graph.finished")
        newest = int(stream.position)
    reset, *kept = at_once(either_server, position=begin)
    assert (reset["name"], reset["position"]) == ("reset", newest - 3)
    assert [one["id"] for one in kept] == logged(either_server, made)[-3:]
    # An id that this database has never given away.
    assert at_once(either_server, position=str(newest + 1))[0]["name"] == "reset"


def test_a_stream_that_nobody_followed_for_long_begins_anew(
    either_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    either_server.hello()
    monkeypatch.setattr(relay, "WANTED_MS", -1)
    with streamed(either_server) as stream:
        begin = stream.position
    monkeypatch.undo()
    monkeypatch.setattr(relay, "MARGIN_MS", -1)
    run(either_server, graph(a=task()))
    assert at_once(either_server, position=begin)[0]["name"] == "reset"


def test_the_stream_of_a_revoked_token_ends(server: RunningServer) -> None:
    server.hello()
    token = server.token("pool:default:read")
    with streamed(server, token=token) as stream:
        run(server, graph(a=task()))
        stream.event()
        revoke(server, token)
        assert any(stream.message() is None for _ in range(LINES_MAX)), "the stream ends"


def test_a_silent_stream_has_heartbeats(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "HEARTBEAT_S", 0.0)
    with streamed(server) as stream:
        assert stream.answer.readline() == b": heartbeat\n"
        assert stream.answer.readline() == f"id: {stream.position}\n".encode()


def test_a_follower_that_does_not_read_holds_up_nobody(server: RunningServer) -> None:
    server.hello()
    with streamed(server) as slow, streamed(server) as quick:
        for _ in range(20):
            run(server, graph(**{f"t{number}": task() for number in range(8)}))
        seen = [one for _ in range(20) for one in quick.until("graph.finished")]
        assert [one for _ in range(20) for one in slow.until("graph.finished")] == seen


def test_followers_are_counted_and_bounded(sqlite_url: str) -> None:
    with RunningServer(sqlite_url, Settings(followers_max=2)) as server, ExitStack() as streams:
        for _ in range(2):
            token = server.token("pool:default:read")
            streams.enter_context(streamed(server, token=token))
        wait_until(lambda: server.http.app.context.followers.total() == 2)
        refusal = server.ask("GET", "/api/v1/events")
        assert (refusal.status, refusal.headers["retry-after"]) == (429, "1")
        streams.close()
        wait_until(lambda: not server.http.app.context.followers)


def test_a_follower_goes_on_at_another_server(postgres_url: str) -> None:
    with RunningServer(postgres_url) as one:
        one.hello()
        with streamed(one) as stream:
            begin = stream.position
            first = run(one, graph(a=task()))
            seen = stream.until("graph.finished")
        with Engine.open(postgres_url) as engine, Server(engine, Settings()) as http:
            other = copy(one)
            other.engine, other.http = engine, http
            second = run(one, graph(a=task(), b=task()))
            with streamed(other, position=str(seen[1]["position"])) as stream:
                rest = stream.until("graph.finished") + stream.until("graph.finished")
            assert seen[:2] + rest == at_once(one, position=begin)
            assert [each["id"] for each in seen[:2] + rest] == logged(one, first) + logged(one, second)


def _has_work(server: RunningServer) -> bool:
    with server.engine.store.read() as repo:
        return relay.has_work(repo, server.engine.clock.now())
