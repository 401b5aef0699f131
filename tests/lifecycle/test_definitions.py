"""Definitions as JSON: fields with their defaults are left out, so a default can never change."""

import json

from taskyard.core.attempt_policy import Patience, Rules
from taskyard.core.graph.model import Edge, Mutex, Reruns, Slice, Task, When
from taskyard.core.states import Disconnect, Impossible, Join, Kind, Millis, On
from taskyard.core.structs import defaults
from taskyard.lifecycle.definitions import decoded, encoded
from taskyard.store.rows import decode_rules, encode_rules

COMMAND = Slice((("pool", ("p",)),), {"command": ["true"]}, Kind.COMMAND)
#: Another default here would change the meaning of stored tasks: it needs a migration that writes the old one.
FOR_EVER: dict[type, dict[str, object]] = {
    Edge: {"on": On.SUCCESS},
    Reruns: {"count": 0, "delay_ms": 0, "factor": 1.0, "exit_codes": ()},
    Mutex: {"party": None},
    When: {},
    Slice: {"expires_ms": 86_400_000, "wait_for_capacity": True},
    Task: {
        "requires": (), "join": Join.ALL, "on_impossible": Impossible.HOLD, "reruns": Reruns(), "routing": "",
        "priority": 100, "deadline": None, "not_before": None, "retries": 2, "idempotent": False, "weight": 1,
        "mutexes": (), "limits": (), "disconnect": Disconnect.STRICT, "tags": (), "description": "", "node": "",
    },
    Patience: {"expires_ms": 86_400_000, "wait_for_capacity": True},
    Rules: {
        "reruns": 0, "delay_ms": 0, "factor": 1, "exit_codes": (), "retries": 2, "slices": (Patience(),),
        "deadline_ms": None, "not_before_ms": None, "idempotent": False,
    },
}  # fmt: skip
#: Parts that have no default, so they are always written.
GIVEN = {"task", "key", "ms", "fixed", "dimensions", "payload", "kind", "label", "slices"}


def test_a_default_that_is_not_written_down_is_what_it_always_was() -> None:
    for kind, known in FOR_EVER.items():
        optional = {name: default for name, default in defaults(kind) if name not in GIVEN or name in known}
        assert optional == known, kind


def test_a_definition_leaves_out_defaults() -> None:
    task = Task("t", (COMMAND,), (Edge("a"), Edge("b", On.ALWAYS)))
    assert json.loads(encoded(task)) == {
        "label": "t",
        "slices": [{"dimensions": [["pool", ["p"]]], "payload": {"command": ["true"]}, "kind": "command"}],
        "requires": [{"task": "a"}, {"task": "b", "on": "always"}],
    }
    assert decoded(encoded(task)) == task


def test_a_definition_with_every_field_is_read_back() -> None:
    slices = (COMMAND, Slice((), {"noop": True}, Kind.NOOP, 5_000, False))
    task = Task(
        "t", slices, (Edge("a", On.FAILURE),), Join.ANY, Impossible.SKIP, Reruns(2, 5, 1.5, (3, 4)), "r", 7,
        When(9, True), When(5, False), 0, True, 3, (Mutex("k", "us"), Mutex("l")), (("db", 2),), Disconnect.KEEP,
        (("a", "b"),), "text", "node",
    )  # fmt: skip
    assert decoded(encoded(task)) == task


def test_equal_rules_are_one_text() -> None:
    texts = {encode_rules(Rules(1, slices=(Patience(int(ms)),))) for ms in ("86400000", "86400000")}
    assert len(texts) == 1


def test_rules_are_read_back() -> None:
    for rules in (
        Rules(),
        Rules(reruns=2),
        Rules(2, 5, 1.5, (3,), 0, (Patience(5, False),), Millis(7), Millis(6), True),
    ):
        assert decode_rules(encode_rules(rules)) == rules
