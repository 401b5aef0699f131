"""Routing keys."""

import pytest

from taskyard.core.graph import Existing, Fault, routing_key, validate
from tests.core.graph.documents import node, task


def test_a_key_has_four_words() -> None:
    assert routing_key("taskyard", "g1", "nightly", "build") == "taskyard.g1.nightly.build"


def test_an_absent_routing_is_an_underscore() -> None:
    assert routing_key("taskyard", "g1", "", "") == "taskyard.g1._._"


def test_a_word_of_a_key_holds_no_dot() -> None:
    with pytest.raises(AssertionError):
        routing_key("task.yard", "g1", "", "")


# `s` * 100, the id `g`, and a graph routing of ten: 114 bytes, and 13 or 14 for the dot and the task's.
@pytest.mark.parametrize(
    ("scheduler", "routing", "faults"),
    [
        (104, "0123456789", ()),
        (105, "0123456789", (Fault("tasks.a.task.routing", "makes a routing key 1 byte too long; shorten it"),)),
        (105, "012345678", ()),
        (113, "0", ()),
        (113, "", ()),
        (114, "", (Fault("routing", "makes routing keys 1 byte too long; shorten it"),)),
        (114, "01", (Fault("routing", "makes routing keys 1 byte too long; shorten it"),)),
    ],
)
def test_a_key_has_at_most_128_bytes(scheduler: int, routing: str, faults: tuple[Fault, ...]) -> None:
    document = {"routing": "0123456789", **task(routing=routing)}
    assert validate(document, scheduler_id="s" * scheduler, graph_id="g").faults == faults


def test_bytes_count_and_not_characters() -> None:
    document = task(routing="0123456789")
    assert validate(document, scheduler_id="\u00e9" * 57, graph_id="g").graph is None
    assert validate(document, scheduler_id="e" * 57, graph_id="g").graph is not None


def test_an_extension_uses_the_routing_of_its_graph() -> None:
    document = {"tasks": {"new": node()}}
    old = Existing({"old": ""}, routing="0123456789")
    assert validate(document, scheduler_id="s" * 114, graph_id="g", existing=old).graph is None
    assert validate(document, scheduler_id="s" * 113, graph_id="g", existing=old).graph is not None


def test_an_empty_routing_is_as_good_as_none() -> None:
    assert validate({"routing": "", **task(routing="")}).graph == validate(task()).graph
