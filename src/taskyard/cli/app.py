"""The program: finds the command that is meant, has its words read, calls it, and gives the exit code."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from taskyard.cli import nearest, parsing, reports, table
from taskyard.cli.exits import Ended, Exit
from taskyard.cli.grammar import INJECTED, Syntax

if TYPE_CHECKING:
    from taskyard.cli.work import Work

#: How completion scripts ask for ids; it has no row in the table, as it is not for people.
HIDDEN: Final = "__complete"

_HELP: Final = ("--help", "-h")


def call(work: "Work", words: Sequence[str]) -> int:
    """Carry out one command line and give the exit code."""
    if not words or words[0] in _HELP or words[0] == "help":
        return _help(words[1:] if words[:1] == ["help"] else ())
    if words[0] == HIDDEN:
        return _offer(words[1:])
    name, rest = _found(words)
    if name not in table.COMMANDS:
        return _refused(nearest.unknown("command", name, table.first_words()), "taskyard")
    if any(word in _HELP for word in _before_dashes(rest)):
        return _help(name.split())
    try:
        return _carry_out(table.COMMANDS[name], rest, work)
    except parsing.Unusable as unusable:
        return _refused(_with_commands_below(name, rest, str(unusable)), f"taskyard {name}")
    except Ended as ended:
        return ended.code


def _found(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Take the longest name of a command from a line: `bots set` before `bots`."""
    two = " ".join(words[:2])
    return (two, words[2:]) if two in table.COMMANDS and len(words) > 1 else (words[0], words[1:])


def _before_dashes(words: Sequence[str]) -> Sequence[str]:
    """Give the words that can be options: what follows `--` cannot."""
    return words[: words.index("--")] if "--" in words else words


def _carry_out(command: table.Command, words: Sequence[str], work: "Work") -> int:
    function = command.load()
    syntax = command.syntax()
    values = parsing.parse(f"taskyard {command.name}", syntax, words)
    arguments, options = _sorted(syntax, values)
    given = {INJECTED: work} if syntax.injected else {}
    return int(function(*arguments, **options, **given) or Exit.OK)


def _sorted(syntax: Syntax, values: parsing.Values) -> tuple[list[object], dict[str, object]]:
    """Put values where a function takes them: arguments in their order, options by name, groups made of theirs."""
    arguments: list[object] = []
    options: dict[str, object] = {}
    for slot in syntax.arguments:
        value = values[slot.key]
        if slot.key[0] == syntax.spread:
            arguments += value or []
        else:
            arguments.append(value)
    for slot in syntax.options:
        if not slot.key[1]:
            options[slot.key[0]] = values[slot.key]
    for name, shape in syntax.groups.items():
        options[name] = shape(**{field: value for (group, field), value in values.items() if group == name and field})
    return arguments, options


def _with_commands_below(name: str, rest: Sequence[str], message: str) -> str:
    """Say which command was probably meant, where a word stands in the place of one."""
    below = table.below(name)
    if below and rest and not rest[0].startswith("-") and not table.COMMANDS[name].syntax().arguments:
        return nearest.unknown(f'command below "{name}"', rest[0], below)
    return message


def _offer(words: Sequence[str]) -> int:
    """Offer what a value can be to whoever pressed Tab; a word of another version is no fault at a prompt."""
    from taskyard.cli import completing  # noqa: PLC0415

    kind, begun = (*words, "", "")[:2]
    return completing.offer(kind, begun) if kind in completing.KINDS else Exit.OK


def _refused(message: str, program: str) -> Exit:
    reports.say_error(message)
    reports.talk(f'"{program} --help" has examples.')
    return Exit.USAGE


def _help(words: Sequence[str]) -> int:
    from taskyard.cli import helping  # noqa: PLC0415 - it loads every command to name them

    name = " ".join(words[:2])
    if name and name not in table.COMMANDS:
        return _refused(nearest.unknown("command", name, table.COMMANDS), "taskyard")
    lines = helping.of_command(name) if name else helping.of_program()
    return Exit.OK if reports.delivered(lambda: sys.stdout.write("\n".join(lines) + "\n")) else Exit.ERROR
