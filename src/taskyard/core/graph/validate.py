"""From a parsed document to a graph, or to the list of everything that is wrong with it.

The document is a plain value: what JSON or YAML text was parsed into. Whatever it is, `validate` answers and never
raises, and nothing it does takes longer for a hostile document than for a large honest one.
"""

from dataclasses import dataclass

from taskyard.core.graph.allowance import Allowance
from taskyard.core.graph.document import Graph
from taskyard.core.graph.extension import NOTHING, Existing
from taskyard.core.graph.faults import Fault, Faults
from taskyard.core.graph.limits import TASKS_MAX, VALUES_MAX
from taskyard.core.graph.reading import Context, Place, read_graph
from taskyard.core.graph.survey import survey
from taskyard.core.words import Millis


@dataclass(frozen=True, slots=True)
class Validation:
    """A graph, or the faults that keep the document from being one; never both, never neither."""

    graph: Graph | None
    faults: tuple[Fault, ...] = ()
    echoes: tuple[str, ...] = ()  # labels that exist with the very same definition; left out of the graph
    redefines: bool = False  # nothing is wrong but that labels exist with another definition


def validate(
    document: object,
    *,
    scheduler_id: str = "taskyard",
    graph_id: str = "",
    existing: Existing = NOTHING,
    tasks_max: int = TASKS_MAX,
    now: Millis | None = None,
) -> Validation:
    """Read a graph document, or, given what exists, an extension; `now` is for deadlines that are over already."""
    faults = Faults()
    surveyed = survey(document, faults)
    if not surveyed.readable:
        return Validation(None, faults.listed())
    left = Allowance(tasks=tasks_max, values=VALUES_MAX - surveyed.values)
    context = Context(faults, left, scheduler_id, graph_id, now, sound=not faults.noted)
    graph, echoes = read_graph(document, Place(existing=existing, marked=surveyed.marked), context)
    if faults.noted:
        return Validation(None, faults.listed(), redefines=faults.redefined == faults.noted)
    return Validation(graph, echoes=echoes)
