"""Runs a graph to its end in this process, by the library's Scheduler and threads.

No server, no bots, no store: what they are needed for is refused before anything starts (`refusals`), never ignored.
No process outlives the run.
"""

from taskyard.inline.run import run_graph
from taskyard.inline.support import refusals

__all__ = ["refusals", "run_graph"]
