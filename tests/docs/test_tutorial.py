"""Every command of the tutorial prints what the page shows, typed in order by a reader with two terminals."""

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.page import Typed, Written, steps
from tests.docs.terminal import DEADLINE_SECONDS, Terminal
from tests.project.tree import DOCS

PAGE = DOCS / "tutorial.md"
FIRST = "first terminal"
#: The command that runs until Ctrl-C.
STAYS = "taskyard up "
#: Commands that only read are repeated until they print what the page shows, because bots need some time.
_READS = re.compile(r"taskyard (tasks|show|bots|graphs|why|story)\b|taskyard approve$")
_OURS = ("TASKYARD_", "XDG_", "NO_COLOR", "FORCE_COLOR", "COLUMNS")


def test_every_command_of_the_tutorial_shows_what_the_page_shows(tmp_path: Path) -> None:
    with reader(tmp_path) as here:
        for step in steps(PAGE):
            here.follow(step)
        here.first.interrupt()
        assert here.first.ended("up")[1] == 0


class Reader:
    """A reader with two terminals, both in the folder of a clone, who types what the page says."""

    def __init__(self, first: Terminal, second: Terminal, home: Path) -> None:
        self.first, self.second, self.home = first, second, home
        self._code = 0

    def follow(self, step: Written | Typed) -> None:
        """Carry out a step, and compare what it prints."""
        if isinstance(step, Written):
            (self.home / "taskyard-tour" / step.name).write_text(step.text, encoding="utf-8")
        elif step.command.startswith(STAYS):
            self.first.type(step.command)
            self.first.wait(step.is_shown_by, f"what line {step.line} shows")
        else:
            self._type(step, self.first if step.terminal == FIRST else self.second)

    def _type(self, step: Typed, at: Terminal) -> None:
        is_asked = step.command == "echo $?"
        assert is_asked or not self._code, (
            f"line {step.line}: the command before ended with {self._code}, not on the page"
        )
        until = time.monotonic() + DEADLINE_SECONDS
        printed, self._code = at.run(step.command)
        while _READS.match(step.command) and not step.is_shown_by(printed) and time.monotonic() < until:
            printed, self._code = at.run(step.command)
        message = f"line {step.line}: {step.command}\nprinted:\n{printed}\nbut the page shows:\n" + "\n".join(
            step.shown
        )
        assert step.is_shown_by(printed), message


@contextmanager
def reader(folder: Path) -> Iterator[Reader]:
    """A reader with a home, and a clone in which everything is installed."""
    home, clone = folder / "home", folder / "clone"
    home.mkdir()
    (clone / ".venv").mkdir(parents=True)
    (clone / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    own = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)} | {"HOME": str(home)}
    terminals = Terminal(clone, own), Terminal(clone, own)
    try:
        yield Reader(*terminals, home)
    finally:
        for one in terminals:
            one.close()
