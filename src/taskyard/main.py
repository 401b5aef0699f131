"""The composition root: joins the commands with what does their work. The only module that knows both.

Nothing is imported before it is needed, so that `taskyard --version` and a Tab key answer at once.
"""

import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from taskyard.cli.exits import Exit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from taskyard.core.graph import Fault as GraphFault
    from taskyard.core.graph import Graph
    from taskyard.wire.checkup import Checkup
    from taskyard.wire.faults import Fault
    from taskyard.wire.progress import Outcome, Progress


def main() -> None:
    """Be the program `taskyard`."""
    _open_streams()
    sys.exit(_call(sys.argv[1:]))


def _open_streams() -> None:
    """Have streams that can always be written to: closed ones go nowhere, and no character is refused."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _call(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        # Scripts ask for it often, and it needs no command line to be understood.
        sys.stdout.write(f"{_version()}\n")
        return Exit.OK
    from taskyard.cli import app, reports  # noqa: PLC0415

    try:
        code = app.call(app.build(Inline(), _version), arguments)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    return code if reports.delivered(_nothing_more) else code or Exit.ERROR


def _nothing_more() -> None:
    """Write nothing: all that is left is to see that what was written arrives."""


def _version() -> str:
    from importlib.metadata import version  # noqa: PLC0415

    return version("taskyard")


class Inline:
    """The work of the commands, done in this process."""

    def plan(self, text: bytes, name: str) -> "InlinePlan":
        from taskyard.core.graph import validate  # noqa: PLC0415
        from taskyard.inline import refusals  # noqa: PLC0415

        value, of_text = _read(text, name)
        validation = validate(value)
        of_graph = validation.faults if validation.graph is None else refusals(validation.graph)
        _refuse(text, of_text, of_graph)
        assert validation.graph is not None
        return InlinePlan(validation.graph, validation.graph.name or name)

    def check_up(self, database: str, repair: bool) -> "Checkup":
        import logging  # noqa: PLC0415

        from taskyard.engine import visit  # noqa: PLC0415

        # Whatever goes wrong is told once, in a line; what the floors below log on the way would only repeat it.
        logging.getLogger().addHandler(logging.NullHandler())
        return visit.mend(database) if repair else visit.look(database)


@dataclass(frozen=True, slots=True)
class InlinePlan:
    """A graph that passed."""

    graph: "Graph"
    name: str

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.graph.tasks)

    def run(self, jobs: int, watch: "Callable[[Progress], None]", logs: "Path | None") -> "Outcome":
        from taskyard.inline import run_graph  # noqa: PLC0415

        return replace(run_graph(self.graph, jobs, watch, logs), name=self.name)


def _read(text: bytes, name: str) -> "tuple[object, tuple[Fault, ...]]":
    """Read a document; a text that is faulty but could be read is judged on, so that every fault is told at once."""
    from taskyard.wire.faults import UnreadableDocument  # noqa: PLC0415
    from taskyard.wire.reading import read_document  # noqa: PLC0415

    try:
        return read_document(text, name), ()
    except UnreadableDocument as unreadable:
        if unreadable.value is None:
            raise
        return unreadable.value, unreadable.faults


def _refuse(text: bytes, of_text: "tuple[Fault, ...]", of_graph: "tuple[GraphFault, ...]") -> None:
    """Raise what is wrong with a document, if anything is, each fault with its line where that is known."""
    from taskyard.wire.faults import Fault, RefusedDocument  # noqa: PLC0415
    from taskyard.wire.reading import find_lines  # noqa: PLC0415

    if of_text or of_graph:
        lines = find_lines(text, {fault.path for fault in of_graph})
        placed = (Fault(fault.message, fault.path, lines.get(fault.path)) for fault in of_graph)
        raise RefusedDocument([*of_text, *placed])
