"""A wire between a bot and its server that can lose a reply: the server has done all it was asked, and nobody hears."""

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
    """Passes bytes on. Once, the reply that has `loses` in it, or the one to what has `loses_after` in it, is lost."""

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
        """Take connections until the listener is closed."""
        with suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(self.server, DEADLINE_SECONDS)
                self._open += [near, far]
                doomed = threading.Event()  # the next reply on this connection is lost
                for passes, *ends in ((self._ask, near, far), (self._reply, far, near)):
                    threading.Thread(target=passes, args=(*ends, doomed), daemon=True).start()

    def close(self) -> None:
        """Cut every wire."""
        for one in [self.listener, *self._open]:
            _cut(one)

    def _ask(self, near: socket.socket, far: socket.socket, doomed: threading.Event) -> None:
        with suppress(OSError):
            while piece := near.recv(PIECE):
                with self._lock:
                    if self.loses_after and self.loses_after in piece:
                        self.loses_after = b""
                        doomed.set()
                far.sendall(piece)
        _cut(near)
        _cut(far)

    def _reply(self, far: socket.socket, near: socket.socket, doomed: threading.Event) -> None:
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
    """Have a wire to a server while this lasts."""
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
