"""The command `completion`, and the answers to its scripts: commands, options, and names from the server.

An answer comes within a second or not at all. Errors are not shown: they would end up in the prompt.
"""

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from taskyard.cli import profiles
from taskyard.cli.client import BETWEEN
from taskyard.cli.exit_codes import Exit
from taskyard.cli.options import COMPLETE_VARIABLE, Words, command
from taskyard.cli.output import harmless, write_stdout

if TYPE_CHECKING:
    from taskyard.sdk.client import Client

EXAMPLES: Final = """\
Examples:

    eval "$(taskyard completion bash)"
    taskyard completion zsh > ~/.zfunc/_taskyard
    taskyard completion fish > ~/.config/fish/completions/taskyard.fish
"""
#: A list to choose from; the newest come first.
OFFERED_MAX: Final = 50
#: People who press Tab do not wait longer.
SECONDS_MAX: Final = 1.0

Offer = tuple[str, str]


class Bash(BashComplete):
    """Completion for bash: escapes spaces, and adds no space after `GRAPH/`."""

    source_template = BashComplete.source_template.replace(
        "    return 0\n", "    [[ ${COMPREPLY[0]-} == */ ]] && compopt -o nospace\n    return 0\n"
    )

    def source(self) -> str:
        return ShellComplete.source(self)  # click would check the version of bash

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        return [one for one in args if one != "="], incomplete  # bash splits --state=run into three words

    def format_completion(self, item: CompletionItem) -> str:
        value = re.sub(r"([^\w@%+=:,./-])", r"\\\\\1", str(item.value)) if item.type == "plain" else item.value
        return f"{item.type},{value}"


SHELLS: Final[dict[str, type[ShellComplete]]] = {"bash": Bash, "zsh": ZshComplete, "fish": FishComplete}


@command("completion", EXAMPLES)
@click.argument("shell", type=Words(tuple(SHELLS)), metavar="SHELL", help=f"One of: {', '.join(SHELLS)}.")
@click.pass_context
def completion(ctx: click.Context, shell: str) -> int:
    """Print a script that completes commands, options and ids on Tab."""
    script = _of_shell(shell, ctx.find_root().command).source()
    return Exit.OK if write_stdout(lambda: sys.stdout.write(script)) else Exit.ERROR


def answer(program: click.Command, instruction: str) -> int:
    """Answer a completion script; the instruction is such as `bash_complete`."""
    signal.signal(signal.SIGALRM, lambda *_: os._exit(Exit.OK))
    signal.setitimer(signal.ITIMER_REAL, SECONDS_MAX)
    # Errors are dropped: they would end up in the middle of the prompt.
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    shell = instruction.partition("_")[0]
    if shell in SHELLS:
        write_stdout(lambda: sys.stdout.write(f"{_of_shell(shell, program).complete()}\n"))
    return Exit.OK


def _of_shell(shell: str, program: click.Command) -> ShellComplete:
    return SHELLS[shell](program, {}, "taskyard", COMPLETE_VARIABLE)


def offer(kind: str, prefix: str) -> list[CompletionItem]:
    """List the values of some kind that begin with a prefix, each with a description."""
    found = [one for one in islice(_OFFERS[kind](prefix), OFFERED_MAX) if one[0].startswith(prefix)]
    return [CompletionItem(harmless(value), help=harmless(what)) for value, what in found]


def _from_server(ask: "Callable[[Client, str], Iterator[Offer]]") -> Callable[[str], Iterator[Offer]]:
    """Offer values from the default server."""

    def found(prefix: str) -> Iterator[Offer]:
        from taskyard.sdk.client import Client  # noqa: PLC0415 - it costs time to load
        from taskyard.sdk.errors import ClientError  # noqa: PLC0415

        try:
            target = profiles.find(None, None)
            with Client(target.url, target.token, timeout_s=SECONDS_MAX, ca_file=target.ca_file) as client:
                yield from ask(client, prefix)
        except (ClientError, click.UsageError):
            return

    return found


def _graphs(client: "Client", _: str) -> Iterator[Offer]:
    return ((one.id, f"{one.name} {one.state}") for one in client.graphs(limit=OFFERED_MAX))


def _tasks(client: "Client", prefix: str) -> Iterator[Offer]:
    """Offer graphs, or the labels of a graph that is already typed."""
    graph, has_graph, _ = prefix.partition(BETWEEN)
    if not has_graph:
        return ((f"{id}{BETWEEN}", what) for id, what in _graphs(client, prefix))
    return (
        (f"{graph}{BETWEEN}{one.label}", one.state)
        for one in client.tasks(graph)
        if f"{graph}{BETWEEN}{one.label}".startswith(prefix)
    )


def _any(client: "Client", prefix: str) -> Iterator[Offer]:
    return _tasks(client, prefix) if BETWEEN in prefix else _graphs(client, prefix)


def _bots(client: "Client", _: str) -> Iterator[Offer]:
    return ((one.id, f"in {one.pool}") for one in client.bots(limit=OFFERED_MAX))


def _pools(client: "Client", _: str) -> Iterator[Offer]:
    return ((one.name, f"{one.bots} bot{'s' * (one.bots != 1)}") for one in client.pools())


def _profiles(_: str) -> Iterator[Offer]:
    return ((one.name, one.url) for one in profiles.read().profiles.values())


_OFFERS: Final[dict[str, Callable[[str], Iterator[Offer]]]] = {
    "graph": _from_server(_graphs),
    "task": _from_server(_tasks),
    "any": _from_server(_any),
    "bot": _from_server(_bots),
    "pool": _from_server(_pools),
    "profile": _profiles,
}
