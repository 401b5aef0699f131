"""Small documents that the tests of the graph package share."""

from collections.abc import Mapping

from taskyard.core.graph import GraphDefinition, Task, validate

NOOP: Mapping[str, object] = {"noop": True}


def node(payload: object = NOOP, /, **fields: object) -> dict[str, object]:
    """A node whose task has `payload`; `fields` are the node's."""
    return {"task": {"payload": _plain(payload)}, **fields}


def task(**fields: object) -> dict[str, object]:
    """A graph document with the one task `a`, which has `fields`."""
    return {"tasks": {"a": {"task": {"payload": {"command": ["true"]}, **fields}}}}


def payload(**fields: object) -> dict[str, object]:
    """A graph document with the one task `a`, whose payload is `fields`."""
    return {"tasks": {"a": {"task": {"payload": fields}}}}


def graph(**nodes: object) -> dict[str, object]:
    """A graph document of `nodes`."""
    return {"tasks": nodes}


def chain(length: int) -> dict[str, object]:
    """A document in which each task requires the one before."""
    return graph(**{f"t{index}": node(requires=[f"t{index - 1}"] if index else []) for index in range(length)})


def faults_of(document: object) -> list[tuple[str, str]]:
    """What is wrong with a document, as pairs of path and message."""
    validation = validate(document)
    assert (validation.graph is None) == bool(validation.faults)
    return [(fault.path, fault.message) for fault in validation.faults]


def read(document: object) -> GraphDefinition:
    """The graph of a document that is valid."""
    validation = validate(document)
    assert validation.faults == ()
    assert validation.graph is not None
    return validation.graph


def read_task(document: object, label: str = "a") -> Task:
    """One task of a document that is valid."""
    return read(document).tasks[label]


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else value
