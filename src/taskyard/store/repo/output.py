"""Verbs about what attempts leave beside their end: what they printed, took, published and said of themselves."""

from collections.abc import Collection, Sequence

from taskyard.core.structs import value
from taskyard.store.queries import Row, Session


@value
class Printed:
    """How much of what an attempt printed is kept, and in how many chunks."""

    chunks: int = 0
    size: int = 0


@value
class StatsRow:
    """What an attempt took."""

    attempt: int
    prepared_ms: int | None
    ran_ms: int | None
    uploaded_ms: int | None
    cpu_s: float | None
    memory_bytes: int | None
    read_bytes: int | None
    written_bytes: int | None
    truncated: int


class OutputRepo:
    """What the tables `attempt_stats`, `output_chunk` and `progress` can be asked and told."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def add_stats(self, rows: Sequence[Row]) -> None:
        """Keep what attempts took: task, attempt, then the fields of `StatsRow`."""
        self._session.execute_many("insert_stats", rows)

    def stats(self, task: int) -> dict[int, StatsRow]:
        """Read what the attempts of a task took, by their numbers."""
        return {row[0]: StatsRow(*row) for row in self._session.fetch("select_stats", task)}

    def last_chunks(self, ids: Collection[int]) -> dict[int, Printed]:
        """Say how much the last attempts of tasks have printed; who printed nothing is not named."""
        return (
            {row[0]: Printed(row[1], row[2]) for row in self._session.fetch("select_last_chunks", ids)} if ids else {}
        )

    def sizes(self, task: int) -> dict[int, int]:
        """Say how many bytes each attempt of a task printed."""
        return {row[0]: row[1] for row in self._session.fetch("select_output_sizes", task)}

    def add_chunks(self, rows: Sequence[Row]) -> None:
        """Keep what attempts printed: task, attempt, number, start, moment, body."""
        self._session.execute_many("insert_chunks", rows)

    def chunks(self, task: int, attempt: int, first: int, count: int) -> list[tuple[int, bytes]]:
        """Read what an attempt printed from a byte on: where each chunk begins, and the chunk."""
        return [(row[0], bytes(row[1])) for row in self._session.fetch("select_chunks", task, attempt, first, count)]

    def chunk_times(self, task: int, attempt: int, first: int, since_ms: int, count: int) -> list[tuple[int, int]]:
        """Read when output came, from a byte on and not before a moment: where each chunk begins, and its moment."""
        return [
            (row[0], row[1]) for row in self._session.fetch("select_chunk_times", task, attempt, first, since_ms, count)
        ]

    def set_progress(self, rows: Sequence[Row]) -> None:
        """Keep what attempts say of themselves: task, attempt, moment, body, checkpoint; None leaves what was."""
        self._session.execute_many("upsert_progress", rows)

    def progress(self, ids: Collection[int]) -> dict[int, str]:
        """Read what the last attempts of tasks said of themselves."""
        return {row[0]: row[1] for row in self._session.fetch("select_progress", ids) if row[1]} if ids else {}

    def checkpoints(self, ids: Collection[int]) -> dict[int, bytes]:
        """Read the newest thing that an attempt of each task left for the next."""
        return {row[0]: bytes(row[2]) for row in self._session.fetch("select_checkpoints", ids)} if ids else {}

    def prefetch_inputs(self, ids: Collection[int]) -> None:
        """Hint: the inputs of tasks will be read."""
        if ids:
            self._session.prefetch("select_inputs", ids)

    def inputs(self, ids: Collection[int]) -> list[tuple[int, str, str]]:
        """Read what the prerequisites of tasks published: task, label, result."""
        return [(row[0], row[1], row[2]) for row in self._session.fetch("select_inputs", ids)] if ids else []

    def result(self, task: int, attempt: int) -> str | None:
        """Read what an attempt published."""
        found = self._session.fetch("select_result", task, attempt)
        return found[0][0] if found else None
