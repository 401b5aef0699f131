"""The commands `schedule`, `limits`, `limits set`, `mutexes` and `mutexes set`."""

from dataclasses import asdict
from typing import Final

import click

from taskyard.cli.client import Server, connected, server_options
from taskyard.cli.commands.show import limit_option
from taskyard.cli.options import Number, command, listing_options, output_option
from taskyard.cli.output import Column, Listing, format_age, format_fields, plural, print_list, print_one
from taskyard.wire import api

SCHEDULE_EXAMPLES: Final = """\
Examples:

    taskyard schedule                 admit what can run now

Servers do this by themselves whenever something changes, and every 5 seconds.
"""
LIMITS_EXAMPLES: Final = """\
Examples:

    taskyard limits                   list all named limits
"""
SET_LIMIT_EXAMPLES: Final = """\
Examples:

    taskyard limits set licences 5    for tasks with {licences: 1}
"""
MUTEXES_EXAMPLES: Final = """\
Examples:

    taskyard mutexes                  list mutexes with their tasks
    taskyard mutexes device:7         show one mutex
"""
SET_MUTEX_EXAMPLES: Final = """\
Examples:

    taskyard mutexes set device:7 --stake-after 0s    strict order
    taskyard mutexes set repo --stake-after never     no order
"""

_LIMIT_COLUMNS: Final[list[Column]] = [
    ("name", lambda one: one.name),
    ("total", lambda one: one.total),
    ("used", lambda one: one.used),
]
_MUTEX_COLUMNS: Final[list[Column]] = [
    ("key", lambda one: one.key),
    ("held by", lambda one: _tasks(one.holders, one.holder_count)),
    ("waiting", lambda one: _tasks(one.waiting, one.waiting_count)),
    ("stake after", lambda one: _stake_after(one.stake_after_ms)),
]
#: How many tasks of a mutex a table names.
_NAMED_MAX: Final = 3


@command("schedule", SCHEDULE_EXAMPLES)
@output_option("table")
@server_options
def schedule(output: str, server: Server) -> int:
    """Run an admission pass by hand."""
    with connected(server) as client:
        done = client.schedule()
        return print_one(asdict(done), output, lambda: [_told(done)], str(done.admitted))


def _told(done: api.PassView) -> str:
    """Say in a line what a pass did."""
    if not done.ran:
        return "another pass is running"
    more = "; there is more: run it again" if done.more else ""
    return f"admitted {plural(done.admitted, 'task')}, held {done.held}{more}"


@command("limits", LIMITS_EXAMPLES)
@listing_options
@server_options
def limits(listing: Listing, server: Server) -> int:
    """List named limits with their totals and how much of them is in use."""
    with connected(server) as client:
        return print_list(client.limits(), listing, _LIMIT_COLUMNS, lambda one: one.name)


@command("limits set", SET_LIMIT_EXAMPLES)
@click.argument("name", metavar="NAME", help="Limit name; a new limit is created.")
@click.argument("total", type=Number(0), metavar="TOTAL", help="Total that tasks share.")
@output_option("table")
@server_options
def set_limit(name: str, total: int, output: str, server: Server) -> int:
    """Create a named limit, or change its total."""
    with connected(server) as client:
        limit = client.set_limit(name, total)
        return print_one(asdict(limit), output, lambda: format_fields(limit, _LIMIT_COLUMNS), limit.name)


@command("mutexes", MUTEXES_EXAMPLES)
@click.argument("key", required=False, metavar="[KEY]", help="Mutex key [default: all].")
@limit_option(100)
@listing_options
@server_options
def mutexes(key: str | None, limit: int, listing: Listing, server: Server) -> int:
    """List the mutexes in use, with the tasks that hold them or wait for them."""
    with connected(server) as client:
        return print_list(client.mutexes(key=key, limit=limit), listing, _MUTEX_COLUMNS, lambda one: one.key)


@command("mutexes set", SET_MUTEX_EXAMPLES)
@click.argument("key", metavar="KEY", help="Mutex key.")
@click.option(
    "--stake-after",
    required=True,
    metavar="DURATION",
    help="How long a task waits before no younger task can pass it: 0s, 5m, or never.",
)
@output_option("table")
@server_options
def set_mutex(key: str, stake_after: str, output: str, server: Server) -> int:
    """Set how long a task waits for a mutex before no younger task can pass it."""
    with connected(server) as client:
        mutex = client.set_mutex(key, stake_after=stake_after)
        return print_one(asdict(mutex), output, lambda: format_fields(mutex, _MUTEX_COLUMNS), mutex.key)


def _tasks(tasks: list[api.MutexTask], count: int) -> str:
    named = [f"{one.label or 'a task that you may not see'} {_since(one)}" for one in tasks[:_NAMED_MAX]]
    more = count - len(named)
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def _since(task: api.MutexTask) -> str:
    where = f"({task.task}, {task.state})" if task.task else f"({task.state})"
    return where if task.since_ms is None else f"{where} for {format_age(task.since_ms)}"


def _stake_after(ms: int | None) -> str:
    return "never" if ms is None else f"{ms // 1_000}s" if ms % 1_000 == 0 else f"{ms}ms"
