"""One finding about an installation: what was looked at, how it stands, and what to do about it."""

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
    from taskyard.wire.api import About


OK: Final = "ok"
WARNING: Final = "warning"
FAULT: Final = "fault"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    verdict: str  # ok, warning, fault
    text: str
    fix: str = ""  # what to do, if it is not ok


def ok(name: str, text: str) -> Check:
    """Say that something is well."""
    return Check(name, OK, text)


def warning(name: str, text: str, fix: str) -> Check:
    """Say that something works, and not as well as it could."""
    return Check(name, WARNING, text, fix)


def fault(name: str, text: str, fix: str) -> Check:
    """Say that something does not work."""
    return Check(name, FAULT, text, fix)


# Checks of what a bot on this machine can rely on to leave nothing behind. Each is really tried, mostly by a child.


def features() -> Iterator[Check]:
    """Try what the runner of a bot uses to end what it started."""
    if not hasattr(os, "fork"):
        yield warning("bot", f"{sys.platform} has no process groups", "run bots on Linux or macOS")
        return
    if _groups():
        yield ok("bot", "process groups: whatever a task starts ends with it")
    else:
        yield fault("bot", "a group of processes cannot be killed", "allow signals to own processes")
    for name, works, without in _EXTRAS:
        if works():
            yield ok("bot", name)
        else:
            yield warning("bot", f"no {name}", without)


def _groups() -> bool:
    """Kill a group of processes, and see its leader end."""
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
    """Try something that would change this process; a child of it may be changed."""
    child = os.fork()
    if child == 0:
        code = 1
        with suppress(Exception):
            code = 0 if works() else 1
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _adopts() -> bool:
    from taskyard.bot.process_cleanup import adopt_orphans  # noqa: PLC0415 - a part of the bot

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


#: What makes it surer, and what is so without it.
_EXTRAS: tuple[tuple[str, Callable[[], bool], str], ...] = (
    (
        "subreaper: what a task leaves behind is adopted and ended",
        _adopts,
        "what leaves its session may outlive its task; use Linux 3.4 or newer",
    ),
    (
        "pidfd: a process is never mistaken for another of the same number",
        _has_pidfd,
        "use Linux 5.3 or newer",
    ),
    (
        "death signal: workers end with their bot",
        _dies_with_parent,
        "a worker of a bot that was killed ends a little later; use Linux",
    ),
)


# Checks of where things are kept: SQLite on that disk, how fast it is, how much is free, and who can read what.
#
# What is tried out is tried in the folder itself, or in the nearest one above it that exists, and removed again.


#: The first that has all that is used: `RETURNING`, and updates from other rows.
SQLITE_MIN: Final = (3, 35, 0)
#: How often the disk is asked to keep something, and how long it may take: every commit waits for it.
SYNCS: Final = 9
SYNC_MAX_MS: Final = 50.0
#: Below these a server should not be left alone, or does not start any more work.
FREE_MIN: Final = 1 << 30
FREE_LEAST: Final = 100 << 20
#: Files with secrets, and files with everything that tasks do and with the key of their tokens.
_SECRETS: Final = ("admin.token",)
_DATABASES: Final = ("taskyard.db", "taskyard.db-wal", "taskyard.db-shm")


def sqlite(data: Path) -> Iterator[Check]:
    """Try SQLite's log on the disk of a folder, and measure how long the disk takes to keep something."""
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < SQLITE_MIN:
        needed = ".".join(map(str, SQLITE_MIN))
        yield fault("sqlite", f"SQLite {version} is here, and {needed} is needed", "use a Python with a newer SQLite")
        return
    folder = nearest(data)
    try:
        with tempfile.TemporaryDirectory(prefix=".taskyard-doctor-", dir=folder) as place:
            yield _log_works(version, folder, Path(place))
            yield _speed(folder, Path(place))
    except OSError as error:
        yield fault("sqlite", f"nothing can be written to {folder}: {error.strerror}", "choose a folder that is yours")


