"""The checks of an installation that `taskyard doctor` makes when no database is given.

Each result is ok, a warning or a fault, in one line with the fix. Nothing is changed, and temporary files are removed.
"""

import json
import locale
import os
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from taskyard.cli import profiles
from taskyard.cli.client import Server
from taskyard.cli.exit_codes import Exit
from taskyard.cli.output import format_table, harmless, plural, print_err, print_line, write_stdout
from taskyard.private_files import OTHERS

if TYPE_CHECKING:
    from taskyard.sdk.client import Client
    from taskyard.wire.api import About, EventTarget


OK: Final = "ok"
WARNING: Final = "warning"
FAULT: Final = "fault"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    verdict: str  # ok, warning, fault
    text: str
    fix: str = ""  # what to do, if it is not ok


def ok(name: str, text: str) -> Check:
    """Make a result without a problem."""
    return Check(name, OK, text)


def warning(name: str, text: str, fix: str) -> Check:
    """Make a result for something that works, but not as well as it could."""
    return Check(name, WARNING, text, fix)


def fault(name: str, text: str, fix: str) -> Check:
    """Make a result for something that does not work."""
    return Check(name, FAULT, text, fix)


# Checks of the system features by which a bot ends its processes. Each feature is tried, most in a child process.


def features() -> Iterator[Check]:
    """Try the features by which the runner of a bot ends processes."""
    if not hasattr(os, "fork"):
        yield warning("bot", f"{sys.platform} has no process groups", "run bots on Linux or macOS")
        return
    if _groups():
        yield ok("bot", "process groups: every process of a task ends with the task")
    else:
        yield fault("bot", "a process group cannot be killed", "allow signals to processes of the same user")
    for name, works, without in _EXTRAS:
        if works():
            yield ok("bot", name)
        else:
            yield warning("bot", f"no {name}", without)


def _groups() -> bool:
    """Kill a process group and wait for its leader."""
    ready, leads = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.write(leads, b"!")
        signal.pause()
        os._exit(0)
    os.read(ready, 1)
    try:
        os.killpg(child, signal.SIGKILL)
    except PermissionError:
        os.kill(child, signal.SIGKILL)
        return False
    finally:
        os.waitpid(child, 0)
        os.close(ready)
        os.close(leads)
    return True


def _in_child(works: Callable[[], bool]) -> bool:
    """Try something in a child process, because it changes the process that tries it."""
    child = os.fork()
    if child == 0:
        code = 1
        with suppress(Exception):
            code = 0 if works() else 1
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _adopts() -> bool:
    from taskyard.bot.process_cleanup import adopt_orphans  # noqa: PLC0415 - it loads a part of the bot

    return _in_child(adopt_orphans)


def _dies_with_parent() -> bool:
    from taskyard.bot.process_cleanup import die_with_parent  # noqa: PLC0415

    return _in_child(die_with_parent)


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


#: Features that help: name, check, and what happens without the feature.
_EXTRAS: tuple[tuple[str, Callable[[], bool], str], ...] = (
    (
        "subreaper: processes that a task leaves behind are adopted and ended",
        _adopts,
        "processes that leave their session may outlive their task; use Linux 3.4 or newer",
    ),
    (
        "pidfd: a process is never mistaken for another with the same id",
        _has_pidfd,
        "use Linux 5.3 or newer",
    ),
    (
        "death signal: workers end with their bot",
        _dies_with_parent,
        "a worker of a bot that was killed ends a little later; use Linux",
    ),
)


# Checks of the data folder: SQLite on its disk, the speed of the disk, free space, and permissions of files.
#
# Files for trials are created in the folder itself, or in its nearest parent that exists, and removed again.


#: The first version with `RETURNING` and `UPDATE ... FROM`.
SQLITE_MIN: Final = (3, 35, 0)
#: How often a sync is measured, and how long it may take: every commit waits for one.
SYNCS: Final = 9
SYNC_MAX_MS: Final = 50.0
#: With less free space a warning is given, or a fault.
FREE_MIN: Final = 1 << 30
FREE_LEAST: Final = 100 << 20
#: Files with tokens and keys; and the database, which has all data of tasks and the key of their tokens.
_SECRETS: Final = ("admin.token", "secrets.key")
_DATABASES: Final = ("taskyard.db", "taskyard.db-wal", "taskyard.db-shm")


