"""The connection of a bot, against sockets that answer like real servers and like broken ones."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from taskyard.sdk import bot_http
from taskyard.sdk.bot_http import Address, ConnectionFailed, HttpResponse, ServerConnection

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def asked(serve: Serve, times: int = 1, timeout_s: float = 20.0) -> list[HttpResponse]:
    """Ask a server that does what `serve` does for each connection."""

    async def talk() -> list[HttpResponse]:
        serving: list[asyncio.Task[None]] = []

        async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            serving.append(asyncio.ensure_future(to_the_end(serve, reader, writer)))

        server = await asyncio.start_server(begin, "127.0.0.1", 0)
        connection = ServerConnection(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/base", {"x-own": "1"})
        async with server:
            try:
                return [await connection.ask("POST", "/it", b"{}", timeout_s) for _ in range(times)]
            finally:
                connection.close()
                await asyncio.gather(*serving)

    return asyncio.run(talk())


async def to_the_end(serve: Serve, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection; the client may close it at any moment."""
    with suppress(OSError, asyncio.IncompleteReadError):
        await serve(reader, writer)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def saying(*answers: bytes) -> Serve:
    """Answer one request after the other on a connection, then hang up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"POST /base/it HTTP/1.1\r\n")
            assert b"x-own: 1\r\n" in head
            assert await reader.readexactly(2) == b"{}"
            writer.write(answer)
        await writer.drain()

    return serve


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


def test_an_answer_has_a_status_headers_and_a_body() -> None:
    (answer,) = asked(saying(b"HTTP/1.1 404 No\r\nX-Why: so\r\ncontent-length: 3\r\n\r\nwhy"))
    assert (answer.status, answer.headers["x-why"], answer.body) == (404, "so", b"why")


def test_a_connection_is_kept_and_opened_again_when_it_was_closed_meanwhile() -> None:
    assert [one.body for one in asked(saying(OK, OK), times=4)] == [b"hi"] * 4


def test_chunks_are_put_together_and_provisional_answers_are_passed_over() -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n3\r\n yo\r\n0\r\n\r\n"
    assert asked(saying(b"HTTP/1.1 100 Continue\r\n\r\n" + chunked))[0].body == b"hi yo"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhi",
        b"SSH-2.0-something\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * (bot_http.HEADERS_MAX + 1) + b"\r\n\r\n",
    ],
)
def test_what_is_no_whole_answer_is_none(answer: bytes) -> None:
    with pytest.raises(ConnectionFailed):
        asked(saying(answer))


def test_an_answer_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bot_http, "BODY_MAX", 1)
    with pytest.raises(ConnectionFailed, match="larger than 1 bytes"):
        asked(saying(OK))


def test_a_silent_server_is_not_waited_for_without_end() -> None:
    async def be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    with pytest.raises(ConnectionFailed, match="no answer in time"):
        asked(be_silent, timeout_s=0.05)


def test_an_unreachable_server_is_an_error_of_its_own() -> None:
    with pytest.raises(ConnectionFailed, match="does not answer"):
        asyncio.run(ServerConnection("http://127.0.0.1:9").ask("GET", "/"))


@pytest.mark.parametrize("url", ["ftp://x", "x:80", "", "http://"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        Address.of(url)


def test_a_header_cannot_bring_another() -> None:
    with pytest.raises(ValueError, match="one line"):
        ServerConnection("http://127.0.0.1:9", {"authorization": "a\r\nhost: b"})
