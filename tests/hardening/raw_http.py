"""Requests as bytes: what no client would send, and what a server really answers."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tests.server.running_server import WAIT_S, RunningServer


@contextmanager
def connected(server: RunningServer) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.http.port), WAIT_S) as connection:
        yield connection


def said(server: RunningServer, request: bytes) -> bytes:
    """Send bytes, and read until the server closes the connection; a connection closed at once is an answer, too."""
    with connected(server) as connection:
        return said_on(connection, request)


def said_on(connection: socket.socket, request: bytes = b"") -> bytes:
    answer = b""
    try:
        connection.sendall(request)
        while piece := connection.recv(65_536):
            answer += piece
    except ConnectionError:
        pass  # the server answered before that: it closed the connection while data was still being sent
    return answer


def said_until(connection: socket.socket, end: bytes) -> bytes:
    """What a server says up to some bytes, in however many pieces it comes."""
    answer = b""
    while not answer.endswith(end):
        piece = connection.recv(65_536)
        assert piece, f"the server ended with {answer!r}"
        answer += piece
    return answer


def head(server: RunningServer, method: str, path: str, *lines: bytes, token: str | None = None) -> bytes:
    """The head of a request of the admin that is the last on its connection."""
    first = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token or server.admin}\r\n".encode()
    return first + b"".join(line + b"\r\n" for line in (*lines, b"Connection: close")) + b"\r\n"


def status(answer: bytes) -> int:
    """The status of the first answer; 0 when there is none."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0
