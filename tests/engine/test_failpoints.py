"""Places where the engine can be made to fail."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskyard.engine import failpoints
from taskyard.engine.failpoints import Boundary, Failure, Side, arm, names, point
from tests.project.tree import SOURCES


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    arm(None)


def test_nothing_fails_unless_a_failpoint_is_armed() -> None:
    for boundary in Boundary:
        point(boundary, Side.BEFORE)


def test_a_point_fails_at_the_chosen_passage_and_only_then() -> None:
    arm("batch.after:raise@2")
    point(Boundary.BATCH, Side.AFTER)
    point(Boundary.BATCH, Side.BEFORE)
    with pytest.raises(Failure):
        point(Boundary.BATCH, Side.AFTER)
    point(Boundary.BATCH, Side.AFTER)


def test_a_point_can_stop_for_a_while() -> None:
    arm("own.before:stop=1")
    point(Boundary.OWN, Side.BEFORE)


@pytest.mark.parametrize("text", ["", "batch", "batch.before", "nothing.before:exit", "batch.before:explode@1"])
def test_an_invalid_failpoint_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        failpoints.ArmedFailpoint(text)


def test_every_kind_of_transaction_is_in_use() -> None:
    used = {name for path in (SOURCES / "engine").glob("*.py") for name in boundaries_in(path)}
    assert used == set(Boundary.__members__)
    assert len(names()) == 2 * len(Boundary)


def boundaries_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Boundary":
            yield node.attr
