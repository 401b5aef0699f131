"""The command `run`: run a graph on this machine."""

import json
import os
import select
import sys
import termios
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click

from taskyard.cli import progress
from taskyard.cli.commands import submit
from taskyard.cli.exit_codes import Exit
from taskyard.cli.options import PATH, Number, PlainText, bundle, choice, command, flag, output_option
from taskyard.cli.output import (
    can_draw,
    format_counts,
    format_duration,
    harmless,
    plural,
    print_err,
    print_error,
    print_faults,
    write_stdout,
)
from taskyard.cli.ports import Backend, Plan, StartFailed
from taskyard.cli.progress import Line, View
from taskyard.wire.documents import RefusedDocument
from taskyard.wire.progress import Decide, GraphState, Outcome, Progress, Question, Reason, State

# Approvals: answered by --approve or at the terminal, which is read without blocking, so that the run goes on.


#: The accepted answers.
ANSWERS: Final = {"y": True, "yes": True, "n": False, "no": False}
#: Longer than any answer.
LINE_MAX: Final = 4_096


class Terminal:
    """Reads answers from a terminal; the view shows the question, and draws nothing while it is open."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._asked = ""
        self._is_closed = False

    def decide(self, question: Question | None) -> bool | None:
        """Show a question once, and return the answer as soon as there is one."""
        if question is None:
            self._asked = ""
            self._view.resume()
            return None
        if question.task != self._asked:
            self._asked = question.task
            termios.tcflush(sys.stdin, termios.TCIFLUSH)  # earlier input cannot be the answer
            self._view.pause()
            asked = f"{harmless(question.label)} asks: {harmless(question.message)}"
            self._view.say(Line(f"{asked}  (y or n, then Enter)"))
        line = self._line()
        answer = ANSWERS.get(line.strip().lower())
        if line and answer is None:
            self._view.say(Line("answer y or n; Ctrl-C ends the run"))
        return answer

    def _line(self) -> str:
        """Return the next line of input, of which a terminal gives one at a time; "" if there is none."""
        if self._is_closed or not select.select([sys.stdin], [], [], 0)[0]:
            return ""
        line = os.read(sys.stdin.fileno(), LINE_MAX)
        self._is_closed = not line
        return line.decode(errors="replace")


#: More processes than any one machine runs well.
JOBS_MAX: Final = 1_000
LIMIT_MAX: Final = 1_000_000_000

EXAMPLES: Final = """\
Examples:

    taskyard run examples/release.yaml     run a graph and watch it
    taskyard run --jobs 4 nightly.yaml     run at most four tasks at a time
    taskyard run -o json nightly.yaml      print the outcome as JSON
    taskyard run --show-output ci.yaml     show the output of all tasks
    taskyard run --logs out nightly.yaml   write the output to files in out/
    taskyard run --outputs out build.yaml  write the files that tasks leave
    taskyard run --limit licence=2 g.yaml  share two licences among tasks
    taskyard run --approve yes graph.yaml  approve everything
    generate-graph | taskyard run -        read the graph from standard input
