"""A warm worker: calls functions that an agent names, one after another, in a process that is there already.

Everything that a call prints, at the level of the system and so by programs that it starts, too, goes to a file that
this process tells from. When a call leaves something behind that could touch the next one, the worker says so and ends;
calls that it had not begun were not begun. What waits behind a call that takes long it gives back. It runs no commands,
and knows nothing of tasks beyond what a call says.
"""

import argparse
import asyncio
import importlib
import os
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, reduce
from pathlib import Path
from types import CoroutineType, TracebackType
from typing import Any, Final, NoReturn

import msgspec

from taskyard.bot import current, output_spool
from taskyard.bot.ipc import READ_MAX, Intake
from taskyard.bot.process_cleanup import die_with_parent
from taskyard.bot.pyworker.isolation import Meters, Surroundings
from taskyard.bot.pyworker.protocol import (
    NO_ARGUMENTS,
    NOBODY,
    NOTHING,
    Back,
    Call,
    Journal,
    Leaving,
    Raised,
    Returned,
    Said,
    Told,
    packed,
    read_call,
)
from taskyard.wire.documents import DEPTH_MAX, is_deep

# Makes one call: finds the function, calls it, and makes its result JSON, or its failure a text.
#
# A module is brought once, so that its changes on disk are seen by new workers only. Whatever a call raises is its
# answer and never gets further.


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


#: Answers wait for each other this long, so that a stream of small calls makes few messages.
FLUSH_SECONDS: Final = 0.001
#: How often a call that takes long is looked at for what it printed; answers before it wait no longer, either.
LOOK_SECONDS: Final = 0.05
MEMORY_MAX: Final = 1_073_741_824
#: How many bytes of calls are taken at once, into a buffer that stays.
CALLS_MAX: Final = 131_072
#: How a socket is read without waiting, where it can be.
_AT_ONCE: Final[int | None] = getattr(socket, "MSG_DONTWAIT", None)


class Teller:
    """Sends answers and output in order. A thread of its own does so while a call takes its time."""

    def __init__(self, end: socket.socket, journal: Journal, output: int, unbegun: Callable[[], list[int]]) -> None:
        self._end = end
        self._unbegun = unbegun  # takes away what waits behind the call in hand
        self._journal = journal
        self._output = output
        self._lock = threading.Lock()
        self._busy = threading.Event()
        self._flushed_at = time.perf_counter()
        threading.Thread(target=self._look_after_long_calls, name="taskyard-teller", daemon=True).start()

    def begin(self, run: int) -> None:
        """A call begins."""
        self._journal.take(run)
        if not self._busy.is_set():
            self._busy.set()

    def finish(self, answer: Told) -> None:
        """A call ended: tell the rest of what it printed, then the answer."""
        with self._lock:
            if self._tell_output():
                os.ftruncate(self._output, 0)
            self._keep(packed(answer))
            self._journal.take(NOBODY)
            if time.perf_counter() - self._flushed_at > FLUSH_SECONDS:
                self._flush()

    def rest(self) -> None:
        """Nothing is in hand: send what is kept."""
        self._busy.clear()
        with self._lock:
            self._flush()

    def leave(self, reason: str) -> None:
        """Say that this is the end."""
        with self._lock:
            self._keep(packed(Leaving(reason)))
            self._flush()

    def _tell_output(self) -> int:
        """Tell what the call in hand printed since; give how much it printed in all."""
        size = os.lseek(self._output, 0, os.SEEK_END)
        if not size:
            return 0
        run, told = self._journal.in_hand()
        while told < size and (body := os.pread(self._output, READ_MAX, told)):
            self._keep(packed(Said(run, told, body)))
            told += len(body)
            self._journal.take(run, told)
        output_spool.forget(self._output, told)
        return size

    def _keep(self, frame: bytes) -> None:
        if self._journal.add(frame):
            return
        self._flush()
        if not self._journal.add(frame):
            self._end.sendall(frame)

    def _flush(self) -> None:
        self._flushed_at = time.perf_counter()
        waiting = self._journal.waiting()
        if waiting:
            self._end.sendall(waiting)
            self._journal.sent()

    def _look_after_long_calls(self) -> None:
        before = NOBODY
        with suppress(OSError):
            while self._busy.wait():
                time.sleep(LOOK_SECONDS)
                with self._lock:
                    run = self._journal.in_hand()[0]
                    if run != NOBODY:
                        self._tell_output()
                        # Another worker may be free for what waits behind it.
                        if run == before and (runs := self._unbegun()):
                            self._keep(packed(Back(runs)))
                    before = run
                    self._flush()


