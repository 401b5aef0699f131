"""The commands `launch`, `launches`, `relaunch` and `update`: run templates of the catalogue."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from taskyard.cli import progress
from taskyard.cli.client import Server, connected, graph_argument, graph_id, server_options
from taskyard.cli.commands.show import limit_option
from taskyard.cli.commands.submit import name_of, read
from taskyard.cli.exit_codes import CommandFailed, Exit
from taskyard.cli.options import Words, bundle, command, flag, listing_options, output_option
from taskyard.cli.output import (
    Column,
    Listing,
    format_age,
    format_table,
    harmless,
    print_err,
    print_error,
    print_faults,
    print_list,
    print_one,
)
from taskyard.wire.documents import Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from taskyard.sdk.client import Client
    from taskyard.wire.api import Launched

LAUNCH_EXAMPLES: Final = """\
Examples:

    taskyard launch deploy                          launch a template
    taskyard launch deploy -e version=1.2 --wait    with a variable
    taskyard launch deploy -e @vars.yaml            variables of a file
    taskyard launch deploy --limit 'web*' --check   of a playbook
    taskyard launch deploy --dry-run                show what would happen
    taskyard launch --ad-hoc -i hosts -m ping       run one module

A value is read as the type that the survey of the template gives it;
others are read as JSON if they are that, else as texts.
Exit codes with --wait: as for submit --wait.
"""
LAUNCHES_EXAMPLES: Final = """\
Examples:

    taskyard launches                list launches, newest first
    taskyard launches deploy         ... of one template
"""
RELAUNCH_EXAMPLES: Final = """\
Examples:

    taskyard relaunch 78a6ff3e8d8c0f28                 all of it
    taskyard relaunch --from-failed 78a6ff3e8d8c0f28   a workflow, from
        the nodes that failed on; the others keep what they left
"""
UPDATE_EXAMPLES: Final = """\
Examples:

    taskyard update project web             fetch the repository now
    taskyard update inventory hosts         all sources of an inventory
    taskyard update inventory hosts/cloud   one source
