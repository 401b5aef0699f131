"""Help as text: of the whole program, its commands by purpose; of one command, what it takes, with examples.

Everything comes from the table of commands and from signatures. It is laid out for eighty columns.
"""

import textwrap
from collections.abc import Iterable, Iterator
from typing import Final

from taskyard.cli import paint, table
from taskyard.cli.grammar import Slot, Syntax

#: What fits every terminal.
WIDTH: Final = 80
#: A name longer than this has its meaning on the next line.
NAMES_WIDTH_MAX: Final = 26

HEADLINE: Final = "Run graphs of tasks: every task as soon as its prerequisites are met, as many at once as you allow."
EXAMPLES: Final = """\
Examples:

    taskyard run examples/release.yaml    run a graph here and watch it
    taskyard up                           start a server and a bot
    taskyard submit --wait nightly.yaml   run a graph on a server
    taskyard graphs                       what the server has
    taskyard show 78a6ff3e8d8c0f28        a graph or a task
    taskyard logs -f 78a6ff3e8d8c0f28/build   what a task prints
"""
EXITS: Final = """\
Exit codes: 0 ok, 1 error, 2 usage or bad document (nothing was started),
3 the graph or task failed or the database is not well, 4 not permitted,
5 not found, 6 no bot can run it, 124 not settled in time, 130 interrupted.

"taskyard COMMAND --help" has all about a command."""


def of_program() -> Iterator[str]:
    """Tell what commands there are, by purpose."""
    yield f"{_title('Usage:')} taskyard COMMAND"
    yield ""
    yield from textwrap.wrap(HEADLINE, WIDTH)
    for purpose in table.PURPOSES:
        yield ""
        yield _title(f"{purpose}:")
        named = [(name, table.COMMANDS[name].syntax().summary) for name in _of_purpose(purpose)]
        yield from _columns(named, 12)
    yield ""
    yield _title("Options:")
    yield from _columns([("-h, --help", "Show this."), ("--version", "Show the version.")], 12)
    yield ""
    yield from EXAMPLES.splitlines()
    yield ""
    yield from EXITS.splitlines()


def of_command(name: str) -> Iterator[str]:
    """Tell all about a command."""
    syntax = table.COMMANDS[name].syntax()
    yield f"{_title('Usage:')} {usage(name, syntax)}"
    yield ""
    yield from textwrap.wrap(syntax.summary, WIDTH)
    if syntax.description:
        yield ""
        yield from syntax.description.splitlines()
    if below := table.below(name):
        yield from _part("Commands", [(one, table.COMMANDS[f"{name} {one}"].syntax().summary) for one in below])
    yield from _part("Arguments", [(slot.stands, meaning(slot)) for slot in syntax.arguments])
    for group in dict.fromkeys(slot.about.group for slot in syntax.options):
        options = [slot for slot in syntax.options if slot.about.group == group]
        yield from _part(group, [(spelled(slot), meaning(slot)) for slot in options])
    yield ""
    yield from table.COMMANDS[name].shown().rstrip().splitlines()


def usage(name: str, syntax: Syntax) -> str:
    """Say in a line how a command is called."""
    options = ["[OPTIONS]"] if syntax.options else []
    required = [f"{slot.names[0]} {slot.stands}" for slot in syntax.options if slot.required]
    arguments = [_place(slot) for slot in syntax.arguments]
    return " ".join(["taskyard", name, *options, *required, *arguments])


def spelled(slot: Slot) -> str:
    """Write an option as it is typed: `-o, --output FORM`."""
    names = sorted(slot.names, key=len)
    off = [slot.off] if slot.off else []
    value = "" if slot.is_flag else f" {slot.stands}"
    return ", ".join([*names, *off]) + value


def meaning(slot: Slot) -> str:
    """Say what something is for, which words it takes, and what it is unless told."""
    parts = [slot.about.help]
    if slot.choices:
        parts.append(f"One of: {', '.join(slot.choices)}.")
    if slot.names and not slot.is_flag and slot.default not in (None, ""):
        parts.append(f"[default: {slot.default}]")
    return " ".join(part for part in parts if part)


def _place(slot: Slot) -> str:
    more = f"{slot.stands}..." if slot.many else slot.stands
    return more if slot.required else f"[{more}]"


def _of_purpose(purpose: str) -> list[str]:
    return [one for one in table.first_words() if table.COMMANDS[one].purpose == purpose]


def _part(title: str, rows: list[tuple[str, str]]) -> Iterator[str]:
    if rows:
        yield ""
        yield _title(f"{title}:")
        yield from _columns(rows, min(NAMES_WIDTH_MAX, max(len(name) for name, _ in rows)))


def _columns(rows: Iterable[tuple[str, str]], width: int) -> Iterator[str]:
    """Put names on the left, what they mean on the right."""
    for name, means in rows:
        lines = textwrap.wrap(means, WIDTH - width - 4)
        if len(name) <= width:
            yield f"  {name:<{width}}  {''.join(lines[:1])}".rstrip()
            lines = lines[1:]
        else:
            yield f"  {name}"
        yield from (f"  {'':<{width}}  {line}" for line in lines)


def _title(title: str) -> str:
    return paint.bold(title)
