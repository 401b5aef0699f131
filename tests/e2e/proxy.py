"""A TCP proxy between a bot and its server that can lose a reply after the server has carried out the request."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.cli.waiting import DEADLINE_SECONDS

PIECE = 65_536


@dataclass
class Proxy:
    """Forwards bytes. Loses one reply: the first that contains `loses`, or the one to a request with `loses_after`."""

    server: tuple[str, int]
    listener: socket.socket
    loses: bytes = b""
    loses_after: bytes = b""
    lost: list[bytes] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: list[socket.socket] = field(default_factory=list)

    @property
    def url(self) -> str:
        return "http://{}:{}".format(*self.listener.getsockname()[:2])

    def run(self) -> None:
        """Accept connections until the listener is closed."""
        with suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(self.server, DEADLINE_SECONDS)
                self._open += [near, far]
                doomed = threading.Event()  # the next reply on this connection is lost
                for passes, *ends in ((self._forward_requests, near, far), (self._forward_replies, far, near)):
                    threading.Thread(target=passes, args=(*ends, doomed), daemon=True).start()

    def close(self) -> None:
        """Close all connections."""
        for one in [self.listener, *self._open]:
            _cut(one)

    def _forward_requests(self, near: socket.socket, far: socket.socket, doomed: threading.Event) -> None:
        with suppress(OSError):
            while piece := near.recv(PIECE):
                with self._lock:
                    if self.loses_after and self.loses_after in piece:
                        self.loses_after = b""
                        doomed.set()
                far.sendall(piece)
        _cut(near)
        _cut(far)

    def _forward_replies(self, far: socket.socket, near: socket.socket, doomed: threading.Event) -> None:
        with suppress(OSError):
            while (piece := far.recv(PIECE)) and not self._loses(piece, doomed):
                near.sendall(piece)
        _cut(far)
        _cut(near)

    def _loses(self, reply: bytes, doomed: threading.Event) -> bool:
        with self._lock:
            if self.loses and self.loses in reply:
                self.loses = b""
                doomed.set()
            if doomed.is_set():
                self.lost.append(reply)
            return doomed.is_set()


@contextmanager
def proxy(url: str) -> Iterator[Proxy]:
    """A proxy to a server for the time of the context."""
    place = urlsplit(url)
    assert place.hostname is not None
    assert place.port is not None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = Proxy((place.hostname, place.port), listener)
        thread = threading.Thread(target=one.run, daemon=True)
        thread.start()
        try:
            yield one
        finally:
            one.close()
            thread.join(DEADLINE_SECONDS)


def _cut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