"""

_COLUMNS: Final[list[Column]] = [
    ("id", lambda one: one.graph_id),
    ("kind", lambda one: one.kind),
    ("name", lambda one: one.name),
    ("status", lambda one: one.status),
    ("type", lambda one: one.launch_type),
    ("by", lambda one: one.actor),
    ("age", lambda one: format_age(one.created_ms)),
    ("version", lambda one: one.version),
]


class LaunchOptions(NamedTuple):
    """What else is given to a launch."""

    variables: tuple[str, ...] = ()
    limit: str | None = None
    check: bool = False
    dry_run: bool = False
    ad_hoc: bool = False
    inventory: str | None = None
    module: str | None = None
    args: str | None = None


_key = click.option(
    "--key", metavar="KEY", default="", show_default=False, help="Idempotency key: the same key gives the same launch."
)


@command("launch", LAUNCH_EXAMPLES)
@click.argument("name", required=False, metavar="[NAME]", help="Template name; none with --ad-hoc.")
@bundle(
    "how",
    LaunchOptions,
    click.option(
        "-e", "--extra-vars", "variables", multiple=True, metavar="KEY=VALUE", help="Variable, or @FILE; repeatable."
    ),
    click.option("--limit", metavar="PATTERN", help="Hosts of a playbook to keep to."),
    flag("--check", help="Let a playbook change nothing, and say what would change."),
    flag("--dry-run", help="Show what would happen; launch nothing."),
    flag("--ad-hoc", help="Run one module on the hosts of an inventory."),
    click.option("-i", "--inventory", metavar="NAME", help="Inventory of --ad-hoc."),
    click.option("-m", "--module", metavar="MODULE", help="Module of --ad-hoc."),
    click.option("-a", "--args", metavar="ARGS", help="Arguments of the module."),
)
@progress.waiting_options
@_key
@output_option("name")
@server_options
def launch(
    name: str | None, how: LaunchOptions, waiting: progress.Waiting, key: str, output: str, server: Server
) -> int:
    """Launch a template of the catalogue, after the updates that it needs.

    The id of its graph goes to stdout, progress to stderr.
    """
    (variables, texts), check = _variables(how.variables), True if how.check else None
    subject = _subject(name, how)
    if how.dry_run:
        with connected(server) as client:
            kind = "ad_hoc" if how.ad_hoc else "template"
            given = {"limit": how.limit, "check": check, "module": how.module, "args": how.args}
            found = _refused(lambda: client.preview_launch(subject, variables, kind=kind, texts=texts, **given))  # type: ignore[arg-type]
            return print_one(asdict(found), "table" if output == "name" else output, lambda: _lines(found), "")

    def ask(client: "Client") -> "Launched":
        if how.module is None:
            return client.launch(subject, variables, texts=texts, limit=how.limit, check=check, key=key)
        return client.ad_hoc(
            subject, how.module, how.args, variables=variables, texts=texts, limit=how.limit, check=check, key=key
        )

    return _ask(server, ask, waiting, output)


def _subject(name: str | None, how: LaunchOptions) -> str:
    """Return the name of the template, or of the inventory of an ad-hoc command."""
    if how.ad_hoc:
        if name is not None or how.inventory is None or how.module is None:
            raise click.UsageError("--ad-hoc needs -i INVENTORY and -m MODULE, and no NAME")
        return how.inventory
    if how.inventory is not None or how.module is not None or how.args is not None:
        raise click.UsageError("-i, -m and -a belong to --ad-hoc")
    if name is None:
        raise click.UsageError("missing argument NAME")
    return name


@command("launches", LAUNCHES_EXAMPLES)
@click.argument("name", required=False, metavar="[NAME]", help="Template name [default: all].")
@click.option("--kind", metavar="KIND", help="Only of this kind, such as job_template or project.")
@limit_option(100)
@listing_options
@server_options
def launches(name: str | None, kind: str | None, limit: int, listing: Listing, server: Server) -> int:
    """List launches, newest first, with the status of each in the words of AWX."""
    with connected(server) as client:
        return print_list(
            client.launches(kind=kind, name=name, limit=limit), listing, _COLUMNS, lambda one: one.graph_id
        )


@command("relaunch", RELAUNCH_EXAMPLES)
@graph_argument
@flag("--from-failed", help="Go on from the nodes of a workflow that failed.")
@progress.waiting_options
@_key
@output_option("name")
@server_options
def relaunch(graph: str, from_failed: bool, waiting: progress.Waiting, key: str, output: str, server: Server) -> int:
    """Launch again what a graph was launched from, with the same variables.

    Updates are planned anew.
    """
    return _ask(
        server,
        lambda client: client.relaunch(graph_id(client, graph), from_failed=from_failed, key=key),
        waiting,
        output,
    )


@command("update", UPDATE_EXAMPLES)
@click.argument("what", type=Words(("project", "inventory")), metavar="WHAT", help="project or inventory.")
@click.argument("name", metavar="NAME", help="Name; INVENTORY/SOURCE for one source.")
@progress.waiting_options
@_key
@output_option("name")
@server_options
def update(what: str, name: str, waiting: progress.Waiting, key: str, output: str, server: Server) -> int:
    """Update a project or the sources of an inventory, whatever is cached."""
    kind = "source" if what == "inventory" and "/" in name else what
    return _ask(server, lambda client: client.launch(name, kind=kind, key=key), waiting, output)


def _ask(server: Server, ask: "Callable[[Client], Launched]", waiting: progress.Waiting, output: str) -> int:
    """Launch, and wait if that is wanted; the exit code is that of the first failure."""
    with connected(server) as client:
        made = _refused(lambda: ask(client))
        for one in made.updates:
            print_err(harmless(_update_says(one.resource, one.freshness, one.graph_id)))
        if not waiting.wait:
            return print_one(asdict(made), output, lambda: list(made.graph_ids), "\n".join(made.graph_ids))
        return progress.wait_for_new(client, made.graph_ids, "launched", waiting.timeout, output)


def _update_says(resource: str, freshness: str, graph: str | None) -> str:
    said = {"fresh": "is fresh enough", "join": "is being updated", "update": "is updated first"}[freshness]
    return f"{resource} {said}" + (f", by graph {graph}" if graph else "")


def _lines(found: "Launched") -> "Iterator[str]":
    yield f"{harmless(found.kind)} {harmless(found.name)}, version {found.version}"
    rows = [(harmless(one.resource), one.freshness, one.graph_id or "") for one in found.updates]
    if rows:
        yield from format_table([("RESOURCE", "UPDATE", "GRAPH"), *rows], sys.stdout, titled=True)


def _refused(ask: "Callable[[], Launched]") -> "Launched":
    """Ask the server; if it refuses, print the faults and fail the command."""
    from taskyard.sdk.errors import Refused  # noqa: PLC0415

    try:
        return ask()
    except Refused as refused:
        if not refused.faults:
            raise
        print_faults("launch", [Fault(fault.message, fault.path) for fault in refused.faults])
        raise CommandFailed(Exit.USAGE) from refused


def _variables(given: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, str]]:
    """Read variables: those of `@FILE` as they are there, and the texts of `key=value`; the later ones win."""
    found: dict[str, Any] = {}
    texts: dict[str, str] = {}
    for one in given:
        if one.startswith("@"):
            more = _variables_of(one[1:])
            found |= more
            texts = {name: text for name, text in texts.items() if name not in more}
            continue
        name, equals, text = one.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{one!r} is no variable: write KEY=VALUE, or @FILE")
        found.pop(name, None)
        texts[name] = text
    return found, texts


def _variables_of(file: str) -> dict[str, Any]:
    from taskyard.wire.documents import RefusedDocument, read_document  # noqa: PLC0415 - a parser costs time to load

    name = name_of(file)
    try:
        value = read_document(read(file), name)
    except RefusedDocument as refused:
        print_faults(name, refused.faults)
        raise CommandFailed(Exit.USAGE) from refused
    except OSError as error:
        print_error(f"cannot read {name}: {error.strerror}")
        raise CommandFailed(Exit.USAGE) from error
    if not isinstance(value, dict):
        print_faults(name, [Fault("must be an object of variables")])
        raise CommandFailed(Exit.USAGE)
    return value
