"""The command `taskyard run`: a graph to its end, on this machine."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import click

from taskyard.cli import asking, documents, forms, outcomes, reports, text, views
from taskyard.cli.exits import Exit
from taskyard.cli.options import PATH, Number, PlainText, bundle, choice, command, flag
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


def limits_of(written: Iterable[str]) -> dict[str, int]:
    """Read limits: `name=total`."""
    found: dict[str, int] = {}
    for one in written:
        name, _, total = one.rpartition("=")
        if not (name and total.isascii() and total.isdecimal() and int(total) <= LIMIT_MAX):
            raise ValueError(f"{one!r} is not a limit such as licence=3")
        found[name] = int(total)
    return found


class RunOptions(NamedTuple):
    """How a graph is run."""

    logs: Path | None = None
    show_output: bool = False
    limit: tuple[str, ...] = ()
    approve: str = "ask"


@command("run", EXAMPLES)
@documents.file_argument
@click.option(
    "--jobs",
    "-j",
    type=Number(1, JOBS_MAX),
    metavar="N",
    help="Number of tasks to run at a time [default: the number of processors].",
)
@bundle(
    "how",
    RunOptions,
    click.option("--logs", type=PATH, metavar="DIR", help="Keep all output of tasks here, one file for each attempt."),
    flag("--show-output", help="Show all output of tasks, each line with the label of its task."),
    click.option(
        "--limit",
        multiple=True,
        type=PlainText(lambda written: limits_of([written])),
        metavar="NAME=TOTAL",
        help="Total of a named limit that tasks share; can be repeated.",
    ),
    choice("--approve", words=("ask", "yes", "no"), default="ask", help="Answer to approvals; ask: at the terminal."),
)
@forms.output_option("table")
@click.pass_obj
def run(work: Work, file: str, jobs: int | None, how: RunOptions, output: str) -> int:
    """Run a graph of tasks to its end, on this machine.

    Each task starts in a fresh folder, or in its `cwd`, counted from here.
    Progress is shown on stderr, the outcome on stdout.
    Ctrl-C asks what runs to end; a second one kills it.
    """
    plan = _plan(work, file, limits_of(how.limit))
    if plan is None or not _made(how.logs):
        return Exit.USAGE
    if how.approve == "ask" and plan.asks and not sys.stdin.isatty():
        return _refuse_to_ask(plan.asks)
    return _run(plan, jobs or os.cpu_count() or 1, output, how)


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


def _run(plan: Plan, jobs: int, output: str, how: RunOptions) -> Exit:
    try:
        with views.choose(plan, jobs, how.show_output) as view:
            outcome = plan.run(jobs, view, _decide(how.approve, view), how.logs, how.show_output)
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
