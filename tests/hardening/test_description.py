"""The OpenAPI description is correct: schemathesis sends random requests to every route, as every kind of caller.

It lives in an environment of its own (`make fuzz-env`), and drives a server in a process of its own. No answer is a
5xx, every answer is as described, and whatever is refused has changed nothing. The questions are the same each time; a
failure shows the one that causes it.
"""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

from tests.effort import SOAK, tries
from tests.project.tree import ROOT
from tests.server.running_server import WAIT_S

SCHEMATHESIS = ROOT / ".venv-fuzz" / "bin" / "schemathesis"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
    "a_refusal_leaves_no_trace",
    "a_refusal_is_a_problem",
)


def most(examples: int) -> str:
    """How many examples a phase may try."""
    return f"-n{tries(examples)}"


#: Coverage tries every bound of every field, so only as callers with rights; random requests are sent as all callers.
QUESTIONS = {
    "anonymous": [["--phases=examples,fuzzing", most(2)]],
    "user": [["--phases=examples,coverage,fuzzing", most(2)]],
    "bot": [["--phases=coverage,fuzzing", most(10), "--include-path-regex=/bot/"], ["--phases=fuzzing", most(1)]],
    "run token": [["--phases=coverage,fuzzing", most(3), "--include-path-regex=/tasks"], ["--phases=fuzzing", most(1)]],
}
#: Far more than a run takes, also beside four times the load of the machine.
RUN_MAX_S = 7_200 if SOAK else 900

pytestmark = pytest.mark.timeout(2 * RUN_MAX_S)


@pytest.fixture(scope="module", autouse=True)
def environment() -> None:
    """Make the environment of schemathesis once, in the first worker."""
    with (ROOT / "requirements" / "fuzz.txt").open(encoding="utf-8") as pins:
        fcntl.flock(pins, fcntl.LOCK_EX)
        subprocess.run(["make", "-s", "fuzz-env"], cwd=ROOT, check=True, timeout=RUN_MAX_S)


@contextmanager
def staged(url: str, looks: Path) -> Iterator[dict[str, Any]]:
    """A server in a process of its own, with ids and tokens."""
    command = [sys.executable, "-m", "tests.hardening.prepared_server", url, str(looks)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait(WAIT_S)


@pytest.mark.parametrize("who", QUESTIONS)
def test_every_answer_is_as_described_and_a_refusal_changes_nothing(
    who: str, sqlite_template: Path, tmp_path: Path
) -> None:
    url = f"sqlite:///{copy(sqlite_template, tmp_path / 'taskyard.db')}"
    with staged(url, tmp_path / "looks") as found:
        for questions in QUESTIONS[who]:
            done = asked(found, who, questions, tmp_path)
            assert done.returncode == 0, f"as {who}:\n{done.stdout[-20_000:]}\n{done.stderr[-5_000:]}"


def asked(found: dict[str, Any], who: str, questions: list[str], tmp_path: Path) -> "subprocess.CompletedProcess[str]":
    """Ask a server whatever the description suggests."""
    shown = [f"--header=Authorization: Bearer {found['tokens'][who]}"] if found["tokens"][who] else []
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    known = {"TASKYARD_KNOWN": json.dumps(found["names"]), "TASKYARD_LOOKS": str(tmp_path / "looks")}
    hooks = {"PYTHONPATH": str(ROOT), "SCHEMATHESIS_HOOKS": "tests.hardening.schemathesis_hooks"}
    return subprocess.run(
        [
            str(SCHEMATHESIS), "run", f"{found['url']}/api/v1/openapi.json", f"--checks={','.join(CHECKS)}", *questions,
            *shown, "--generation-deterministic", "--no-color", "--warnings=off", "--request-timeout=30",
        ],
        cwd=tmp_path, env=kept | known | hooks, capture_output=True, text=True, check=False, timeout=RUN_MAX_S,
    )  # fmt: skip
