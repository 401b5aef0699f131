"""What `submit --dry-run` prints: what would become of each task of a graph, and nothing is stored."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from taskyard.cli import forms, layout, reports, text
from taskyard.cli.exits import Exit
from taskyard.wire.explain import NEVER, VERDICTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from taskyard.wire.explain import DryRun, DryTask


def give(told: "DryRun", output: str) -> int:
    """Print a forecast; its exit code says whether every task could run somewhere."""
    # There is no graph and so no id to print: whoever asks for nothing else gets the table.
    form = "table" if output == "name" else output
    given = forms.give_one(asdict(told), form, lambda: _lines(told), "")
    reports.talk(text.harmless(told.sentence))
    return given or (Exit.NO_BOT if told.counts.get(NEVER) else Exit.OK)


def _lines(told: "DryRun") -> "Iterator[str]":
    tasks = sorted(told.items, key=lambda one: VERDICTS.index(one.verdict))
    yield from layout.table([("TASK", "WHEN", "REASON", "WHY"), *map(_row, tasks)], sys.stdout, titled=True)
    if told.more:
        yield f"and {told.more} more"
    if not told.whole:
        yield "more tasks are pending than were taken into account"


def _row(task: "DryTask") -> tuple[str, ...]:
    return (forms.cell(task.label), task.verdict, task.reason, text.harmless(task.sentence))
