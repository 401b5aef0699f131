"""The routing key of a task's messages: `<schedulerId>.<taskGraphId>.<graph.routing>.<task.routing>`.

A key has four words, always; no word holds a dot, so whoever receives one can take it apart again.
"""

from taskyard.core.graph.limits import ROUTING_KEY_BYTES_MAX

#: Stands for a routing that was not given: a word of a key is never empty.
ABSENT = "_"


def routing_key(scheduler_id: str, graph_id: str, graph_routing: str, task_routing: str) -> str:
    """Compose the routing key of a task, or of its graph when `task_routing` is empty."""
    words = tuple(word or ABSENT for word in (scheduler_id, graph_id, graph_routing, task_routing))
    assert not any("." in word for word in words), "a word of a routing key holds a dot"
    return ".".join(words)


def room_bytes(scheduler_id: str, graph_id: str, graph_routing: str) -> int:
    """Say how long a task's routing may be so that its key still fits; below 1 not even an absent one does."""
    shortest = routing_key(scheduler_id, graph_id, graph_routing, ABSENT)
    return ROUTING_KEY_BYTES_MAX - len(shortest.encode()) + len(ABSENT)
