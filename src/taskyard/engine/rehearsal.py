"""What a submission would find wrong with a document, without storing anything: the same checks, the same faults."""

from taskyard.core.graph.document import Graph
from taskyard.core.words import Millis
from taskyard.engine import intake
from taskyard.lifecycle.commands import Refusal
from taskyard.lifecycle.submit import impossible
from taskyard.store.txn import Txn


def read(document: object, now: Millis, scheduler_id: str) -> Graph | Refusal:
    """Check a document as a submission does before it goes to the store."""
    with intake.still_for(document):
        validation = intake.read(document, now, scheduler_id)
    return intake.refusal(validation) if validation.graph is None else validation.graph


def refused(txn: Txn, graph: Graph) -> Refusal | None:
    """Say what the store has against a graph: demands that can never be met."""
    return impossible(txn, graph.tasks.values())
