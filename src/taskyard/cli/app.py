"""The program's commands, put together. Each reads what was given, has the work done, shows it, says how it ended."""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from cyclopts import App, CycloptsError, Parameter

from taskyard.cli import approving, doctor, fleet, logs, looking, running, serving, submitting, tokens, up, wishes
from taskyard.cli.exits import Ended, Exit
from taskyard.cli.work import Work

HELP = "Run graphs of tasks: every task as soon as its prerequisites are met, as many at once as you allow."
EXAMPLES = """\
Examples:

    taskyard run examples/release.yaml    run a graph here and watch it
    taskyard up                           start a server and a bot
    taskyard submit --wait nightly.yaml   run a graph on a server
    taskyard graphs                       what the server has
    taskyard show 78a6ff3e8d8c0f28        a graph or a task
    taskyard logs -f 00c0ffee12345678     what a task prints
    taskyard doctor yard.db               recount every number of a database
    taskyard completion bash              a script that completes on Tab

Exit codes: 0 ok, 1 error, 2 usage or bad document (nothing was started),
3 the graph failed or the database is not well, 4 not permitted, 5 not found,
6 no bot can run it, 124 not settled in time, 130 interrupted.
"""
COMPLETION_EXAMPLES = """\
Examples:

    eval "$(taskyard completion bash)"
    taskyard completion zsh > ~/.zfunc/_taskyard
    taskyard completion fish > ~/.config/fish/completions/taskyard.fish
"""


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
    _add_local(app, work)
    _add_remote(app)
    app.command(_completion_command(app), name="completion", help_epilogue=COMPLETION_EXAMPLES)
    return app


def call(app: App, arguments: Sequence[str]) -> int:
    """Carry out one command line and give the exit code."""
    try:
        return int(app(arguments) or Exit.OK)
    except CycloptsError:
        return Exit.USAGE  # it has been printed
    except Ended as ended:
        return ended.code


def _add_local(app: App, work: Work) -> None:
    """Add what works on this machine."""
    app.command(running.command(work), name="run", help_epilogue=running.EXAMPLES)
    app.command(up.up, name="up", help_epilogue=up.EXAMPLES)
    app.command(serving.serve_command(work), name="serve", help_epilogue=serving.SERVE_EXAMPLES)
    app.command(serving.bot_command(work), name="bot", help_epilogue=serving.BOT_EXAMPLES)
    app.command(doctor.command(work), name="doctor", help_epilogue=doctor.EXAMPLES)


def _add_remote(app: App) -> None:
    """Add what asks a server."""
    app.command(submitting.submit, name="submit", help_epilogue=submitting.SUBMIT_EXAMPLES)
    app.command(submitting.extend, name="extend", help_epilogue=submitting.EXTEND_EXAMPLES)
    app.command(looking.graphs, name="graphs", help_epilogue=looking.GRAPHS_EXAMPLES)
    app.command(looking.tasks, name="tasks", help_epilogue=looking.TASKS_EXAMPLES)
    app.command(looking.show, name="show", help_epilogue=looking.SHOW_EXAMPLES)
    app.command(looking.story, name="story", help_epilogue=looking.STORY_EXAMPLES)
    app.command(logs.logs, name="logs", help_epilogue=logs.EXAMPLES)
    app.command(wishes.cancel, name="cancel", help_epilogue=wishes.CANCEL_EXAMPLES)
    app.command(wishes.rerun, name="rerun", help_epilogue=wishes.RERUN_EXAMPLES)
    app.command(approving.approve, name="approve", help_epilogue=approving.EXAMPLES)
    app.command(fleet.bots_app())
    app.command(fleet.pools_app())
    app.command(tokens.app())


def _completion_command(app: App) -> Callable[..., None]:
    def completion(
        shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="The shell that is going to read the script.")],
        /,
    ) -> None:
        """Print a script that completes commands and options on Tab."""
        sys.stdout.write(app.generate_completion(shell=shell) + "\n")

    return completion
