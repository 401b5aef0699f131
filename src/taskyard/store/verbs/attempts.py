"""Verbs about attempts: who took a task, when, and how that ended."""

from collections.abc import Collection, Sequence

from taskyard.core.values import value
from taskyard.core.words import Signal
from taskyard.store.sessions import Row, Session


@value
class AttemptRow:
    """One attempt, as it was claimed and as it ended."""

    number: int
    bot: str
    session: str
    poll: str
    fence: int
    round: int
    slice_index: int
    claimed_ms: int
    ended_ms: int | None
    signal: str | None
    reason: str | None
    exit_code: int | None


class Attempts:
    """What the table `attempt` and those beside it can be asked and told."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def begin(self, rows: Sequence[Row]) -> None:
        """Insert attempts: task, number, bot, session, poll, fence, round, slice, claimed."""
        self._session.each("begin_attempts", rows)

    def end(self, rows: Sequence[Row]) -> None:
        """Write how attempts ended, once each: task, number, ended, signal, reason, exit code."""
        self._session.every("end_attempts", rows)

    def spared(self, task: int, round: int, reasons: Collection[str]) -> int:
        """Count the attempts of a task that ended in a round for one of these reasons, and not by their bot's word."""
        return int(self._session.rows("count_spared", task, round, Signal.LOSE.text, reasons)[0][0])

    def add_results(self, rows: Sequence[Row]) -> None:
        """Keep what attempts published: task, attempt, body."""
        self._session.each("add_results", rows)

    def of(self, task: int) -> list[AttemptRow]:
        """Read every attempt of a task."""
        return [AttemptRow(*row) for row in self._session.rows("attempts_of", task)]

    def polled(self, bots: Collection[str]) -> list[tuple[str, str, int]]:
        """Name what bots still have: bot, the poll that gave it, task."""
        return [(row[0], row[1], row[2]) for row in self._session.rows("polled", bots)] if bots else []