def sqlite(data: Path) -> Iterator[Check]:
    """Try the write-ahead log of SQLite on the disk of a folder, and measure how long a sync takes."""
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < SQLITE_MIN:
        needed = ".".join(map(str, SQLITE_MIN))
        yield fault(
            "sqlite", f"SQLite {version} is installed, and {needed} is needed", "use a Python with a newer SQLite"
        )
        return
    folder = nearest(data)
    try:
        with tempfile.TemporaryDirectory(prefix=".taskyard-doctor-", dir=folder) as place:
            yield _log_works(version, folder, Path(place))
            yield _speed(folder, Path(place))
    except OSError as error:
        yield fault(
            "sqlite", f"cannot write to {folder}: {error.strerror}", "choose a folder that you can write to: --data DIR"
        )


def disk(data: Path) -> Iterator[Check]:
    """Check how much space is free on the disk of a folder."""
    folder = nearest(data)
    free = shutil.disk_usage(folder).free
    said = f"{free / (1 << 30):.1f} GiB free at {folder}"
    if free < FREE_LEAST:
        yield fault("disk", said, "free some space: a full disk stops the server")
    elif free < FREE_MIN:
        yield warning("disk", said, "free some space soon")
    else:
        yield ok("disk", said)


def files(data: Path) -> Iterator[Check]:
    """Check that files with secrets are readable by their owner only."""
    settings = sorted(profiles.path().parent.glob("*.toml"))
    secrets = [path for path in (*settings, *(data / name for name in _SECRETS)) if path.exists()]
    others = [path for path in (data, *(data / name for name in _DATABASES), data / "bots") if path.exists()]
    found = [*map(_check_secret, secrets), *map(_check_data, others)]
    wrong = [one for one in found if one is not None]
    yield from wrong
    if not wrong:
        checked = f"{plural(len(secrets), 'file')} with secrets and {plural(len(others), 'data path')}"
        yield ok("files", f"only you can read {checked}" if secrets or others else "there are no files yet")


def nearest(folder: Path) -> Path:
    """Return a folder, or its nearest parent that exists."""
    absolute = folder.absolute()
    return next(one for one in (absolute, *absolute.parents) if one.is_dir())


def _log_works(version: str, folder: Path, place: Path) -> Check:
    """Write with one connection and read with another, as a server does."""
    file = place / "trial.db"
    try:
        with closing(sqlite3.connect(file, timeout=5)) as writer, closing(sqlite3.connect(file, timeout=5)) as reader:
            (mode,) = writer.execute("PRAGMA journal_mode = WAL").fetchone()
            writer.execute("CREATE TABLE trial (number INTEGER)")
            writer.execute("INSERT INTO trial VALUES (7)")
            writer.commit()
            seen = reader.execute("SELECT number FROM trial").fetchall()
    except sqlite3.Error as error:
        mode, seen = str(error), []
    if mode == "wal" and seen == [(7,)]:
        return ok("sqlite", f"SQLite {version}; its write-ahead log works in {folder}")
    return fault(
        "sqlite", f"the write-ahead log of SQLite does not work in {folder} ({mode})", "use a local disk: --data DIR"
    )


def _speed(folder: Path, place: Path) -> Check:
    took_ms = median(_sync_ms(place / "sync") for _ in range(SYNCS))
    said = f"a write to {folder} is on disk in {took_ms:.1f} ms"
    if took_ms > SYNC_MAX_MS:
        return warning("fsync", said, "every commit waits for that; use a faster disk")
    return ok("fsync", said)


def _sync_ms(file: Path) -> float:
    with file.open("wb") as out:
        out.write(b"x" * 4096)
        out.flush()
        began = time.perf_counter()
        os.fsync(out.fileno())
        return (time.perf_counter() - began) * 1000


