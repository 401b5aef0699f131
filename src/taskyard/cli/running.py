"""The command `taskyard run`: a graph to its end, on this machine."""

import os
import sys
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

from taskyard.cli import asking, documents, forms, outcomes, reports, text, views
from taskyard.cli.exits import Exit
from taskyard.cli.grammar import Number, Parameter
from taskyard.cli.work import Plan, Unserved, Work
from taskyard.wire.documents import RefusedDocument
from taskyard.wire.progress import GraphState, Outcome, Reason, State

#: More processes than any one machine runs well.
JOBS_MAX: Final = 1_000
LIMIT_MAX: Final = 1_000_000_000

EXAMPLES: Final = """\
Examples:

    taskyard run examples/release.yaml    run a graph and watch it
    taskyard run --jobs 4 nightly.yaml    at most four tasks at a time
    taskyard run -o json nightly.yaml     the outcome, for a program
    taskyard run --show-output ci.yaml    see everything that tasks print
    taskyard run --logs out nightly.yaml  keep it, a file for each attempt
    taskyard run --limit licence=2 g.yaml  two tasks with a licence at a time
    taskyard run --approve yes graph.yaml  say yes to whatever it asks
    generate-graph | taskyard run -       a graph from standard input
"""

#: Where a task is that keeps its graph from being finished, for a reason of its own.
_BAD: Final = frozenset({State.FAILED, State.ERROR, State.WAITING})
_EXITS: Final = {GraphState.FINISHED: Exit.OK, GraphState.CANCELED: Exit.INTERRUPTED}


def limits_of(written: list[str]) -> dict[str, int]:
    """Read limits: `name=total`."""
    found: dict[str, int] = {}
    for one in written:
        name, _, total = one.rpartition("=")
        if not (name and total.isascii() and total.isdecimal() and int(total) <= LIMIT_MAX):
            raise ValueError(f"{one!r} is no limit: it looks like licence=3.")
        found[name] = int(total)
    return found


def _check_limits(_: object, written: list[str] | None) -> None:
    limits_of(written or [])


Limits = Annotated[
    list[str] | None,
    Parameter(
        validator=_check_limits,
        help="How much there is of something that tasks share, as name=total; as often as needed.",
    ),
]


class Manner(NamedTuple):
    """How a run goes about it."""

    logs: Annotated[
        Path | None,
        Parameter(help="A folder for everything that tasks print, a file for each attempt; made if it is not there."),
    ] = None
    show_output: Annotated[
        bool, Parameter(negative="", help="Show everything that tasks print, each line with the task's label.")
    ] = False
    limit: Limits = None
    approve: Annotated[
        Literal["ask", "yes", "no"],
        Parameter(help="What is answered when a task asks for approval: whoever is at the terminal is asked."),
    ] = "ask"


AS_USUAL: Final = Manner()


def run(
    file: documents.File,
    /,
    *,
    jobs: Annotated[
        int | None,
        Parameter(
            name=["--jobs", "-j"],
            validator=Number(gte=1, lte=JOBS_MAX),
            help="How many tasks may run at a time; one for each processor unless told.",
        ),
    ] = None,
    output: forms.Form = "table",
    manner: Manner = AS_USUAL,
    work: Work,
) -> int:
    """Run a graph of tasks to its end, on this machine.

    Each task starts in a fresh folder, or in its `cwd`, counted from here.
    Progress is shown on stderr, the outcome on stdout.
    Ctrl-C asks what runs to end; a second one kills it.
    """
    plan = _plan(work, file, limits_of(manner.limit or []))
    if plan is None or not _made(manner.logs):
        return Exit.USAGE
    if manner.approve == "ask" and plan.asks and not sys.stdin.isatty():
        return _refuse_to_ask(plan.asks)
    return _run(plan, jobs or os.cpu_count() or 1, output, manner)


def _plan(work: Work, file: str, limits: dict[str, int]) -> Plan | None:
    name = documents.name_of(file)
    try:
        return work.plan(documents.read(file), name, limits)
    except RefusedDocument as refused:
        reports.say_faults(name, refused.faults)
    except OSError as error:
        reports.say_error(f"cannot read {name}: {error.strerror}")
    return None


def _made(folder: Path | None) -> bool:
    """Make the folder for logs, if one is wanted."""
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reports.say_error(f"cannot keep logs in {folder}: {error.strerror}")
        return False
    return True


def _refuse_to_ask(labels: tuple[str, ...]) -> Exit:
    """Say that nobody can answer: a run without a terminal would wait for ever."""
    reports.say_error(f"{labels[0]} asks for approval, and there is no terminal to ask at; nothing was started")
    reports.talk("  say --approve yes or --approve no, give it a timeout, or submit the graph to a server")
    return Exit.USAGE


def _decide(approve: str, view: views.View) -> asking.Decide:
    if approve != "ask":
        return asking.told(approve == "yes")
    return asking.Terminal(view).decide if sys.stdin.isatty() else asking.told(None)


def _run(plan: Plan, jobs: int, output: str, manner: Manner) -> Exit:
    try:
        with views.choose(plan, jobs, manner.show_output) as view:
            outcome = plan.run(jobs, view, _decide(manner.approve, view), manner.logs, manner.show_output)
    except Unserved as refusal:
        reports.say_error(f"cannot go on: {refusal}")
        return Exit.ERROR
    if outcome.deadlock:
        reports.say_error(text.harmless(outcome.deadlock))
    give = outcomes.WRITERS[output]
    ended = _exit_of(outcome)
    return ended if reports.delivered(lambda: give(outcome)) else ended or Exit.ERROR


def _exit_of(outcome: Outcome) -> Exit:
    if outcome.deadlock:
        return Exit.NO_BOT
    if outcome.state in _EXITS:
        return _EXITS[outcome.state]
    ended_badly = [task for task in outcome.tasks.values() if task.state in _BAD]
    return Exit.NO_BOT if ended_badly and all(task.reason is Reason.NO_BOT for task in ended_badly) else Exit.FAILED
