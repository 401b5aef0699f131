"""An HTTP server that gives scripted answers, also bad ones: truncated, delayed, in pieces, or not from Taskyard."""

import json
import socket
import ssl
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Reply:
    """One answer: with `cut`, the server closes the connection after that many bytes of the body."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None


@dataclass
class ReceivedRequest:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class FaultyServer:
    """The server: it gives scripted answers and records the requests."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.replies: deque[Reply] = deque()
        self.asked: list[ReceivedRequest] = []
        self.connections = 0

    def reply_with(self, *replies: Reply) -> None:
        """Set the next answers."""
        self.replies.extend(replies)


def json_reply(value: object, status: int = 200, **headers: str) -> Reply:
    """Answer with JSON."""
    return Reply(status, json.dumps(value).encode(), headers)


def problem(status: int, code: str = "some_code", faults: list[dict[str, str]] | None = None, **headers: str) -> Reply:
    """Answer with a problem document."""
    shape: dict[str, Any] = {"type": "urn:x", "title": "No", "status": status, "detail": f"detail of {status}"}
    return json_reply({**shape, "code": code, "faults": faults or []}, status, **headers)


class _Speaker(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    state: FaultyServer

    def setup(self) -> None:
        super().setup()
        self.state.connections += 1

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def _answer(self) -> None:
        size = int(self.headers.get("content-length", 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.state.asked.append(ReceivedRequest(self.command, self.path, headers, self.rfile.read(size)))
        reply = self.state.replies.popleft()
        if reply.cut != 0:
            self._write(reply)
        if reply.cut is not None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    def _write(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body[: reply.cut])
        self.wfile.flush()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - given by the library

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Log nothing about connections that end early, which is the purpose of this server."""


@contextmanager
def faulty_server(tls: ssl.SSLContext | None = None) -> Iterator[FaultyServer]:
    """Run one on a free port."""
    server = _Quiet(("127.0.0.1", 0), _Speaker)
    server.daemon_threads = True
    port = server.server_address[1]
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    state = FaultyServer(f"https://localhost:{port}" if tls else f"http://127.0.0.1:{port}")
    server.RequestHandlerClass = type("Speaker", (_Speaker,), {"state": state})
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
