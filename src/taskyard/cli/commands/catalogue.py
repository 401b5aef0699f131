"""The commands of the catalogue: `apply`, `export`, `catalogue`, `catalogue history`, `delete`."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from taskyard.cli.client import Server, connected, server_options
from taskyard.cli.commands.submit import name_of, read
from taskyard.cli.exit_codes import CommandFailed, Exit
from taskyard.cli.options import choice, command, completes, flag, listing_options, output_option
from taskyard.cli.output import (
    Column,
    Id,
    Listing,
    format_age,
    format_list,
    format_time,
    harmless,
    plural,
    print_err,
    print_error,
    print_faults,
    print_list,
    print_one,
    unknown_word,
    write_stdout,
)
from taskyard.wire.documents import Fault, RefusedDocument

if TYPE_CHECKING:
    from collections.abc import Callable

    from taskyard.sdk.client import Client
    from taskyard.wire.api import DocumentChange, DocumentView, LaunchView
    from taskyard.wire.documents import Path as Steps

APPLY_EXAMPLES: Final = """\
Examples:

    taskyard apply -f operations.yaml --dry-run     show what would change
    taskyard apply -f operations.yaml
    taskyard apply -f projects/ -f schedules.yaml   all files of a folder
    taskyard export | taskyard apply -f -           changes nothing
"""
EXPORT_EXAMPLES: Final = """\
Examples:

    taskyard export > operations.yaml
    taskyard export job_template
    taskyard export project site -o json
"""
CATALOGUE_EXAMPLES: Final = """\
Examples:

    taskyard catalogue
    taskyard catalogue job_template --pool lab
    taskyard catalogue history project site
"""
HISTORY_EXAMPLES: Final = """\
Examples:

    taskyard catalogue history project site
    taskyard catalogue history project site -o json
"""
PROJECTS_EXAMPLES: Final = """\
Examples:

    taskyard projects
    taskyard update project site      update one now
"""
INVENTORIES_EXAMPLES: Final = """\
Examples:

    taskyard inventories
    taskyard update inventory lab     update its sources now
"""
TEMPLATES_EXAMPLES: Final = """\
Examples:

    taskyard templates
    taskyard templates --pool lab -o json
"""
DELETE_EXAMPLES: Final = """\
Examples:

    taskyard delete schedule nightly-backup
