"""A server for each module, and one word for what its store holds."""

from collections.abc import Iterator
from pathlib import Path
from shutil import copy

import pytest

from tests.hardening.fingerprint import Look, settled
from tests.server.yard import Yard


@pytest.fixture(scope="module")
def url(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{copy(sqlite_template, tmp_path_factory.mktemp('yard') / 'taskyard.db')}"


@pytest.fixture(scope="module")
def yard(url: str) -> Iterator[Yard]:
    with Yard(url) as made:
        yield made


@pytest.fixture
def kept(yard: Yard, url: str) -> Look:
    """What the store holds, once the server has come to rest."""
    return lambda: settled(yard.engine, url)
