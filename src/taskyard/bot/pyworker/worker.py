"""A warm worker: a process that calls functions for an agent, one after another.

Everything that a call prints, also at the level of file descriptors and by child processes, goes to a file that this
process reads and sends. When a call leaves something that could affect the next one, the worker says so and ends
without beginning the next call. It gives back the calls behind one that takes long.
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
from taskyard.bot.ipc import READ_MAX, FrameBuffer, encode_frame
from taskyard.bot.process_cleanup import die_with_parent
from taskyard.bot.pyworker.isolation import CallIsolation, UsageMeter
from taskyard.bot.pyworker.protocol import (
    NO_ARGUMENTS,
    NO_CALL,
    Call,
    CallOutput,
    CallRaised,
    CallReturned,
    CallsGivenBack,
    FromWorker,
    Outbox,
    WorkerLeaving,
    decode_call,
)
from taskyard.wire.attempt_limits import NOTHING
from taskyard.wire.documents import DEPTH_MAX, is_deep

#: A traceback is read by people; the end of a longer one says what happened.
_TEXT_MAX: Final = 65_536
#: Code between the worker and what the caller wrote.
_FRAMES_BETWEEN: Final = (
    str(Path(__file__).parent), str(Path(asyncio.__file__).parent), "<frozen importlib", importlib.__file__,
)  # fmt: skip
#: Answers wait this long to be sent together, so that a stream of short calls makes few messages.
FLUSH_SECONDS: Final = 0.001
#: How often the output of a long call is sent; answers before it wait no longer than this, either.
LOOK_SECONDS: Final = 0.05
MEMORY_MAX: Final = 1_073_741_824
#: How many bytes of calls are read at once, into one buffer that is reused.
CALLS_MAX: Final = 131_072
#: The flag to read a socket without waiting, where it exists.
_NO_WAIT: Final[int | None] = getattr(socket, "MSG_DONTWAIT", None)


# Making a call.


class CallError(Exception):
    """The call could not be made, or gave no result; the text says why."""


class BadResult(CallError):
    """What the call returned is not a result."""


def call_function(call: Call) -> msgspec.Raw:
    """Make a call and return its result as JSON; empty for None."""
    function = _load_function(call.function)
    value = _invoke(function, call.args)
    return NOTHING if value is None else _encode_result(value, call.result_max)


def describe_failure(error: BaseException) -> tuple[str, int]:
    """Return the text for what a call raised, and the exit code."""
    if isinstance(error, CallError):
        return f"{error}\n", 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        message = "" if error.code is None or isinstance(error.code, int) else f": {error.code}"
        return f"the function called sys.exit with {code}{message}\n", code
    text = "".join(traceback.format_exception(type(error), error, _user_part(error.__traceback__)))
    return text[-_TEXT_MAX:], 1


@lru_cache(maxsize=1024)
def _load_function(function: str) -> Callable[..., Any]:
    module, _, name = function.partition(":")
    if not module or not name:
        raise CallError(f"{function!r} does not name a function: write it as module:function")
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        # A module that the imported module misses shows in a traceback of its own.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise CallError(f"there is no module {error.name!r} for {function!r}") from None
    try:
        found = reduce(getattr, name.split("."), imported)
    except AttributeError:
        raise CallError(f"the module {module!r} has no {name!r}") from None
    if not callable(found):
        raise CallError(f"{function!r} is not a function: it is of type {type(found).__name__}")
    return found


def _invoke(function: Callable[..., Any], args: msgspec.Raw) -> Any:
    given = [] if args is NO_ARGUMENTS else _parse_args(args)
    value = function(**given) if isinstance(given, dict) else function(*given)
    return asyncio.run(value) if type(value) is CoroutineType else value


def _parse_args(args: msgspec.Raw) -> list[Any] | dict[str, Any]:
    try:
        decoded = msgspec.json.decode(args)
    except msgspec.DecodeError as error:
        raise CallError(f"the arguments are not JSON: {error}") from None
    if not isinstance(decoded, list | dict):
        raise CallError("the arguments are neither a list nor an object")
    return decoded


def _encode_result(value: Any, result_max: int) -> msgspec.Raw:
    try:
        encoded = msgspec.json.encode(value)
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise BadResult(f"the function's return value is not JSON: {error}") from None
    if len(encoded) > result_max:
        raise BadResult(f"the function returned {len(encoded)} bytes of JSON; a result has at most {result_max}")
    if is_deep(encoded):
        raise BadResult(f"the function returned lists or objects nested more than {DEPTH_MAX} deep")
    return msgspec.Raw(encoded)


def _user_part(at: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins with what the caller wrote."""
    while at is not None and at.tb_frame.f_code.co_filename.startswith(_FRAMES_BETWEEN):
        at = at.tb_next
    return at


