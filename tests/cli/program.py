"""Running the installed program."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from taskyard.main import main
from tests.cli.waiting import DEADLINE_SECONDS

PROGRAM = Path(sys.executable).with_name("taskyard")
ROOT = Path(__file__).parents[2]
#: The environment without settings for colours and width.
PLAIN_ENV = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}


def taskyard(
    *arguments: str, document: str = "", cwd: Path = ROOT, env: Mapping[str, str] = PLAIN_ENV
) -> subprocess.CompletedProcess[str]:
    """Run a command; `document` is its standard input."""
    command = [str(PROGRAM), *arguments]
    return subprocess.run(
        command, input=document, capture_output=True, text=True, cwd=cwd, env=env, timeout=DEADLINE_SECONDS, check=False
    )


def taskyard_in_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, which takes a tenth of the time."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    command = [str(PROGRAM), *arguments]
    streams = redirect_stdout(out), redirect_stderr(err)
    with streams[0], streams[1], patch.object(sys, "argv", command), pytest.raises(SystemExit) as ended:
        main()
    texts = []
    for stream in (out, err):
        stream.flush()
        stream.seek(0)
        texts.append(stream.read())
    assert isinstance(ended.value.code, int)
    return subprocess.CompletedProcess(command, ended.value.code, *texts)


def run(tasks: Mapping[str, object], *options: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a graph of some tasks with `taskyard run`."""
    return taskyard("run", "-", *options, document=graph(tasks), cwd=cwd)


def graph(tasks: Mapping[str, object]) -> str:
    return json.dumps({"name": "trial", "tasks": tasks})


def script(text: str, *requires: str, reruns: object = 0, **payload: object) -> dict[str, object]:
    """Make a task that runs a script."""
    return {"requires": list(requires), "reruns": reruns, "task": {"payload": {"script": text, **payload}}}
