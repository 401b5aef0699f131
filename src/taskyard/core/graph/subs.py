"""`{"$subs": "taskId:<label>"}` in a payload stands for the id of the task with that label.

It may stand at any depth of a payload, for a label that comes later, for the task's own, or, in an extension, for
one that exists. What is inside `graph` is left alone: those labels are the inner graph's, and it fills them itself.
"""

from collections.abc import Iterable, Mapping

from taskyard.core.graph.document import Payload
from taskyard.core.graph.faults import Faults, quoted
from taskyard.core.graph.labels import Labels
from taskyard.core.graph.marks import SUBS, Mark, replace
from taskyard.core.graph.matrix import Matrix
from taskyard.core.words import Kind

_PREFIX = "taskId:"


def substitute(payload: Payload, ids: Mapping[str, str]) -> Payload:
    """Give the payload of a valid task with each `$subs` replaced by its task's id; `ids` is label -> id."""

    def stand_in(mark: dict[str, object]) -> object:
        label = label_of(mark[SUBS])
        assert label is not None, "a malformed $subs passed validation"
        return ids[label]

    filled = {key: item if key == Kind.GRAPH else replace(item, SUBS, stand_in) for key, item in payload.items()}
    return filled if any(filled[key] is not payload[key] for key in payload) else payload


def renamed(payload: Payload, names: Mapping[str, str]) -> Payload:
    """Give a payload whose `$subs` were replaced before, with other ids in the place of those; `names` is old -> new.

    Only a text that is an id and nothing else is taken for one.
    """
    return {key: item if key == Kind.GRAPH else _exchange(item, names) for key, item in payload.items()}


def refuse_subs(marks: Iterable[Mark], labels: Labels, faults: Faults) -> None:
    """Note each `$subs` that cannot be replaced."""
    for place, name in marks:
        if place[-1] != SUBS:
            continue
        label = label_of(name)
        if label is None:
            faults.wrong(place, 'a text "taskId:<label>"', name)
        elif label in labels.matrices:
            faults.add(place, f"{quoted(label)} has a matrix; name one combination{_such_as(labels.matrices[label])}")
        elif not labels.are_task(label):
            labels.unknown(label, place, faults)


def label_of(name: object) -> str | None:
    """Read the label that a `$subs` names; None when it is malformed. A label may hold colons itself."""
    if isinstance(name, str) and name.startswith(_PREFIX) and len(name) > len(_PREFIX):
        return name.removeprefix(_PREFIX)
    return None


def _such_as(matrix: Matrix) -> str:
    return f", such as {quoted(next(iter(matrix.combinations)))}" if matrix.combinations else ""


def _exchange(item: object, names: Mapping[str, str]) -> object:
    if isinstance(item, str):
        return names.get(item, item)
    if isinstance(item, list | tuple):
        return [_exchange(one, names) for one in item]
    if isinstance(item, Mapping):
        return {key: _exchange(one, names) for key, one in item.items()}
    return item
