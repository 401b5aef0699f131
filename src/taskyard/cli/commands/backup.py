"""The commands `backup`, `restore` and `move-store`: they use a database directly, as `doctor` does, not a server."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final, NamedTuple

import click

from taskyard.cli.exit_codes import Exit
from taskyard.cli.options import PATH, PlainText, bundle, command, complete_file, flag, output_option
from taskyard.cli.output import (
    Column,
    can_draw,
    format_fields,
    format_time,
    harmless,
    plural,
    print_err,
    print_error,
    print_one,
)
from taskyard.cli.ports import ArchiveSummary, Backend, BackupSpec, StartFailed

BACKUP_EXAMPLES: Final = """\
Examples:

    taskyard backup taskyard.db /backups/monday.zip    while the server runs
    taskyard backup postgresql://db/yard monday.zip --files s3://yard/files
    taskyard backup taskyard.db monday.zip --no-files  rows only
"""
RESTORE_EXAMPLES: Final = """\
Examples:

    taskyard restore monday.zip new.db                   make a database file
    taskyard restore monday.zip postgresql://db/empty --files /srv/files
    taskyard restore --check monday.zip                  only read the archive
"""
MOVE_EXAMPLES: Final = """\
Examples:

    taskyard move-store taskyard.db postgresql://db/yard
    taskyard move-store postgresql://db/yard small.db
