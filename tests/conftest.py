"""What all tests share: settings of hypothesis, and databases.

A slow machine is no fault, so an example has no deadline. CI tries the same examples each time, so that a change is
judged by what it changes; everywhere else the examples are random.

Databases are real and each test has its own, copied from a shared template.
"""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TypeVar

import psycopg_pool.base
import pytest
from hypothesis import HealthCheck, settings

from taskyard.store import migrate
from tests.brokers import Broker, RabbitMQ, Redis
from tests.debian import NOT_TESTED, NotAvailable
from tests.effort import tries
from tests.postgres import Postgres

#: A file system in memory, and how many bytes have to be free in it: a container often has 64 MB there.
MEMORY = Path("/dev/shm")  # noqa: S108
ROOM_MIN = 2**31

SLOW = [HealthCheck.too_slow]
BrokerKind = TypeVar("BrokerKind", bound=Broker)

settings.register_profile("here", max_examples=tries(100), deadline=None, suppress_health_check=SLOW)
settings.register_profile("ci", max_examples=tries(100), deadline=None, suppress_health_check=SLOW, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


def has_room(folder: Path) -> bool:
    """Whether tests can keep files in a folder, and run programs from there."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= ROOM_MIN and not found.f_flag & os.ST_NOEXEC


def pytest_configure() -> None:
    """Set up the environment of every program that tests start.

    They can be interrupted, even if the tests run in the background, where SIGINT is ignored. They keep the bytecode
    of what they import: tests start hundreds of programs, and each would spend a second on compiling it anew. Their
    files are in memory where there is room: making a database there costs a tenth of what it costs on a disk.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if "TMPDIR" not in os.environ and has_room(MEMORY):
        os.environ["TMPDIR"], tempfile.tempdir = str(MEMORY), None
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Hypothesis watches the shared random generator, and reports it when the threads of a connection pool use it: they
    # get one of their own.
    psycopg_pool.base.random = Random().random  # type: ignore[attr-defined]


def pytest_report_teststatus(report: pytest.TestReport | pytest.CollectReport) -> tuple[str, str, str] | None:
    """Count the tests apart that need a program which cannot be had: the last line of the output names them."""
    is_missing = report.skipped and isinstance(report.longrepr, tuple) and NOT_TESTED in report.longrepr[2]
    return ("NOT TESTED", "N", "NOT TESTED") if is_missing else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was not tested, and why."""
    missing = terminalreporter.stats.get("NOT TESTED", [])
    for reason in sorted({report.longrepr[2] for report in missing}):
        terminalreporter.section("NOT TESTED", red=True)
        terminalreporter.line(f"{reason} (make services tries again)", red=True)


def _broker(kind: type[BrokerKind]) -> BrokerKind:
    try:
        return kind()
    except NotAvailable as fault:
        pytest.skip(f"{NOT_TESTED}{fault}")


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMQ]:
    """One RabbitMQ for all tests of this worker, started by the first that asks; none may stop it."""
    with _broker(RabbitMQ) as server:
        yield server


@pytest.fixture(scope="session")
def redis() -> Iterator[Redis]:
    """One Redis for all tests of this worker, started by the first that asks; none may stop it."""
    with _broker(Redis) as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server for all tests of this worker, started by the first that asks."""
    with Postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    """A new database in PostgreSQL, with the newest schema."""
    url = postgres.fresh()
    yield url
    postgres.drop(url)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the newest schema, to be copied."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    migrate.upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """A new database in SQLite, with the newest schema."""
    return f"sqlite:///{shutil.copy(sqlite_template, tmp_path / 'taskyard.db')}"


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """A new database with the newest schema, in each of the two."""
    return str(request.getfixturevalue(f"{request.param}_url"))
