"""Graphs: reading the document that people submit, the guard of its edges, and the state of a whole graph.

`validate` reads a document: that of TaskCluster's task-graph scheduler unchanged, and the fields that a fleet needs;
`FIELDS` lists them all. `gate` and `verdict` say what the ends of tasks mean for their dependents and for the graph.
"""

from taskyard.core.durations import moment_ms, span_ms, span_text
from taskyard.core.graph.errors import Fault
from taskyard.core.graph.gate import Edges, EdgeState, edge_after, gate, known, signals
from taskyard.core.graph.model import (
    EXPIRES_MS,
    GRACE_MS,
    NOTHING,
    PRIORITY,
    RETRIES,
    TASKS_MAX,
    TIMEOUT_MS,
    WEIGHT,
    Edge,
    Existing,
    GraphDefinition,
    Mutex,
    Payload,
    Reruns,
    Slice,
    Task,
    When,
    digest,
    routing_key,
)
from taskyard.core.graph.parse import Validation, validate
from taskyard.core.graph.payload import SERVER_KINDS, Silence
from taskyard.core.graph.references import substitute
from taskyard.core.graph.scalars import REQUIRED, Field
from taskyard.core.graph.schema import FIELDS
from taskyard.core.graph.state import (
    Handler,
    Handlers,
    Handling,
    Member,
    Tally,
    changeable,
    counted,
    handlers_of,
    handling,
    settled,
    tally,
    unhandled,
    verdict,
)

__all__ = [
    "EXPIRES_MS",
    "FIELDS",
    "GRACE_MS",
    "NOTHING",
    "PRIORITY",
    "REQUIRED",
    "RETRIES",
    "SERVER_KINDS",
    "TASKS_MAX",
    "TIMEOUT_MS",
    "WEIGHT",
    "Edge",
    "EdgeState",
    "Edges",
    "Existing",
    "Fault",
    "Field",
    "GraphDefinition",
    "Handler",
    "Handlers",
    "Handling",
    "Member",
    "Mutex",
    "Payload",
    "Reruns",
    "Silence",
    "Slice",
    "Tally",
    "Task",
    "Validation",
    "When",
    "changeable",
    "counted",
    "digest",
    "edge_after",
    "gate",
    "handlers_of",
    "handling",
    "known",
    "moment_ms",
    "routing_key",
    "settled",
    "signals",
    "span_ms",
    "span_text",
    "substitute",
    "tally",
    "unhandled",
    "validate",
    "verdict",
]
