"""A command line into the values that a command's function takes; what cannot be understood is told with what helps.

The standard library's argparse takes the options out of a line. Arguments, what values mean, and messages are here.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from taskyard.cli import nearest, text
from taskyard.cli.grammar import Slot, Syntax

#: What stands in for a value that was not given.
_UNSAID: Final = object()

Values = dict[tuple[str, str], Any]


class Unusable(Exception):
    """A command line that cannot be understood; the text says why, and what helps."""


def parse(program: str, syntax: Syntax, words: Sequence[str]) -> Values:
    """Read the words behind a command's name; raise `Unusable`."""
    before, arguments = _cut(list(words))
    try:
        said, left = _parser(program, syntax).parse_known_args(before)
    except argparse.ArgumentError as error:
        raise Unusable(f"{error.argument_name}: {error.message}" if error.argument_name else error.message) from error
    for word in left:
        if word.startswith("-") and word != "-":
            known = [name for slot in syntax.options for name in (*slot.names, slot.off) if name]
            raise Unusable(nearest.unknown("option", word.partition("=")[0], [*known, "--help"]))
    placed = _placed(syntax, [*left, *arguments])
    return {
        slot.key: _value(slot, getattr(said, _dest(slot)) if slot.names else placed[slot.key]) for slot in syntax.slots
    }


def _cut(words: list[str]) -> tuple[list[str], list[str]]:
    """Cut a line at `--`: what is behind it are arguments, whatever they look like."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def _placed(syntax: Syntax, words: list[str]) -> Values:
    """Give each argument its words, in their order."""
    placed: Values = {}
    for slot in syntax.arguments:
        placed[slot.key] = words if slot.many else words[0] if words else _UNSAID
        words = [] if slot.many else words[1:]
    if words:
        raise Unusable(f'there is no place for "{text.harmless(words[0])}"')
    return placed


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Unusable(message)


def _parser(program: str, syntax: Syntax) -> _Parser:
    parser = _Parser(prog=program, formatter_class=_plain, add_help=False, allow_abbrev=False, exit_on_error=False)
    for slot in syntax.options:
        _add(parser, slot)
    return parser


def _plain(prog: str) -> argparse.HelpFormatter:
    """Make what every option is tried with; without a width it would measure the terminal, and load much for that."""
    return argparse.HelpFormatter(prog, width=80)


def _add(parser: argparse.ArgumentParser, slot: Slot) -> None:
    dest = _dest(slot)
    if slot.is_flag:
        parser.add_argument(*slot.names, dest=dest, action="store_true", default=_UNSAID)
        if slot.off:
            parser.add_argument(slot.off, dest=dest, action="store_false", default=_UNSAID)
    else:
        action = "append" if slot.many else "store"
        parser.add_argument(*slot.names, dest=dest, action=action, default=_UNSAID if not slot.many else None)


def _dest(slot: Slot) -> str:
    return ".".join(slot.key)


def _value(slot: Slot, said: Any) -> Any:
    """Turn what was said into a value; what was not said is the default, if there may be one."""
    if said is _UNSAID or said is None or said == []:
        if slot.required:
            raise Unusable(f"{slot.spelled} is missing")
        return slot.default
    value = [_converted(slot, one) for one in said] if slot.many else _converted(slot, said)
    if slot.about.validator is not None:
        try:
            slot.about.validator(None, value)
        except ValueError as error:
            raise Unusable(f"{slot.spelled}: {error}") from error
    return value


def _converted(slot: Slot, said: Any) -> Any:
    if slot.choices and said not in slot.choices:
        raise Unusable(f"{slot.spelled}: {nearest.unknown('value', said, slot.choices)}")
    if slot.kind is int:
        try:
            return int(said)
        except ValueError as error:
            raise Unusable(f'{slot.spelled}: "{text.harmless(said)}" is no number') from error
    return Path(said) if slot.kind is Path else said
