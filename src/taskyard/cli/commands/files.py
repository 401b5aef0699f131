"""The commands that move files: `get`, what tasks left, and `put`, what tasks take."""

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from taskyard.cli.client import Server, connected, server_options, task_argument, task_id
from taskyard.cli.exit_codes import CommandFailed, Exit
from taskyard.cli.options import PATH, Number, bundle, command, flag, output_option
from taskyard.cli.output import (
    Column,
    Listing,
    can_draw,
    harmless,
    plural,
    print_err,
    print_error,
    print_list,
    print_one,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click._termui_impl import ProgressBar

    from taskyard.files.collect import Meter
    from taskyard.sdk.client import Client

GET_EXAMPLES: Final = """\
Examples:

    taskyard get 78a6ff3e8d8c0f28/build           all outputs, into this folder
    taskyard get 78a6ff3e8d8c0f28/build dist --to out   those below dist
    taskyard get --list 78a6ff3e8d8c0f28/build    only list them
    taskyard get --to - 00c0ffee12345678 report.txt     one file, to stdout
    taskyard get --artifact report --to - 00c0ffee12345678
"""
PUT_EXAMPLES: Final = """\
Examples:

    taskyard put src                     store a folder, print its digest
    taskyard put --pool lab data.csv     one file, for tasks of a pool
    taskyard put --artifact report --type text/html report.html
                                         keep it, in a running task
"""
_STDOUT: Final = "-"
#: From how many bytes on it is shown how far they are: fewer take about a moment.
BAR_BYTES_MIN: Final = 16_000_000
_COLUMNS: Final[tuple[Column, ...]] = (
    ("path", lambda one: one.path),
    ("size", lambda one: one.size),
    ("digest", lambda one: one.digest or ("" if one.link is None else f"-> {one.link}")),
)


class GetOptions(NamedTuple):
    """Which files are wanted, and where they go."""

    to: Path | None = None
    list: bool = False
    artifact: str | None = None
    attempt: int | None = None


class PutOptions(NamedTuple):
    """What becomes of files that are stored."""

    pool: str = "default"
    artifact: str | None = None
    type: str = "application/octet-stream"


@command("get", GET_EXAMPLES)
@task_argument
@click.argument("path", metavar="[PATH]", required=False, default="", help="File or folder of the outputs.")
@bundle(
    "how",
    GetOptions,
    click.option("--to", type=PATH, metavar="DIR", help="Folder to write to [default: here]; - prints one file."),
    flag("--list", help="Only list the files."),
    click.option("--artifact", metavar="NAME", help="The artifact of this name."),
    click.option("--attempt", type=Number(0), metavar="N", help="Attempt of the task [default: the last]."),
)
@output_option("table")
@server_options
def get(task: str, path: str, how: GetOptions, output: str, server: Server) -> int:
    """Get the output files of a task.

    Files of the same names are replaced. Nothing is written outside of the
    folder, whatever the task has left.
    """
    with connected(server) as client, _files_read():
        id = task_id(client, task)
        if how.list:
            return _list(client, id, how, output)
        if how.artifact is not None or str(how.to) == _STDOUT:
            return _one_file(client, id, path, how)
        folder = how.to or Path()
        with transfer_bar() as bar:
            written = client.get_files(id, str(folder), path, attempt=how.attempt, meter=bar)
        print_err(f"{plural(len(written), 'file')} written to {harmless(str(folder.absolute()))}")
        return Exit.OK


@command("put", PUT_EXAMPLES)
@click.argument("path", type=PATH, metavar="PATH", help="Folder or file of this machine.")
@bundle(
    "how",
    PutOptions,
    click.option("--pool", default="default", metavar="POOL", help="Pool of the tasks that take it."),
    click.option("--artifact", metavar="NAME", help="Keep it as an artifact of the running task, under this name."),
    click.option("--type", default="application/octet-stream", metavar="TYPE", help="Media type of the artifact."),
)
@output_option("name")
@server_options
def put(path: Path, how: PutOptions, output: str, server: Server) -> int:
    """Store files, and print the digest by which tasks take them.

    Only what is not stored yet is sent. What no task refers to is removed
    after two days.
    """
    from taskyard.sdk.local_inputs import tree_of  # noqa: PLC0415 - its types are slow to create

    with connected(server) as client, _files_read():
        if how.artifact is not None:
            client.own_task = client.own_task or os.environ.get("TASKYARD_TASK_ID")
            client.publish_artifact(str(path), how.artifact, how.type)
            return Exit.OK
        with transfer_bar() as bar:
            found = tree_of(str(path.absolute()), bar)
            done = client.put_tree(found, pool=how.pool, meter=bar)
        print_err(f"{plural(done.tree.files, 'file')}, {done.tree.bytes} bytes; {done.moved_bytes} bytes were sent")
        shown = {"digest": done.tree.digest, "files": done.tree.files, "bytes": done.tree.bytes, "pool": how.pool}
        return print_one(shown, output, lambda: [done.tree.digest], done.tree.digest)


@contextmanager
def transfer_bar() -> "Iterator[Meter]":
    """Show on a terminal how far files are read and moved, if they are not just a few."""
    from taskyard.files.collect import Meter  # noqa: PLC0415 - its types are slow to create

    class Bar(Meter):
        """Shows one bar after the other; threads take turns."""

        def __init__(self) -> None:
            self._lock = Lock()
            self._shown: ProgressBar[int] | None = None

        def begin(self, what: str, total: int) -> None:
            with self._lock:
                self.end()
                if total >= BAR_BYTES_MIN and can_draw(sys.stderr):
                    label = f"{what} {total / 1e6:,.0f} MB"
                    self._shown = click.progressbar(length=total, label=label, file=sys.stderr)
                    self._shown.render_progress()

        def add(self, count: int) -> None:
            with self._lock:
                if self._shown is not None:
                    self._shown.update(count)

        def end(self) -> None:
            if self._shown is not None:
                self._shown.render_finish()
                self._shown = None

    bar = Bar()
    try:
        yield bar
    finally:
        bar.end()


def _list(client: "Client", id: str, how: GetOptions, output: str) -> int:
    found = client.files(id, attempt=how.attempt)
    return print_list(found.items, Listing(output), _COLUMNS, lambda one: one.path)


def _one_file(client: "Client", id: str, path: str, how: GetOptions) -> int:
    """Write one file, to stdout or into a folder."""
    named = how.artifact
    if named is None and not path:
        raise click.UsageError("name a file of the outputs: --to - prints only one")
    read = client.read_file(id, path, attempt=how.attempt) if named is None else _artifact(client, id, named, how)
    if str(how.to) == _STDOUT:
        for piece in read:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return Exit.OK
    name = os.path.basename((named or path).rstrip("/"))
    if name in ("", ".", ".."):
        raise click.UsageError("the name of the artifact is no name of a file: give --to -")
    folder = how.to or Path()
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / name, read)
    print_err(f"written to {harmless(str((folder / name).absolute()))}")
    return Exit.OK


def _artifact(client: "Client", id: str, name: str, how: GetOptions) -> "Iterator[bytes]":
    return client.read_artifact(id, name, attempt=how.attempt)


def _write(file: Path, pieces: "Iterator[bytes]") -> None:
    """Write a file under another name, and give it its own when it is complete."""
    part = file.with_name(f".{file.name[:200]}.{os.getpid()}.part")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644), "wb") as opened:
            opened.writelines(pieces)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _files_read() -> "Iterator[None]":
    """Say what is wrong with files of this machine, or with a tree, and end the command."""
    from taskyard.files.collect import Changed  # noqa: PLC0415 - its types are slow to create
    from taskyard.files.digests import BadTree  # noqa: PLC0415

    try:
        yield
    except BadTree as bad:
        for fault in bad.faults:
            print_error(harmless(fault))
        raise CommandFailed(Exit.USAGE) from bad
    except Changed as error:
        print_error(harmless(str(error)))
        raise CommandFailed(Exit.ERROR) from error
    except OSError as error:
        print_error(harmless(f"cannot use {error.filename or 'a file'}: {error.strerror or error}"))
        raise CommandFailed(Exit.ERROR) from error
