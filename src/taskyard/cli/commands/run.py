"""The command `taskyard run`: a graph to its end, on this machine."""

import json
import os
import select
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import click

from taskyard.cli import progress
from taskyard.cli.commands import submit
from taskyard.cli.exit_codes import Exit
from taskyard.cli.options import PATH, Number, PlainText, bundle, choice, command, flag, output_option
from taskyard.cli.output import harmless, print_err, print_error, print_faults, print_line, write_stdout
from taskyard.cli.ports import Backend, Plan, StartFailed
from taskyard.wire.documents import RefusedDocument
from taskyard.wire.progress import GraphState, Outcome, Progress, Question, Reason, State

# Approvals: answered by --approve or at the terminal, which is read without waiting, so that the run goes on meanwhile.


#: What counts as an answer.
ANSWERS: Final = {"y": True, "yes": True, "n": False, "no": False}
#: Longer than any answer.
LINE_MAX: Final = 4_096

#: Answers the open question, or says by None that there is no answer yet; it is also told when no question is open.
Decide = Callable[[Question | None], bool | None]


def told(approved: bool | None) -> Decide:
    """Answer every question in the same way, or none."""
    return lambda _: approved


class Terminal:
    """Reads answers from a terminal; the view shows questions, and draws nothing while one is open."""

    def __init__(self, view: progress.RunProgress, source: int | None = None) -> None:
        self._view = view
        self._source: int | None = sys.stdin.fileno() if source is None else source
        self._typed = b""
        self._asked = ""

    def decide(self, question: Question | None) -> bool | None:
        """Show a question once, and give the answer when it is there."""
        if question is None:
            self._go_on()
            return None
        if question.task != self._asked:
            self._asked = question.task
            self._forget()
            asked = f"{harmless(question.label)} asks: {harmless(question.message)}"
            self._view.ask(f"{asked}  (y or n, then Enter)")
        line = self._line()
        if line is None:
            return None
        answer = ANSWERS.get(line.strip().lower())
        if answer is None:
            self._view.say("answer y or n; Ctrl-C ends the run")
        return answer

    def _go_on(self) -> None:
        if self._asked:
            self._asked = ""
            self._view.go_on()

    def _forget(self) -> None:
        """Leave out what was typed before a question was seen: it cannot be the answer."""
        while self._reads():
            pass
        self._typed = b""

    def _line(self) -> str | None:
        """Give the next line that was typed, if there is one."""
        if b"\n" not in self._typed:
            self._reads()
        line, end, rest = self._typed.partition(b"\n")
        if not end:
            return None
        self._typed = rest
        return line.decode(errors="replace")

    def _reads(self) -> bool:
        """Read what was typed; tell whether there was something."""
        if self._source is None or not select.select([self._source], [], [], 0)[0]:
            return False
        more = os.read(self._source, LINE_MAX)
        self._typed = (self._typed + more)[-LINE_MAX:]
        if not more:
            self._source = None  # nothing more will come: only Ctrl-C is left
        return bool(more)


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
@output_option("table")
@click.pass_obj
def run(work: Backend, file: str, jobs: int | None, how: RunOptions, output: str) -> int:
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


def _plan(work: Backend, file: str, limits: dict[str, int]) -> Plan | None:
    name = submit.name_of(file)
    try:
        return work.plan(submit.read(file), name, limits)
    except RefusedDocument as refused:
        print_faults(name, refused.faults)
    except OSError as error:
        print_error(f"cannot read {name}: {error.strerror}")
    return None


def _made(folder: Path | None) -> bool:
    """Make the folder for logs, if one is wanted."""
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print_error(f"cannot keep logs in {folder}: {error.strerror}")
        return False
    return True


def _refuse_to_ask(labels: tuple[str, ...]) -> Exit:
    """Say that nobody can answer: a run without a terminal would wait for ever."""
    print_error(f"{labels[0]} asks for approval, and there is no terminal to ask at; nothing was started")
    print_err("  say --approve yes or --approve no, give it a timeout, or submit the graph to a server")
    return Exit.USAGE


def _decide(approve: str, view: progress.RunProgress) -> Decide:
    if approve != "ask":
        return told(approve == "yes")
    return Terminal(view).decide if sys.stdin.isatty() else told(None)


def _run(plan: Plan, jobs: int, output: str, how: RunOptions) -> Exit:
    try:
        with progress.choose_run_progress(plan, jobs, how.show_output) as view:
            outcome = plan.run(jobs, view, _decide(how.approve, view), how.logs, how.show_output)
    except StartFailed as refusal:
        print_error(f"cannot go on: {refusal}")
        return Exit.ERROR
    if outcome.deadlock:
        print_error(harmless(outcome.deadlock))
    give = WRITERS[output]
    ended = _exit_of(outcome)
    return ended if write_stdout(lambda: give(outcome)) else ended or Exit.ERROR


def _exit_of(outcome: Outcome) -> Exit:
    if outcome.deadlock:
        return Exit.NO_BOT
    if outcome.state in _EXITS:
        return _EXITS[outcome.state]
    ended_badly = [task for task in outcome.tasks.values() if task.state in _BAD]
    return Exit.NO_BOT if ended_badly and all(task.reason is Reason.NO_BOT for task in ended_badly) else Exit.FAILED


#: What fits a screen; the headline counts all, and `-o json` has them.
NAMED_MAX = 20


def print_summary(outcome: Outcome) -> None:
    """Say how the graph ended, then name the tasks that did not end well, those that ran first."""
    print_line(progress.outcome_headline(outcome))
    bad = _unsuccessful(outcome)
    for task in bad[:NAMED_MAX]:
        print_line(f"  {progress.lines(task)[0]}")
    if len(bad) > NAMED_MAX:
        print_line(f"  and {len(bad) - NAMED_MAX} more")


def print_json(outcome: Outcome) -> None:
    """Print the outcome as one JSON object, in ASCII: what tasks printed cannot act on a terminal."""
    shape = {
        "name": outcome.name,
        "state": outcome.state,
        "elapsed_ms": outcome.elapsed_ms,
        "tasks": {label: _task_object(task) for label, task in outcome.tasks.items()},
    }
    print_line(json.dumps(shape, indent=2))


def print_lines(outcome: Outcome) -> None:
    """Print each task as one JSON object on a line of its own."""
    for label, task in outcome.tasks.items():
        print_line(json.dumps({"label": label, **_task_object(task)}))


def print_names(outcome: Outcome) -> None:
    """Print the labels of the tasks that did not end well."""
    for task in _unsuccessful(outcome):
        print_line(harmless(task.label))


WRITERS: Final[Mapping[str, Callable[[Outcome], None]]] = {
    "table": print_summary,
    "json": print_json,
    "jsonl": print_lines,
    "name": print_names,
}


def _unsuccessful(outcome: Outcome) -> list[Progress]:
    """Give the tasks that did not end well, those that ran first."""
    return sorted((task for task in outcome.tasks.values() if task.reason is not Reason.DONE), key=_never_ran)


def _never_ran(task: Progress) -> bool:
    return not task.attempt


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