class Worker:
    """Makes the calls that come."""

    def __init__(self, end: socket.socket, journal: Journal, memory_max: int) -> None:
        output = os.dup(sys.stdout.fileno())
        self._end = end
        self._surroundings = Surroundings(output, memory_max)
        self._reading = threading.Lock()
        self._intake, self._buffer = Intake(), memoryview(bytearray(CALLS_MAX))
        self._waiting: deque[bytes] = deque()  # each is taken once, by whoever makes the call or gives it back
        self._teller = Teller(end, journal, output, self._unbegun)
        self._meters = Meters()

    def serve(self) -> str | None:
        """Work until the agent is gone, or the worker has to go: then say why."""
        while self._take_in():
            while (body := self._next()) is not None:
                reason = self._answer(read_call(body))
                if reason is not None:
                    self._teller.leave(reason)
                    return reason
            self._teller.rest()
        return None

    def _next(self) -> bytes | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None  # there is no more, or it was given back

    def _take_in(self) -> bool:
        """Wait until calls have come; False when the agent is gone."""
        with self._reading:
            return bool(self._waiting) or self._read()

    def _read(self, flags: int = 0) -> bool:
        size = self._end.recv_into(self._buffer, 0, flags)
        if size:
            self._waiting.extend(self._intake.bodies(bytes(self._buffer[:size])))
        return size > 0

    def _unbegun(self) -> list[int]:
        """Take away the calls that wait, those included that have come and were not read yet; name them, in order."""
        if _AT_ONCE is not None and self._reading.acquire(blocking=False):
            try:
                with suppress(BlockingIOError):
                    self._read(_AT_ONCE)
            finally:
                self._reading.release()
        taken: list[int] = []
        with suppress(IndexError):
            while True:
                taken.append(read_call(self._waiting.pop()).run)
        return taken[::-1]

    def _answer(self, call: Call) -> str | None:
        """Make one call; say why there cannot be another, if so."""
        self._teller.begin(call.run)
        began = time.perf_counter()
        answer = self._made(call, began)
        if self._surroundings.is_elsewhere():
            os._exit(0)
        self._surroundings.leave()
        reason = self._surroundings.spoiled()
        if reason is None and self._meters.fresh:
            reason = self._surroundings.filled(self._meters.peak_bytes)
        self._teller.finish(answer)
        return reason

    def _made(self, call: Call, began: float) -> Returned | Raised:
        try:
            self._surroundings.enter(call.env, call.cwd)
            current.begin(call)
            result = outcome(call)
        except BaseException as error:  # noqa: BLE001 - whatever a call raises is its answer
            text, exit_code = failure(error)
            return Raised(call.run, self._meters.read(began), text, exit_code, isinstance(error, BadResult))
        return Returned(call.run, self._meters.read(began), result)


def main() -> NoReturn:
    """Serve the agent at the other end of an inherited socket."""
    options = argparse.ArgumentParser(prog="python -m taskyard.bot.pyworker.worker", description=__doc__)
    options.add_argument("--fd", type=int, required=True, help="this end of the socket to the agent")
    options.add_argument("--journal", type=int, help="a file that is shared with the runner")
    options.add_argument("--memory-max", type=int, default=MEMORY_MAX, help="bytes at which the worker ends")
    given = options.parse_args()
    die_with_parent()
    for file in {given.fd, given.journal} - {None}:
        os.set_inheritable(file, False)
    # What is printed is told while a call still runs, and is there when it ends the process.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    with suppress(ConnectionError):
        Worker(socket.socket(fileno=given.fd), Journal(given.journal), given.memory_max).serve()
    # Threads that a call left must not keep the process.
    os._exit(0)


if __name__ == "__main__":
    main()