def disk(data: Path) -> Iterator[Check]:
    """See how much is free where things are kept."""
    folder = nearest(data)
    free = shutil.disk_usage(folder).free
    said = f"{free / (1 << 30):.1f} GiB free at {folder}"
    if free < FREE_LEAST:
        yield fault("disk", said, "make room: a full disk stops everything")
    elif free < FREE_MIN:
        yield warning("disk", said, "make room soon")
    else:
        yield ok("disk", said)


def files(data: Path) -> Iterator[Check]:
    """See who can read what is secret, and whether we can."""
    settings = sorted(profiles.path().parent.glob("*.toml"))
    secrets = [path for path in (*settings, *(data / name for name in _SECRETS)) if path.exists()]
    others = [path for path in (data, *(data / name for name in _DATABASES), data / "bots") if path.exists()]
    found = [*map(_secret, secrets), *map(_kept, others)]
    wrong = [one for one in found if one is not None]
    yield from wrong
    if not wrong:
        looked = f"{plural(len(secrets), 'file')} with secrets and {plural(len(others), 'other place')}"
        yield ok("files", f"{looked} are for your eyes only" if secrets or others else "nothing is kept here yet")


def nearest(folder: Path) -> Path:
    """Give a folder, or the nearest one above it that exists."""
    absolute = folder.absolute()
    return next(one for one in (absolute, *absolute.parents) if one.is_dir())


def _log_works(version: str, folder: Path, place: Path) -> Check:
    """Write by one connection and read by another, as a server does."""
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
        return ok("sqlite", f"SQLite {version}, its log works on {folder}")
    return fault("sqlite", f"SQLite's log does not work on {folder} ({mode})", "keep the data on a local disk: --data")


def _speed(folder: Path, place: Path) -> Check:
    took_ms = median(_sync_ms(place / "sync") for _ in range(SYNCS))
    said = f"the disk of {folder} keeps a write in {took_ms:.1f} ms"
    if took_ms > SYNC_MAX_MS:
        return warning("fsync", said, "every commit waits for that: a faster disk makes everything faster")
    return ok("fsync", said)


def _sync_ms(file: Path) -> float:
    with file.open("wb") as out:
        out.write(b"x" * 4096)
        out.flush()
        began = time.perf_counter()
        os.fsync(out.fileno())
        return (time.perf_counter() - began) * 1000


def _secret(path: Path) -> Check | None:
    """Say what is wrong with a file that holds a secret."""
    if not os.access(path, os.R_OK):
        return fault("files", f"{path} cannot be read", f"make it yours: chown {_me()} {path}")
    if path.stat().st_mode & OTHERS:
        return fault("files", f"{path} holds a secret and others can read it", f"chmod 600 {path}")
    return None


def _kept(path: Path) -> Check | None:
    """Say what is wrong with what is kept."""
    if not os.access(path, os.R_OK | os.W_OK):
        return fault("files", f"{path} cannot be read and written", f"make it yours: chown {_me()} {path}")
    if not path.stat().st_mode & OTHERS:
        return None
    if path.is_dir():
        return warning("files", f"others can look into {path}", f"chmod 700 {path}")
    return fault("files", f"others can use {path}", f"chmod 600 {path}")


def _me() -> str:
    return str(os.geteuid())


# Checks of the Python that Taskyard runs on, of the packages that it needs, and of how text is written here.


#: A requirement as packages spell it: the name, the versions, and when it applies.
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;\s*(.*))?")
_BOUND: Final = re.compile(r"(>=|<=|==|!=|~=|>|<)\s*([0-9][0-9.]*)")
_PLATFORM: Final = re.compile(r"""sys_platform\s*(==|!=)\s*["'](\w+)["']""")
_MEND: Final = "install Taskyard again, into an environment of its own"


def python() -> Iterator[Check]:
    """See whether this Python is new enough."""
    needs = metadata.metadata("taskyard")["Requires-Python"] or ">=3.11"
    here = ".".join(map(str, sys.version_info[:3]))
    if fits(here, needs):
        yield ok("python", f"Python {here}, {needs} is needed")
    else:
        yield fault("python", f"Python {here} is here, and {needs} is needed", "install a newer Python")


