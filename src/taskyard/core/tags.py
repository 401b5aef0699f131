"""The tags by which tasks are found: those that they were given, and those that follow from their definition.

A tag is written `key:value`. Every dimension of every slice is a tag, and so are the pool, the priority and the user.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from taskyard.core.graph.model import Task
from taskyard.core.ids import STEP
from taskyard.core.matching import OR
from taskyard.core.resources import without_marks

#: The key of the tag that names the user for whom a task runs.
USER: Final = "user"
PRIORITY: Final = "priority"


def user_of(task: Task, sender: str) -> str:
    """Return the user of a task: the one that its tags name, or else its submitter."""
    return next((value for key, value in task.tags if key == USER), sender) if task.tags else sender


def all_tags(task: Task, sender: str) -> tuple[str, ...]:
    """Return the tags of a task, given and automatic, sorted and once each."""
    found = {tag_text(key, value) for key, value in task.tags}
    found |= {
        tag_text(key, alternative)
        for one in task.slices
        for key, values in without_marks(one.dimensions)
        for value in values
        for alternative in value.split(OR)
    }
    found.add(tag_text(PRIORITY, str(task.priority)))
    if user := user_of(task, sender):
        found.add(tag_text(USER, user))
    return tuple(sorted(found))


def tag_text(key: str, value: str) -> str:
    """Write a tag."""
    return f"{key}:{value}"


def tag_runs(tagged: Iterable[tuple[int, tuple[str, ...]]]) -> Iterator[tuple[str, int, int]]:
    """Yield the tags of tasks, which come in the order of their ids, as runs: a tag, its last and its first id.

    Neighbours with the same tags are one run, so a graph of equal tasks has one row for each tag.
    """
    first = last = -STEP
    tags: tuple[str, ...] = ()
    for id, own in tagged:
        if id != last + STEP or own != tags:
            yield from ((tag, last, first) for tag in tags)
            first, tags = id, own
        last = id
    yield from ((tag, last, first) for tag in tags)
