"""The program `taskyard`: the table of all commands, the help, and the way from a command line to an exit code.

The module of a command is loaded only when the command is called.
"""

import os
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from taskyard.cli.exit_codes import CommandFailed, Exit
from taskyard.cli.options import COMPLETE_VARIABLE, HELP, WIDTH, Command, Context
from taskyard.cli.output import harmless, print_err, print_error, unknown_word

if TYPE_CHECKING:
    from taskyard.cli.ports import Backend

RUN: Final = "Run and submit"
INSPECT: Final = "Inspect"
ACT: Final = "Act"
CATALOGUE: Final = "Catalogue"
FLEET: Final = "Fleet and access"
SERVER: Final = "Server"
SETUP: Final = "Set up"
#: The groups of commands, in the order of the help.
GROUPS: Final = (RUN, INSPECT, ACT, CATALOGUE, FLEET, SERVER, SETUP)

SUMMARY: Final = "Run graphs of tasks, on this machine or on a fleet."
EXAMPLES: Final = """\
Examples:

    taskyard run examples/release.yaml       run a graph on this machine
    taskyard up                              start a server and a bot
    taskyard submit --wait nightly.yaml      run a graph on a server
    taskyard graphs                          list graphs
    taskyard show 78a6ff3e8d8c0f28           show a graph or a task
    taskyard logs -f 78a6ff3e8d8c0f28/build  follow the output of a task
"""
EXIT_CODES: Final = """\
Exit codes: 0 ok, 1 error, 2 usage or bad document (nothing was started),
3 the graph or task failed, or the database has problems, 4 not permitted,
5 not found, 6 no bot can run it, 124 timed out, 130 interrupted.

Use "taskyard COMMAND --help" for more about a command.
"""


class Entry(NamedTuple):
    """A command: its group in the help, its module and function, and a summary."""

    group: str
    function: str  # module:name
    summary: str

    def load(self) -> Command:
        """Import the command."""
        module, _, name = self.function.partition(":")
        found: Command = getattr(import_module(f"taskyard.cli.commands.{module}"), name)
        return found


