"""Run the app on a port, until it is stopped; requests in progress are answered first.

`run` is for a process of its own; a `Server` runs on a thread, for `taskyard up` and for tests.
"""

import asyncio
import errno
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event, Thread
from types import TracebackType
from typing import Any, Final, Self

import uvicorn

from taskyard.engine.engine import Engine
from taskyard.server.app import App, build
from taskyard.server.connections import ClientConnection, OpenConnections, close_late_connections
from taskyard.server.settings import KEEP_ALIVE_S, STOP_MAX_S, Settings, check_binding, check_certificate

#: How many connections may wait to be accepted.
BACKLOG: Final = 2_048
#: The limit of open files of a server: more connections than one process can serve.
FILES_MAX: Final = 65_536
#: Connections are checked every so many ticks of uvicorn: once a second.
TICKS: Final = 10
#: How long a server on a thread may take to start.
START_MAX_S: Final = 30


#: What to do if a port cannot be used.
_HELPS: Final = {
    errno.EADDRINUSE: "stop the program that has the port, or choose another with --port",
    errno.EACCES: "choose a port from 1024 on with --port",
    errno.EADDRNOTAVAIL: "choose an address of this machine with --host",
}


class CannotListen(OSError):
    """The address cannot be used; the text says which, why, and what to do."""


class _Uvicorn(uvicorn.Server):
    """Uvicorn that reports when it is ready, answers waiting requests before it stops, and then returns."""

    def __init__(self, app: App, ready: Callable[[], None]) -> None:
        self._context = app.context
        self._ready = ready
        settings = app.context.settings
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        files = FILES_MAX if files == resource.RLIM_INFINITY else min(files, FILES_MAX)
        connection: Any = partial(ClientConnection, connections=OpenConnections(files))
        super().__init__(
            uvicorn.Config(
                app,
                http=connection,
                loop="auto",  # uvloop if it is installed
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # no route uses the client's address
                backlog=min(BACKLOG, files // 8),  # the connections that may arrive before any of them is counted
                timeout_keep_alive=KEEP_ALIVE_S,
                ssl_certfile=settings.tls_cert or None,
                ssl_keyfile=settings.tls_key or None,
                timeout_graceful_shutdown=STOP_MAX_S,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except OSError as fault:  # another program took the port in the meantime
            host, port = sockets[0].getsockname()[:2] if sockets else ("", 0)
            raise _cannot_listen(host, port, fault) from fault
        self._ready()

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS == 0:
            close_late_connections(self.server_state.connections, asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._context.close()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Uvicorn would send itself the signal again after it has stopped; this process must still stop its engine.
        with super().capture_signals():
            yield
            self._captured_signals.clear()


def run(engine: Engine, settings: Settings, listener: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM, then answer all requests in progress and return.

    `ready` is called with the address before the first request is answered.
    """
    from taskyard.server import logs  # noqa: PLC0415 - only a process of its own configures logs

    check_binding(listener.getsockname()[0], settings.authentication)
    check_certificate(settings)
    logs.configure()
    allow_more_files()
    url = url_of(listener, secure=bool(settings.tls_cert))
    _Uvicorn(build(engine, settings), lambda: ready(url)).run([listener])


def allow_more_files() -> None:
    """Raise the soft limit of open files as far as this process may: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # some systems allow less than the hard limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Server:
    """A server on a thread."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        host: str = "127.0.0.1",
        port: int = 0,
        listener: socket.socket | None = None,
    ) -> None:
        """Listen on a port, or use an open `listener`."""
        check_binding(host if listener is None else listener.getsockname()[0], settings.authentication)
        check_certificate(settings)
        self.app = build(engine, settings)
        self._listener = listener or listen(host, port)
        self.url = url_of(self._listener, secure=bool(settings.tls_cert))
        self.port: int = self._listener.getsockname()[1]
        self._started = Event()
        self._uvicorn = _Uvicorn(self.app, self._started.set)
        self._thread = Thread(target=self._uvicorn.run, args=([self._listener],), name="taskyard-server", daemon=True)

    def start(self) -> None:
        """Start; requests are served when this returns."""
        self._thread.start()
        if not self._started.wait(START_MAX_S):
            raise TimeoutError(f"the server did not start within {START_MAX_S} seconds")

    def stop(self) -> None:
        """Answer requests in progress, and stop."""
        self._uvicorn.should_exit = True
        self._thread.join(STOP_MAX_S + 5)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def listen(host: str, port: int) -> socket.socket:
    """Open a listener on a port; 0 chooses a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host.strip("[]"), port))
    except OSError as fault:
        listener.close()
        raise _cannot_listen(host, port, fault) from fault
    except BaseException:
        listener.close()
        raise
    return listener


def _cannot_listen(host: str, port: int, fault: OSError) -> CannotListen:
    helps = _HELPS.get(fault.errno or 0, "choose another with --host and --port")
    return CannotListen(f"cannot listen on {host or 'every address'}, port {port}: {fault.strerror}; {helps}")


def url_of(listener: socket.socket, *, secure: bool = False) -> str:
    """Return the URL of a listener."""
    host, port = listener.getsockname()[:2]
    scheme = "https" if secure else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
