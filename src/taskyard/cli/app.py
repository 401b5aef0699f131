"""The commands of `taskyard`. Each reads what was given, has the work done, shows it, and says how it ended."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, CycloptsError, Parameter
from cyclopts.validators import Number

from taskyard.cli import doctor, reports, views
from taskyard.cli.exits import Exit
from taskyard.cli.work import Plan, Work
from taskyard.wire.faults import RefusedDocument
from taskyard.wire.progress import GraphState

#: More processes than any one machine runs well.
JOBS_MAX = 1_000
#: Reading stops here: the longest document that is read, and one byte to see that it is longer.
READ_BYTES_MAX = 10 * 1024 * 1024 + 1

HELP = "Run graphs of tasks: every task as soon as its prerequisites are met, as many at once as you allow."
EXAMPLES = """\
Examples:

    taskyard run examples/release.yaml    run a graph and watch it
    taskyard run --jobs 4 nightly.yaml    at most four tasks at a time
    taskyard run -o json nightly.yaml     the outcome, for a program
    taskyard run --logs out nightly.yaml  keep everything that tasks print
    generate-graph | taskyard run -       a graph from standard input
    taskyard doctor yard.db               recount every number of a database
    taskyard completion bash              a script that completes on Tab

Exit codes: 0 ok, 1 error, 2 usage or bad document (nothing was started),
3 the graph failed or the database is not well, 130 interrupted.
"""
COMPLETION_EXAMPLES = """\
Examples:

    eval "$(taskyard completion bash)"
    taskyard completion zsh > ~/.zfunc/_taskyard
    taskyard completion fish > ~/.config/fish/completions/taskyard.fish
"""

_EXITS = {GraphState.FINISHED: Exit.OK, GraphState.CANCELED: Exit.INTERRUPTED}


def build(work: Work, version: Callable[[], str]) -> App:
    """Make the program around the work it has done for it."""
    app = App(
        name="taskyard",
        help=HELP,
        help_epilogue=EXAMPLES,
        help_format="plaintext",
        version=version,
        exit_on_error=False,
        result_action="return_value",
    )
    app.command(_run_command(work), name="run")
    app.command(doctor.command(work), name="doctor", help_epilogue=doctor.EXAMPLES)
    app.command(_completion_command(app), name="completion", help_epilogue=COMPLETION_EXAMPLES)
    return app


def call(app: App, arguments: Sequence[str]) -> int:
    """Carry out one command line and give the exit code."""
    try:
        return int(app(arguments) or Exit.OK)
    except CycloptsError:
        return Exit.USAGE  # it has been printed


def _run_command(work: Work) -> Callable[..., int]:
    def run(
        file: Annotated[
            str,
            Parameter(
                allow_leading_hyphen=True,
                validator=_refuse_option,
                help="The graph document, YAML or JSON; `-` reads standard input.",
            ),
        ],
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
        output: Annotated[
            Literal["text", "json"],
            Parameter(name=["--output", "-o"], help="How the outcome is printed on stdout."),
        ] = "text",
        logs: Annotated[
            Path | None,
            Parameter(
                help="A folder for everything that tasks print, a file for each attempt; made if it is not there."
            ),
        ] = None,
    ) -> int:
        """Run a graph of tasks to its end, on this machine.

        Each task starts in a fresh folder, or in its `cwd`, counted from here.
        Progress is shown on stderr, the outcome on stdout.
        Ctrl-C asks what runs to end; a second one kills it.
        """
        plan = _plan(work, file)
        if plan is None or not _made(logs):
            return Exit.USAGE
        return _run(plan, jobs or os.cpu_count() or 1, output, logs)

    return run


def _refuse_option(_: object, file: str) -> None:
    """Let `-` pass as a file and nothing else that looks like an option."""
    if file.startswith("-") and file != "-":
        raise ValueError("There is no such option.")


def _plan(work: Work, file: str) -> Plan | None:
    name = "<stdin>" if file == "-" else file
    try:
        return work.plan(_read(file), name)
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


def _run(plan: Plan, jobs: int, output: str, logs: Path | None) -> Exit:
    with views.choose(plan, jobs) as view:
        outcome = plan.run(jobs, view.show, logs)
    give = reports.give_json if output == "json" else reports.give_summary
    ended = _EXITS.get(outcome.state, Exit.FAILED)
    return ended if reports.delivered(lambda: give(outcome)) else ended or Exit.ERROR


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read(READ_BYTES_MAX)
    with Path(file).open("rb") as document:
        return document.read(READ_BYTES_MAX)


def _completion_command(app: App) -> Callable[..., None]:
    def completion(
        shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="The shell that is going to read the script.")],
        /,
    ) -> None:
        """Print a script that completes commands and options on Tab."""
        sys.stdout.write(app.generate_completion(shell=shell) + "\n")

    return completion
