"""What the programs of a bot have in common that run kinds of work: `ansible` and `git`.

They are started in the working folder of an attempt, with a file that says what to do. Two exit codes say that nothing
could run (`wire/plays.py`). When they are asked to end, they end at once, with everything that they started.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar

import msgspec
import psutil  # type: ignore[import-untyped]

from taskyard.bot.tools import find_program
from taskyard.wire.plays import BOT_FAILED_EXIT, MISSING_EXIT, PRIVATE_VARIABLE

#: How often the processes of a program are looked for, to end them: those that come meanwhile are found the next time.
_KILLS_MAX: Final = 5
_T = TypeVar("_T")


class Missing(Exception):
    """Something that the work names is not there; the text says what."""


class BotFailed(Exception):
    """The work cannot run on this bot; the text says why."""


def run(work: type[_T], act: Callable[[_T], int], arguments: list[str]) -> int:
    """Do the work in a file; return the exit code."""
    signal.signal(signal.SIGTERM, _end_at_once)
    sys.stdout.reconfigure(line_buffering=True, errors="replace")  # type: ignore[union-attr]
    try:
        code = act(msgspec.json.decode(Path(arguments[0]).read_bytes(), type=work))
    except Missing as error:
        say(f"taskyard: {error}")
        return MISSING_EXIT
    except BotFailed as error:
        say(f"taskyard: {error}")
        return BOT_FAILED_EXIT
    except Exception:  # noqa: BLE001 - a bug here is not a failure of the work
        traceback.print_exc(file=sys.stdout)
        return BOT_FAILED_EXIT
    return 1 if code in (MISSING_EXIT, BOT_FAILED_EXIT) else code


def say(text: str) -> None:
    """Print a line of the output of the task."""
    print(text)  # noqa: T201 - that is what it is for


def program(name: str) -> str:
    """Find a program, and make sure that it is found by what it starts, too."""
    found = find_program(name)
    if found is None:
        raise BotFailed(f"{name} is not in the PATH of this bot")
    path = os.environ.get("PATH", "")
    if os.path.dirname(found) not in path.split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join(filter(None, (path, os.path.dirname(found))))
    return found


def private_folder(name: str) -> Path:
    """Make a folder that only this user can read; it is in memory if the attempt has secrets."""
    folder = Path(os.environ.pop(PRIVATE_VARIABLE, "") or os.path.dirname(os.environ["TASKYARD_RESULT"])) / name
    folder.mkdir(mode=0o700)
    return folder


def take_secrets(variables: Iterable[str]) -> dict[str, str]:
    """Take the paths of the files with secrets out of the environment: what is started does not need them."""
    return {name: value for name in variables if (value := os.environ.pop(name, None)) is not None}


def key_file(path: str | None, private: Path) -> str | None:
    """Return a file with a private key; ssh reads no key whose last line has no end."""
    if path is None or (body := Path(path).read_bytes()).endswith(b"\n"):
        return path
    copy = private / "key"
    copy.touch(mode=0o600)
    copy.write_bytes(body + b"\n")
    return str(copy)


def write_result(found: Any) -> None:
    """Publish the result of the task."""
    Path(os.environ["TASKYARD_RESULT"]).write_bytes(msgspec.json.encode(found))


def _end_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """Kill everything that was started, and end: what nobody wants any more has no grace."""
    del frame
    for _ in range(_KILLS_MAX):
        found = psutil.Process().children(recursive=True)
        for one in found:
            with suppress(psutil.Error):
                one.kill()
        if not found:
            break
    sys.stdout.flush()
    os._exit(128 + number)
