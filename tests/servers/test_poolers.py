"""pgbouncer between a server and PostgreSQL: refused in transaction mode, which is found out by what it does."""

import os
import pwd
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from taskyard.engine.engine import Engine
from taskyard.lifecycle.submit import Submitted
from taskyard.store.postgres_sessions import refuse_shared_sessions
from taskyard.store.queries import PoolerInTheWay
from tests.cli.program import taskyard
from tests.cli.waiting import until
from tests.debian import NOT_TESTED, NotAvailable, find_program
from tests.engine.harness import graph, task

SETTINGS = """
[databases]
* = host={host} port=5432
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
listen_port = 6432
auth_type = trust
auth_file = {folder}/users
pool_mode = {mode}
default_pool_size = {size}
server_round_robin = {turns}
"""


@contextmanager
def pgbouncer(folder: Path, url: str, mode: str, size: int = 20, turns: int = 0) -> Iterator[str]:
    """A pooler before a database; gives the address through it."""
    try:
        found = find_program("pgbouncer")
    except NotAvailable as fault:
        pytest.skip(f"{NOT_TESTED}{fault}")
    said = conninfo_to_dict(url)
    folder.chmod(0o777)
    settings = folder / "pgbouncer.ini"
    (folder / "users").write_text(f'"{said["user"]}" ""\n')
    settings.write_text(SETTINGS.format(host=said["host"], folder=folder, mode=mode, size=size, turns=turns))
    # It refuses to be run by root.
    account = None if os.geteuid() else pwd.getpwnam("nobody").pw_uid
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [found.path, settings],
            env={**os.environ, **found.environment},
            user=account,
            stdout=log,
            stderr=log,
        ) as program,
    ):
        try:
            until(lambda: program.poll() is not None or (folder / ".s.PGSQL.6432").exists(), "pgbouncer listens")
            assert program.poll() is None, (folder / "log").read_text()
            yield f"postgresql://{said['user']}@/{said['dbname']}?host={folder}&port=6432"
        finally:
            program.terminate()
            program.wait(60)


@pytest.fixture
def folder(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that the account of PostgreSQL reaches; its path is short enough for a socket."""
    home = Path(str(conninfo_to_dict(postgres_url)["host"])) / "bouncer"
    home.mkdir(exist_ok=True)
    yield home
    for file in home.iterdir():
        file.unlink()


@pytest.mark.parametrize("turns", [0, 1])
@pytest.mark.parametrize("size", [1, 20])
@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_pooler_that_shares_sessions_is_refused(
    folder: Path, postgres_url: str, mode: str, size: int, turns: int
) -> None:
    with pgbouncer(folder, postgres_url, mode, size, turns) as url:
        # Sessions that others have used before: the pooler has several to choose from.
        for _ in range(3):
            with psycopg.connect(url, autocommit=True) as one, psycopg.connect(url, autocommit=True) as other:
                one.execute("SELECT 1")
                other.execute("SELECT 1")
        with pytest.raises(PoolerInTheWay, match="give --database the address of PostgreSQL itself"):
            Engine.open(url)


def test_serve_names_the_setting(folder: Path, postgres_url: str, tmp_path: Path) -> None:
    with pgbouncer(folder, postgres_url, "transaction") as url:
        done = taskyard("serve", "--port", "0", "--database", url, cwd=tmp_path)
    assert done.returncode == 1
    assert "pgbouncer" in done.stderr
    assert "--database" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_pooler_in_session_mode_does(folder: Path, postgres_url: str) -> None:
    with pgbouncer(folder, postgres_url, "session") as url, Engine.open(url) as one, Engine.open(url) as other:
        for engine in (one, other):
            made = engine.submit(graph(a=task()))
            assert isinstance(made, Submitted)
            until(partial(_is_admitted, engine, made.graph), "a pass of one of the engines")
        # Servers that hear each other leave the passes to one of them, which keeps the lock.
        until(lambda: one.schedule().ran or other.schedule().ran, "a pass of the engine that keeps the lock")


def _is_admitted(engine: Engine, graph_id: int) -> bool:
    with engine.store.read() as repo:
        return repo.read.states_of(graph_id, 1) == ["waiting"]


def test_a_direct_connection_is_not_taken_for_a_pooler(postgres_url: str) -> None:
    refuse_shared_sessions(postgres_url)
