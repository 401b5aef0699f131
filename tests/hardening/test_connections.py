"""Requests as raw bytes: smuggled, malformed, too large, too slow; and that other clients are not affected."""

import asyncio
import socket
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from taskyard.server.connections import (
    BODY_MAX_S,
    HEAD_BYTES_MAX,
    HEAD_MAX_S,
    PIPELINE_MAX,
    READ_MAX_S,
    close_late_connections,
)
from taskyard.server.settings import KEEP_ALIVE_S
from tests.hardening.raw_http import connected, head, said, said_on, said_until, status
from tests.hardening.store_digest import Digest
from tests.server.running_server import WAIT_S, RunningServer, graph, task

TOKENS = "/api/v1/tokens"
NOBODY = "nobody"
JSON = b"Content-Type: application/json"
HEALTH = ("/healthz", "/readyz", "/metrics")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
BEHIND = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
#: What would be two requests to one reader and one to another, or none at all.
NO_REQUESTS = {
    "length and chunks": [b"Content-Length: 5", b"Transfer-Encoding: chunked"],
    "chunks and length": [b"Transfer-Encoding: chunked", b"Content-Length: 5"],
    "two lengths": [b"Content-Length: 2", b"Content-Length: 3"],
    "chunked, then not": [b"Transfer-Encoding: chunked, identity"],
    "a blank before the colon": [b"Transfer-Encoding : chunked"],
    "almost chunked": [b"Transfer-Encoding: xchunked"],
    "a negative length": [b"Content-Length: -1"],
    "a length with a sign": [b"Content-Length: +2"],
    "a length beyond numbers": [b"Content-Length: " + b"9" * 30],
    "a folded line": [b"X: a", b" folded"],
    "NUL": [b"X: a\x00b"],
    "a bare return": [b"X: a\rContent-Length: 2"],
    "a nameless line": [b": a"],
    "compressed, then chunked": [b"Transfer-Encoding: gzip, chunked"],
    "compressed and chunked in two lines": [b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked"],
    "two hosts": [b"Host: y", b"Content-Length: 0"],
    "the same host twice": [b"host: x", b"Content-Length: 0"],
}
NO_LINES = {
    "newlines alone": b"GET /healthz HTTP/1.1\nHost: x\n\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/9": b"GET /healthz HTTP/9.9\r\nHost: x\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64,
    "an unknown method": b"BREW /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "a tunnel": b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    "bytes in a path": b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
    "a blank in a path": b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
}


def refused(answer: bytes, wanted: int) -> bool:
    one = answer.count(b"HTTP/1.1 ") == 1 and b"application/problem+json" in answer
    return one and status(answer) == wanted


@pytest.mark.parametrize("lines", NO_REQUESTS.values(), ids=NO_REQUESTS)
def test_what_two_readers_could_read_differently_is_refused_and_nothing_behind_it_is_answered(
    server: RunningServer, kept: Digest, lines: list[bytes]
) -> None:
    before = kept()
    answer = said(server, head(server, "POST", TOKENS, *lines) + b"0\r\n\r\n" + BEHIND)
    assert refused(answer, 400), answer
    assert kept() == before


@pytest.mark.parametrize("text", NO_LINES.values(), ids=NO_LINES)
def test_an_invalid_request_gets_a_problem(server: RunningServer, text: bytes) -> None:
    assert refused(said(server, text), 400)


def test_requests_of_unknown_clients_do_not_fill_the_log(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    for text in NO_LINES.values():
        said(server, text)
    assert [one.getMessage() for one in caplog.records] == []


@pytest.mark.parametrize("chunks", [b"zz\r\n{}\r\n0\r\n\r\n", b"-2\r\n{}\r\n", b"2\r\n{}x\r\n0\r\n\r\n"])
def test_broken_chunks_are_refused(server: RunningServer, kept: Digest, chunks: bytes) -> None:
    before = kept()
    answer = said(server, head(server, "POST", TOKENS, b"Transfer-Encoding: chunked") + chunks)
    assert refused(answer, 400), answer
    assert kept() == before


def chunked(path: str) -> bytes:
    """The head of a request without a token and with a chunked body."""
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n".encode()


def test_a_trailer_is_no_header(server: RunningServer) -> None:
    bot = server.token(kind="bot", pool="default")
    for path, token in ((TOKENS, server.admin), ("/api/v1/graphs", server.admin), ("/api/v1/bot/poll", bot)):
        trailers = b"2;a=b\r\n{}\r\n0\r\nAuthorization: Bearer " + token.encode() + b"\r\n\r\n"
        assert refused(said(server, chunked(path) + trailers), 401), path
        answer = said(server, head(server, "POST", path, b"Transfer-Encoding: chunked", token=NOBODY) + trailers)
        assert refused(answer, 401), path


def test_a_trailer_does_not_change_how_a_request_is_read(server: RunningServer) -> None:
    name = b"Content-Type: application/yaml\r\nContent-Encoding: gzip\r\nHost: y\r\nIdempotency-Key: k\r\n"
    body = b'{"tasks":{"a":{"task":{"payload":{"noop":true}}}}}'
    text = b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(body), body, name)
    lines = (b"Transfer-Encoding: chunked", b"Content-Type: application/json")
    for _ in range(2):
        assert status(said(server, head(server, "POST", "/api/v1/graphs", *lines) + text)) == 201


@pytest.mark.parametrize("path", [TOKENS, "/api/v1/bot/poll", "/healthz"])
@pytest.mark.parametrize(
    ("begin", "piece"),
    [(b"0\r\n", b"X: y\r\n"), (b"0\r\nX: ", b"a"), (b"2;", b"a=b;"), (b"2\r\n{}\r\n0\r\n", b"X: y\r\n")],
    ids=["many trailers", "a long trailer", "a long chunk extension", "trailers behind content"],
)
def test_the_framing_of_a_body_is_bounded(server: RunningServer, path: str, begin: bytes, piece: bytes) -> None:
    """The server hangs up; how much it had taken until then is what fits the buffers in between."""
    with connected(server) as connection:
        connection.sendall(chunked(path).replace(b"Connection: close\r\n", b"") + begin)
        sent, pieces = 0, piece * (65_536 // len(piece))
        with suppress(ConnectionError):
            while sent < 256 * HEAD_BYTES_MAX:
                connection.sendall(pieces)
                sent += len(pieces)
    assert sent < 256 * HEAD_BYTES_MAX


def test_a_long_body_in_small_chunks_is_read(server: RunningServer) -> None:
    body = b'{"tasks":{"a":{"task":{"payload":{"noop":true}}}}}' + b" " * HEAD_BYTES_MAX
    chunks = b"".join(b"1;x=y\r\n%c\r\n" % one for one in body) + b"0\r\n\r\n"
    answer = said(server, head(server, "POST", "/api/v1/graphs", b"Transfer-Encoding: chunked", JSON) + chunks)
    assert status(answer) == 201


# Hosts and targets.


@pytest.mark.parametrize(
    "lines",
    [
        b"GET /healthz HTTP/1.1\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n",
        b"GET /healthz HTTP/1.0\r\nHost: a\r\nhOST: a\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a b\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a/b\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: user@a\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a:b\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a, b\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: \xff\r\n",
        b"GET http://b/healthz HTTP/1.1\r\nHost: a\r\n",
        b"GET http://a HTTP/1.1\r\nHost: a\r\n",
        b"GET ftp://a/healthz HTTP/1.1\r\nHost: a\r\n",
        b"GET * HTTP/1.1\r\nHost: a\r\n",
        b"GET /healthz#part HTTP/1.1\r\nHost: a\r\n",
        b"GET /healthz\r\n",
        b"GET /healthz HTTP/0.9\r\nHost: a\r\n",
        b"GET /healthz HTTP/2.0\r\nHost: a\r\n",
        b"GET /healthz HTTP/1.0\r\nTransfer-Encoding: chunked\r\n",
    ],
)
def test_a_request_with_an_ambiguous_host_is_refused(server: RunningServer, lines: bytes) -> None:
    assert refused(said(server, lines + b"\r\n"), 400)


@pytest.mark.parametrize(
    "lines",
    [
        b"GET /healthz HTTP/1.0\r\n",
        b"GET /healthz HTTP/1.1\r\nHost:\r\nConnection: close\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: [::1]:80\r\nConnection: close\r\n",
        b"GET HTTP://A.example:80/healthz HTTP/1.1\r\nHost: a.example:80\r\nConnection: close\r\n",
        b"POST /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\nConnection: close\r\n\r\n0\r\n",
    ],
)
def test_a_request_with_a_clear_host_is_read(server: RunningServer, lines: bytes) -> None:
    assert status(said(server, lines + b"\r\n")) in (200, 405)


# Several requests on one connection.


def test_a_refusal_comes_behind_the_answers_to_earlier_requests(server: RunningServer, kept: Digest) -> None:
    before = kept()
    first = f"GET {TOKENS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {NOBODY}\r\n\r\n".encode()
    broken = b"POST /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    for last in (b"GET /healthz HTTP/1.1\r\n\r\n", b"nonsense\r\n\r\n", broken):
        answer = said(server, BEHIND + first + last + BEHIND)
        assert [int(one[:3]) for one in answer.split(b"HTTP/1.1 ")[1:]] == [200, 401, 400], last
    assert kept() == before


def test_requests_that_are_sent_ahead_are_answered_in_their_order(server: RunningServer) -> None:
    nowhere = b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = said(server, (BEHIND + nowhere) * 20 + last)
    assert [int(one[:3]) for one in answer.split(b"HTTP/1.1 ")[1:]] == [200, 404] * 20 + [200]


def test_too_many_requests_that_are_sent_ahead_are_refused(server: RunningServer) -> None:
    answer = said(server, BEHIND * 4 * PIPELINE_MAX)
    statuses = [int(one[:3]) for one in answer.split(b"HTTP/1.1 ")[1:]]
    assert (set(statuses[:-1]), statuses[-1], len(statuses) <= 2 * PIPELINE_MAX) == ({200}, 400, True)


# Methods.


def test_head_works_where_get_does_and_answers_no_body(server: RunningServer) -> None:
    made = server.submit(graph(a=task()))
    server.hello()
    (lease,) = [one for one in server.claim() if one.task == made.key("a")]
    server.print(lease, 0, b"x" * 200_000)
    output = f"/api/v1/tasks/{made.tasks['a']}/output"
    for path in (*HEALTH, "/api/v1/openapi.json", "/api/v1/graphs", f"/api/v1/graphs/{made.id}", TOKENS, output):
        got, headers = (said(server, head(server, method, path)).partition(b"\r\n\r\n") for method in ("GET", "HEAD"))
        assert headers[2] == b"", path
        # They change between two reads of the metrics.
        assert (status(headers[0]), len_of(headers[0]) == len_of(got[0]) or path == "/metrics") == (200, True), path
        same = [{line.partition(b":")[0] for line in one[0].split(b"\r\n")} for one in (got, headers)]
        assert same[0] == same[1], path
    # What is followed goes on until the attempt ends; its headers are there at once.
    answer = said(server, head(server, "HEAD", f"{output}?follow=true"))
    assert (status(answer), answer.endswith(b"\r\n\r\n")) == (200, True)
    server.end(lease)


def len_of(head_of_answer: bytes) -> bytes:
    lines = (line.lower() for line in head_of_answer.split(b"\r\n"))
    return next((line.partition(b":")[2].strip() for line in lines if line.startswith(b"content-length")), b"")


def test_head_is_refused_as_get_is(server: RunningServer) -> None:
    for path, wanted in ((TOKENS, 401), ("/nowhere", 404), ("/api/v1/requests", 405), ("/api/v1/bot/poll", 405)):
        answer = said(server, head(server, "HEAD", path, token=NOBODY))
        assert (status(answer), answer.endswith(b"\r\n\r\n")) == (wanted, True), path


def test_the_methods_that_a_refusal_names_are_those_that_there_are(server: RunningServer) -> None:
    """Of every path of the description: the named methods are not refused as such, all others are."""
    made = server.submit(graph(a=task()))
    described = server.get("/api/v1/openapi.json")["paths"]
    of = defaultdict(lambda: made.id, task_id=made.tasks["a"], bot_id="b1", name="lab", token_id="0" * 22)
    for path, operations in described.items():
        wanted = {method.upper() for method in operations} | ({"HEAD"} if "get" in operations else set())
        for method in {*METHODS, *wanted}:
            answer = said(server, head(server, method, path.format_map(of), b"Content-Length: 0", token=NOBODY))
            if method not in wanted and path != "/api/v1/graphs/check":
                assert status(answer) == 405, (path, method)
            if status(answer) == 405:
                assert allowed(answer) == wanted, (path, method)


def allowed(answer: bytes) -> set[str]:
    lines = answer.partition(b"\r\n\r\n")[0].split(b"\r\n")
    (found,) = [line.decode() for line in lines if line.lower().startswith(b"allow:")]
    return {method.strip() for method in found.partition(":")[2].split(",")}


def test_a_request_to_upgrade_is_ignored_and_ends_the_connection(server: RunningServer) -> None:
    for other in (b"websocket", b"h2c"):
        lines = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: " + other + b"\r\n\r\n"
        answer = said(server, lines + BEHIND)
        assert (status(answer), answer.count(b"HTTP/1.1 ")) == (200, 1)


def test_a_token_counts_only_where_it_belongs(server: RunningServer) -> None:
    for line in (
        f"GET {TOKENS}?access_token={server.admin} HTTP/1.1\r\nHost: x",
        f"GET {TOKENS} HTTP/1.1\r\nHost: x\r\nCookie: token={server.admin}",
        f"GET {TOKENS} HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {server.admin}",
        f"GET {TOKENS} HTTP/1.1\r\nHost: x\r\nAuthorization: {server.admin}",
        f"GET {TOKENS} HTTP/1.1\r\nHost: x\r\nX-Forwarded-User: admin\r\nX-Real-Ip: 127.0.0.1",
    ):
        assert refused(said(server, line.encode() + b"\r\nConnection: close\r\n\r\n"), 401), line


# Sizes.


@pytest.mark.parametrize(
    "text",
    [
        b"GET /healthz HTTP/1.1\r\nX: " + b"a" * HEAD_BYTES_MAX + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 4 * HEAD_BYTES_MAX,
        b"GET /" + b"a" * HEAD_BYTES_MAX + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % number for number in range(20_000)) + b"\r\n",
    ],
    ids=["one header", "a header without end", "an address", "many headers"],
)
def test_a_head_that_is_too_large_is_refused(server: RunningServer, text: bytes) -> None:
    assert refused(said(server, text), 431)


def test_a_large_head_within_the_limit_is_read(server: RunningServer) -> None:
    large = b"X: " + b"a" * (HEAD_BYTES_MAX - 1_000)
    assert status(said(server, head(server, "GET", "/healthz", large))) == 200


@pytest.mark.parametrize("coding", [b"gzip", b"deflate", b"br", b"zstd", b"gzip, gzip"])
def test_compressed_bodies_are_refused_unread(server: RunningServer, kept: Digest, coding: bytes) -> None:
    before = kept()
    lines = [b"Content-Encoding: " + coding, b"Content-Length: 4"]
    for method, path in (("POST", "/api/v1/graphs"), ("POST", TOKENS), ("PUT", "/api/v1/pools/lab")):
        assert refused(said(server, head(server, method, path, *lines) + b"\x1f\x8b\x08\x00"), 415)
    assert kept() == before


@pytest.mark.parametrize(
    ("path", "most"), [("/api/v1/graphs", 10_485_760), (TOKENS, 65_536), ("/api/v1/requests", 10_485_760)]
)
def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes(
    server: RunningServer, path: str, most: int
) -> None:
    answer = said(server, head(server, "POST", path, b"Content-Length: %d" % (most + 1)))
    assert refused(answer, 413)


# Time. A check of connections gets a later time, so no test really waits.


@pytest.fixture
def advance(server: RunningServer) -> Callable[[float], None]:
    """Let the server check its connections as if so many seconds had passed."""

    def act(seconds: float) -> None:
        async def look() -> None:
            close_late_connections(connections, asyncio.get_running_loop().time() + seconds)

        connections: Any = server.http._uvicorn.server_state.connections
        loop = next(iter(connections)).loop
        asyncio.run_coroutine_threadsafe(look(), loop).result(WAIT_S)

    return act


def settle(server: RunningServer) -> None:
    """What was sent before was read before: the server answers in the order in which bytes come."""
    assert server.ask("GET", "/healthz").status == 200


def test_a_connection_that_never_asks_is_closed(server: RunningServer, advance: Callable[[float], None]) -> None:
    with connected(server) as connection:
        settle(server)
        advance(HEAD_MAX_S + 1)
        assert said_on(connection) == b""


def test_a_head_that_comes_too_slowly_gets_a_problem(server: RunningServer, advance: Callable[[float], None]) -> None:
    with connected(server) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: a")
        settle(server)
        advance(HEAD_MAX_S - 5)
        connection.sendall(b"a")
        settle(server)
        advance(HEAD_MAX_S + 1)
        assert refused(said_on(connection), 408)


@pytest.mark.parametrize("path", ["/api/v1/graphs", TOKENS, "/api/v1/bot/poll"])
def test_a_body_that_comes_too_slowly_ends_and_changes_nothing(
    server: RunningServer, kept: Digest, advance: Callable[[float], None], path: str
) -> None:
    token = server.token(kind="bot", pool="default") if path.endswith("poll") else None
    before = kept()
    with connected(server) as connection:
        connection.sendall(head(server, "POST", path, b"Content-Length: 100", token=token) + b'{"tasks"')
        settle(server)
        advance(BODY_MAX_S + 1)
        assert refused(said_on(connection), 408)
    assert kept() == before


def test_an_answer_is_not_kept_for_ever_for_a_client_that_does_not_read_it(
    server: RunningServer, advance: Callable[[float], None]
) -> None:
    made = server.submit(graph(a=task()))
    server.hello()
    (lease,) = [one for one in server.claim() if one.task == made.key("a")]
    for place in range(64):
        server.print(lease, place * 262_144, b"x" * 262_144)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.settimeout(WAIT_S)
        connection.connect(("127.0.0.1", server.http.port))
        connection.sendall(head(server, "GET", f"/api/v1/tasks/{made.tasks['a']}/output"))
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
        connections: Any = server.http._uvicorn.server_state.connections
        for _ in range(1_000):
            settle(server)
            if any(one.flow.write_paused for one in list(connections)):
                break
        advance(0)
        advance(READ_MAX_S + 1)
        assert len(said_on(connection)) < 64 * 262_144
    server.end(lease)


def test_a_connection_between_two_requests_is_kept_for_a_while_and_blank_lines_do_not_keep_it(
    server: RunningServer, advance: Callable[[float], None]
) -> None:
    with connected(server) as connection:
        connection.sendall(BEHIND)
        said_until(connection, b"ok\n")
        advance(KEEP_ALIVE_S - 1)
        connection.sendall(b"\r\n")
        settle(server)
        advance(KEEP_ALIVE_S + HEAD_MAX_S + 1)
        assert said_on(connection) == b""


def test_time_in_which_a_client_waits_for_the_server_does_not_count(
    server: RunningServer, advance: Callable[[float], None]
) -> None:
    made = server.submit(graph(a=task(dimensions={"pool": "nowhere"})))
    with connected(server) as connection:
        connection.sendall(head(server, "GET", f"/api/v1/graphs/{made.id}?wait_ms=20000"))
        settle(server)
        advance(10 * BODY_MAX_S)
        assert server.ask("POST", f"/api/v1/graphs/{made.id}/cancel").status == 200
        assert status(said_on(connection)) == 200


# Many.


def test_hundreds_of_half_open_connections_starve_no_other(
    server: RunningServer, advance: Callable[[float], None]
) -> None:
    with ExitStack() as opened:
        lines = [opened.enter_context(connected(server)) for _ in range(300)]
        for number, connection in enumerate(lines):
            connection.sendall([b"", b"GET /he", b"POST /api/v1/graphs HTTP/1.1\r\nContent-Length: 9\r\n"][number % 3])
        server.submit(graph(a=task()))
        advance(HEAD_MAX_S + 1)
        assert {status(said_on(line)) for line in lines} == {0, 408}


def test_of_too_many_newcomers_the_one_that_waited_longest_has_to_go(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection: Any = server.http._uvicorn.config.http
    monkeypatch.setattr(connection.keywords["connections"], "_new_max", 2)
    with connected(server) as first, connected(server) as second, connected(server) as third:
        assert said_on(first) == b""
        for connection in (second, third):
            connection.sendall(BEHIND)
            assert said_until(connection, b"ok\n")
