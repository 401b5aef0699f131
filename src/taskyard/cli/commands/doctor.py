"""The command `taskyard doctor`: what is wrong with a database on stdout, what became of it on stderr."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from taskyard.cli import client, doctor_checks
from taskyard.cli.client import Server
from taskyard.cli.exit_codes import Exit
from taskyard.cli.options import PATH, PlainText, command, complete_file, flag, output_option
from taskyard.cli.output import can_draw, harmless, plural, print_err, print_error, print_line, write_stdout
from taskyard.cli.ports import Backend
from taskyard.wire.api import Checkup, Finding, Unchecked

EXAMPLES: Final = """\
Examples:

    taskyard doctor                         this installation
    taskyard doctor yard.db                 a file, also one in use
    taskyard doctor postgresql://host/yard  a database of PostgreSQL
    taskyard doctor --repair yard.db        mend what can be mended
    taskyard doctor -o json yard.db         the findings, for a program
"""

#: How the address of a database begins; anything else is the path of a file.
_SCHEMES: Final = ("sqlite:///", "postgresql://", "postgres://")


def _refuse_address(database: str) -> None:
    if "://" in database and not database.startswith(_SCHEMES):
        raise ValueError("a database is a file, sqlite:///FILE, or a postgresql:// address")


@command("doctor", EXAMPLES)
@click.argument(
    "database",
    required=False,
    type=PlainText(_refuse_address),
    metavar="[DATABASE]",
    help="SQLite file, sqlite:///FILE, or postgresql://...; without it, this installation is checked.",
    shell_complete=complete_file,
)
@flag("--repair", help="Repair what can be repaired, and check again.")
@output_option("table")
@click.option(
    "--data", type=PATH, metavar="DIR", help="Data folder of a server, if no database is given [default: that of `up`]."
)
@client.server_options
@click.pass_obj
def doctor(work: Backend, database: str | None, repair: bool, output: str, data: Path | None, server: Server) -> int:
    """Recount every number that a database keeps, and say what does not follow from the rest.

    Looking changes nothing, and servers go on working meanwhile. A file
    can be repaired while nobody uses it, PostgreSQL at any time.

    Without a database, this installation is examined: Python, packages, the
    disk, files, the server and what a bot needs.
    """
    if database is None and repair:
        print_error("--repair needs a DATABASE: an installation is only examined")
        return Exit.USAGE
    if database is None:
        return doctor_checks.examine(data, server, output)
    try:
        with _waiting("recounting"):
            checkup = work.check_up(database, repair)
    except Unchecked as refusal:
        print_error(f"cannot look after {_name(database)}: {refusal}")
        return Exit.ERROR
    return _told(checkup, repair, output)


def _name(database: str) -> str:
    """Name a database in a message; an address may hold a password."""
    return database.partition("://")[0] if database.startswith(_SCHEMES[1:]) else database


@contextmanager
def _waiting(sentence: str) -> Iterator[None]:
    """Show on a terminal that something is being done."""
    if not can_draw(sys.stderr):
        yield
        return
    from rich.console import Console  # noqa: PLC0415 - drawing costs time to load

    with Console(file=sys.stderr).status(sentence):
        yield


def _told(checkup: Checkup, repair: bool, output: str) -> Exit:
    has_arrived = write_stdout(lambda: _WRITERS[output](checkup.found))
    print_err(_summary(checkup, repair))
    ended = Exit.FAILED if checkup.left else Exit.OK
    return ended if has_arrived else ended or Exit.ERROR


def _give_text(findings: tuple[Finding, ...]) -> None:
    for finding in findings:
        print_line(harmless(finding.sentence))


def _give_json(findings: tuple[Finding, ...]) -> None:
    """Print the findings as one list, in ASCII: no name in it can act on a terminal."""
    print_line(json.dumps([_shape(finding) for finding in findings], indent=2))


def _give_lines(findings: tuple[Finding, ...]) -> None:
    for finding in findings:
        print_line(json.dumps(_shape(finding)))


def _give_names(findings: tuple[Finding, ...]) -> None:
    for subject in dict.fromkeys(finding.subject for finding in findings):
        print_line(harmless(subject))


_WRITERS: Final[Mapping[str, Callable[[tuple[Finding, ...]], None]]] = {
    "table": _give_text,
    "json": _give_json,
    "jsonl": _give_lines,
    "name": _give_names,
}


def _shape(finding: Finding) -> dict[str, object]:
    return {name: value for name, value in asdict(finding).items() if name != "sentence"}


def _summary(checkup: Checkup, repair: bool) -> str:
    """Say in a line what was found and what became of it."""
    if not checkup.found:
        return "nothing to mend"
    if repair:
        left = f"; {checkup.left} left" if checkup.left else ""
        return f"mended {plural(checkup.mended, 'finding')}{left}"
    mendable = sum(finding.mendable for finding in checkup.found)
    return f"{plural(len(checkup.found), 'finding')}; --repair can mend {mendable}"
