"""A real server in a process of its own, on a free port with a new database, and the home folder of its user."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from taskyard.sdk import Client
from tests.cli.program import PLAIN_ENV, PROGRAM, taskyard
from tests.cli.waiting import DEADLINE_SECONDS, read_until


@dataclass(frozen=True)
class ServerProcess:
    """A running server, its first token, and the home folder of its user."""

    folder: Path
    url: str
    token: str
    program: subprocess.Popen[bytes]

    @property
    def env(self) -> dict[str, str]:
        """The environment of a user with the first token."""
        return home_env(self.folder) | {"TASKYARD_URL": self.url, "TASKYARD_TOKEN": self.token}

    @property
    def client(self) -> Client:
        return Client(self.url, self.token)

    def run(self, *arguments: str, document: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command."""
        return taskyard(*arguments, document=document, cwd=self.folder, env=self.env | env)

    def output(self, *arguments: str, document: str = "") -> str:
        """Run a command, which must succeed; return its stdout."""
        done = self.run(*arguments, document=document)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def home_env(folder: Path) -> dict[str, str]:
    """The environment of a user with this home folder and no settings."""
    own = {key: value for key, value in PLAIN_ENV.items() if not key.startswith(("TASKYARD_", "XDG_"))}
    return own | {"HOME": str(folder)}


@contextmanager
def server_process(folder: Path, *options: str, port: str = "0") -> Iterator[ServerProcess]:
    """Run a server with its data in a folder."""
    with start_program(["serve", "--port", port, "--data", str(folder), "-o", "json", *options], folder) as program:
        assert program.stdout is not None
        said = json.loads(read_until(program.stdout.fileno(), "\n", program))
        yield ServerProcess(folder, said["url"], said["token"] or "", program)


@contextmanager
def start_program(
    arguments: list[str], folder: Path, umask: int = -1, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the program for a user with this home folder; stop it at the end."""
    command = [str(PROGRAM), *arguments]
    # stderr goes to a file: a full pipe would block the program.
    with (
        (folder / "stderr").open("wb") as stderr,
        subprocess.Popen(
            command, cwd=cwd, env=home_env(folder), stdout=subprocess.PIPE, stderr=stderr, umask=umask
        ) as program,
    ):
        try:
            yield program
        finally:
            stop_program(program)


def stop_program(program: subprocess.Popen[bytes]) -> int:
    """Stop a program and wait for it; kill it if it does not stop."""
    if program.poll() is None:
        program.send_signal(signal.SIGTERM)
    try:
        return program.wait(DEADLINE_SECONDS)
    except subprocess.TimeoutExpired:
        program.kill()
        raise
