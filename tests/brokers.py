"""Real message brokers for tests and benchmarks: RabbitMQ and Redis, each with free ports and a folder of its own.

They listen on loopback only, and end with the process that started them, however that ends. RabbitMQ has an `epmd` of
its own, which Erlang would otherwise leave behind.
"""

import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from tests.debian import Program, find_program

#: RabbitMQ starts in five seconds; this is for the slowest machine.
START_S: Final = 180
#: Another process may take a port between its choice and its use.
TRIES_MAX: Final = 5

# The shell waits for the end of its input, which comes when the starter closes it or dies. A server that the starter
# has stopped by its id has ended already.
_LIFE: Final = """
{beside}
{program} >>{log} 2>&1 </dev/null &
server=$!
echo $server
read -r _
kill $server 2>/dev/null
wait $server
{after}
"""

_RABBITMQ: Final = """
listeners.tcp.1 = 127.0.0.1:{port}
default_user = {user}
default_pass = {password}
disk_free_limit.absolute = 1MB
log.console = true
log.console.level = warning
log.file = false
"""


class NotStarted(Exception):
    """A broker did not start; the text is its output."""


class Broker:
    """One server, which keeps its port and its data when it is stopped and started. `with` starts and removes it."""

    name: ClassVar[str]

    def __init__(self) -> None:
        self._program: Program = find_program(self.name)
        self._home = Path()
        self._life: subprocess.Popen[str] | None = None
        self.port = 0
        self.pid = 0

    def start(self) -> None:
        """Start it and wait until it answers; for the first time on a free port, later on the same."""
        if self.port:
            self._start()
            return
        self._home = Path(tempfile.mkdtemp(prefix=f"taskyard-{self.name.lower()}-"))
        for left in reversed(range(TRIES_MAX)):
            try:
                self._choose_ports()
                self._start()
            except NotStarted:
                if not left:
                    raise
            else:
                return

    def stop(self) -> None:
        """Stop it; its data stays."""
        if self._life is not None:
            life, self._life = self._life, None
            life.communicate()  # closes the input, which ends the server

    def remove(self) -> None:
        """Stop it and remove its data."""
        self.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def _start(self) -> None:
        script = _LIFE.format(
            program=shlex.join(self._command()),
            log=shlex.quote(str(self._home / "log")),
            beside=self._beside(),
            after=self._after(),
        )
        # In a session of its own: Ctrl-C is for the tests, which then stop the server.
        self._life = subprocess.Popen(
            ["sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # the shell says which of its processes were ended
            text=True,
            cwd=self._home,
            env=self._environment(),
            start_new_session=True,
        )
        assert self._life.stdout
        self.pid = int(self._life.stdout.readline())
        deadline = time.monotonic() + START_S
        while not self._answers():
            if not Path(f"/proc/{self.pid}").exists() or time.monotonic() > deadline:
                self.stop()
                said = (self._home / "log").read_text(encoding="utf-8", errors="replace")
                raise NotStarted(f"{self.name} did not start: {said[-2_000:]}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=START_S) as connection:
                return self._is_ready(connection)
        except OSError:
            return False

    def _choose_ports(self) -> None:
        (self.port,) = _free_ports(1)

    def _command(self) -> Sequence[str]:
        raise NotImplementedError

    def _environment(self) -> Mapping[str, str]:
        """The environment of the server, with nothing of ours that would steer it."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL"))}
        return {**kept, **self._program.environment}

    def _beside(self) -> str:
        """What runs before the server."""
        return ""

    def _after(self) -> str:
        """What runs after it."""
        return ""

    def _is_ready(self, connection: socket.socket) -> bool:
        raise NotImplementedError


class RabbitMQ(Broker):
    """A RabbitMQ node."""

    name = "RabbitMQ"
    user = "taskyard"
    password = "secret"  # noqa: S105 - of a broker that only this process reaches

    @property
    def url(self) -> str:
        """Where clients connect, with the password."""
        return f"amqp://{self.user}:{self.password}@127.0.0.1:{self.port}/"

    def _choose_ports(self) -> None:
        self.port, self._node_port, self._epmd_port = _free_ports(3)
        settings = _RABBITMQ.format(port=self.port, user=self.user, password=self.password)
        (self._home / "rabbitmq.conf").write_text(settings, encoding="utf-8")
        (self._home / "plugins").write_text("[].\n", encoding="utf-8")

    def _command(self) -> Sequence[str]:
        return [str(self._program.path)]

    def _environment(self) -> Mapping[str, str]:
        home = str(self._home)
        return {
            **super()._environment(),
            "HOME": home,  # of the secret that Erlang's nodes share
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"taskyard{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_CONFIG_FILE": f"{home}/rabbitmq.conf",
            "RABBITMQ_CONF_ENV_FILE": f"{home}/none",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{home}/plugins",
            "RABBITMQ_MNESIA_BASE": f"{home}/data",
            "RABBITMQ_LOG_BASE": home,
            "RABBITMQ_PID_FILE": f"{home}/pid",
            "RABBITMQ_GENERATED_CONFIG_DIR": f"{home}/generated",
            # A node that waits for work must not take the processor from the tests.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}"
            ),
        }

    def _beside(self) -> str:
        epmd = self._program.root / "usr/bin/epmd"
        return (
            f"{shlex.quote(str(epmd))} -port {self._epmd_port} -address 127.0.0.1 >/dev/null 2>&1 </dev/null & epmd=$!"
        )

    def _after(self) -> str:
        return "kill $epmd; wait $epmd"

    def _is_ready(self, connection: socket.socket) -> bool:
        connection.sendall(b"AMQP\x00\x00\x09\x01")
        return bool(connection.recv(1))


class Redis(Broker):
    """A Redis server, which keeps nothing on disk."""

    name = "Redis"

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"redis://127.0.0.1:{self.port}/0"

    def _command(self) -> Sequence[str]:
        options = ["--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--appendonly", "no"]
        return [str(self._program.path), *options]

    def _is_ready(self, connection: socket.socket) -> bool:
        connection.sendall(b"PING\r\n")
        return connection.recv(5) == b"+PONG"


def _free_ports(count: int) -> list[int]:
    """Choose ports of loopback that nothing listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