class ResultSender:
    """Sends answers and output in order; during a long call, from a thread of its own."""

    def __init__(self, end: socket.socket, outbox: Outbox, output: int, take_unbegun: Callable[[], list[int]]) -> None:
        self._end = end
        self._take_unbegun = take_unbegun  # takes the calls behind the current one
        self._outbox = outbox
        self._output = output
        self._lock = threading.Lock()
        self._busy = threading.Event()
        self._flushed_at = time.perf_counter()
        threading.Thread(target=self._watch_long_calls, name="taskyard-sender", daemon=True).start()

    def begin(self, run: int) -> None:
        """Note that a call begins."""
        self._outbox.set_current(run)
        if not self._busy.is_set():
            self._busy.set()

    def finish(self, answer: FromWorker) -> None:
        """Send the rest of a call's output, then its answer."""
        with self._lock:
            if self._send_output():
                os.ftruncate(self._output, 0)
            self._queue(encode_frame(answer))
            self._outbox.set_current(NO_CALL)
            if time.perf_counter() - self._flushed_at > FLUSH_SECONDS:
                self._flush()

    def flush(self) -> None:
        """Send what is kept: there is no call."""
        self._busy.clear()
        with self._lock:
            self._flush()

    def leave(self, reason: str) -> None:
        """Send that the worker ends, and why."""
        with self._lock:
            self._queue(encode_frame(WorkerLeaving(reason)))
            self._flush()

    def _send_output(self) -> int:
        """Queue the current call's new output; return how much it printed in all."""
        size = os.lseek(self._output, 0, os.SEEK_END)
        if not size:
            return 0
        run, sent = self._outbox.current()
        while sent < size and (body := os.pread(self._output, READ_MAX, sent)):
            self._queue(encode_frame(CallOutput(run, sent, body)))
            sent += len(body)
            self._outbox.set_current(run, sent)
        output_spool.free_sent(self._output, sent)
        return size

    def _queue(self, frame: bytes) -> None:
        if self._outbox.add(frame):
            return
        self._flush()
        if not self._outbox.add(frame):
            self._end.sendall(frame)

    def _flush(self) -> None:
        self._flushed_at = time.perf_counter()
        waiting = self._outbox.unsent()
        if waiting:
            self._end.sendall(waiting)
            self._outbox.clear()

    def _watch_long_calls(self) -> None:
        before = NO_CALL
        with suppress(OSError):
            while self._busy.wait():
                time.sleep(LOOK_SECONDS)
                with self._lock:
                    run = self._outbox.current()[0]
                    if run != NO_CALL:
                        self._send_output()
                        # Another worker may be free for the calls behind it.
                        if run == before and (runs := self._take_unbegun()):
                            self._queue(encode_frame(CallsGivenBack(runs)))
                    before = run
                    self._flush()


class Worker:
    """Makes calls until the agent is gone or the process is no longer safe to reuse."""

    def __init__(self, end: socket.socket, outbox: Outbox, memory_max: int) -> None:
        output = os.dup(sys.stdout.fileno())
        self._end = end
        self._isolation = CallIsolation(output, memory_max)
        self._reading = threading.Lock()
        self._frames, self._buffer = FrameBuffer(), memoryview(bytearray(CALLS_MAX))
        self._waiting: deque[bytes] = deque()  # each is taken once: to be made, or to be given back
        self._sender = ResultSender(end, outbox, output, self._take_unbegun)
        self._meter = UsageMeter()

    def serve(self) -> str | None:
        """Make calls until the agent is gone (None), or the worker has to end (the reason)."""
        while self._wait_for_calls():
            while (body := self._next()) is not None:
                reason = self._answer(decode_call(body))
                if reason is not None:
                    self._sender.leave(reason)
                    return reason
            self._sender.flush()
        return None

    def _next(self) -> bytes | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None  # none is left, or it was given back

    def _wait_for_calls(self) -> bool:
        """Wait until calls have come; False when the agent is gone."""
        with self._reading:
            return bool(self._waiting) or self._read()

    def _read(self, flags: int = 0) -> bool:
        size = self._end.recv_into(self._buffer, 0, flags)
        if size:
            self._waiting.extend(self._frames.feed(bytes(self._buffer[:size])))
        return size > 0

    def _take_unbegun(self) -> list[int]:
        """Take the waiting calls, and those that have arrived and were not read yet; return their runs in order."""
        if _NO_WAIT is not None and self._reading.acquire(blocking=False):
            try:
                with suppress(BlockingIOError):
                    self._read(_NO_WAIT)
            finally:
                self._reading.release()
        taken: list[int] = []
        with suppress(IndexError):
            while True:
                taken.append(decode_call(self._waiting.pop()).run)
        return taken[::-1]

    def _answer(self, call: Call) -> str | None:
        """Make one call; return why the worker has to end, if it has to."""
        self._sender.begin(call.run)
        began = time.perf_counter()
        answer = self._call(call, began)
        if self._isolation.is_forked_copy():
            os._exit(0)
        self._isolation.leave()
        reason = self._isolation.unsafe_reason()
        if reason is None and self._meter.is_current:
            reason = self._isolation.exhausted_reason(self._meter.peak_bytes)
        self._sender.finish(answer)
        return reason

    def _call(self, call: Call, began: float) -> CallReturned | CallRaised:
        try:
            self._isolation.enter(call.env, call.cwd)
            current.begin(call)
            result = call_function(call)
        except BaseException as error:  # noqa: BLE001 - whatever a call raises is its answer
            text, exit_code = describe_failure(error)
            return CallRaised(call.run, self._meter.usage_since(began), text, exit_code, isinstance(error, BadResult))
        return CallReturned(call.run, self._meter.usage_since(began), result)


def main() -> NoReturn:
    """Serve the agent at the other end of an inherited socket."""
    options = argparse.ArgumentParser(prog="python -m taskyard.bot.pyworker.worker", description=__doc__)
    options.add_argument("--fd", type=int, required=True, help="this end of the socket to the agent")
    options.add_argument("--outbox", type=int, help="a file shared with the runner")
    options.add_argument(
        "--memory-max", type=int, default=MEMORY_MAX, help="bytes of memory in use at which the worker ends"
    )
    given = options.parse_args()
    die_with_parent()
    for file in {given.fd, given.outbox} - {None}:
        os.set_inheritable(file, False)
    # Line-buffered, so that output is sent during a call and is not lost when the process dies.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    with suppress(ConnectionError):
        Worker(socket.socket(fileno=given.fd), Outbox(given.outbox), given.memory_max).serve()
    # Threads that a call left must not keep the process alive.
    os._exit(0)


if __name__ == "__main__":
    main()