def _check_secret(path: Path) -> Check | None:
    """Return what is wrong with a file that holds a secret, if anything."""
    if not os.access(path, os.R_OK):
        return fault("files", f"{path} cannot be read", f"chown {os.geteuid()} {path}")
    if path.stat().st_mode & OTHERS:
        return fault("files", f"{path} holds a secret, and others can read it", f"chmod 600 {path}")
    return None


def _check_data(path: Path) -> Check | None:
    """Return what is wrong with a data file or folder, if anything."""
    if not os.access(path, os.R_OK | os.W_OK):
        return fault("files", f"{path} cannot be read and written", f"chown {os.geteuid()} {path}")
    if not path.stat().st_mode & OTHERS:
        return None
    if path.is_dir():
        return warning("files", f"others can list {path}", f"chmod 700 {path}")
    return fault("files", f"others can read or change {path}", f"chmod 600 {path}")


# Checks of Python, of the packages that Taskyard needs, and of the encoding of text.


#: A requirement as packages spell it: the name, the versions, and when it applies.
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;\s*(.*))?")
_BOUND: Final = re.compile(r"(>=|<=|==|!=|~=|>|<)\s*([0-9][0-9.]*)")
_PLATFORM: Final = re.compile(r"""sys_platform\s*(==|!=)\s*["'](\w+)["']""")
_REINSTALL: Final = "install Taskyard again, in a virtual environment of its own"


def python() -> Iterator[Check]:
    """Check whether this Python is new enough."""
    needs = metadata.metadata("taskyard")["Requires-Python"] or ">=3.11"
    here = ".".join(map(str, sys.version_info[:3]))
    if fits(here, needs):
        yield ok("python", f"Python {here} (needs {needs})")
    else:
        yield fault("python", f"Python {here} is installed, and {needs} is needed", "install a newer Python")


def packages() -> Iterator[Check]:
    """Compare the packages that Taskyard needs with those that are installed."""
    needed = list(_needed())
    wrong = [said for name, versions in needed if (said := _wrong(name, versions))]
    for said in wrong:
        yield fault("packages", said, _REINSTALL)
    if not wrong:
        yield ok("packages", f"Taskyard {metadata.version('taskyard')} and the {len(needed)} packages that it needs")


def locale_is_utf8() -> Iterator[Check]:
    """Check whether file names and printed text can have any character."""
    found = {"files": sys.getfilesystemencoding(), "text": locale.getpreferredencoding(False)}
    odd = [f"{what} in {encoding}" for what, encoding in found.items() if not _is_utf8(encoding)]
    if odd:
        yield warning("locale", f"the locale has {' and '.join(odd)}, not UTF-8", "set LANG=C.UTF-8")
    else:
        yield ok("locale", "UTF-8")


def fits(version: str, versions: str) -> bool:
    """Check whether a version meets a requirement such as `>=3.11,<4`."""
    return all(_is_met(_release(version), operator, bound) for operator, bound in _BOUND.findall(versions))


def _needed() -> Iterator[tuple[str, str]]:
    for line in metadata.requires("taskyard") or ():
        found = _REQUIREMENT.fullmatch(line.strip())
        if found and _applies(found[3] or ""):
            yield found[1], found[2].strip()


def _applies(condition: str) -> bool:
    """Check whether the condition of a requirement holds here: not for extras, and only for this platform."""
    if "extra" in condition:
        return False
    platform = _PLATFORM.search(condition)
    return platform is None or (sys.platform == platform[2]) is (platform[1] == "==")


def _wrong(name: str, versions: str) -> str | None:
    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"{name} {versions} is not installed"
    return None if fits(installed, versions) else f"{name} {installed} is installed, and {versions} is needed"