#: A name of two words is a subcommand.
COMMANDS: Final[dict[str, Entry]] = {
    "run": Entry(RUN, "run:run", "Run a graph on this machine"),
    "submit": Entry(RUN, "submit:submit", "Submit a graph to a server"),
    "extend": Entry(RUN, "submit:extend", "Add tasks to a running graph"),
    "launch": Entry(RUN, "launch:launch", "Launch a template of the catalogue"),
    "relaunch": Entry(RUN, "launch:relaunch", "Launch something again"),
    "update": Entry(RUN, "launch:update", "Update a project or an inventory"),
    "put": Entry(RUN, "files:put", "Store files for tasks"),
    "graphs": Entry(INSPECT, "show:graphs", "List graphs"),
    "graphs delete": Entry(ACT, "retention:delete_graphs", "Delete graphs that are over"),
    "launches": Entry(INSPECT, "launch:launches", "List launches"),
    "tasks": Entry(INSPECT, "show:tasks", "List or count tasks"),
    "show": Entry(INSPECT, "show:show", "Show a graph or a task"),
    "logs": Entry(INSPECT, "logs:logs", "Print the output of a task or a graph"),
    "get": Entry(INSPECT, "files:get", "Get the output files of a task"),
    "why": Entry(INSPECT, "why:why", "Explain why a task or a graph does not run"),
    "story": Entry(INSPECT, "show:story", "Show the history of a task"),
    "events": Entry(INSPECT, "events:events", "List or follow events"),
    "cancel": Entry(ACT, "cancel_rerun:cancel", "Cancel graphs or tasks"),
    "rerun": Entry(ACT, "cancel_rerun:rerun", "Run tasks or graphs again"),
    "approve": Entry(ACT, "approve:approve", "List, approve or deny pending approvals"),
    "apply": Entry(CATALOGUE, "catalogue:apply", "Store documents of the catalogue"),
    "catalogue": Entry(CATALOGUE, "catalogue:catalogue", "List the documents of the catalogue"),
    "catalogue history": Entry(CATALOGUE, "catalogue:history", "List the versions of a document"),
    "projects": Entry(CATALOGUE, "catalogue:projects", "List projects with their last updates"),
    "inventories": Entry(CATALOGUE, "catalogue:inventories", "List inventories with their last updates"),
    "templates": Entry(CATALOGUE, "catalogue:templates", "List templates with their last launches"),
    "export": Entry(CATALOGUE, "catalogue:export", "Print documents as they can be applied"),
    "delete": Entry(CATALOGUE, "catalogue:delete", "Delete a document of the catalogue"),
    "bots": Entry(FLEET, "bots:bots", "List bots"),
    "bots events": Entry(FLEET, "bots:bot_events", "List the events of a bot"),
    "bots set": Entry(FLEET, "bots:set_bot", "Quarantine, drain or terminate a bot"),
    "bots free": Entry(FLEET, "bots:free_bot", "Release the name of a bot that has ended"),
    "bots queues": Entry(FLEET, "bots:bot_queues", "List the queues that a bot looks at"),
    "bots delete": Entry(FLEET, "bots:delete_bot", "Delete bots that are dead"),
    "pools": Entry(FLEET, "bots:pools", "List pools"),
    "pools set": Entry(FLEET, "bots:set_pool", "Create or change a pool"),
    "schedules": Entry(CATALOGUE, "schedules:schedules", "List schedules"),
    "schedules next": Entry(CATALOGUE, "schedules:next_runs", "List the next runs of a schedule"),
    "schedule": Entry(FLEET, "limits:schedule", "Run an admission pass by hand"),
    "limits": Entry(FLEET, "limits:limits", "List named limits"),
    "limits set": Entry(FLEET, "limits:set_limit", "Create or change a named limit"),
    "mutexes": Entry(FLEET, "limits:mutexes", "List mutexes in use"),
    "mutexes set": Entry(FLEET, "limits:set_mutex", "Change the order at a mutex"),
    "targets": Entry(FLEET, "events:targets", "List the targets of events"),
    "targets remove": Entry(FLEET, "events:remove_target", "Remove a target of events"),
    "token": Entry(FLEET, "tokens:tokens", "List and manage tokens"),
    "token create": Entry(FLEET, "tokens:create", "Create a token"),
    "token list": Entry(FLEET, "tokens:tokens", "List tokens"),
    "token revoke": Entry(FLEET, "tokens:revoke", "Revoke tokens"),
    "token rotate": Entry(FLEET, "tokens:rotate", "Replace a token by a new one"),
    "token rekey": Entry(FLEET, "tokens:rotate_key", "Change the key of run tokens"),
    "retention": Entry(FLEET, "retention:retention", "List how long things are kept"),
    "retention set": Entry(FLEET, "retention:set_retention", "Set how long things are kept"),
    "secret": Entry(FLEET, "secrets:secrets", "List and manage secrets"),
    "secret set": Entry(FLEET, "secrets:set_secret", "Store a secret"),
    "secret list": Entry(FLEET, "secrets:secrets", "List secrets"),
    "secret delete": Entry(FLEET, "secrets:delete", "Delete secrets"),
    "secret rotate": Entry(FLEET, "secrets:rotate", "Encrypt all secrets with a new key"),
    "secret key": Entry(FLEET, "secrets:new_key", "Make a key for secrets"),
    "webhooks": Entry(FLEET, "webhooks:webhooks", "List webhooks"),
    "webhooks set": Entry(FLEET, "webhooks:set_webhook", "Create or change a webhook"),
    "webhooks delete": Entry(FLEET, "webhooks:delete", "Delete a webhook"),
    "webhooks test": Entry(FLEET, "webhooks:try_out", "Send a test to a webhook"),
    "webhooks dead": Entry(FLEET, "webhooks:dead", "List deliveries that were given up"),
    "webhooks resend": Entry(FLEET, "webhooks:resend", "Send deliveries again that were given up"),
    "audit": Entry(FLEET, "audit:audit", "List the requests of users"),
    "serve": Entry(SERVER, "serve:serve", "Start a server"),
    "bot": Entry(SERVER, "serve:bot", "Start a bot"),
    "celery-worker": Entry(SERVER, "serve:celery_worker", "Start a Celery worker of bots"),
    "up": Entry(SERVER, "up:up", "Start a server and bots on this machine"),
    "backup": Entry(SERVER, "backup:backup", "Write a backup of a database"),
    "restore": Entry(SERVER, "backup:restore", "Make a database of a backup"),
    "move-store": Entry(SERVER, "backup:move_store", "Move a database to another one"),
    "doctor": Entry(SERVER, "doctor:doctor", "Check a database or this installation"),
    "login": Entry(SETUP, "config:login", "Save a server and its token as a profile"),
    "config": Entry(SETUP, "config:config", "Show the settings in effect"),
    "profile": Entry(SETUP, "config:list_profiles", "List and manage profiles"),
    "profile list": Entry(SETUP, "config:list_profiles", "List profiles"),
    "profile use": Entry(SETUP, "config:use", "Choose the default profile"),
    "profile remove": Entry(SETUP, "config:remove", "Remove a profile"),
    "completion": Entry(SETUP, "completion:completion", "Print a completion script for a shell"),
}


def call(work: "Backend", words: Sequence[str]) -> int:
    """Run a command line and return the exit code."""
    if instruction := os.environ.get(COMPLETE_VARIABLE):
        return _complete(instruction)
    try:
        with PROGRAM.make_context("taskyard", _with_help(words), obj=work) as ctx:
            return int(PROGRAM.invoke(ctx) or Exit.OK)
    except click.exceptions.Exit as done:  # --help
        return done.exit_code
    except click.UsageError as error:
        return _refuse(error)
    except CommandFailed as ended:
        return ended.code