def packages() -> Iterator[Check]:
    """Compare every package that Taskyard needs with what is installed."""
    needed = list(_needed())
    wrong = [said for name, versions in needed if (said := _wrong(name, versions))]
    for said in wrong:
        yield fault("packages", said, _MEND)
    if not wrong:
        yield ok("packages", f"Taskyard {metadata.version('taskyard')}, and all {len(needed)} packages that it needs")


def locale_is_utf8() -> Iterator[Check]:
    """See whether names of files and what is printed can have any character."""
    found = {"files": sys.getfilesystemencoding(), "text": locale.getpreferredencoding(False)}
    odd = [f"{what} in {encoding}" for what, encoding in found.items() if not _is_utf8(encoding)]
    if odd:
        yield warning("locale", f"this shell writes {' and '.join(odd)}, not UTF-8", "set LANG=C.UTF-8")
    else:
        yield ok("locale", "UTF-8")


def fits(version: str, versions: str) -> bool:
    """Tell whether a version is among those that are asked for."""
    return all(_is_met(_release(version), operator, bound) for operator, bound in _BOUND.findall(versions))


def _needed() -> Iterator[tuple[str, str]]:
    for line in metadata.requires("taskyard") or ():
        found = _REQUIREMENT.fullmatch(line.strip())
        if found and _applies(found[3] or ""):
            yield found[1], found[2].strip()


def _applies(condition: str) -> bool:
    """Judge when a requirement is one: extras are nobody's here, and platforms are compared; all else is so."""
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
    """Read the numbers of a version; what stands behind them does not matter here."""
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
        case _:  # ~=: at least this, and the same but for the last number
            return one >= other and have[: len(wanted) - 1] == wanted[:-1]


def _is_utf8(encoding: str) -> bool:
    return encoding.lower().replace("-", "") == "utf8"


# Checks of what is not on this machine: the server with its version, its clock and our token; and PostgreSQL.


#: How long a server or a database may take to answer.
ANSWER_MAX_S: Final = 5.0
#: Clocks further apart than this make times hard to compare; further than that something is wrong.
APART_MS: Final = 2_000
APART_MAX_MS: Final = 60_000
#: A token that ends sooner is worth a word.
TOKEN_LEFT_MS: Final = 7 * 86_400_000
POSTGRESQL_MIN: Final = 150_000


def check_server(named: "Server") -> Iterator[Check]:
    """Ask the server who it is and who we are."""
    from taskyard.sdk.client import Client  # noqa: PLC0415 - it costs time to load
    from taskyard.sdk.errors import ClientError, NotFound, Unauthorised, Unreachable  # noqa: PLC0415

    target = named.target()
    began = time.time()
    try:
        with Client(target.url, target.token, timeout_s=ANSWER_MAX_S, ca_file=target.ca_file) as client:
            about = client.about()
    except Unreachable as error:
        yield _unreachable(target.url, error.why)
    except Unauthorised as error:
        yield ok("server", f"{target.url} answers")
        yield fault("token", str(error), "set TASKYARD_TOKEN, or have an admin make one: taskyard token create")
    except NotFound:
        yield warning("server", f"{target.url} is older than this program", "upgrade the server")
    except ClientError as error:
        yield fault("server", str(error), "see whether the address is that of a Taskyard server")
    else:
        yield _version(target.url, about)
        yield _clock(about.now_ms - round((began + time.time()) * 500))
        yield _token(about)


def postgresql() -> Iterator[Check]:
    """Reach PostgreSQL, if the environment says that there is one."""
    configured = _configured()
    if not configured:
        return
    import psycopg  # noqa: PLC0415 - it costs time to load

    try:
        with psycopg.connect("", connect_timeout=round(ANSWER_MAX_S)) as connection:
            version = connection.info.server_version
    except psycopg.Error as error:
        said = " ".join(str(error).split())
        yield fault("postgresql", f"cannot be reached: {said}", f"see {', '.join(configured)} in the environment")
        return
    if version < POSTGRESQL_MIN:
        yield fault("postgresql", f"it is version {version // 10_000}, and 15 is needed", "upgrade PostgreSQL")
    else:
        yield ok("postgresql", f"version {version // 10_000} answers")


