"""The life cycle does what the model says, on both databases."""

import shutil
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from hypothesis import seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import Lives


@pytest.fixture
def sqlite_machine(sqlite_template: Path, tmp_path: Path) -> type[Lives]:
    numbers = count()

    def fresh() -> str:
        return f"sqlite:///{shutil.copy(sqlite_template, tmp_path / f'{next(numbers)}.db')}"

    def drop(url: str) -> None:
        Path(url.removeprefix("sqlite:///")).unlink()

    return type("SqliteLives", (Lives,), {"fresh": staticmethod(fresh), "drop": staticmethod(drop), "happened": Counter()})


def test_sqlite_does_what_the_model_says(sqlite_machine: type[Lives]) -> None:
    import os
    run_state_machine_as_test(
        sqlite_machine,
        settings=settings(max_examples=int(os.environ.get("N", 50)), stateful_step_count=int(os.environ.get("M", 40)), print_blob=False),
    )
    for k, v in sorted(sqlite_machine.happened.items()): print(v, k)
