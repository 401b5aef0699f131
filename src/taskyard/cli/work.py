"""The work behind the commands, as the commands see it; the composition root brings the real thing."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from taskyard.wire.checkup import Checkup
from taskyard.wire.progress import Outcome, Progress


class Plan(Protocol):
    """A graph that is ready to run: everything that can be refused has been looked at."""

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> tuple[str, ...]: ...

    def run(self, jobs: int, watch: Callable[[Progress], None], logs: Path | None) -> Outcome:
        """Run it to its end, at most `jobs` tasks at a time; tell `watch` of everything, from this thread.

        If `logs` names a folder, everything that attempts print is kept there.
        """
        ...


class Work(Protocol):
    """What the commands can have done for them."""

    def plan(self, text: bytes, name: str) -> Plan:
        """Read a document; raise `RefusedDocument` with every fault when it cannot be run."""
        ...

    def check_up(self, database: str, repair: bool) -> Checkup:
        """Recount every number of a database, and mend what can be mended if that is wanted.

        Raise `Unchecked` when it cannot be looked at. `database` is an address, or the path of a file.
        """
        ...
