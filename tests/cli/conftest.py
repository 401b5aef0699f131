"""A server shared by tests that only read from it, and a way to run commands without starting a process."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from taskyard.cli import main
from tests.cli.server_process import ServerProcess, server_process


@dataclass(frozen=True)
class CommandResult:
    """The result of one command."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server without bots; tests must not stop it."""
    with server_process(tmp_path_factory.mktemp("shared")) as one:
        yield one


@pytest.fixture
def invoke(
    shared_server: ServerProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., CommandResult]:
    """Run commands in this process, with the token of the shared server."""
    for name in ("TASKYARD_PROFILE", "XDG_CONFIG_HOME", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("TASKYARD_URL", "TASKYARD_TOKEN", "HOME"):
        monkeypatch.setenv(name, shared_server.env[name])
    monkeypatch.chdir(shared_server.folder)

    def call(*arguments: str) -> CommandResult:
        code = main.call(None, arguments)  # type: ignore[arg-type]
        return CommandResult(code, *capsys.readouterr())

    return call
