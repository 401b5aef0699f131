"""Without tokens, foreign pages in a browser on this machine are refused: forged requests and DNS rebinding."""

from collections.abc import Iterator
from pathlib import Path
from shutil import copy

import pytest

from taskyard.server.settings import Settings
from tests.hardening.store_digest import settled
from tests.server.running_server import RunningServer, graph, task


@pytest.fixture(scope="module")
def anybodys(url: str) -> Iterator[RunningServer]:
    """A server without authentication."""
    with RunningServer(url, Settings(authentication=False)) as made:
        yield made


STRANGERS = [
    {"Origin": "http://evil.example"},
    {"Origin": "https://127.0.0.1.evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Host": "evil.example"},
    {"Host": "evil.example:8420"},
    {"Host": "127.0.0.1.evil.example"},
    {"Host": "localhost.evil.example"},
    {"Host": "0.0.0.0"},  # noqa: S104 - nothing listens there
    {"Host": "[::]"},
    {"Host": "10.0.0.1"},
    {"Host": "evil.example", "Origin": "http://evil.example"},
]
#: No host at all: refused with the head of the request, before the caller is checked.
NO_HOSTS = [{"Host": "[::1"}, {"Host": "127.0.0.1@evil.example"}]
NEIGHBOURS = [
    {},
    {"Host": "localhost:1"},
    {"Host": "[::1]:8420"},
    {"Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "none"},
]


@pytest.mark.parametrize("headers", [*STRANGERS, *NO_HOSTS], ids=str)
def test_a_request_of_a_foreign_page_is_refused_and_changes_nothing(
    anybodys: RunningServer, url: str, headers: dict[str, str]
) -> None:
    refusal = (400, "invalid") if headers in NO_HOSTS else (403, "forbidden")
    before = settled(anybodys.engine, url)
    simple = {"Content-Type": "text/plain", **headers}
    hello = {"bot": "evil", "session": "s"}
    for method, path, body in (
        ("POST", "/api/v1/graphs", graph(a=task())),
        ("GET", "/api/v1/graphs", None),
        ("POST", "/api/v1/bot/hello", hello),
        ("POST", "/api/v1/tokens", {"name": "evil", "scopes": ["admin"]}),
    ):
        answer = anybodys.ask(method, path, body, token=None, headers=simple)
        assert (answer.status, answer.json["code"]) == refusal, (method, path)
    assert settled(anybodys.engine, url) == before


@pytest.mark.parametrize("headers", NEIGHBOURS, ids=str)
def test_clients_on_this_machine_are_served(anybodys: RunningServer, headers: dict[str, str]) -> None:
    assert anybodys.ask("GET", "/api/v1/graphs", token=None, headers=headers).status == 200


def test_a_page_of_the_server_itself_may_ask(anybodys: RunningServer) -> None:
    headers = {"Origin": anybodys.http.url, "Sec-Fetch-Site": "same-origin"}
    assert anybodys.ask("POST", "/api/v1/graphs", graph(a=task()), token=None, headers=headers).status == 201


def test_with_tokens_the_origin_of_a_request_does_not_matter(sqlite_template: Path, tmp_path: Path) -> None:
    with RunningServer(f"sqlite:///{copy(sqlite_template, tmp_path / 'taskyard.db')}") as server:
        assert server.ask("GET", "/api/v1/graphs", headers={"Host": "yard.example"}).status == 200
        assert server.ask("GET", "/api/v1/graphs", token=None, headers={"Origin": "http://evil"}).status == 401
