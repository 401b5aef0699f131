"""Run a graph on a server and a bot that exist only for this run."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from taskyard.core.graph import Fault, GraphDefinition, Task
from taskyard.core.graph.errors import path_text
from taskyard.embedded.interrupts import Interrupts, signals_to
from taskyard.embedded.local_bot import LocalBot

if TYPE_CHECKING:
    from taskyard.wire.progress import Observer, Outcome, Question

UNMET_LIMIT: Final = "asks for {need}; there are {total} in all: give --limit {name}=TOTAL"


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What is to be run, and how."""

    document: Mapping[str, Any]  # validated
    limits: Mapping[str, int]  # totals of named limits
    labels: tuple[str, ...]  # of its tasks, in the order of the document
    jobs: int  # tasks at a time
    logs: Path | None  # folder for the output of attempts
    show_output: bool = False  # whether the observer gets the output, too


def run_graph(spec: RunSpec, observer: "Observer", decide: "Callable[[Question | None], bool | None]") -> "Outcome":
    """Run a graph to its end and return the outcome; `decide` answers approvals.

    The first signal asks running tasks to end, a second one kills them; both make the graph `canceled`.
    The bot starts before the modules of the server are loaded, so that both get ready at the same time.
    """
    interrupts = Interrupts()
    with signals_to(interrupts.add), LocalBot(spec.jobs, spec.logs) as bot:
        from taskyard.embedded.run_loop import run  # noqa: PLC0415 - the server takes long to load

        return run(spec, bot, interrupts, observer, decide)


def unmet_limits(graph: GraphDefinition, limits: Mapping[str, int]) -> tuple[Fault, ...]:
    """List every task that needs more of a named limit than there is."""
    return tuple(dict.fromkeys(fault for task in graph.tasks.values() for fault in _of(task, limits)))


def _of(task: Task, limits: Mapping[str, int]) -> Iterator[Fault]:
    for name, need in dict(task.limits).items():
        total = limits.get(name, 0)
        if need > total:
            at = path_text(("tasks", task.node or task.label, "task", "limits", name))
            yield Fault(at, UNMET_LIMIT.format(need=need, total=total, name=name))
