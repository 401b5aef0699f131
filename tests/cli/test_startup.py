"""Commands load only the modules that they need."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.server_process import home_env
from tests.sdk.faulty_server import FaultyServer, faulty_server, json_reply
from tests.sdk.test_client import GRAPH, TASK

#: Slow modules, for servers, bots, drawings and documents only.
HEAVY = {
    "alembic", "asyncio", "fastapi", "httptools", "jinja2", "multiprocessing", "psutil", "psycopg",
    "pydantic", "rich", "sqlalchemy", "sqlite3", "starlette", "structlog", "uvicorn", "yaml",
    "taskyard.bot", "taskyard.core.graph", "taskyard.embedded", "taskyard.engine", "taskyard.server", "taskyard.store",
}  # fmt: skip
#: Fast modules that only some commands need.
ELSEWHERE = {
    "taskyard.wire.explain",
    "difflib",
    "getpass",
    "importlib.metadata",
    "json",
    "shutil",
    "subprocess",
    "tempfile",
}


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with faulty_server() as one:
        yield one


def loaded(arguments: list[str], server: FaultyServer, home: Path) -> set[str]:
    program = f"import sys; from taskyard import main; main._call({arguments!r}); print(*sys.modules, file=sys.stderr)"
    env = home_env(home) | {"TASKYARD_URL": server.url, "TASKYARD_TOKEN": "x"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["graphs"],
        ["tasks", "1"],
        ["show", "1"],
        ["bots"],
        ["pools"],
        ["token", "list"],
        ["cancel", "1"],
        ["story", "1"],
    ],
    ids=" ".join,
)
def test_a_plain_command_loads_nothing_heavy(arguments: list[str], server: FaultyServer, tmp_path: Path) -> None:
    page = json_reply({"items": []})
    path = {"graph_id": "1", "settled": False, "at_ms": 1, "total_ms": 1, "path": [], "whole": True}
    answers = {
        "show": [json_reply({**GRAPH, "counts": {"running": 1}}), json_reply(path)],
        "cancel": [json_reply({"subject": "1", "moved": 1, "promised": False, "echo": False})],
    }
    answers["story"] = [json_reply({**TASK, "task": "1", "whole": True, "items": []})]
    server.reply_with(*answers.get(arguments[0], [page]))
    found = loaded(arguments, server, tmp_path)
    assert "taskyard.sdk.client" in found
    assert found & (HEAVY | ELSEWHERE) == set()


@pytest.mark.parametrize(
    "arguments", [["config"], ["profile"], ["graphs", "--help"], ["graphs", "--frob"], ["run", "/nowhere"], ["--help"]]
)
def test_what_asks_no_server_loads_no_client(arguments: list[str], server: FaultyServer, tmp_path: Path) -> None:
    found = loaded(arguments, server, tmp_path)
    assert found & (HEAVY | {"taskyard.sdk.client", "http.client", "msgspec"}) == set()


def test_a_command_loads_no_other(server: FaultyServer, tmp_path: Path) -> None:
    found = {one for one in loaded(["config"], server, tmp_path) if one.startswith("taskyard.cli.")}
    assert {one for one in found if one.startswith("taskyard.cli.commands.")} == {"taskyard.cli.commands.config"}


def test_the_version_needs_no_command_line(server: FaultyServer, tmp_path: Path) -> None:
    found = loaded(["--version"], server, tmp_path)
    assert found & (HEAVY | {"click", "taskyard.cli.main"}) == set()
