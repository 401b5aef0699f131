"""Repository of what attempts produce while they run: output, resource use, progress, checkpoints and inputs."""

from collections.abc import Collection, Sequence

from taskyard.core.structs import value
from taskyard.store.queries import Row, Session


@value
class OutputSize:
    """The stored output of an attempt."""

    chunks: int = 0
    size: int = 0


@value
class StatsRow:
    """The resources that an attempt used."""

    attempt: int
    prepared_ms: int | None
    cached_ms: int | None
    downloaded_ms: int | None
    ran_ms: int | None
    uploaded_ms: int | None
    cleaned_ms: int | None
    cpu_s: float | None
    memory_bytes: int | None
    read_bytes: int | None
    written_bytes: int | None
    truncated: int


class OutputRepo:
    """The tables `attempt_stats`, `output_chunk` and `progress`."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def add_stats(self, rows: Sequence[Row]) -> None:
        """Store the resources that attempts used: task, attempt, then the fields of `StatsRow`."""
        self._session.execute_many("insert_stats", rows)

    def stats(self, task: int) -> dict[int, StatsRow]:
        """Return the resources that the attempts of a task used, by attempt number."""
        return {row[0]: StatsRow(*row) for row in self._session.fetch("select_stats", task)}

    def last_chunks(self, ids: Collection[int]) -> dict[int, OutputSize]:
        """Return the size of the output of the last attempts of tasks; tasks without output are left out."""
        return (
            {row[0]: OutputSize(row[1], row[2]) for row in self._session.fetch("select_last_chunks", ids)}
            if ids
            else {}
        )

    def sizes(self, task: int) -> dict[int, int]:
        """Return the bytes of output of each attempt of a task."""
        return {row[0]: row[1] for row in self._session.fetch("select_output_sizes", task)}

    def add_chunks(self, rows: Sequence[Row]) -> None:
        """Store output: task, attempt, number, start, time, body."""
        self._session.execute_many("insert_chunks", rows)

    def chunks(self, task: int, attempt: int, first: int, count: int) -> list[tuple[int, bytes]]:
        """Return the output of an attempt from a byte on: the offset of each chunk, and its bytes."""
        return [(row[0], bytes(row[1])) for row in self._session.fetch("select_chunks", task, attempt, first, count)]

    def chunk_times(self, task: int, attempt: int, first: int, since_ms: int, count: int) -> list[tuple[int, int]]:
        """Return when output arrived, from a byte and a time on: the offset of each chunk, and its time."""
        return [
            (row[0], row[1]) for row in self._session.fetch("select_chunk_times", task, attempt, first, since_ms, count)
        ]

    def set_progress(self, rows: Sequence[Row]) -> None:
        """Store progress of attempts: task, attempt, time, body, checkpoint; None keeps what is stored."""
        self._session.execute_many("upsert_progress", rows)

    def progress(self, ids: Collection[int]) -> dict[int, str]:
        """Return the progress of the last attempts of tasks."""
        return {row[0]: row[1] for row in self._session.fetch("select_progress", ids) if row[1]} if ids else {}

    def checkpoints(self, ids: Collection[int]) -> dict[int, bytes]:
        """Return the newest checkpoint of each task."""
        return {row[0]: bytes(row[2]) for row in self._session.fetch("select_checkpoints", ids)} if ids else {}

    def prefetch_inputs(self, ids: Collection[int]) -> None:
        """Hint that the inputs of tasks are read next."""
        if ids:
            self._session.prefetch("select_inputs", ids)

    def inputs(self, ids: Collection[int]) -> list[tuple[int, str, str]]:
        """Return the results of the prerequisites of tasks: task, label, result."""
        return [(row[0], row[1], row[2]) for row in self._session.fetch("select_inputs", ids)] if ids else []

    def result(self, task: int, attempt: int) -> str | None:
        """Return the result of an attempt."""
        found = self._session.fetch("select_result", task, attempt)
        return found[0][0] if found else None
