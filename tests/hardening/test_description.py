"""The description is true: schemathesis asks every route odd things, as everybody who can ask.

It lives in an environment of its own (`make fuzz-env`), and drives a server in a process of its own. No answer is a
5xx, every answer is as described, and whatever is refused has changed nothing. The questions are the same each time; a
failure tells the one that shows it.
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
from tests.server.running_server import SOON_S

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
    """Say how many examples a phase may try."""
    return f"-n{tries(examples)}"


#: Coverage tries every bound of every field, so it asks where somebody gets beyond the door; chance asks everywhere.
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
    """Make the environment that the questions need, once, whoever comes first."""
    with (ROOT / "requirements" / "fuzz.txt").open(encoding="utf-8") as pins:
        fcntl.flock(pins, fcntl.LOCK_EX)
        subprocess.run(["make", "-s", "fuzz-env"], cwd=ROOT, check=True, timeout=RUN_MAX_S)


@contextmanager
def staged(url: str, looks: Path) -> Iterator[dict[str, Any]]:
    """A server in a process of its own, and what it has to be asked about."""
    command = [sys.executable, "-m", "tests.hardening.prepared_server", url, str(looks)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait(SOON_S)


@pytest.mark.parametrize("who", QUESTIONS)
def test_whatever_is_asked_the_answer_is_as_described_and_a_refusal_leaves_no_trace(
    who: str, sqlite_template: Path, tmp_path: Path
) -> None:
    url = f"sqlite:///{copy(sqlite_template, tmp_path / 'taskyard.db')}"
    with staged(url, tmp_path / "looks") as told:
        for questions in QUESTIONS[who]:
            done = asked(told, who, questions, tmp_path)
            assert done.returncode == 0, f"as {who}:\n{done.stdout[-20_000:]}\n{done.stderr[-5_000:]}"


def asked(told: dict[str, Any], who: str, questions: list[str], tmp_path: Path) -> "subprocess.CompletedProcess[str]":
    """Ask a server whatever the description suggests."""
    shown = [f"--header=Authorization: Bearer {told['tokens'][who]}"] if told["tokens"][who] else []
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    known = {"TASKYARD_KNOWN": json.dumps(told["names"]), "TASKYARD_LOOKS": str(tmp_path / "looks")}
    hooks = {"PYTHONPATH": str(ROOT), "SCHEMATHESIS_HOOKS": "tests.hardening.schemathesis_hooks"}
    return subprocess.run(
        [
            str(SCHEMATHESIS), "run", f"{told['url']}/api/v1/openapi.json", f"--checks={','.join(CHECKS)}", *questions,
            *shown, "--generation-deterministic", "--no-color", "--warnings=off", "--request-timeout=30",
        ],
        cwd=tmp_path, env=kept | known | hooks, capture_output=True, text=True, check=False, timeout=RUN_MAX_S,
    )  # fmt: skip