"""
#: How the address of a database begins; anything else is the path of a file.
_SCHEMES: Final = ("sqlite:///", "postgresql://", "postgres://")
_MIB: Final = 1_048_576


def _refuse_address(database: str) -> None:
    if "://" in database and not database.startswith(_SCHEMES):
        raise ValueError("a database is a file, sqlite:///FILE, or a postgresql:// address")


_DATABASE: Final = PlainText(_refuse_address)


class Parts(NamedTuple):
    """What belongs to a database beside its rows."""

    files: str | None
    no_files: bool
    secrets_key_file: Path | None


_parts_options = bundle(
    "parts",
    Parts,
    click.option(
        "--files",
        metavar="PLACE",
        help="Place of the files of tasks: a folder or s3://BUCKET/PREFIX [default: beside a database file].",
    ),
    flag("--no-files", help="Leave the files of tasks out."),
    click.option(
        "--secrets-key-file",
        type=PATH,
        metavar="PATH",
        help="File with the keys of secrets [default: secrets.key beside a database file].",
    ),
)


@command("backup", BACKUP_EXAMPLES)
@click.argument(
    "database",
    type=_DATABASE,
    metavar="DATABASE",
    help="SQLite file, sqlite:///FILE, or postgresql://....",
    shell_complete=complete_file,
)
@click.argument("archive", type=PATH, metavar="ARCHIVE", help="Zip file to write; there must be none.")
@_parts_options
@flag("--include-secrets-key", help="Put the keys of secrets into the archive, which then opens all secrets.")
@output_option("table")
@click.pass_obj
def backup(work: Backend, database: str, archive: Path, parts: Parts, include_secrets_key: bool, output: str) -> int:
    """Write a backup of a database to an archive; servers can keep running.

    The archive has all rows as they were at one moment, and the files that
    they refer to. The keys of secrets are not in it unless you ask for that:
    keep a copy of the key file apart, without which no secret can be read.
    """
    spec = BackupSpec(database, archive, *parts, include_keys=include_secrets_key)
    try:
        with _progress("backing up") as show:
            made = work.back_up(spec, show)
    except StartFailed as refusal:
        print_error(f"cannot back up {_name(database)}: {refusal}")
        return Exit.ERROR
    _warn_of_missing(made)
    if made.has_secrets and not made.has_keys:
        print_err("the keys of the secrets are not in the archive: keep a copy of their file apart")
    if made.has_keys:
        print_err("the archive opens all secrets: whoever can read it can read them")
    return _print(made, output, archive)


@command("restore", RESTORE_EXAMPLES)
@click.argument("archive", type=PATH, metavar="ARCHIVE", help="Archive that `backup` wrote.")
@click.argument(
    "database",
    required=False,
    type=_DATABASE,
    metavar="[DATABASE]",
    help="SQLite file that does not exist, or the address of an empty PostgreSQL database.",
    shell_complete=complete_file,
)
@flag("--check", help="Only read the archive and compare it with its manifest.")
@_parts_options
@output_option("table")
@click.pass_obj
def restore(work: Backend, archive: Path, database: str | None, check: bool, parts: Parts, output: str) -> int:
    """Make a new database of a backup, complete and verified or not at all.

    Stop the servers and bots of the old database first. Bots that still have
    a session of it are refused, end what they run, and can be started again.
    """
    if check == (database is not None):
        raise click.UsageError("name a DATABASE to restore to, or use --check without one")
    spec = BackupSpec(database or "", archive, *parts)
    try:
        with _progress("checking" if check else "restoring") as show:
            found = work.restore(spec, show)
    except StartFailed as refusal:
        doing = "use" if check else "restore"
        print_error(f"cannot {doing} {harmless(str(archive))}: {refusal}")
        return Exit.ERROR
    _warn_of_missing(found)
    if not check and found.has_secrets and not found.has_keys:
        print_err("the keys of the secrets are not in the archive: put their file back before you start a server")
    return _print(found, output, archive)


@command("move-store", MOVE_EXAMPLES)
@click.argument(
    "source",
    type=_DATABASE,
    metavar="FROM",
    help="Database to move, which no server uses: a file or postgresql://....",
    shell_complete=complete_file,
)
@click.argument(
    "target",
    type=_DATABASE,
    metavar="TO",
    help="SQLite file that does not exist, or the address of an empty PostgreSQL database.",
    shell_complete=complete_file,
)
@output_option("table")
@click.pass_obj
def move_store(work: Backend, source: str, target: str, output: str) -> int:
    """Copy a database to a new one, such as from SQLite to PostgreSQL.

    Every row is counted and hashed on both sides; the new database is there
    when all are equal, or not at all. The old one is left as it was. Files of
    tasks and keys of secrets stay where they are: name their places to the
    server of the new database, with --files and --secrets-key-file.
    """
    try:
        with _progress("moving") as show:
            moved = work.move_store(source, target, show)
    except StartFailed as refusal:
        print_error(f"cannot move {_name(source)} to {_name(target)}: {refusal}")
        return Exit.ERROR
    print_err(f"moved {plural(sum(one.rows for one in moved), 'row')}; start servers on the new database only")
    shape = {"tables": [asdict(one) for one in moved], "rows": sum(one.rows for one in moved)}
    lines = (f"{one.name:24} {one.rows:>10} {one.digest[:16]}" for one in moved)
    return print_one(shape, output, lambda: lines, _name(target))


def _print(archive: ArchiveSummary, output: str, path: Path) -> Exit:
    columns: list[Column] = [
        ("taken", lambda one: format_time(one.taken_ms)),
        ("made by", lambda one: f"taskyard {one.taskyard}, schema {one.schema}"),
        ("tables", lambda one: one.tables),
        ("rows", lambda one: one.rows),
        ("files", lambda one: f"{one.files}, {one.file_bytes / _MIB:.1f} MiB" if one.has_files else "left out"),
        ("secrets", lambda one: ("with" if one.has_keys else "without") + " their keys" if one.has_secrets else "none"),
    ]
    return print_one(asdict(archive), output, lambda: format_fields(archive, columns), str(path))


def _warn_of_missing(archive: ArchiveSummary) -> None:
    if archive.missing:
        named = ", ".join(one[:12] for one in archive.missing_named[:3])
        more = ", ..." if archive.missing > 3 else ""
        print_err(
            f"warning: {plural(archive.missing, 'tree or chunk')} of files that the database refers to "
            f"could not be read, and cannot be restored: {named}{more}"
        )


def _name(database: str) -> str:
    """Name a database in a message, without the password that an address may have."""
    return database.partition("://")[0] if database.startswith(_SCHEMES[1:]) else harmless(database)


@contextmanager
def _progress(doing: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar on a terminal."""
    if not can_draw(sys.stderr):
        yield lambda *_: None
        return
    from rich.console import Console  # noqa: PLC0415 - drawing costs time to load
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda what, done, total: bar.update(task, description=f"{doing} {what}", completed=done, total=total)
