"""The room where a running task speaks for itself: its result so far, its progress, what its next attempt should get.

Only the attempt that is under way is heard. What it published is what its dependents get if it ends well, unless its
bot brings another result with the end.
"""

from taskyard.core.ids import Key, text_of
from taskyard.lifecycle.commands import Publish
from taskyard.lifecycle.moves import Corridor
from taskyard.lifecycle.outcomes import Code, Refusal
from taskyard.lifecycle.printing import is_leased


def publish(corridor: Corridor, one: Publish) -> Refusal | None:
    """Keep what a running task says of itself."""
    task = corridor.look([one.task]).get(one.task)
    if not is_leased(task, None, one.attempt, one.fence):
        return Refusal(
            Code.LEASE_LOST, f"attempt {one.attempt} of task {text_of(Key(one.task))} is over: nobody hears it any more"
        )
    if one.result is not None:
        corridor.txn.attempts.add_results([(one.task, one.attempt, one.result)])
    if one.progress is not None or one.checkpoint is not None:
        row = (one.task, one.attempt, corridor.now, one.progress, one.checkpoint)
        corridor.txn.traces.note_progress([row])
    return None
