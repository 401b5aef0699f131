"""A TCP proxy that cuts connections, holds back what is sent on them as if a cable were out, and refuses new ones.

It stands before a server of Taskyard, or before PostgreSQL, which is on a socket file.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.cli.waiting import DEADLINE_SECONDS

PIECE = 65_536


class Wire:
    """A plain TCP proxy to one place: a host with a port, or the path of a socket file."""

    def __init__(self, place: tuple[str, int] | str) -> None:
        self.place = place
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._flows = threading.Event()
        self._flows.set()
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Close all connections."""
        with self._lock:
            found, self._open = self._open, set()
        for end in found:
            _close(end)

    def hold(self) -> None:
        """Forward nothing from now on: connections stay open, and new ones are accepted."""
        self._flows.clear()

    def release(self) -> None:
        """Forward everything again, also what was held back."""
        self._flows.set()

    def close(self) -> None:
        self._closed = True
        self._flows.set()
        _close(self._listener)
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        try:
            far = self._connected()
        except OSError:  # as if nobody listened there
            _close(near)
            return
        with self._lock:
            self._open |= {near, far}
        for ends in ((near, far), (far, near)):
            threading.Thread(target=self._forward, args=ends, daemon=True).start()

    def _connected(self) -> socket.socket:
        if isinstance(self.place, tuple):
            return socket.create_connection(self.place, DEADLINE_SECONDS)
        far = socket.socket(socket.AF_UNIX)
        far.connect(self.place)
        return far

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(PIECE):
                self._flows.wait()
                target.sendall(piece)
        with self._lock:
            self._open -= {source, target}
        _close(source)
        _close(target)


@contextmanager
def wire_to_server(url: str) -> Iterator[Wire]:
    """A proxy to a server for the time of the context."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    with _closing(Wire((parts.hostname, parts.port))) as one:
        yield one


@contextmanager
def wire_to_database(url: str) -> Iterator[tuple[Wire, str]]:
    """A proxy to PostgreSQL for the time of the context, and the address of the database through it."""
    said = conninfo_to_dict(url)
    with _closing(Wire(f"{said['host']}/.s.PGSQL.{said.get('port', 5432)}")) as one:
        yield one, through(one, url)


def through(wire: Wire, url: str) -> str:
    """The address of a database through a proxy."""
    said = conninfo_to_dict(make_conninfo(url, host="127.0.0.1", port=wire.port))
    return f"postgresql://{said['user']}@127.0.0.1:{wire.port}/{said['dbname']}"


@contextmanager
def _closing(wire: Wire) -> Iterator[Wire]:
    try:
        yield wire
    finally:
        wire.close()


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