def names_below(name: str) -> list[str]:
    """List the subcommands of a command: `set` of `bots`."""
    return [one.partition(" ")[2] for one in COMMANDS if one.startswith(f"{name} ")]


def first_words() -> list[str]:
    """List the commands that are no subcommands."""
    return [one for one in COMMANDS if " " not in one]


class Program(click.Group):
    """The group of all commands; it loads a command when it is called."""

    context_class = Context

    def get_help_option(self, ctx: click.Context) -> click.Option:  # noqa: ARG002
        return HELP

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return first_words()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        return COMMANDS[cmd_name].load() if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the longest name of a command: `bots set` before `bots`."""
        if (two := " ".join(args[:2])) in COMMANDS and len(args) > 1:
            return two, self.get_command(ctx, two), args[2:]
        name, rest = args[0], args[1:]
        found = self.get_command(ctx, name)
        if ctx.resilient_parsing:  # nothing completes after an unknown command
            return name, found or click.Command(name), rest
        if found is None:
            raise click.UsageError(unknown_word("command", name, first_words()), ctx)
        takes_none = all(isinstance(param, click.Option) for param in found.params)
        if names_below(name) and takes_none and rest and not rest[0].startswith("-"):
            raise click.UsageError(
                unknown_word("command", two, [one for one in COMMANDS if one.startswith(f"{name} ")])
            )
        return name, found, rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands by group, then the options."""
        for group in GROUPS:
            with formatter.section(group):
                formatter.write_dl(
                    [(name, COMMANDS[name].summary) for name in first_words() if COMMANDS[name].group == group]
                )
        with formatter.section("Options"):
            formatter.write_dl([("-h, --help", "Show this help"), ("--version", "Show the version")])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        formatter.write(f"\n{EXAMPLES}\n{EXIT_CODES}")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> Any:  # noqa: ARG002
        """Offer commands and options."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415

        names = [*first_words(), *(("--help", "--version") if incomplete.startswith("-") else ())]
        return [
            CompletionItem(name, help=COMMANDS[name].summary if name in COMMANDS else None)
            for name in names
            if name.startswith(incomplete)
        ]

    def summaries_below(self, name: str) -> list[tuple[str, str]]:
        """List the subcommands of a command, with what each does."""
        return [(one, COMMANDS[f"{name} {one}"].summary) for one in names_below(name)]

    def complete_below(self, name: str, incomplete: str) -> Any:
        """Offer the subcommands of a command."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415

        below = [one for one in names_below(name) if one.startswith(incomplete)]
        return [CompletionItem(one, help=COMMANDS[f"{name} {one}"].summary) for one in below]


PROGRAM: Final = Program(
    "taskyard",
    help=SUMMARY,
    context_settings={"terminal_width": WIDTH},
    subcommand_metavar="COMMAND",
    options_metavar=None,
)


def _with_help(words: Sequence[str]) -> list[str]:
    """Turn `taskyard` and `taskyard help COMMAND` into calls with --help."""
    if not words:
        return ["--help"]
    return [*words[1:], "--help"] if words[0] == "help" else list(words)


def _complete(instruction: str) -> int:
    from taskyard.cli.commands import completion  # noqa: PLC0415

    return completion.answer(PROGRAM, instruction)


def _refuse(error: click.UsageError) -> Exit:
    print_error(_message_of(error))
    path = "taskyard" if error.ctx is None else error.ctx.command_path
    print_err(f'see "{harmless(path)} --help"')
    return Exit.USAGE


def _message_of(error: click.UsageError) -> str:
    """Return the message for a wrong command line, with the nearest known option."""
    if isinstance(error, click.NoSuchOption):
        params = error.ctx.command.get_params(error.ctx) if error.ctx else []
        known = [name for param in params for name in (*param.opts, *param.secondary_opts) if name.startswith("-")]
        return unknown_word("option", error.option_name, known)
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return f"missing {error.param.param_type_name} {_spelled(error.param, error.ctx)}"
    if isinstance(error, click.BadParameter) and error.param is not None:
        return f"{_spelled(error.param, error.ctx)}: {error.message.removesuffix('.')}"
    return (
        error.message[:1].lower() + error.message[1:].removesuffix(".")
        if isinstance(error, click.BadOptionUsage)
        else error.message
    )


def _spelled(param: click.Parameter, ctx: click.Context | None) -> str:
    if isinstance(param, click.Option):
        return "/".join(sorted(param.opts, key=len, reverse=True))
    return param.make_metavar(ctx).strip("[].") if ctx else str(param.name)
