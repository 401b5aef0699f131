"""Impossible graphs and fields: refused with every fault, and nothing is stored."""

from typing import Any

import pytest

from tests.hardening.store_digest import Digest
from tests.server.running_server import RunningServer, graph, task


def ring(size: int) -> dict[str, Any]:
    """Tasks that require each other in a ring."""
    return graph(**{f"t{number}": task(f"t{(number + 1) % size}") for number in range(size)})


def with_field(**said: object) -> dict[str, Any]:
    return graph(a=task(**said))


def with_payload(**said: object) -> dict[str, Any]:
    return graph(a=task(payload={"command": ["true"], **said}))


SHAPES: dict[str, tuple[dict[str, Any], str]] = {
    "waits for itself": (graph(a=task("a")), "tasks.a.requires[0]"),
    "two wait for each other": (ring(2), "tasks.t0"),
    "a long ring": (ring(5_000), "tasks.t0"),
    "waits for an unknown label": (graph(a=task("b")), "tasks.a.requires[0]"),
    "tasks are a list": ({"tasks": []}, "tasks"),
    "a field too many": (graph(a=task()) | {"taks": 1}, "taks"),
    "a field in capitals": (graph(a=task()) | {"Name": "a"}, "Name"),
    "an unknown kind": (graph(a=task(payload={"comand": ["true"]})), "tasks.a.task.payload.comand"),
    "two kinds": (with_payload(script="true"), "tasks.a.task.payload"),
    "a deadline without a zone": (with_field(deadline="2030-01-01T00:00:00"), "tasks.a.task.deadline"),
    "a deadline far away": (with_field(deadline="9999-12-31T23:59:59Z"), "tasks.a.task.deadline"),
    "a deadline in no year": (with_field(deadline="0000-01-01T00:00:00Z"), "tasks.a.task.deadline"),
    "a deadline that has passed": (with_field(deadline="2001-01-01T00:00:00Z"), "tasks.a.task.deadline"),
    "a deadline in words": (with_field(deadline="tomorrow"), "tasks.a.task.deadline"),
    "too many reruns": (graph(a={**task(), "reruns": 1_000}), "tasks.a.reruns"),
    "fewer reruns than none": (graph(a={**task(), "reruns": -1}), "tasks.a.reruns"),
    "a span of nothing": (with_payload(timeout="0s"), "tasks.a.task.payload.timeout"),
    "a span before now": (with_payload(timeout="-1s"), "tasks.a.task.payload.timeout"),
    "a span for ever": (with_payload(timeout="99999999999999999999h"), "tasks.a.task.payload.timeout"),
    "a routing with dots": (with_field(routing="a.b.*.#"), "tasks.a.task.routing"),
    "stands for an unknown label": (
        with_payload(env={"X": {"$subs": "taskId:nobody"}}),
        "tasks.a.task.payload.env.X.$subs",
    ),
    "a command of nothing": (graph(a=task(payload={"command": []})), "tasks.a.task.payload.command"),
    "a path out of the room": (with_payload(outputs=["../../etc/passwd"]), "tasks.a.task.payload.outputs[0]"),
    "a path from the root": (with_payload(outputs=["/etc/passwd"]), "tasks.a.task.payload.outputs[0]"),
    "an environment of equal signs": (with_payload(env={"A=B": "c"}), "tasks.a.task.payload.env"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_what_cannot_be_is_refused_with_its_place_and_nothing_is_stored(
    server: RunningServer, kept: Digest, name: str
) -> None:
    document, place = SHAPES[name]
    before = kept()
    answer = server.ask("POST", "/api/v1/graphs", document)
    assert answer.status == 400, answer.body
    assert [path for path in answer.paths if path.startswith(place)], answer.body
    assert len(answer.body) < 100_000
    assert kept() == before


def test_an_extension_cannot_close_a_ring_or_change_what_is_there(server: RunningServer, kept: Digest) -> None:
    made = server.submit(graph(a=task(), b=task("a")))
    before = kept()
    for extension, status in (
        (graph(a=task("b")), 409),
        (graph(c=task("d"), d=task("c")), 400),
        (graph(c=task("nobody")), 400),
        (graph(a=task(priority=9)), 409),
    ):
        assert server.ask("POST", f"/api/v1/graphs/{made.id}/tasks", extension).status == status, extension
    assert kept() == before


def test_every_fault_is_listed_up_to_a_hundred(server: RunningServer) -> None:
    answer = server.ask("POST", "/api/v1/graphs", graph(**{f"t{number}": task("nobody") for number in range(500)}))
    assert (answer.status, 100 <= len(answer.paths) <= 101) == (400, True)


def test_the_same_key_with_another_document_is_a_conflict_and_the_first_stays(
    server: RunningServer, kept: Digest
) -> None:
    key = {"Idempotency-Key": "once"}
    first = server.ask("POST", "/api/v1/graphs", graph(a=task()), headers=key)
    before = kept()
    again = server.ask("POST", "/api/v1/graphs", graph(a=task()), headers=key)
    other = server.ask("POST", "/api/v1/graphs", graph(b=task()), headers=key)
    assert (first.status, again.status, other.status) == (201, 200, 409)
    assert again.json["graph_id"] == first.json["graph_id"]
    assert kept() == before