def _release(version: str) -> tuple[int, ...]:
    """Read the numbers of a version, without its suffix."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _is_met(have: tuple[int, ...], operator: str, bound: str) -> bool:
    wanted = _release(bound)
    width = max(len(have), len(wanted))
    one, other = (part + (0,) * (width - len(part)) for part in (have, wanted))
    match operator:
        case ">=":
            return one >= other
        case "<=":
            return one <= other
        case ">":
            return one > other
        case "<":
            return one < other
        case "!=":
            return one != other
        case "==":
            return one == other
        case _:  # ~=: at least this version, with the same numbers except for the last
            return one >= other and have[: len(wanted) - 1] == wanted[:-1]


def _is_utf8(encoding: str) -> bool:
    return encoding.lower().replace("-", "") == "utf8"


# Checks of the server, with its version, its clock and the token; and of PostgreSQL.


#: How long a server or a database may take to answer.
ANSWER_MAX_S: Final = 5.0
#: A difference of clocks for which a warning is given, or a fault.
APART_MS: Final = 2_000
APART_MAX_MS: Final = 60_000
#: A token that expires sooner than this causes a warning.
TOKEN_LEFT_MS: Final = 7 * 86_400_000
POSTGRESQL_MIN: Final = 150_000
#: How old an event may be that a target has not got.
BEHIND_MS: Final = 60_000


def check_server(named: "Server") -> Iterator[Check]:
    """Ask each server for its version, its clock and the rights of the token."""
    from taskyard.sdk.servers import split_urls  # noqa: PLC0415 - it costs time to load

    target = named.target()
    for url in split_urls(target.url):
        yield from _check_one_server(url, target)


def _check_one_server(url: str, target: "profiles.Target") -> Iterator[Check]:
    from taskyard.sdk.client import Client  # noqa: PLC0415 - it costs time to load
    from taskyard.sdk.errors import ClientError, NotFound, Unauthorised, Unreachable  # noqa: PLC0415

    began = time.time()
    try:
        with Client(url, target.token, timeout_s=ANSWER_MAX_S, ca_file=target.ca_file) as client:
            about = client.about()
            targets = _targets(client)
    except Unreachable as error:
        yield _unreachable(url, error.why)
    except Unauthorised as error:
        yield ok("server", f"{url} answers")
        yield fault("token", str(error), "set TASKYARD_TOKEN; an admin makes tokens with `taskyard token create`")
    except NotFound:
        yield warning("server", f"the server at {url} is older than this program", "upgrade the server")
    except ClientError as error:
        yield fault("server", str(error), "check that this is the address of a Taskyard server")
    else:
        yield _version(url, about)
        yield _clock(about.now_ms - round((began + time.time()) * 500))
        yield _token(about)
        yield from targets


def _targets(client: "Client") -> list[Check]:
    """Say how far behind the targets of events are, if the token may know it."""
    from taskyard.sdk.errors import ClientError  # noqa: PLC0415

    try:
        found = client.targets()
    except ClientError:
        return []
    return [_target(one) for one in found]


def _target(one: "EventTarget") -> Check:
    if not one.backlog or one.oldest_ms < BEHIND_MS:
        return ok("events", f"target {one.name} gets all events")
    said = f"target {one.name} has not got {one.backlog} events, the oldest from {one.oldest_ms // 1_000} s ago"
    helps = "look at the log of the server that delivers them, and at the target; or: taskyard targets remove NAME"
    return warning("events", said, helps)


def postgresql() -> Iterator[Check]:
    """Connect to PostgreSQL, if the environment names one."""
    configured = _configured()
    if not configured:
        return
    import psycopg  # noqa: PLC0415 - it costs time to load

    try:
        with psycopg.connect("", connect_timeout=round(ANSWER_MAX_S)) as connection:
            version = connection.info.server_version
    except psycopg.Error as error:
        said = " ".join(str(error).split())
        yield fault("postgresql", f"cannot connect: {said}", f"check {', '.join(configured)} in the environment")
        return
    if version < POSTGRESQL_MIN:
        yield fault("postgresql", f"version {version // 10_000} is installed, and 15 is needed", "upgrade PostgreSQL")
    else:
        yield ok("postgresql", f"version {version // 10_000} answers")


def _configured() -> list[str]:
    """Return the variables of PostgreSQL that are set."""
    said = {
        "PGHOST": os.environ.get("PGHOST"),
        "PGHOSTADDR": os.environ.get("PGHOSTADDR"),
        "PGSERVICE": os.environ.get("PGSERVICE"),
        "PGDATABASE": os.environ.get("PGDATABASE"),
    }
    return [name for name, value in said.items() if value]


def _unreachable(url: str, why: str) -> Check:
    if url.rstrip("/") == profiles.DEFAULT_URL:
        return warning(
            "server", f"no server answers at {url} ({why})", "start one with `taskyard up`, or set TASKYARD_URL"
        )
    return fault("server", f"no server answers at {url} ({why})", "start it, or set TASKYARD_URL")


def _version(url: str, about: "About") -> Check:
    from importlib.metadata import version  # noqa: PLC0415

    here = version("taskyard")
    if about.version == here:
        return ok("server", f"{url} answers; version {here}, as this program")
    return warning("server", f"{url} has version {about.version}, this program has {here}", "upgrade the older one")


def _clock(apart_ms: int) -> Check:
    """Compare the clocks of the server and this machine."""
    said = f"the server's clock is {abs(apart_ms) / 1000:.1f} s {'ahead' if apart_ms > 0 else 'behind'}"
    if abs(apart_ms) > APART_MAX_MS:
        return fault("clock", said, "synchronize the clocks, for example with NTP")
    if abs(apart_ms) > APART_MS:
        return warning("clock", said, "synchronize the clocks, for example with NTP")
    return ok("clock", "agrees with the clock of the server")


def _token(about: "About") -> Check:
    scopes = ", ".join(about.scopes) or (f"pool {about.pool}" if about.pool else "nothing")
    said = f"{about.actor}, a {about.kind} with {scopes}"
    if about.expires_ms is None:
        return ok("token", said)
    until = datetime.fromtimestamp(about.expires_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    if about.expires_ms - about.now_ms < TOKEN_LEFT_MS:
        return warning("token", f"{said}, until {until}", "replace it: taskyard token rotate")
    return ok("token", f"{said}, until {until}")


# All checks, one after the other.


Checker = Callable[[], Iterable[Check]]


def check_installation(data: Path | None, server: Server, output: str) -> Exit:
    """Make all checks and print the results; the exit code is 1 if there is a fault."""
    found = list(_checks(data or profiles.data_folder(), server))
    has_arrived = write_stdout(lambda: _give(found, output))
    print_err(_summary(found))
    return Exit.ERROR if any(one.verdict == FAULT for one in found) or not has_arrived else Exit.OK


def _checks(data: Path, server: Server) -> Iterator[Check]:
    checkers: Sequence[tuple[str, Checker]] = (
        ("python", python),
        ("packages", packages),
        ("locale", locale_is_utf8),
        ("sqlite", lambda: sqlite(data)),
        ("disk", lambda: disk(data)),
        ("files", lambda: files(data)),
        ("postgresql", postgresql),
        ("server", lambda: check_server(server)),
        ("bot", features),
    )
    for name, check in checkers:
        yield from _results(name, check)


def _results(name: str, check: Checker) -> Iterator[Check]:
    """Make one check; if it raises an error, that is a fault too, and the other checks go on."""
    try:
        yield from check()
    except Exception as error:  # noqa: BLE001 - the other checks go on
        yield Check(name, FAULT, f"the check failed: {type(error).__name__}: {error}", "fix what the message names")


def _give(found: Sequence[Check], output: str) -> None:
    rows = [(one.verdict, one.name, harmless(_text(one))) for one in found]
    lines: dict[str, Callable[[], list[str]]] = {
        "table": lambda: format_table(rows, sys.stdout),
        "json": lambda: [json.dumps([asdict(one) for one in found], indent=2)],
        "jsonl": lambda: [json.dumps(asdict(one)) for one in found],
        "name": lambda: [one.name for one in found if one.verdict == FAULT],
    }
    for line in lines[output]():
        print_line(line)


def _text(one: Check) -> str:
    return f"{one.text}; {one.fix}" if one.fix else one.text


def _summary(found: Sequence[Check]) -> str:
    counts = {verdict: sum(one.verdict == verdict for one in found) for verdict in _NOUNS}
    parts = [plural(count, _NOUNS[verdict]) for verdict, count in counts.items() if count]
    return ", ".join(parts) or "no problems found"


_NOUNS: Final = {FAULT: "fault", WARNING: "warning"}
