"""What a function called in a warm worker can learn about its task, beside its arguments and `os.environ`.

    from taskyard.bot import current

    def total():
        return sum(current.inputs().values())

Outside of a call there are no inputs and no checkpoint.
"""

from pathlib import Path
from typing import Any, Final

import msgspec

from taskyard.bot.pyworker.protocol import Call

_CALL: Final[list[Call]] = []


def inputs() -> dict[str, Any]:
    """Return the results of the task's prerequisites, by label."""
    if not _CALL:
        return {}
    given: bytes | msgspec.Raw = _CALL[0].inputs
    file = _CALL[0].env.get("TASKYARD_INPUTS")
    if not given and file is not None:  # there are none, or they are too large for a frame
        given = Path(file).read_bytes()
    read: dict[str, Any] = msgspec.json.decode(given) if given else {}
    return read


def checkpoint() -> bytes | None:
    """Return the checkpoint that the previous attempt left."""
    return _CALL[0].checkpoint if _CALL else None


def begin(call: Call) -> None:
    """Make a call the current one."""
    _CALL[:] = [call]
