"""The play that the page about Ansible begins with runs as the page shows it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.page import Written, steps
from tests.project.tree import DOCS

OURS = ("TASKYARD_", "XDG_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "ANSIBLE_")


def test_the_first_play_does_what_the_page_shows(tmp_path: Path) -> None:
    own = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    own |= {"HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = 0
    for step in steps(DOCS / "ansible.md"):
        if isinstance(step, Written):
            (tmp_path / step.name).parent.mkdir(exist_ok=True)
            (tmp_path / step.name).write_text(step.text)
            continue
        said = subprocess.run(
            ["sh", "-c", step.command], cwd=tmp_path, env=own, capture_output=True, text=True, check=False
        )
        assert step.is_shown_by(said.stdout), f"line {step.line}: {step.command}\n{said.stdout}{said.stderr}"
        done += 1
    assert done == 4
