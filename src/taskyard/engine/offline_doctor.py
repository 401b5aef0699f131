"""A doctor's visit to a database that is there, for who has no engine on it.

It makes no database and migrates none. A look may be had while an engine is at work; a repair of a file needs the file
for itself. No chore is done meanwhile: time stands still for the tasks in there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from taskyard.core.ids import Key, text_of
from taskyard.engine.engine import Engine
from taskyard.engine.errors import Trouble
from taskyard.engine.file_lock import Custody
from taskyard.lifecycle.doctor.finding import Finding
from taskyard.store import migrate
from taskyard.store.connection import open_store
from taskyard.store.queries import StoreUnavailable, TransactionConflict
from taskyard.wire import api
from taskyard.wire.api import Checkup, Unchecked

#: How often a store that has more wrong than one look tells is mended and looked at again.
ROUNDS_MAX: Final = 100
#: Who asked for a repair, as the audit tells it.
ACTOR: Final = "taskyard doctor"
#: How a file of SQLite begins; a file with nothing in it is one, too.
_MAGIC: Final = b"SQLite format 3\0"
#: What says by itself what is wrong.
_TOLD: Final = (Trouble, migrate.TooNew, migrate.TooOld, TransactionConflict, StoreUnavailable)


def look(database: str) -> Checkup:
    """Recount every number of the database at an address, or in a file."""
    with _faults(database), _opened(_address(database)) as engine:
        found = engine.doctor()
        return _checkup(found, found, mended=0)


def mend(database: str) -> Checkup:
    """Recount every number, mend what can be mended, and recount."""
    with _faults(database), _kept(_address(database)) as url, _opened(url) as engine:
        engine.loop.start()
        return _mend(engine)


def _mend(engine: Engine) -> Checkup:
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


def _address(database: str) -> str:
    """Give the address of a database that is there."""
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
def _kept(url: str) -> Iterator[str]:
    """Keep a file from engines meanwhile."""
    custody = Custody(url)
    try:
        yield url
    finally:
        custody.leave()


@contextmanager
def _opened(url: str) -> Iterator[Engine]:
    """Open a database of this version; nothing happens in it by itself."""
    _refuse(migrate.current_version(url), migrate.newest_version())
    engine = Engine(open_store(url))
    try:
        yield engine
    finally:
        engine.stop()


def _refuse(found: str | None, newest: str) -> None:
    """Refuse every version of the schema but the newest; versions are numbers of four digits."""
    if found is None:
        raise Unchecked("it has no schema of Taskyard: is it the right database?")
    if found > newest:
        raise migrate.TooNew(found)
    if found < newest:
        raise Unchecked(
            f"it has version {found} of the schema and this program looks after version {newest}: "
            "open it once with this Taskyard, which upgrades it, or use the Taskyard that made it"
        )


# Telling.


def _checkup(found: list[Finding], left: list[Finding], mended: int) -> Checkup:
    return Checkup(tuple(map(_told, found)), mended, len(left))


def _told(one: Finding) -> api.Finding:
    subject = text_of(Key(int(one.subject))) if one.is_keyed else str(one.subject)
    return api.Finding(one.kind, subject, one.column, one.stored, one.counted, one.mendable, str(one))


@contextmanager
def _faults(database: str) -> Iterator[None]:
    """Say in a line why a visit failed. A damaged database makes anything fail, and a trace would help nobody."""
    try:
        yield
    except Unchecked:
        raise
    except Exception as fault:
        said = _said(fault).splitlines() or [type(fault).__name__]
        # An address may hold a password; a path is worth telling.
        raise Unchecked(said[0].replace(database, "the address") if "://" in database else said[0]) from fault


def _said(fault: Exception) -> str:
    if isinstance(fault, OSError):
        return f"{fault.filename}: {fault.strerror}"
    # What the driver said, where others have wrapped it.
    for one in (fault, fault.__cause__):
        if told := getattr(one, "orig", None):
            return str(told)
    return str(fault) if isinstance(fault, _TOLD) else f"{type(fault).__name__}: {fault}"
