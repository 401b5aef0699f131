"""Check and repair an existing database from outside of a server, for `taskyard doctor`.

Nothing here creates or migrates a database. Checking works while an engine uses the database; repairing a file needs
the lock of the file. No background job runs meanwhile, so no lease and no deadline ends.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from taskyard.core.ids import Key, text_of
from taskyard.engine.engine import Engine
from taskyard.engine.errors import EngineError
from taskyard.engine.file_lock import FileLock
from taskyard.lifecycle.doctor.finding import Finding
from taskyard.store import migrate
from taskyard.store.connection import Replication, open_store, replication_of
from taskyard.store.queries import StoreUnavailable, TransactionConflict
from taskyard.wire import api
from taskyard.wire.api import Checkup, Unchecked

#: One check reports a limited number of findings, so a repair checks and repairs in rounds.
ROUNDS_MAX: Final = 100
#: The actor of a repair in the audit.
ACTOR: Final = "taskyard doctor"
#: The first bytes of an SQLite file; an empty file is one, too.
_MAGIC: Final = b"SQLite format 3\0"
#: Errors whose message says what is wrong.
_EXPLAINED: Final = (EngineError, migrate.TooNew, migrate.TooOld, TransactionConflict, StoreUnavailable)


def check(database: str) -> Checkup:
    """Check the database at an address, or in a file."""
    with _readable_errors(database), _opened(_address(database)) as engine:
        found = engine.doctor()
        note = _replication_note(replication_of(engine.store.url))
        return _checkup(found, found, mended=0, notes=(note,) if note else ())


def repair(database: str) -> Checkup:
    """Check a database, repair what can be repaired, and check it again."""
    with _readable_errors(database), _locked(_address(database)) as url, _opened(url) as engine:
        engine.writer_thread.start()
        return _repair(engine)


def _repair(engine: Engine) -> Checkup:
    left = engine.doctor()
    found, mended = dict.fromkeys(left), 0
    for _ in range(ROUNDS_MAX):
        if not any(one.mendable for one in left):
            break
        before = set(left)
        engine.repair(left, ACTOR)
        left = engine.doctor()
        found |= dict.fromkeys(left)
        if before == set(left):
            break  # repair did not help
        mended += len(before - set(left))
    return _checkup(list(found), left, mended)


# Opening.


def existing_address(database: str) -> str:
    """Return the address of an existing database of this version, which may be given as a path."""
    with _readable_errors(database):
        url = _address(database)
        _check_version(migrate.current_version(url), migrate.NEWEST)
        return url


def _address(database: str) -> str:
    """Return the address of an existing database."""
    if "://" in database and not database.startswith(migrate.FILE):
        return database
    path = Path(database.removeprefix(migrate.FILE))
    if not path.exists():
        raise Unchecked(f"there is no file {path}")
    with path.open("rb") as file:
        head = file.read(len(_MAGIC))
    if head not in (b"", _MAGIC):
        raise Unchecked(f"{path} is no database of SQLite")
    return f"{migrate.FILE}{path}"


@contextmanager
def _locked(url: str) -> Iterator[str]:
    """Lock a file against engines."""
    file_lock = FileLock(url)
    try:
        yield url
    finally:
        file_lock.leave()


@contextmanager
def _opened(url: str) -> Iterator[Engine]:
    """Open a database of this version, without background jobs."""
    _check_version(migrate.current_version(url), migrate.NEWEST)
    engine = Engine(open_store(url))
    try:
        yield engine
    finally:
        engine.stop()


def _check_version(found: str | None, newest: str) -> None:
    """Refuse every schema version but the newest. Versions are numbers of four digits."""
    if found is None:
        raise Unchecked("it has no schema of Taskyard: is it the right database?")
    if found > newest:
        raise migrate.TooNew(found)
    if found < newest:
        raise Unchecked(
            f"it has version {found} of the schema and this program looks after version {newest}: "
            "open it once with this Taskyard, which upgrades it, or use the Taskyard that made it"
        )


# Results and errors.


def _checkup(found: list[Finding], left: list[Finding], mended: int, notes: tuple[str, ...] = ()) -> Checkup:
    return Checkup(tuple(map(_finding, found)), mended, len(left), notes)


def _replication_note(found: Replication | None) -> str:
    """Say what the loss of the primary would cost, if there are standbys."""
    if found is None or not (found.standbys or found.synchronous):
        return ""
    if found.synchronous and found.standbys:
        return "replication is synchronous: what servers have acknowledged is on a standby, too"
    if found.synchronous:
        return "replication is synchronous and no standby is connected: every commit waits for one"
    return (
        "replication is asynchronous: if the primary is lost, so may be the newest commits that servers have"
        " acknowledged; set synchronous_standby_names to have commits wait for a standby"
    )


def _finding(one: Finding) -> api.Finding:
    subject = text_of(Key(int(one.subject))) if one.is_keyed else str(one.subject)
    return api.Finding(one.kind, subject, one.column, one.stored, one.counted, one.mendable, str(one))


@contextmanager
def _readable_errors(database: str) -> Iterator[None]:
    """Turn every error into one line. In a damaged database any call can fail, and a traceback does not help."""
    try:
        yield
    except Unchecked:
        raise
    except Exception as fault:
        line = (_message(fault).splitlines() or [type(fault).__name__])[0]
        # An address may contain a password; a path does not.
        raise Unchecked(line.replace(database, "the address") if "://" in database else line) from fault


def _message(fault: Exception) -> str:
    if isinstance(fault, OSError):
        return f"{fault.filename}: {fault.strerror}"
    if isinstance(fault, StoreUnavailable) and fault.__cause__:
        return str(fault.__cause__)  # the error of the driver: the command names the database itself
    return str(fault) if isinstance(fault, _EXPLAINED) else f"{type(fault).__name__}: {fault}"