"""
#: The kinds of documents; the server checks them, too.
KINDS: Final = (
    "project", "inventory", "job_template", "workflow_template", "system_job_template", "schedule", "pool", "limit",
)  # fmt: skip
#: How the files with documents of a folder end.
_ENDINGS: Final = (".yaml", ".yml", ".json")
_CHANGES: Final[list[Column]] = [
    ("action", lambda one: one.action),
    ("kind", lambda one: one.kind),
    ("name", lambda one: one.name),
    ("pool", lambda one: one.pool or None),
    ("version", lambda one: one.version or None),
]
_DOCUMENTS: Final[list[Column]] = [
    ("kind", lambda one: one.kind),
    ("name", lambda one: one.name),
    ("pool", lambda one: one.pool or None),
    ("version", lambda one: one.version or None),
    ("changed", lambda one: None if one.changed_ms is None else format_age(one.changed_ms)),
    ("by", lambda one: one.changed_by),
]
_VERSIONS: Final[list[Column]] = [
    ("version", lambda one: one.version),
    ("changed", lambda one: format_age(one.changed_ms)),
    ("by", lambda one: one.changed_by),
    ("pool", lambda one: one.pool),
    ("what", lambda one: "deleted" if one.document is None else "stored"),
]

#: The kinds of what can be launched.
TEMPLATES: Final = ("job_template", "workflow_template", "system_job_template")


@dataclass(frozen=True)
class SourceLine:
    """A source of an inventory, or an inventory without any, with its last update."""

    inventory: str
    pool: str
    version: int
    source: str | None
    update: "LaunchView | None"


def _last(launch: "Callable[[Any], LaunchView | None]", what: str) -> list[Column]:
    """The columns about the last launch or update."""

    def of(field: "Callable[[LaunchView], object]") -> "Callable[[Any], object]":
        return lambda one: None if (found := launch(one)) is None else field(found)

    return [
        (what, of(lambda one: one.status)),
        ("when", of(lambda one: format_age(one.created_ms))),
        ("type", of(lambda one: one.launch_type)),
        ("by", of(lambda one: one.actor)),
        ("graph", of(lambda one: Id(one.graph_id))),
    ]


def _first(one: "DocumentView") -> "LaunchView | None":
    return one.launches[0] if one.launches else None


_PROJECTS: Final[list[Column]] = [
    ("name", lambda one: one.name),
    ("pool", lambda one: one.pool),
    ("version", lambda one: one.version),
    ("git", lambda one: one.document["git"]),
    ("branch", lambda one: one.document.get("branch")),
    *_last(_first, "last update"),
]
_INVENTORIES: Final[list[Column]] = [
    ("name", lambda one: one.inventory),
    ("pool", lambda one: one.pool),
    ("version", lambda one: one.version),
    ("source", lambda one: one.source),
    *_last(lambda one: one.update, "last update"),
]
_TEMPLATES: Final[list[Column]] = [
    ("name", lambda one: one.name),
    ("kind", lambda one: one.kind.removesuffix("_template").replace("_", " ")),
    ("pool", lambda one: one.pool),
    ("version", lambda one: one.version),
    *_last(_first, "last launch"),
]

pool_option = click.option("--pool", metavar="NAME", help="Only of this pool.", shell_complete=completes("pool"))
kind_argument = click.argument("kind", metavar="KIND", help=f"One of: {', '.join(KINDS)}.")
optional_kind_argument = click.argument(
    "kind", metavar="[KIND]", required=False, help=f"One of: {', '.join(KINDS)}; left out, all."
)
name_argument = click.argument("name", metavar="NAME", help="Name of the document.")


class _Origin(NamedTuple):
    """Where a document was read: the file, its text, and the place in it."""

    name: str
    text: bytes
    place: "Steps"


@command("apply", APPLY_EXAMPLES)
@click.option(
    "--file",
    "-f",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="File with documents in YAML or JSON, or a folder of such files; - reads standard input.",
)
@flag("--dry-run", help="Show what would change; store nothing.")
@output_option("table")
@server_options
def apply(files: tuple[str, ...], dry_run: bool, output: str, server: Server) -> int:
    """Store documents of the catalogue: all of them, or none if one is faulty.

    Documents that mean what is stored already do not change.
    """
    documents, origins = _read_all(files)
    with connected(server) as client:
        changes = _apply(client, documents, origins, dry_run)
    lines = [*format_list(changes, _CHANGES), *map(_runs_line, changes)]
    code = print_one({"items": [asdict(one) for one in changes]}, output, lambda: filter(None, lines), "")
    print_err(_summary(changes, dry_run))
    return code


@command("export", EXPORT_EXAMPLES)
@optional_kind_argument
@click.argument("name", metavar="[NAME]", required=False, help="Name of the document; left out, all.")
@choice("--output", "-o", words=("yaml", "json"), default="yaml", help="Output format.")
@click.option("--pool", metavar="NAME", help="Only documents of this pool.", shell_complete=completes("pool"))
@server_options
def export(kind: str | None, name: str | None, output: str, pool: str | None, server: Server) -> int:
    """Print documents of the catalogue as they can be applied."""
    _check_kind(kind)
    with connected(server) as client:
        found = _documents(client, kind, name, pool)
    shown = [one.document for one in found if one.document is not None]
    if not shown:
        print_err("nothing to export")
        return Exit.OK
    return Exit.OK if write_stdout(lambda: sys.stdout.write(_written(shown, output))) else Exit.ERROR


@command("catalogue", CATALOGUE_EXAMPLES)
@optional_kind_argument
@click.option("--pool", metavar="NAME", help="Only documents of this pool.", shell_complete=completes("pool"))
@listing_options
@server_options
def catalogue(kind: str | None, pool: str | None, listing: Listing, server: Server) -> int:
    """List the documents of the catalogue."""
    _check_kind(kind)
    with connected(server) as client:
        found = client.documents(kind=kind, pool=pool)
        return print_list(found, listing, _DOCUMENTS, lambda one: f"{one.kind} {one.name}")


@command("catalogue history", HISTORY_EXAMPLES)
@kind_argument
@name_argument
@listing_options
@server_options
def history(kind: str, name: str, listing: Listing, server: Server) -> int:
    """List the versions of a document, the newest first."""
    _check_kind(kind)
    with connected(server) as client:
        found = client.document_versions(kind, name)
        return print_list(found, listing, _VERSIONS, lambda one: str(one.version))


@command("projects", PROJECTS_EXAMPLES)
@pool_option
@listing_options
@server_options
def projects(pool: str | None, listing: Listing, server: Server) -> int:
    """List projects with their last updates."""
    with connected(server) as client:
        found = client.documents(kind="project", pool=pool, detail="launches")
        return print_list(found, listing, _PROJECTS, lambda one: one.name)


@command("inventories", INVENTORIES_EXAMPLES)
@pool_option
@listing_options
@server_options
def inventories(pool: str | None, listing: Listing, server: Server) -> int:
    """List inventories and their sources with their last updates."""
    with connected(server) as client:
        found = client.documents(kind="inventory", pool=pool, detail="launches")
        lines = (line for one in found for line in _source_lines(one))
        return print_list(lines, listing, _INVENTORIES, lambda one: one.inventory)


@command("templates", TEMPLATES_EXAMPLES)
@pool_option
@listing_options
@server_options
def templates(pool: str | None, listing: Listing, server: Server) -> int:
    """List job, workflow and system job templates with their last launches."""
    with connected(server) as client:
        found = (one for kind in TEMPLATES for one in client.documents(kind=kind, pool=pool, detail="launches"))
        return print_list(found, listing, _TEMPLATES, lambda one: one.name)


def _source_lines(one: "DocumentView") -> list[SourceLine]:
    updates = {launch.name: launch for launch in one.launches}
    sources = [source["name"] for source in (one.document or {}).get("sources", [])]
    return [
        SourceLine(one.name, one.pool, one.version, source, updates.get(f"{one.name}/{source}"))
        for source in sources or [None]
    ]


@command("delete", DELETE_EXAMPLES)
@kind_argument
@name_argument
@server_options
def delete(kind: str, name: str, server: Server) -> int:
    """Delete a document of the catalogue, unless others refer to it.

    Its versions stay, and so does what was launched from it.
    """
    _check_kind(kind)
    with connected(server) as client:
        client.delete_document(kind, name)
    print_err(f"{kind} {harmless(name)} is deleted")
    return Exit.OK


def _check_kind(kind: str | None) -> None:
    if kind is not None and kind not in KINDS:
        raise click.UsageError(unknown_word("kind", kind, KINDS))


def _runs_line(one: "DocumentChange") -> str:
    """Say when a schedule runs; empty for other documents."""
    if one.next_runs is None:
        return ""
    runs = ", ".join(map(format_time, one.next_runs))
    return f"{one.kind} {harmless(one.name)} " + (f"runs next at {runs}" if runs else "is disabled, or over: no runs")


def _summary(changes: Sequence["DocumentChange"], dry_run: bool) -> str:
    counts = {word: sum(one.action == word for one in changes) for word in ("create", "change", "unchanged")}
    created, changed = ("to create", "to change") if dry_run else ("created", "changed")
    parts = [f"{counts['create']} {created}", f"{counts['change']} {changed}", f"{counts['unchanged']} unchanged"]
    return f"{plural(len(changes), 'document')}: {', '.join(parts)}{'; nothing is stored' if dry_run else ''}"


def _written(documents: Sequence[dict[str, Any]], output: str) -> str:
    if output == "json":
        import json  # noqa: PLC0415

        return json.dumps(documents, indent=2, ensure_ascii=False) + "\n"
    from taskyard.wire import yaml_writer  # noqa: PLC0415

    return yaml_writer.write(documents)


def _documents(client: "Client", kind: str | None, name: str | None, pool: str | None) -> "list[DocumentView]":
    if kind is not None and name is not None:
        return [client.document(kind, name)]
    return list(client.documents(kind=kind, pool=pool, detail="whole"))


# Documents in files.


def _read_all(files: Iterable[str]) -> tuple[list[object], list[_Origin]]:
    """Read all documents; print the faults of all files, and fail the command."""
    documents: list[object] = []
    origins: list[_Origin] = []
    failed = False
    for file in _files(files):
        try:
            text = read(file)
            found = _documents_in(text, file)
        except OSError as error:
            print_error(f"cannot read {name_of(file)}: {error.strerror}")
            failed = True
            continue
        except RefusedDocument as refused:
            _print_faults(name_of(file), refused.faults)
            failed = True
            continue
        documents += [one for _, one in found]
        origins += [_Origin(name_of(file), text, place) for place, _ in found]
    if failed or not documents:
        if not failed:
            print_error("there is no document in what was given")
        raise CommandFailed(Exit.USAGE)
    return documents, origins


def _documents_in(text: bytes, file: str) -> "list[tuple[Steps, object]]":
    from taskyard.wire.documents import read_documents  # noqa: PLC0415 - a parser costs time to load

    return read_documents(text, name_of(file))


def _files(named: Iterable[str]) -> Iterator[str]:
    """Yield the files, those of a folder in the order of their names."""
    for one in named:
        if one != "-" and Path(one).is_dir():
            yield from (str(found) for found in sorted(Path(one).iterdir()) if found.suffix in _ENDINGS)
        else:
            yield one


def _apply(
    client: "Client", documents: Sequence[object], origins: Sequence[_Origin], dry_run: bool
) -> "list[DocumentChange]":
    """Apply documents; if the server refuses them, print the faults with files and lines, and fail the command."""
    from taskyard.sdk.errors import Refused  # noqa: PLC0415

    try:
        return client.apply(documents, dry_run=dry_run)  # type: ignore[arg-type]  # the server checks them
    except Refused as refused:
        if not refused.faults:
            raise
        for name, faults in _placed(refused.faults, origins).items():
            _print_faults(name, faults)
        raise CommandFailed(Exit.USAGE) from refused


def _placed(faults: Iterable[Any], origins: Sequence[_Origin]) -> dict[str, list[Fault]]:
    """Sort faults by file, and give each its line and its path in its document."""
    from taskyard.wire.documents import read_path  # noqa: PLC0415

    found: dict[str, list[tuple[Any, Steps]]] = {}
    texts: dict[str, bytes] = {}
    for fault in faults:
        steps = read_path(fault.path)
        number = steps[1] if steps[:1] == ("documents",) and len(steps) > 1 else None
        known = isinstance(number, int) and number < len(origins)
        origin = origins[number] if known and isinstance(number, int) else _Origin("the documents", b"", ())
        texts[origin.name] = origin.text
        found.setdefault(origin.name, []).append((fault, (*origin.place, *steps[2:])))
    return {name: _with_lines(texts[name], listed) for name, listed in found.items()}


def _with_lines(text: bytes, faults: "Sequence[tuple[Any, Steps]]") -> list[Fault]:
    """Give faults of one file their lines; the path begins after the number of the document."""
    from taskyard.wire.documents import find_document_lines  # noqa: PLC0415

    lines = find_document_lines(text, [path for _, path in faults])
    return [
        Fault(fault.message, fault.path.partition("]")[2].removeprefix("."), lines.get(path)) for fault, path in faults
    ]


def _print_faults(name: str, faults: Iterable[Fault]) -> None:
    print_faults(name, faults, "cannot be applied", "nothing is changed")
