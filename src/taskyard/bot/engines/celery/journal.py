"""The attempts that a bot has handed to Celery, in a file, so that its next instance can adopt them.

A line is appended before an attempt is sent, and one when the server has its report. The file is not synced: it has to
survive processes, not a restart of the machine, after which the folder of the bot has another name.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from taskyard.bot.attempts import Key
from taskyard.bot.engines.protocol import Adoptable, EngineUnusable
from taskyard.wire.bot_protocol import NOTHING, Lease

#: A file that is larger than this is written anew, with what is in hand only.
FILE_BYTES_MAX: Final = 1_048_576


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line: an attempt that is in hand from now on, or one that is not any more; or a session that begins."""

    session: str = ""
    lease: Lease | None = None  # without what only its worker needs
    over: Key | None = None


class Journal:
    """The file of one bot."""

    def __init__(self, path: Path, session: str) -> None:
        self._path = path
        self._open: dict[Key, Lease] = {}
        self._last_session = self._read()
        self._end = -1
        self._write_anew(session)
        self._session = session

    @property
    def adoptable(self) -> Adoptable:
        """What earlier instances had in hand."""
        return Adoptable(self._last_session, tuple(self._open.values())) if self._open else Adoptable()

    def add(self, leases: list[Lease]) -> None:
        """Note attempts that are about to be sent; raise OSError if that is not possible."""
        slim = [msgspec.structs.replace(one, payload=msgspec.Raw(b"null"), token="", inputs=NOTHING) for one in leases]
        self._append([Entry(lease=one) for one in slim])
        self._open |= {(one.task, one.attempt): one for one in slim}

    def remove(self, keys: list[Key]) -> None:
        """Note attempts that are in hand no more."""
        for key in keys:
            self._open.pop(key, None)
        with suppress(OSError):  # the next instance asks for them in vain
            self._append([Entry(over=key) for key in keys])
            if os.fstat(self._end).st_size > FILE_BYTES_MAX:
                self._write_anew(self._session)

    def close(self) -> None:
        """Close the file."""
        if self._end >= 0:
            os.close(self._end)
            self._end = -1

    def _append(self, entries: list[Entry]) -> None:
        body = b"".join(msgspec.json.encode(one) + b"\n" for one in entries)
        size = os.fstat(self._end).st_size
        if os.write(self._end, body) != len(body):
            os.ftruncate(self._end, size)
            raise OSError("the disk is full")

    def _write_anew(self, session: str) -> None:
        """Write a file with what is in hand, and replace the old one once it is whole."""
        spare = self._path.with_suffix(".new")
        spare.unlink(missing_ok=True)
        self.close()
        self._end = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._append([Entry(session=session), *(Entry(lease=one) for one in self._open.values())])
        spare.replace(self._path)

    def _read(self) -> str:
        session = ""
        with suppress(FileNotFoundError):
            for line in self._path.read_bytes().split(b"\n")[:-1]:
                try:
                    entry = msgspec.json.decode(line, type=Entry)
                except msgspec.MsgspecError as error:
                    raise EngineUnusable(
                        f"{self._path} is damaged, so it is not known what workers still run: delete it once the leases"
                        " of this bot are over"
                    ) from error
                session = entry.session or session
                if entry.lease is not None:
                    self._open[entry.lease.task, entry.lease.attempt] = entry.lease
                if entry.over is not None:
                    self._open.pop(entry.over, None)
        return session
