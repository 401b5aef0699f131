"""Makes one call: finds the function, calls it, and makes its result JSON, or its failure a text.

A module is brought once, so that its changes on disk are seen by new workers only. Whatever a call raises is its answer
and never gets further.
"""

import asyncio
import importlib
import traceback
from collections.abc import Callable
from functools import lru_cache, reduce
from pathlib import Path
from types import CoroutineType, TracebackType
from typing import Any, Final

import msgspec

from taskyard.bot.worker_frames import NO_ARGUMENTS, NOTHING, Call
from taskyard.wire.depth import is_deep
from taskyard.wire.scalars import DEPTH_MAX

#: A failure is read by people: of a longer text, the end says what happened.
_TEXT_MAX: Final = 65_536
#: Code between the worker and what the caller wrote.
_BETWEEN: Final = (
    str(Path(__file__).parent), str(Path(asyncio.__file__).parent), "<frozen importlib", importlib.__file__,
)  # fmt: skip


class Fault(Exception):
    """The call could not be made, or gave no result; its text says all there is to say."""


class BadResult(Fault):
    """The call returned what is no result."""


def outcome(call: Call) -> msgspec.Raw:
    """Make the call and give its result as JSON; None is nothing."""
    function = _found(call.function)
    value = _called(function, call.args)
    return NOTHING if value is None else _written(value, call.result_max)


def failure(error: BaseException) -> tuple[str, int]:
    """Say what a call raised, and with what it would have exited."""
    if isinstance(error, Fault):
        return f"{error}\n", 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        said = "" if error.code is None or isinstance(error.code, int) else f": {error.code}"
        return f"the function called sys.exit with {code}{said}\n", code
    text = "".join(traceback.format_exception(type(error), error, _own_part(error.__traceback__)))
    return text[-_TEXT_MAX:], 1


@lru_cache(maxsize=1024)
def _found(function: str) -> Callable[..., Any]:
    module, _, name = function.partition(":")
    if not module or not name:
        raise Fault(f"{function!r} names no function: write it as module:function")
    try:
        brought = importlib.import_module(module)
    except ModuleNotFoundError as error:
        # What the module itself cannot find is for its own traceback to tell.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise Fault(f"there is no module {error.name!r} for {function!r}") from None
    try:
        found = reduce(getattr, name.split("."), brought)
    except AttributeError:
        raise Fault(f"the module {module!r} has no {name!r}") from None
    if not callable(found):
        raise Fault(f"{function!r} is no function: it is of type {type(found).__name__}")
    return found


def _called(function: Callable[..., Any], args: msgspec.Raw) -> Any:
    given = [] if args is NO_ARGUMENTS else _read(args)
    value = function(**given) if isinstance(given, dict) else function(*given)
    return asyncio.run(value) if type(value) is CoroutineType else value


def _read(args: msgspec.Raw) -> list[Any] | dict[str, Any]:
    try:
        read = msgspec.json.decode(args)
    except msgspec.DecodeError as error:
        raise Fault(f"the arguments are no JSON: {error}") from None
    if not isinstance(read, list | dict):
        raise Fault("the arguments are neither a list nor an object")
    return read


def _written(value: Any, result_max: int) -> msgspec.Raw:
    try:
        written = msgspec.json.encode(value)
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise BadResult(f"the function returned what is no JSON: {error}") from None
    if len(written) > result_max:
        raise BadResult(f"the function returned {len(written)} bytes of JSON, and a result has at most {result_max}")
    if is_deep(written):
        raise BadResult(f"the function returned lists or objects that are nested more than {DEPTH_MAX} deep")
    return msgspec.Raw(written)


def _own_part(at: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that begins with what the caller wrote."""
    while at is not None and at.tb_frame.f_code.co_filename.startswith(_BETWEEN):
        at = at.tb_next
    return at