"""

#: States of tasks that keep their graph from being finished, other than by waiting for others.
_BAD: Final = frozenset({State.FAILED, State.ERROR, State.WAITING})
_EXITS: Final = {GraphState.FINISHED: Exit.OK, GraphState.CANCELED: Exit.INTERRUPTED}


def limits_of(written: Iterable[str]) -> dict[str, int]:
    """Parse limits such as `licence=3`."""
    found: dict[str, int] = {}
    for one in written:
        name, _, total = one.rpartition("=")
        if not (name and total.isascii() and total.isdecimal() and int(total) <= LIMIT_MAX):
            raise ValueError(f"{one!r} is not a limit such as licence=3")
        found[name] = int(total)
    return found


class RunOptions(NamedTuple):
    """How to run a graph."""

    logs: Path | None = None
    show_output: bool = False
    limit: tuple[str, ...] = ()
    approve: str = "ask"
    outputs: Path | None = None


@command("run", EXAMPLES)
@submit.file_argument
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
    click.option("--logs", type=PATH, metavar="DIR", help="Write all output of tasks here, one file for each attempt."),
    flag("--show-output", help="Show the output of tasks, each line with the label of its task."),
    click.option("--outputs", type=PATH, metavar="DIR", help="Write output files of tasks here, a folder for each."),
    click.option(
        "--limit",
        multiple=True,
        type=PlainText(lambda written: limits_of([written])),
        metavar="NAME=TOTAL",
        help="Total of a named limit that tasks share; can be repeated.",
    ),
    choice(
        "--approve",
        words=("ask", "yes", "no"),
        default="ask",
        help="How to answer approvals; ask means at the terminal.",
    ),
)
@output_option("table")
@click.pass_obj
def run(work: Backend, file: str, jobs: int | None, how: RunOptions, output: str) -> int:
    """Run a graph on this machine and wait for its end.

    Each task runs in a new folder, or in its `cwd`, relative to this folder.
    Progress goes to stderr, the outcome to stdout. Ctrl-C asks running tasks
    to stop; Ctrl-C again kills them.
    """
    plan = _plan(work, file, limits_of(how.limit))
    if plan is None or not _create(how.logs, "logs") or not _create(how.outputs, "outputs"):
        return Exit.USAGE
    if how.approve == "ask" and plan.asks and not sys.stdin.isatty():
        return _refuse_approvals(plan.asks)
    return _run(plan, jobs or os.cpu_count() or 1, output, how)


def _plan(work: Backend, file: str, limits: dict[str, int]) -> Plan | None:
    name = submit.name_of(file)
    try:
        return work.plan(submit.read(file), name, limits)
    except RefusedDocument as refused:
        print_faults(name, refused.faults)
    except OSError as error:
        print_error(f"cannot read {name}: {error.strerror}")
    return None


def _create(folder: Path | None, what: str) -> bool:
    """Create a folder, if there is one."""
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print_error(f"cannot write {what} to {folder}: {error.strerror}")
        return False
    return True


def _refuse_approvals(labels: tuple[str, ...]) -> Exit:
    """Refuse a run that would wait for ever, because there is no terminal for the answers."""
    print_error(f"{labels[0]} needs an approval, and there is no terminal to ask at; nothing was started")
    print_err("  add --approve yes or --approve no, give the approval a timeout, or submit the graph to a server")
    return Exit.USAGE


def _decide(approve: str, view: View) -> Decide:
    if approve != "ask":
        return lambda _: approve == "yes"
    return Terminal(view).decide if sys.stdin.isatty() else lambda _: None


def _run(plan: Plan, jobs: int, output: str, how: RunOptions) -> Exit:
    view = progress.choose_view(False, plan.name, len(plan.labels))
    if not can_draw(sys.stderr):
        print_err(f"{harmless(plan.name)}: {plural(len(plan.labels), 'task')}, {jobs} at a time")
    try:
        decide = _decide(how.approve, view)
        with view, plan.start(jobs, decide, how.logs, how.show_output, how.outputs) as graph:
            progress.watch(graph, view, show_output=how.show_output)
            outcome = graph.outcome()
    except StartFailed as refusal:
        print_error(f"the run failed: {refusal}")
        return Exit.ERROR
    if outcome.deadlock:
        print_error(harmless(outcome.deadlock))
    ended = _exit_of(outcome)
    written = write_stdout(lambda: sys.stdout.writelines(f"{line}\n" for line in _lines(outcome, output)))
    return ended if written else ended or Exit.ERROR


def _exit_of(outcome: Outcome) -> Exit:
    if outcome.deadlock:
        return Exit.NO_BOT
    if outcome.state in _EXITS:
        return _EXITS[outcome.state]
    return progress.exit_of_failures(task.reason or "" for task in outcome.tasks.values() if task.state in _BAD)


#: How many tasks are named; the headline counts all, and `-o json` lists them.
NAMED_MAX = 20


def _lines(outcome: Outcome, output: str) -> Iterator[str]:
    """Yield the lines of an outcome in an output format; JSON is in ASCII, which no terminal obeys."""
    # Those that ran come first.
    bad = sorted((one for one in outcome.tasks.values() if one.reason != Reason.DONE), key=lambda one: not one.attempt)
    match output:
        case "json":
            tasks = {label: _task_object(task) for label, task in outcome.tasks.items()}
            yield json.dumps(
                {"name": outcome.name, "state": outcome.state, "elapsed_ms": outcome.elapsed_ms, "tasks": tasks},
                indent=2,
            )
        case "jsonl":
            for label, task in outcome.tasks.items():
                yield json.dumps({"label": label, **_task_object(task)})
        case "name":
            yield from (harmless(task.label) for task in bad)
        case _:
            yield _headline(outcome)
            yield from (f"  {progress.task_lines(task)[0]}" for task in bad[:NAMED_MAX])
            if len(bad) > NAMED_MAX:
                yield f"  and {len(bad) - NAMED_MAX} more"


def _headline(outcome: Outcome) -> str:
    ended = f"{harmless(outcome.name)}: {outcome.state} in {format_duration(outcome.elapsed_ms)}"
    counts = format_counts(Counter(task.state for task in outcome.tasks.values()))
    return f"{ended}: {counts}" if outcome.tasks else ended


def _task_object(task: Progress) -> dict[str, object]:
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
