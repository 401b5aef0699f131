"""A store with tasks in every situation, for tests that damage rows.

The graph `now` is running, `past` has a long history, and `over` was canceled.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import psycopg

from taskyard.core import ids
from taskyard.core.graph.model import Existing, digest
from taskyard.core.graph.parse import validate
from taskyard.core.states import Signal
from taskyard.lifecycle import submit
from taskyard.lifecycle.admission.pools import set_limit
from taskyard.lifecycle.commands import Lease, Poll, Report
from taskyard.lifecycle.definitions import decoded
from taskyard.lifecycle.doctor import check
from taskyard.lifecycle.doctor.finding import Finding
from taskyard.lifecycle.poll import poll
from taskyard.lifecycle.rows import NewTasks
from taskyard.lifecycle.timeouts import apply_timeouts, heartbeat
from taskyard.lifecycle.transaction import Transaction
from tests.lifecycle.graphs import graph, node
from tests.lifecycle.harness import BaseHarness, Labels, LifecycleHarness

DEFAULT: dict[str, Any] = {"dimensions": {"pool": "default"}}
LAB: dict[str, Any] = {"dimensions": {"pool": "lab"}}
#: How long a slice waits for a bot.
PATIENCE_MS = 1_000


@dataclass
class PopulatedStore:
    """A store, and the ids of its tasks and graphs by label."""

    harness: LifecycleHarness
    url: str
    labels: Labels  # of the graph `now`
    ids: dict[str, int]

    def sql(self, text: str, **more: object) -> None:
        """Execute SQL directly, past the repository. Labels stand for ids."""
        text = text.format_map({**self.ids, **more})
        if self.url.startswith("sqlite"):
            connection = sqlite3.connect(self.url.removeprefix("sqlite:///"))
            connection.executescript(text)
            connection.close()
        else:
            with psycopg.connect(self.url) as postgres:
                postgres.execute(text)

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Read with SQL directly, past the repository."""
        return self.answers(text)[0]

    def answers(self, *texts: str) -> list[list[tuple[Any, ...]]]:
        """Read with several SQL queries, past the repository."""
        if self.url.startswith("sqlite"):
            connection = sqlite3.connect(self.url.removeprefix("sqlite:///"))
            found = [connection.execute(text).fetchall() for text in texts]
            connection.close()
            return found
        with psycopg.connect(self.url) as postgres:
            return [postgres.execute(text).fetchall() for text in texts]

    def named(self, columns: Iterable[tuple[str, str]], **more: object) -> set[tuple[str, str]]:
        """Replace labels by ids as text."""
        names = {label: f"{id:016x}" for label, id in self.ids.items()} | more
        return {(kind, column.format_map(names)) for kind, column in columns}


def populate(harness: LifecycleHarness, url: str) -> PopulatedStore:
    """Submit the three graphs, and run some of their tasks."""
    harness.do(heartbeat)
    over = harness.submit(graph(ended=node(**DEFAULT)))
    harness.cancel(graph=over.graph)
    past = _past(harness)
    now = _now(harness)
    names = {"now": now.graph, "past": past.graph, "over": over.graph}
    return PopulatedStore(harness, url, now, {**over, **past, **now, **names, "graph": now.graph})


def run_doctor(harness: BaseHarness) -> list[Finding]:
    """What the doctor finds in the store."""
    with harness.store.read() as repo:
        return check.doctor(repo, harness.now)


def fail_without_propagation(harness: BaseHarness, bot: str, lease: Lease) -> None:
    """Let a task fail in a transaction that may not propagate to any dependent, so that a continuation is left."""

    def act(transaction: Transaction) -> None:
        transaction.edge_budget = 0
        report = Report(lease.task, lease.attempt, lease.fence, Signal.FAIL, exit_code=1)
        poll(transaction, [Poll(bot, "s1", reports=(report,))])

    harness.do(act)


def _now(harness: LifecycleHarness) -> Labels:
    """`boom` failed and `mop` waits to handle it, `after` is blocked by it; `long` runs and `later` waits for it;
    `lone` needs a mutex, `frugal` a limit; `told` has failed, and its dependent `deaf` does not know that yet."""
    harness.do(lambda transaction: set_limit(transaction, "licence", 3, "ann"))
    labels = harness.submit(
        graph(
            boom=node(**DEFAULT),
            mop=node(failure=["boom"], priority=200, **DEFAULT),
            after=node("boom", **DEFAULT),
            long=node(**DEFAULT),
            later=node("long", **DEFAULT),
            lone=node(mutexes=[{"key": "door"}], **DEFAULT),
            frugal=node(limits={"licence": 2}, **DEFAULT),
            told=node(**DEFAULT),
            deaf=node(always=["told"], **DEFAULT),
        )
    )
    harness.hello("b1")
    leases = harness.start("b1", labels, 3)
    harness.fail("b1", leases["boom"])
    fail_without_propagation(harness, "b1", leases["told"])
    return labels


def _past(harness: LifecycleHarness) -> Labels:
    """`ill` failed and `cure` has handled it; `flaky` waits for its rerun, `twice` was rerun by a person, `lost` was
    lost with a bot; no bot came for the first slice of `picky`; `extra` came with an extension."""
    slices = [
        {"dimensions": {"pool": "attic"}, "expires": f"{PATIENCE_MS // 1000}s", "wait_for_capacity": True},
        {"dimensions": {"pool": "cellar"}},
        {"dimensions": {"pool": "roof"}},
    ]
    labels = harness.submit(
        graph(
            ill=node(**LAB),
            cure=node(failure=["ill"], priority=1, **LAB),
            flaky=node(reruns={"count": 1, "delay": "1h"}, deadline="2h", **LAB),
            twice=node(priority=200, **LAB),
            lost=node(priority=250, **LAB),
            picky=node(slices=slices),
        )
    )
    harness.advance(PATIENCE_MS)
    harness.do(apply_timeouts)
    harness.hello("b2", pool="lab")
    leases = harness.start("b2", labels)
    for label in ("ill", "flaky", "twice"):
        harness.fail("b2", leases[label])
    harness.end("b2", leases["lost"], Signal.LOSE)
    harness.rerun(labels["twice"])
    (cure,) = harness.claim("b2")
    harness.end("b2", cure)
    labels |= extended(harness, labels.graph, graph(extra=node("ill", **LAB)))
    return labels


def extended(harness: BaseHarness, id: int, document: object) -> dict[str, int]:
    """Add tasks to a graph; give their ids."""
    one = extension(harness, id, document)
    assert harness.do(lambda transaction: submit.extend(transaction, [one])) == [submit.Submitted(id)]
    return {task.label: one.new_tasks.ids[task.label] for task in one.new_tasks.tasks}


def extension(harness: BaseHarness, id: int, document: object) -> submit.Extension:
    """Check tasks against the graph that they are to be added to."""
    with harness.store.read() as repo:
        rows, record = repo.tasks.definitions_of(id), repo.graphs.peek([id])[0]
    digests = {label: kept or digest(decoded(text)) for _, label, text, kept in rows}
    validation = validate(document, existing=Existing(digests), now=harness.now)
    assert validation.graph is not None, validation.faults
    harness.advance(1)
    keys = ids.mint(harness.now, len(validation.graph.tasks), 7)
    new = {label: int(key) for label, key in zip(validation.graph.tasks, keys, strict=True)}
    known = {label: old for old, label, _, _ in rows} | new
    new_tasks = NewTasks(id, list(validation.graph.tasks.values()), known, harness.now, substitutes=False)
    return submit.Extension(new_tasks, record.extensions, "me", "ann")
