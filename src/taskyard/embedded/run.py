"""Run a graph on a server and a bot that exist only for this run."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from taskyard.core.graph import Fault, GraphDefinition, Task
from taskyard.core.graph.errors import path_text
from taskyard.core.graph.model import NESTING_MAX
from taskyard.core.graph.payload import secrets_of
from taskyard.core.states import Kind
from taskyard.embedded.interrupts import Interrupts, signals_to
from taskyard.embedded.local_bot import LocalBot

if TYPE_CHECKING:
    from taskyard.embedded.run_loop import LocalRun
    from taskyard.sdk.local_inputs import LocalTree
    from taskyard.wire.progress import Decide

NO_SECRETS: Final = "names secrets, and only a server has any: start one with `taskyard up`, and submit the graph"
UNMET_LIMIT: Final = "asks for {need}; there are {total} in all: give --limit {name}=TOTAL"


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What to run, and how."""

    document: Mapping[str, Any]  # validated
    limits: Mapping[str, int]  # totals of named limits
    name: str  # of the graph, or else of its file
    labels: tuple[str, ...]  # of its tasks, in the order of the document
    jobs: int  # tasks at a time
    logs: Path | None  # folder for the output of attempts
    show_output: bool = False  # whether the output is part of the news
    trees: "tuple[LocalTree, ...]" = ()  # the files of this machine that the document names


@contextmanager
def started(spec: RunSpec, decide: "Decide") -> "Iterator[LocalRun]":
    """Start a graph, which runs while its looks are read; `decide` answers approvals.

    The first signal asks running tasks to end, a second one kills them; both make the graph `canceled`.
    The bot starts before the modules of the server are loaded, so that both get ready at the same time.
    """
    interrupts = Interrupts()
    with signals_to(interrupts.add), LocalBot(spec.jobs, spec.logs) as bot:
        from taskyard.embedded.run_loop import started_on  # noqa: PLC0415 - the server takes long to load

        with started_on(bot, spec, interrupts, decide) as run:
            yield run


def unmet_limits(graph: GraphDefinition, limits: Mapping[str, int]) -> tuple[Fault, ...]:
    """List every task that needs more of a named limit than there is, or secrets, of which there are none."""
    return tuple(dict.fromkeys(fault for task in graph.tasks.values() for fault in _of(task, limits)))


def _of(task: Task, limits: Mapping[str, int]) -> Iterator[Fault]:
    for name, need in dict(task.limits).items():
        total = limits.get(name, 0)
        if need > total:
            at = path_text(("tasks", task.node or task.label, "task", "limits", name))
            yield Fault(at, UNMET_LIMIT.format(need=need, total=total, name=name))
    named = next((use.at for one in task.slices for use in secrets_of(one.payload) if use.name), None)
    if named is not None:
        place = named[:1] if named[0] == "secrets" else named
        yield Fault(path_text(("tasks", task.node or task.label, "task", "payload", *place)), NO_SECRETS)


def approvals_without_timeout(document: object, within: str = "", nesting: int = 0) -> Iterator[str]:
    """List the approvals of a document that have no timeout: `label`, or `task/label` in a graph inside a task."""
    tasks = _value(document, "tasks")
    for label, node in tasks.items() if isinstance(tasks, dict) else ():
        task = _value(node, "task")
        slices = _value(task, "slices")
        shared = _value(task, "payload") or {}
        for one in slices if isinstance(slices, list) and slices else [{}]:
            payload = {**shared, **(_value(one, "payload") or {})}
            if Kind.APPROVAL in payload and "timeout" not in payload:
                yield f"{within}{label}"
            if nesting <= NESTING_MAX:
                yield from approvals_without_timeout(payload.get(Kind.GRAPH), f"{within}{label}/", nesting + 1)


def _value(whole: object, name: str) -> Any:
    return whole.get(name) if isinstance(whole, dict) else None
