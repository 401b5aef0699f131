"""The building blocks of commands: a command class with examples in its help, parameter types, groups of options."""

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from taskyard.cli.exit_codes import Exit
from taskyard.cli.output import FORMS, Listing, bold, unknown_word, write_stdout

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Made = TypeVar("Made")

#: Help fits every terminal.
WIDTH: Final = 80
#: The longest duration a command takes: some years.
DURATION_MAX_MS: Final = 300_000_000_000
OPTIONS: Final = "Options"
#: Set by completion scripts: the shell and the instruction.
COMPLETE_VARIABLE: Final = "_TASKYARD_COMPLETE"


class Formatter(click.HelpFormatter):
    """Writes headings in bold on a terminal."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, bold(prefix or "Usage:") + " ")

    def write_heading(self, heading: str) -> None:
        self.write(f"{'':>{self.current_indent}}{bold(f'{heading}:')}\n")


class Context(click.Context):
    """A click context whose help has our format."""

    formatter_class = Formatter


def _show_help(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001
    if value and not ctx.resilient_parsing:
        ctx.exit(Exit.OK if write_stdout(lambda: sys.stdout.write(f"{ctx.get_help()}\n")) else Exit.ERROR)


HELP: Final = click.Option(
    ["--help", "-h"], is_flag=True, is_eager=True, expose_value=False, callback=_show_help, help="Show this help."
)


class Command(click.Command):
    """A command whose help ends with examples."""

    context_class = Context

    def __init__(self, *args: Any, examples: str = "", **settings: Any) -> None:
        settings["context_settings"] = {
            "allow_extra_args": True,  # parse_args refuses them with its own message
            "show_default": True,
            "terminal_width": WIDTH,
        }
        super().__init__(*args, **settings)
        self.examples = examples

    def get_help_option(self, ctx: click.Context) -> click.Option:  # noqa: ARG002
        return HELP

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; refuse unexpected ones."""
        try:
            rest = super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise
        if rest and not ctx.resilient_parsing:
            raise click.UsageError(f'unexpected argument "{rest[0]}"', ctx)
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands, then the options, with those of the server in a separate section."""
        summaries = getattr(ctx.parent and ctx.parent.command, "summaries_below", None)
        if summaries and (below := summaries(ctx.info_name)):
            with formatter.section("Subcommands"):
                formatter.write_dl(below)
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(param, "section", OPTIONS), []).append(record)
        for title in sorted(sections, key=lambda title: title != OPTIONS):
            with formatter.section(title):
                formatter.write_dl(sections[title])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Show the examples as they are written."""
        formatter.write(f"\n{self.examples}")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> Any:
        """Offer the subcommands, then the options."""
        found = super().shell_complete(ctx, incomplete)
        below = getattr(ctx.parent and ctx.parent.command, "complete_below", None)
        return [*(below(ctx.info_name, incomplete) if below and not ctx.args else ()), *found]


class ServerOption(click.Option):
    """An option that names the server."""

    section = "Server"


class Words(click.Choice[str]):
    """One of some words; an error names the nearest word."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:  # noqa: ARG002
        return unknown_word("value", str(value), self.choices)


class Number(click.ParamType[int]):
    """A whole number with bounds."""

    name = "number"

    def __init__(self, least: int, most: int | None = None) -> None:
        self._least = least
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number", param, ctx)
        if number < self._least or (self._most is not None and number > self._most):
            bounds = f"at least {self._least}" if self._most is None else f"from {self._least} to {self._most}"
            self.fail(f"must be {bounds}", param, ctx)
        return number


class Duration(click.ParamType[int]):
    """A duration in milliseconds, written as in documents: `90s`, `1h30m`. A bare number is seconds."""

    name = "duration"

    def __init__(self, least_ms: int = 0, most_ms: int = DURATION_MAX_MS) -> None:
        self._least_ms = least_ms
        self._most_ms = most_ms

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):  # a default
            return value
        from taskyard.wire.durations import span_ms, span_text  # noqa: PLC0415

        written = str(value).strip()
        ms = span_ms(f"{written}s" if written.isascii() and written.isdecimal() else written)
        if ms is None:
            self.fail(f"{value!r} is not a duration such as 90s, 5m, 1h30m or 2d", param, ctx)
        if not self._least_ms <= ms <= self._most_ms:
            self.fail(f"must be from {span_text(self._least_ms)} to {span_text(self._most_ms)}", param, ctx)
        return ms


class PlainText(click.ParamType[str]):
    """Text with an optional check."""

    name = "text"

    def __init__(self, check: Callable[[str], object] | None = None) -> None:
        self._check = check

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if self._check is not None:
            try:
                self._check(value)
            except ValueError as error:
                self.fail(str(error), param, ctx)
        return str(value)


DURATION: Final = Duration()
PATH: Final = click.Path(path_type=Path)


def command(name: str, examples: str) -> Callable[[Callable[..., Any]], Command]:
    """Make a command from a function."""
    return click.command(name, cls=Command, examples=examples)


def choice(*names: str, words: Sequence[str], help: str, **settings: Any) -> Decorator:
    """Make an option whose value is one of some words."""
    metavar = names[0].lstrip("-").upper()
    return click.option(
        *names, type=Words(words), metavar=metavar, help=f"{help} One of: {', '.join(words)}.", **settings
    )


def flag(*names: str, help: str) -> Decorator:
    """Make an option without a value."""
    return click.option(*names, is_flag=True, help=help)


def duration(*names: str, help: str, bounds: Duration = DURATION, default: tuple[str, int] | None = None) -> Decorator:
    """Make an option for a duration in milliseconds; the default is given as text and in milliseconds."""
    if default is None:
        return click.option(*names, type=bounds, metavar="DURATION", help=help)
    written, ms = default
    return click.option(
        *names, type=bounds, metavar="DURATION", default=ms, show_default=False, help=f"{help} [default: {written}]"
    )


def bundle(name: str, shape: type[Made], *options: Decorator) -> Decorator:
    """Make options whose values the command gets as one NamedTuple."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **values: Any) -> Any:
            fields = {field: values.pop(field) for field in shape._fields}  # type: ignore[attr-defined]
            return function(*args, **values, **{name: shape(**fields)})

        for option in reversed(options):
            option(call)
        return call

    return decorate


def output_option(default: str) -> Decorator:
    """Make the option for the output format."""
    return choice("--output", "-o", words=FORMS, default=default, help="Output format.")


listing_options = bundle(
    "listing",
    Listing,
    output_option("table"),
    click.option("--columns", metavar="COLUMNS", help="Columns of the table, such as id,state."),
)


def completes(kind: str) -> Callable[[click.Context, click.Parameter, str], Any]:
    """Complete values of some kind: graph, task, bot, pool, profile."""

    def offer(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:  # noqa: ARG001
        from taskyard.cli.commands import completion  # noqa: PLC0415

        return completion.offer(kind, incomplete)

    return offer


def complete_file(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
    """Complete file names."""
    return click.Path().shell_complete(ctx, param, incomplete)
