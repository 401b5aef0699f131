"""Requests over a wire that is not to be relied on."""

import socket
import threading

import pytest

from taskyard.sdk import Client, Conflict, Overloaded, Unreachable, Unreadable, Unset, http
from tests.sdk.faulty_server import FaultyServer, Reply, json_reply, problem

SUBMITTED = {"graph_id": "78a6ff3e8d8c0f28", "echo": False, "nameMapping": {"a": "00c0ffee12345678"}}
DONE = {"subject": "78a6ff3e8d8c0f28", "moved": 1, "promised": False, "echo": False}
POOLS: dict[str, list[str]] = {"items": []}


def test_one_connection_serves_many_requests(server: FaultyServer, client: Client) -> None:
    server.reply_with(*[json_reply(POOLS)] * 3)
    assert [client.pools() for _ in range(3)] == [[], [], []]
    assert server.connections == 1


def test_every_request_carries_the_token_and_goes_below_the_root(server: FaultyServer, client: Client) -> None:
    server.reply_with(json_reply(POOLS))
    client.pools()
    asked = server.asked[0]
    assert (asked.method, asked.path, asked.headers["authorization"]) == ("GET", "/api/v1/pools", "Bearer a-token")


@pytest.mark.parametrize("bad", [Reply(cut=0), Reply(body=b"x" * 100, cut=50), problem(429), problem(503)])
def test_a_change_whose_answer_is_lost_is_repeated_with_the_same_key(
    bad: Reply, server: FaultyServer, client: Client
) -> None:
    server.reply_with(bad, json_reply(SUBMITTED))
    assert client.submit({"tasks": {}}).nameMapping == {"a": "00c0ffee12345678"}
    keys = {asked.headers["idempotency-key"] for asked in server.asked}
    assert (len(server.asked), len(keys)) == (2, 1)


def test_two_changes_have_two_keys(server: FaultyServer, client: Client) -> None:
    server.reply_with(json_reply(DONE), json_reply(DONE))
    client.rerun_graph("78a6ff3e8d8c0f28")
    client.rerun_graph("78a6ff3e8d8c0f28")
    assert len({asked.headers["idempotency-key"] for asked in server.asked}) == 2


@pytest.mark.parametrize("bad", [Reply(cut=0), problem(503)])
def test_a_token_that_may_have_been_made_is_not_made_again(bad: Reply, server: FaultyServer, client: Client) -> None:
    server.reply_with(bad)
    with pytest.raises((Unreachable, Overloaded)):
        client.new_token("user", "ci")
    assert len(server.asked) == 1


def test_a_request_that_was_refused_for_overload_is_repeated(server: FaultyServer, client: Client) -> None:
    view: dict[str, object] = {
        "id": "x", "kind": "user", "name": "ci", "scopes": [], "pool": None,
        "created_ms": 1, "expires_ms": None, "revoked_ms": None,
    }  # fmt: skip
    server.reply_with(problem(429, retry_after="0"), json_reply({"token": "ty_user_x", "view": view}, 201))
    assert client.new_token("user", "ci").token == "ty_user_x"  # noqa: S105


def test_a_request_for_a_loading_graph_is_repeated(server: FaultyServer, client: Client) -> None:
    server.reply_with(problem(409, "loading", retry_after="0"), json_reply(DONE))
    assert client.cancel_graph("78a6ff3e8d8c0f28").moved == 1


def test_a_permanent_conflict_is_raised_at_once(server: FaultyServer, client: Client) -> None:
    server.reply_with(problem(409))
    with pytest.raises(Conflict):
        client.cancel_graph("78a6ff3e8d8c0f28")
    assert len(server.asked) == 1


def test_a_server_that_stays_overloaded_is_an_error_after_a_few_tries(server: FaultyServer, client: Client) -> None:
    server.reply_with(*[problem(503)] * http.TRIES_MAX)
    with pytest.raises(Overloaded):
        client.pools()
    assert len(server.asked) == http.TRIES_MAX


def test_an_unreachable_server_is_reported_with_its_address_and_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "WAIT_SECONDS", 0.001)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(Unreachable) as told_:
        Client(url, "x").pools()
    assert told_.value.url == url
    assert "taskyard up" in str(told_.value)


@pytest.mark.parametrize("reply", [Reply(body=b"<html>"), Reply(status=502, body=b"<html>"), json_reply({"items": 7})])
def test_an_answer_of_something_else_is_no_crash(
    reply: Reply, server: FaultyServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "WAIT_SECONDS", 0.001)
    server.reply_with(*[reply] * http.TRIES_MAX)  # a gateway may answer 502 while its server is away
    with pytest.raises(Unreadable, match=server.url):
        client.pools()


def test_a_redirect_is_not_followed_so_that_no_token_leaves(server: FaultyServer, client: Client) -> None:
    server.reply_with(Reply(307, b"", {"location": f"{server.url}/elsewhere"}))
    with pytest.raises(Unreadable):
        client.pools()
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "url", ["yard:8420", "ftp://yard", "http://", "http://u:p@yard", "http://yard/?x=1", "http://y:x"]
)
def test_what_is_no_address_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(Unset, match="not the address of a server"):
        Client(url, "x")


@pytest.mark.parametrize("token", ["a b", "a\nb", "é"])
def test_what_is_no_token_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(Unset) as refused:
        Client("http://127.0.0.1:1", token)
    assert token not in str(refused.value)


def test_threads_share_a_client(server: FaultyServer, client: Client) -> None:
    server.reply_with(*[json_reply(POOLS)] * 40)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.extend([client.pools() for _ in range(5)])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [[]] * 40
