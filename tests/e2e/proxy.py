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
    """Passes bytes on; while `loses` is set, a reply that has these bytes is lost, once, with its connection."""

    server: tuple[str, int]
    listener: socket.socket
    loses: bytes = b""
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
                for ends in ((near, far, False), (far, near, True)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def close(self) -> None:
        """Cut every wire."""
        for one in [self.listener, *self._open]:
            _cut(one)

    def _pass_on(self, source: socket.socket, target: socket.socket, is_reply: bool) -> None:
        with suppress(OSError):
            while (piece := source.recv(PIECE)) and not (is_reply and self._loses(piece)):
                target.sendall(piece)
        _cut(source)
        _cut(target)

    def _loses(self, reply: bytes) -> bool:
        with self._lock:
            if not self.loses or self.loses not in reply:
                return False
            self.loses = b""
            self.lost.append(reply)
            return True


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