def _configured() -> list[str]:
    """Name what PostgreSQL's own programs go by; one of them says that there is one to be used."""
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
            "server", f"nobody answers at {url} ({why})", "start one with `taskyard up`, or name one by TASKYARD_URL"
        )
    return fault("server", f"nobody answers at {url} ({why})", "start it, or name another by TASKYARD_URL")


def _version(url: str, about: "About") -> Check:
    from importlib.metadata import version  # noqa: PLC0415

    here = version("taskyard")
    if about.version == here:
        return ok("server", f"{url} answers, version {here} as here")
    return warning("server", f"{url} has version {about.version}, and here is {here}", "upgrade the older one")


def _clock(apart_ms: int) -> Check:
    """Compare the server's clock with ours."""
    said = f"the server's clock is {abs(apart_ms) / 1000:.1f} s {'ahead' if apart_ms > 0 else 'behind'}"
    if abs(apart_ms) > APART_MAX_MS:
        return fault("clock", said, "set the clocks, by NTP if you can")
    if abs(apart_ms) > APART_MS:
        return warning("clock", said, "set the clocks, by NTP if you can")
    return ok("clock", "the same as the server's")


def _token(about: "About") -> Check:
    scopes = ", ".join(about.scopes) or (f"pool {about.pool}" if about.pool else "nothing")
    said = f"{about.actor}, a {about.kind} with {scopes}"
    if about.expires_ms is None:
        return ok("token", said)
    until = datetime.fromtimestamp(about.expires_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    if about.expires_ms - about.now_ms < TOKEN_LEFT_MS:
        return warning("token", f"{said}, until {until}", "have an admin make another: taskyard token create")
    return ok("token", f"{said}, until {until}")


# Examines this installation for `taskyard doctor`: whatever can be wrong is looked at, tried, and told in a line.
#
# A line is ok, a warning or a fault, and says what to do. Nothing is changed; what is tried out leaves nothing behind.


Checker = Callable[[], Iterable[Check]]


def examine(data: Path | None, server: Server, output: str) -> Exit:
    """Examine everything, tell it, and say by the exit code whether there is a fault."""
    found = list(_checks(data or profiles.data_folder(), server))
    has_arrived = write_stdout(lambda: _give(found, output))
    print_err(_summary(found))
    return Exit.ERROR if any(one.verdict == FAULT for one in found) or not has_arrived else Exit.OK


def _checks(data: Path, server: Server) -> Iterator[Check]:
    # Only who examines an installation pays for what that needs.

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
        yield from _carefully(name, check)


def _carefully(name: str, check: Checker) -> Iterator[Check]:
    """Tell what a check finds; one that breaks down is a finding too, and keeps no other from being made."""
    try:
        yield from check()
    except Exception as error:  # noqa: BLE001 - whatever an odd machine does, the others are still looked at
        yield Check(name, FAULT, f"cannot be examined: {type(error).__name__}: {error}", "mend what the message names")


def _give(found: Sequence[Check], output: str) -> None:
    rows = [(one.verdict, one.name, harmless(_said(one))) for one in found]
    lines: dict[str, Callable[[], list[str]]] = {
        "table": lambda: format_table(rows, sys.stdout),
        "json": lambda: [json.dumps([asdict(one) for one in found], indent=2)],
        "jsonl": lambda: [json.dumps(asdict(one)) for one in found],
        "name": lambda: [one.name for one in found if one.verdict == FAULT],
    }
    for line in lines[output]():
        print_line(line)


def _said(one: Check) -> str:
    return f"{one.text}; {one.fix}" if one.fix else one.text


def _summary(found: Sequence[Check]) -> str:
    counts = {verdict: sum(one.verdict == verdict for one in found) for verdict in _NOUNS}
    told = [plural(count, _NOUNS[verdict]) for verdict, count in counts.items() if count]
    return ", ".join(told) or "all is well"


_NOUNS: Final = {FAULT: "fault", WARNING: "warning"}
