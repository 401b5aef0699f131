"""The command `doctor`: check a database or an installation, with findings on stdout and a summary on stderr."""

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

    taskyard doctor                         check this installation
    taskyard doctor yard.db                 check a database file, even in use
    taskyard doctor postgresql://host/yard  check a PostgreSQL database
    taskyard doctor --repair yard.db        repair what can be repaired
    taskyard doctor -o json yard.db         print the findings as JSON
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
    """Check a database for inconsistencies, or check this installation.

    A check changes nothing, and servers can keep running. --repair needs a
    database file that no server uses; PostgreSQL can be repaired at any time.

    Without a database, this installation is checked: Python, packages, the
    disk, files, the server and what a bot needs.
    """
    if database is None and repair:
        print_error("--repair needs a DATABASE: an installation can only be checked")
        return Exit.USAGE
    if database is None:
        return doctor_checks.check_installation(data, server, output)
    try:
        with _waiting("checking"):
            checkup = work.check_up(database, repair)
    except Unchecked as refusal:
        print_error(f"cannot check {_name(database)}: {refusal}")
        return Exit.ERROR
    return _print(checkup, repair, output)


def _name(database: str) -> str:
    """Name a database in a message, without the password that an address may have."""
    return database.partition("://")[0] if database.startswith(_SCHEMES[1:]) else database


@contextmanager
def _waiting(sentence: str) -> Iterator[None]:
    """Show a spinner on a terminal."""
    if not can_draw(sys.stderr):
        yield
        return
    from rich.console import Console  # noqa: PLC0415 - drawing costs time to load

    with Console(file=sys.stderr).status(sentence):
        yield


def _print(checkup: Checkup, repair: bool, output: str) -> Exit:
    has_arrived = write_stdout(lambda: _WRITERS[output](checkup.found))
    for note in checkup.notes:
        print_err(harmless(note))
    print_err(_summary(checkup, repair))
    ended = Exit.FAILED if checkup.left else Exit.OK
    return ended if has_arrived else ended or Exit.ERROR


def _give_text(findings: tuple[Finding, ...]) -> None:
    for finding in findings:
        print_line(harmless(finding.sentence))


def _give_json(findings: tuple[Finding, ...]) -> None:
    """Print the findings as one list, in ASCII, which no terminal obeys."""
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
    """Say in one line what was found and repaired."""
    if not checkup.found:
        return "no problems found"
    if repair:
        left = f"; {checkup.left} left" if checkup.left else ""
        return f"repaired {plural(checkup.mended, 'finding')}{left}"
    mendable = sum(finding.mendable for finding in checkup.found)
    return f"{plural(len(checkup.found), 'finding')}; --repair can repair {mendable}"
