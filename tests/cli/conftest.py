"""One server for all tests that only ask it things, and a way to ask that starts no process."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from taskyard.cli import main
from tests.cli.yard import Yard, yard


@dataclass(frozen=True)
class Said:
    """What one command did."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """A server without bots that no test ends."""
    with yard(tmp_path_factory.mktemp("shared")) as one:
        yield one


@pytest.fixture
def ask(shared: Yard, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Call commands in this process, as somebody whom the shared server knows."""
    for name in ("TASKYARD_PROFILE", "XDG_CONFIG_HOME", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("TASKYARD_URL", "TASKYARD_TOKEN", "HOME"):
        monkeypatch.setenv(name, shared.env[name])
    monkeypatch.chdir(shared.folder)

    def call(*arguments: str) -> Said:
        code = main.call(None, arguments)  # type: ignore[arg-type]
        return Said(code, *capsys.readouterr())

    return call
