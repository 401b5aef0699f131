"""Runs the programs of a bot for kinds of work, without a bot: what they do in a working folder."""

import json
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def run_program(
    kind: str,
    work: object,
    folder: Path,
    *,
    python: str = sys.executable,
    env: Mapping[str, str] = {},
    bounds: Mapping[str, int] = {},
) -> tuple[int, str, Any]:
    """Run a program in a folder, maybe with other bounds; return its exit code, what it printed, and its result."""
    module = f"taskyard.bot.{kind}"
    changed = "".join(f"{module}.{name} = {value}; " for name, value in bounds.items())
    code = f"import sys, {module}; {changed}sys.exit({module}.main(sys.argv[1:]))"
    with tempfile.TemporaryDirectory() as exchange:
        files = {name: Path(exchange, name) for name in ("spec", "inputs", "result")}
        files["spec"].write_text(json.dumps(work))
        files["inputs"].write_text("{}")
        paths = {f"TASKYARD_{name.upper()}": str(files[name]) for name in ("inputs", "result")}
        done = subprocess.run(
            [python, "-P", *(["-c", code] if bounds else ["-m", module]), str(files["spec"])],
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "LC_ALL": "C.UTF-8", **paths, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        result = json.loads(files["result"].read_text()) if files["result"].exists() else None
        return done.returncode, done.stdout, result


def python_without(folder: Path, name: str) -> Path:
    """Make a Python that has everything that this one has, but for packages whose names begin so."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (target,) = folder.glob("lib/python*/site-packages")
    for one in Path(sysconfig.get_path("purelib")).iterdir():
        if not one.name.startswith(name):
            (target / one.name).symlink_to(one)
    return folder / "bin" / "python"
