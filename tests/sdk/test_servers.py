"""Several servers: a client uses one at a time, moves on when it is away, and clients are spread over them."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from taskyard.sdk.errors import Overloaded, Unreachable, Unset
from taskyard.sdk.http import HttpRequest, Transport
from taskyard.sdk.profiles import is_among
from taskyard.sdk.routes import ApiSession
from taskyard.sdk.servers import ServerList, split_urls

PROBLEM = b'{"type": "t", "title": "t", "status": 503, "detail": "d", "code": "unavailable", "faults": []}'


@dataclass
class Answering:
    """A server that answers with one status."""

    url: str
    status: int = 200
    asked: list[str] = field(default_factory=list)


@contextmanager
def answering(status: int = 200) -> Iterator[Answering]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            one.asked.append(self.path)
            body = b"{}" if one.status == 200 else PROBLEM
            self.send_response(one.status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - the name that the library calls

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        one = Answering(f"http://127.0.0.1:{server.server_port}", status)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield one
        finally:
            server.shutdown()
            thread.join()


def first_is(url: str, *others: str) -> ServerList:
    """A list that begins with a server."""
    return next(one for number in range(1_000) if (one := ServerList([url, *others], str(number))).home == url)


def test_addresses_are_separated_by_commas_and_named_once() -> None:
    assert split_urls(" http://a/, http://b:1,http://a,") == ["http://a", "http://b:1"]
    assert split_urls(["http://a", "http://b"]) == ["http://a", "http://b"]
    for wrong in ("", " , ", ",".join(f"http://s{number}" for number in range(33))):
        with pytest.raises(Unset, match="addresses of servers"):
            split_urls(wrong)


def test_clients_are_spread_over_the_servers_and_each_name_keeps_its_server() -> None:
    urls = "http://a,http://b,http://c"
    homes = Counter(ServerList(urls, f"bot{number}").home for number in range(300))
    assert sorted(homes) == ["http://a", "http://b", "http://c"]
    assert min(homes.values()) > 50
    assert {ServerList(urls, "bot1").home for _ in range(9)} == {ServerList(urls, "bot1").home}


def test_every_server_is_asked_once_before_a_pause() -> None:
    servers = ServerList("http://a,http://b,http://c")
    assert [servers.move_on(servers.current) for _ in range(6)] == [True, True, False, True, True, False]
    assert ServerList("http://a").move_on("http://a") is False


def test_a_request_that_fails_at_a_server_that_was_left_already_moves_no_further() -> None:
    servers = first_is("http://a", "http://b")
    left: list[str] = []
    servers.on_leave = left.append
    assert servers.move_on("http://a")
    assert servers.move_on("http://a")
    assert (servers.current, left) == ("http://b", ["http://a"])
    servers.go_home()
    assert servers.current == "http://a"


@pytest.mark.parametrize("status", [502, 503, 504, None])
def test_a_request_goes_to_the_next_server_when_one_is_away(status: int | None) -> None:
    with answering(status or 200) as away, answering() as there:
        gone = "http://127.0.0.1:9" if status is None else away.url
        transport = Transport(first_is(gone, there.url), {}, 5.0)
        for number in range(3):
            assert transport.ask(HttpRequest("GET", f"/{number}")).status == 200
        assert there.asked == ["/0", "/1", "/2"], "and stays there"
        assert len(away.asked) == (0 if status is None else 1)
        assert list(transport.stream(HttpRequest("GET", "/s")))[1:] == [b"{}"]
        transport.close()


def test_a_stream_that_fails_goes_on_at_the_next_server() -> None:
    with answering() as there:
        transport = Transport(first_is("http://127.0.0.1:9", there.url), {}, 5.0)
        with pytest.raises(Unreachable):
            list(transport.stream(HttpRequest("GET", "/s")))
        assert list(transport.stream(HttpRequest("GET", "/s")))[1:] == [b"{}"]
        transport.close()


def test_a_client_gives_up_once_all_servers_were_asked_again_and_again() -> None:
    with answering(503) as one, answering(503) as other:
        session = ApiSession(f"{one.url},{other.url}", "", 5.0)
        with pytest.raises(Overloaded):
            session.get("/about", object)
        assert len(one.asked) == len(other.asked) == 5
        session.close()
    with pytest.raises(Unreachable, match=r"127.0.0.1:9,http://127.0.0.1:10"):
        ApiSession("http://127.0.0.1:9,http://127.0.0.1:10", "", 5.0).get("/about", object)


def test_a_token_is_sent_only_to_servers_that_its_profile_has() -> None:
    known = "http://a:1,https://b"
    for urls in ("http://a:1", "https://b:443/", "https://b,http://a:1"):
        assert is_among(urls, known), urls
    for urls in ("http://a", "http://a:1,http://c", "http://b"):
        assert not is_among(urls, known), urls
