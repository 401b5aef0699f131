"""How a run on this machine ended, on stdout: a summary for people, JSON for programs, labels for scripts."""

import json
from collections.abc import Callable, Mapping
from typing import Final

from taskyard.cli import reports, telling, text, views
from taskyard.wire.progress import Outcome, Progress, Reason

#: What fits a screen; the headline counts all, and `-o json` has them.
NAMED_MAX = 20


def give_summary(outcome: Outcome) -> None:
    """Say how the graph ended, then name the tasks that did not end well, those that ran first."""
    reports.answer(telling.headline(outcome))
    bad = _bad(outcome)
    for task in bad[:NAMED_MAX]:
        reports.answer(f"  {views.lines(task)[0]}")
    if len(bad) > NAMED_MAX:
        reports.answer(f"  and {len(bad) - NAMED_MAX} more")


def give_json(outcome: Outcome) -> None:
    """Print the outcome as one JSON object, in ASCII: what tasks printed cannot act on a terminal."""
    shape = {
        "name": outcome.name,
        "state": outcome.state,
        "elapsed_ms": outcome.elapsed_ms,
        "tasks": {label: _shape(task) for label, task in outcome.tasks.items()},
    }
    reports.answer(json.dumps(shape, indent=2))


def give_lines(outcome: Outcome) -> None:
    """Print each task as one JSON object on a line of its own."""
    for label, task in outcome.tasks.items():
        reports.answer(json.dumps({"label": label, **_shape(task)}))


def give_names(outcome: Outcome) -> None:
    """Print the labels of the tasks that did not end well."""
    for task in _bad(outcome):
        reports.answer(text.harmless(task.label))


WRITERS: Final[Mapping[str, Callable[[Outcome], None]]] = {
    "table": give_summary,
    "json": give_json,
    "jsonl": give_lines,
    "name": give_names,
}


def _bad(outcome: Outcome) -> list[Progress]:
    """Give the tasks that did not end well, those that ran first."""
    return sorted((task for task in outcome.tasks.values() if task.reason is not Reason.DONE), key=_never_ran)


def _never_ran(task: Progress) -> bool:
    return not task.attempt


def _shape(task: Progress) -> dict[str, object]:
    return {
        "state": task.state,
        "reason": task.reason,
        "exit_code": task.exit_code,
        "attempts": task.attempt,
        "elapsed_ms": task.elapsed_ms,
        "blocked_by": list(task.blocked_by),
        "tail": task.tail,
        "result": task.result,
    }
