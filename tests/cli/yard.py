"""A real server on a free port with a new database, and a person's own files: what the commands are tried against."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from taskyard.sdk import Client
from tests.cli.program import PROGRAM, QUIET, taskyard
from tests.cli.waiting import DEADLINE_SECONDS, read_until


@dataclass(frozen=True)
class Yard:
    """A server, its first token, and where whoever talks with it keeps things."""

    folder: Path
    url: str
    token: str
    program: subprocess.Popen[bytes]

    @property
    def env(self) -> dict[str, str]:
        """What a shell of somebody with the first token has."""
        return at_home(self.folder) | {"TASKYARD_URL": self.url, "TASKYARD_TOKEN": self.token}

    @property
    def client(self) -> Client:
        return Client(self.url, self.token)

    def run(self, *arguments: str, document: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        """Run one command."""
        return taskyard(*arguments, document=document, cwd=self.folder, env=self.env | env)

    def told(self, *arguments: str, document: str = "") -> str:
        """Run one command that goes well, and give what it prints."""
        done = self.run(*arguments, document=document)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def at_home(folder: Path) -> dict[str, str]:
    """The surroundings of a person whose home is a folder, and who has said nothing yet."""
    own = {key: value for key, value in QUIET.items() if not key.startswith(("TASKYARD_", "XDG_"))}
    return own | {"HOME": str(folder)}


@contextmanager
def yard(folder: Path, *options: str, port: str = "0") -> Iterator[Yard]:
    """Serve from a folder until the end."""
    with started(["serve", "--port", port, "--data", str(folder), "-o", "json", *options], folder) as program:
        assert program.stdout is not None
        said = json.loads(read_until(program.stdout.fileno(), "\n", program))
        yield Yard(folder, said["url"], said["token"] or "", program)


@contextmanager
def started(
    arguments: list[str], folder: Path, umask: int = -1, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the program for a person at home in a folder; at the end it is told to end, and has to."""
    command = [str(PROGRAM), *arguments]
    # What it says goes to a file: a pipe that nobody reads would stop it.
    with (
        (folder / "said").open("wb") as said,
        subprocess.Popen(
            command, cwd=cwd, env=at_home(folder), stdout=subprocess.PIPE, stderr=said, umask=umask
        ) as program,
    ):
        try:
            yield program
        finally:
            end(program)


def end(program: subprocess.Popen[bytes]) -> int:
    """Tell a program to end, and wait for it; kill what does not."""
    if program.poll() is None:
        program.send_signal(signal.SIGTERM)
    try:
        return program.wait(DEADLINE_SECONDS)
    except subprocess.TimeoutExpired:
        program.kill()
        raise
