"""What a function that a warm worker calls can ask about its task, beside its arguments and `os.environ`.

    from taskyard.bot import current

    def total():
        return sum(current.inputs().values())

Outside of a call there are no inputs and no checkpoint.
"""

from typing import Any, Final

import msgspec

from taskyard.bot.worker_frames import NOTHING, Call

_CALL: Final[list[Call]] = []


def inputs() -> dict[str, Any]:
    """Give the results of the task's prerequisites, by label."""
    given = _CALL[0].inputs if _CALL else NOTHING
    read: dict[str, Any] = msgspec.json.decode(given) if given else {}
    return read


def checkpoint() -> bytes | None:
    """Give what the attempt before left."""
    return _CALL[0].checkpoint if _CALL else None


def begin(call: Call) -> None:
    """Make a call the current one."""
    _CALL[:] = [call]
