"""Attempts that are programs: their place is made ready, the runner is told to start them, and their end is read.

It starts no process itself.
"""

import os
import time
from collections.abc import Callable
from typing import Final, cast

from taskyard.bot.desk import (
    MOMENT_SECONDS,
    Complain,
    Desk,
    Held,
    failed,
    lost,
    lost_ahead,
    overdue,
    returned,
    unrenewed,
)
from taskyard.bot.environment import Surroundings
from taskyard.bot.frames import Ended, Recall, Start, Stop, Tell
from taskyard.bot.kinds import Program
from taskyard.bot.room import NOTHING_LEFT, Left, Room, Rooms
from taskyard.bot.spool import Spool
from taskyard.wire.bots import Report, Stats

#: What a shell answers for a command that is there and cannot be run.
NOT_RUNNABLE: Final = 126
#: An attempt that may outlive its lease is held for so long: what ends it is its time-out, or the server's word.
FOR_EVER_SECONDS: Final = 10 * 365 * 86_400.0


class Programs:
    """What runs as a program now; `ended` is called for each that ends."""

    def __init__(
        self,
        spool: Callable[[Held], Spool],
        rooms: Rooms,
        surroundings: Surroundings,
        desk: Desk,
        tell: Tell,
        trouble: Complain,
    ) -> None:
        self.running: dict[int, Held] = {}  # those that wait for their turn at the runner included
        self._starts: list[Start] = []
        self._started: dict[int, float] = {}  # those of which nothing was told yet
        self._ahead: set[int] = set()  # those that may still wait for their turn at the runner
        self._spool = spool
        self._rooms = rooms
        self._surroundings = surroundings
        self._desk = desk
        self._tell = tell
        self._trouble = trouble

    def start(self, held: Held, abreast: int = 0) -> Report | None:
        """Start one with the next `go`, or say how it failed; `abreast` is for one that may have to wait its turn."""
        program = cast("Program", held.work)
        report = held.over(time.monotonic())
        if report is not None:
            return report
        try:
            held.room = room = self._rooms.take()
            room.furnish(held.lease, held.inputs, program.script)
            cwd = _folder(program, room)
        except OSError as error:
            self._trouble(f"a program has no place to run in: {error}", held)
            self.print(held, f"taskyard: {error}\n")
            return failed(held, "exit_code", NOT_RUNNABLE)
        held.began = time.monotonic()
        held.prepared_ms = round((held.began - held.came) * 1000)
        self.running[held.run] = held
        if abreast:
            self._ahead.add(held.run)
        self._starts.append(
            Start(
                run=held.run,
                argv=list(program.argv) if program.script is None else [*program.argv, room.file("script")],
                env=self._surroundings.of(held.lease, room.env(), program.env),
                cwd=cwd,
                until=held.until if held.strict else held.began + FOR_EVER_SECONDS,
                deadline=held.deadline,
                timeout_s=program.limits.timeout_s,
                silence_s=program.limits.silence_s,
                grace_s=program.limits.grace_s,
                keep=not held.strict,
                abreast=abreast,
            )
        )
        return None

    def has_started(self, run: int, now: float) -> None:
        """Note that the process of one is there."""
        self._ahead.discard(run)
        if run in self.running:
            self._started[run] = now

    def tick(self, now: float) -> bool:
        """Note which go on for longer than a moment; say whether there was any that had not been noted."""
        going_on = [run for run, since in self._started.items() if now - since >= MOMENT_SECONDS]
        for run in going_on:
            del self._started[run]
            if run in self.running:
                self._desk.goes_on(self.running[run], now)
        return bool(going_on)

    def recall(self) -> None:
        """Ask the runner for those back that wait for their turn: they count as begun as long as they are there."""
        if self._ahead:
            self._tell(Recall(sorted(self._ahead)))

    def take_back(self, run: int) -> Held | None:
        """Take back one that the runner has not begun."""
        self._ahead.discard(run)
        held = self.running.pop(run, None)
        if held is not None:
            self._desk.unbegin([held])
            assert held.room is not None, "a program has a room"
            self._rooms.give_back(held.room)
            held.room = None
        return held

    def lose_all(self) -> list[tuple[Held, Report]]:
        """The runner is gone: say of each what is known of it."""
        gone = [(held, lost_ahead(held) if run in self._ahead else lost(held)) for run, held in self.running.items()]
        self.running.clear()
        self._started.clear()
        self._ahead.clear()
        return gone

    def go(self) -> None:
        """Tell the runner of all that were started."""
        if self._starts:
            starts, self._starts = self._starts, []
            self._desk.begin([self.running[one.run] for one in starts])
            self._tell(*starts)

    def stop(self, held: Held) -> None:
        """End one; it has the time that its payload gives it for that."""
        self._tell(Stop(held.run))

    def print(self, held: Held, text: str | bytes) -> None:
        """Add to what an attempt printed."""
        body = text if isinstance(text, bytes) else text.encode(errors="replace")
        spool = held.spool or self._spool(held)
        self._desk.printed(held, spool, body, time.monotonic())

    def end(self, frame: Ended) -> tuple[Held, Report] | None:
        """Read how one ended."""
        held = self.running.pop(frame.run, None)
        self._started.pop(frame.run, None)
        self._ahead.discard(frame.run)
        if held is None:
            return None
        if frame.waited_s and held.prepared_ms is not None:
            held.prepared_ms += round(frame.waited_s * 1000)
        if frame.note:
            self.print(held, f"taskyard: {frame.note}\n")
        assert held.room is not None, "a program has a room"
        held.untouched = held.room.is_still()
        left = NOTHING_LEFT if held.untouched else held.room.left(succeeded=_succeeded(held, frame))
        if left.checkpoint is not None:
            held.memories.append(left.checkpoint)
        for fault in left.faults:
            self.print(held, f"taskyard: {fault}\n")
        return held, _verdict(held, frame, left)


def _succeeded(held: Held, frame: Ended) -> bool:
    return frame.exit_code == 0 and frame.why is None and held.stopping != "lose"


def _verdict(held: Held, frame: Ended, left: Left) -> Report:
    stats = _stats(held, frame)
    if frame.why == "lease_over" or held.stopping == "lose":
        return _gone(held, frame)
    if frame.why == "deadline":
        return overdue(held, frame.exit_code, stats)
    if frame.why in ("timed_out", "silent"):
        return failed(held, frame.why, frame.exit_code, stats)
    if frame.exit_code is None:
        return returned(held)
    if not _succeeded(held, frame):
        return failed(held, "signaled" if frame.exit_code < 0 else "exit_code", frame.exit_code, stats)
    if left.faults:
        return failed(held, "bad_result", 0, stats)
    lease = held.lease
    return Report(lease.task, lease.attempt, lease.fence, "succeed", None, 0, left.result, stats)


def _gone(held: Held, frame: Ended) -> Report:
    """Say of one that came to no end of its own whether it had begun, and what ended it."""
    if frame.exit_code is None:
        return returned(held)
    return lost(held) if held.stopping == "lose" else unrenewed(held)


def _folder(program: Program, room: Room) -> str:
    if program.cwd is None:
        return room.folder
    if not os.path.isdir(program.cwd):
        raise NotADirectoryError(f"cwd: there is no folder {program.cwd}")
    return program.cwd


def _stats(held: Held, frame: Ended) -> Stats:
    return Stats(
        prepared_ms=held.prepared_ms,
        ran_ms=round(frame.ran_s * 1000),
        cpu_s=frame.cpu_s,
        memory_bytes=frame.memory_bytes,
        read_bytes=frame.read_bytes,
        written_bytes=frame.written_bytes,
    )
