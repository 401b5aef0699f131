"""What one document, with everything inside it, may use up.

Matrices multiply, and graphs hold graphs, so a short document can ask for much work. Whoever multiplies takes it
from the allowance first.
"""

from dataclasses import dataclass

from taskyard.core.graph.limits import EDGES_MAX, TASKS_MAX, VALUES_MAX


@dataclass(slots=True)
class Allowance:
    """How much is left; below zero it is overdrawn, and the reading stops there."""

    tasks: int = TASKS_MAX
    edges: int = EDGES_MAX
    values: int = VALUES_MAX
