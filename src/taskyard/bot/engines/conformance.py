"""Tests that every engine has to pass. Derive a test class from `EngineConformance`, and run it with pytest:

    class TestMyEngine(EngineConformance):
        engine = "mine"  # its name among the entry points of `taskyard.engines`
        options = {"address": "..."}

The tests run commands that write files below a temporary folder: where attempts run on other machines, these have to
share it. They need a POSIX shell and `sleep` there, and nothing of a Taskyard server.
"""

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec

from taskyard.bot.attempts import LeasedAttempt, LeasedAttempts
from taskyard.bot.config import BotConfig
from taskyard.bot.engines.protocol import Adoptable, Engine, EngineHost, make_engine
from taskyard.bot.poll_payload import apply_reply, build_payload
from taskyard.bot.prefetch import PrefetchLimit
from taskyard.bot.state_folder import StateFolder
from taskyard.wire.bot_protocol import Kept, Lease, Polled, Renewed, Report, Signal, Welcome

#: Far longer than any wait takes on the slowest machine.
WAIT_SECONDS: Final = 90.0
#: The lease of an attempt, unless a test is about its end.
LEASE_MS: Final = 60_000
#: What a server waits after a lease; nothing of the attempt may run after half of it.
GUARD_MS: Final = 5_000


class FakeBot:
    """A bot without a server around an engine: it accepts every report, and renews leases while `renews` is true."""

    def __init__(self, engine: str, options: Mapping[str, str], folder: Path, instance: str = "1") -> None:
        config = BotConfig(
            url="http://127.0.0.1:9",
            token="",
            name="conformance",
            slots=2,
            state=folder / "state",
            engine=engine,
            engine_options=options,
        )
        self.folder = folder
        self.state = StateFolder(config.state)
        self.attempts = LeasedAttempts()
        session = f"{self.state.session_prefix(config.marker, engine)}/{instance}"
        host = EngineHost(config, self.state, session, self.attempts, PrefetchLimit(config.slots), self)
        self.engine: Engine = make_engine(engine, host)
        self.renews = True
        self.lease_ms = LEASE_MS
        self.output: dict[str, bytes] = {}  # by task
        self.reports: dict[str, Report] = {}
        self.begun: set[str] = set()
        self._tasks = 0
        self._changed = asyncio.Event()
        self._is_welcome = self._asked_early = False

    async def open(self, adopt: Callable[[Adoptable], list[LeasedAttempt]] = lambda _: []) -> None:
        """Open the engine; `adopt` takes attempts of an earlier instance in hand."""
        await self.engine.open()
        adopted = adopt(self.engine.adopt())
        assert not self._asked_early, "nothing asks for work before the welcome"
        self._is_welcome = True
        self.engine.welcomed(Welcome("conformance", "default", LEASE_MS, GUARD_MS, 1_000), adopted)
        self._serving = asyncio.ensure_future(self._serve())
        await self.until(lambda: self.engine.capacity > 0, "the engine has capacity")

    async def close(self) -> None:
        """Close the engine, whatever still runs."""
        self._serving.cancel()
        await self.engine.close()
        self.state.close()

    def lease(self, script: str, lease_ms: int = LEASE_MS, **fields: Any) -> Lease:
        """Make a lease of a task that runs a shell script."""
        self._tasks += 1
        payload = {"script": script, "env": {"FOLDER": str(self.folder)}, **fields.pop("payload", {})}
        task = f"{os.getpid():08x}{id(self) & 0xFFFF:04x}{self._tasks:04x}"
        return Lease(
            task,
            1,
            7,
            lease_ms,
            "0" * 16,
            f"t{self._tasks}",
            msgspec.Raw(msgspec.json.encode(payload)),
            "token",
            **fields,
        )

    def start(self, script: str, lease_ms: int = LEASE_MS, **fields: Any) -> LeasedAttempt:
        """Start an attempt that runs a shell script."""
        now = time.monotonic()
        attempt = self.attempts.add(self.lease(script, lease_ms, **fields), now, now)
        self.engine.start([attempt])
        return attempt

    async def report(self, attempt: LeasedAttempt) -> Report:
        """Wait for the end of an attempt."""
        task = attempt.lease.task
        await self.until(lambda: task in self.reports, f"the end of {attempt.lease.label}")
        return self.reports[task]

    async def until(self, fact: Callable[[], bool], what: str) -> None:
        """Wait until something holds."""
        limit = time.monotonic() + WAIT_SECONDS
        while not fact():
            assert time.monotonic() < limit, f"waited too long: {what}"
            await asyncio.sleep(0.01)

    # The server that it does not have.

    async def _serve(self) -> None:
        while True:
            now = time.monotonic()
            self.engine.poll(now)
            self.attempts.renews = self.renews
            payload = build_payload(self.attempts, now)
            for one in payload.outputs:
                before = self.output.get(one.task, b"")
                assert one.start <= len(before), "output has no holes"
                self.output[one.task] = before[: one.start] + one.body
            self.begun |= {one.task for one in payload.begun}
            for report in payload.reports:
                assert report.task not in self.reports, "an attempt ends once"
                self.reports[report.task] = report
            polled = Polled(
                renewed=[Renewed(one.task, one.attempt, self.lease_ms) for one in payload.renewals],
                kept=[Kept(one.task, one.attempt, len(self.output[one.task])) for one in payload.outputs],
            )
            effects = apply_reply(self.attempts, payload, polled, now)
            if effects.renewed:
                self.engine.extend(effects.renewed)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    await self._changed.wait()
            self._changed.clear()

    # Called by the engine.

    def on_change(self) -> None:
        """There is something to send."""
        self._changed.set()

    def report_trouble(self, text: str, attempt: LeasedAttempt | None = None) -> None:
        """Ignore a problem: tests look at what becomes of attempts."""

    def on_lost(self) -> None:
        """Ignore it."""

    def maintain(self, why: str | None) -> None:
        """Ignore it: tests look at the capacity."""

    def refresh(self) -> None:
        """The capacity is another one."""
        self._asked_early = self._asked_early or not self._is_welcome
        self._changed.set()

    def fail(self) -> None:
        """An engine that cannot go on passes no test."""
        raise AssertionError("the engine cannot go on")


class EngineConformance:
    """What every engine does. Each test has an engine of its own."""

    engine: ClassVar[str]
    options: ClassVar[Mapping[str, str]] = {}

    def test_a_program_that_ends_well_is_successful(self) -> None:
        self._run(self._success)

    async def _success(self, bot: FakeBot) -> None:
        attempt = bot.start('echo one; echo two >&2; echo \'{"n": 7}\' > "$TASKYARD_RESULT"')
        report = await bot.report(attempt)
        assert (report.signal, report.exit_code) == (Signal.SUCCEED, 0)
        assert msgspec.json.decode(report.result) == {"n": 7}
        assert bot.output[attempt.lease.task] == b"one\ntwo\n"

    def test_a_program_that_fails_says_how(self) -> None:
        self._run(self._failures)

    async def _failures(self, bot: FakeBot) -> None:
        by_code, by_signal = bot.start("echo before; exit 3"), bot.start("kill -9 $$")
        report = await bot.report(by_code)
        assert (report.signal, report.reason, report.exit_code) == (Signal.FAIL, "exit_code", 3)
        assert bot.output[by_code.lease.task] == b"before\n"
        report = await bot.report(by_signal)
        assert (report.signal, report.reason, report.exit_code) == (Signal.FAIL, "signaled", -9)

    def test_what_runs_is_begun_and_its_output_arrives_meanwhile(self) -> None:
        self._run(self._followed)

    async def _followed(self, bot: FakeBot) -> None:
        attempt = bot.start('echo working; while ! [ -e "$FOLDER/go" ]; do sleep 0.05; done; echo done')
        task = attempt.lease.task
        await bot.until(lambda: bot.output.get(task) == b"working\n" and task in bot.begun, "output of a running task")
        (bot.folder / "go").touch()
        assert (await bot.report(attempt)).signal is Signal.SUCCEED
        assert bot.output[task] == b"working\ndone\n"

    def test_no_more_run_at_once_than_there_is_capacity_and_the_rest_has_not_begun(self) -> None:
        self._run(self._capacity)

    async def _capacity(self, bot: FakeBot) -> None:
        wait = 'touch "$FOLDER/$TASKYARD_LABEL"; while ! [ -e "$FOLDER/go" ]; do sleep 0.05; done'
        running = [bot.start(wait) for _ in range(bot.engine.capacity)]
        await bot.until(lambda: bot.begun == {one.lease.task for one in running}, "all have begun")
        waiting = bot.start(wait)
        canceled = bot.start(wait)
        bot.engine.cancel(canceled, "stop")
        (bot.folder / "go").touch()
        for one in (*running, waiting):
            assert (await bot.report(one)).signal is Signal.SUCCEED
        assert (await bot.report(canceled)).signal in (Signal.RETURN, Signal.LOSE)
        assert not (bot.folder / canceled.lease.label).exists()

    def test_what_is_canceled_ends_with_all_of_its_processes(self) -> None:
        self._run(self._canceled)

    async def _canceled(self, bot: FakeBot) -> None:
        attempt = bot.start('sleep 600 & echo $! > "$FOLDER/pid"; trap "echo bye; exit 4" TERM; wait')
        await bot.until((bot.folder / "pid").exists, "the program runs")
        await bot.until(lambda: bool((bot.folder / "pid").read_text()), "its pid is written")
        bot.engine.cancel(attempt, "stop")
        report = await bot.report(attempt)
        assert (report.signal, report.exit_code) == (Signal.FAIL, 4)
        assert bot.output[attempt.lease.task] == b"bye\n"
        assert _is_gone(bot.folder / "pid")

    def test_what_takes_too_long_ends_and_so_does_what_is_late(self) -> None:
        self._run(self._too_long)

    async def _too_long(self, bot: FakeBot) -> None:
        slow = bot.start("exec sleep 600", payload={"timeout": "1s", "grace": "0s"})
        late = bot.start("exec sleep 600", deadline_ms=2_000, payload={"grace": "0s"})
        report = await bot.report(slow)
        assert (report.signal, report.reason) == (Signal.FAIL, "timed_out")
        assert (await bot.report(late)).signal is Signal.DEADLINE

    def test_an_attempt_runs_as_long_as_its_lease_is_extended_and_not_longer(self) -> None:
        self._run(self._leases)

    async def _leases(self, bot: FakeBot) -> None:
        bot.lease_ms = 3_000
        attempt = bot.start('echo $$ > "$FOLDER/pid"; exec sleep 600', bot.lease_ms)
        await bot.until(lambda: time.monotonic() > attempt.received_at + 4.5, "its first lease is over")
        assert not bot.reports, "it was extended"
        bot.renews = False
        ends = attempt.until + GUARD_MS / 1000
        await bot.until(lambda: _is_gone(bot.folder / "pid"), "the end of an attempt that is not extended")
        assert time.monotonic() < ends, "nothing of it runs when the server may give it to another bot"
        assert (await bot.report(attempt)).signal is Signal.LOSE

    def test_an_engine_that_is_closed_leaves_nothing_or_its_attempts_can_be_adopted(self) -> None:
        self._run(self._adopted)

    async def _adopted(self, bot: FakeBot) -> None:
        attempt = bot.start(
            'echo $$ > "$FOLDER/pid"; echo one; while ! [ -e "$FOLDER/go" ]; do sleep 0.05; done; echo two'
        )
        task = attempt.lease.task
        await bot.until(lambda: bot.output.get(task) == b"one\n", "the program runs")
        outlives = bot.engine.outlives_bot
        await bot.close()
        again = FakeBot(self.engine, self.options, bot.folder, "2")
        try:
            again.output[task] = b"one\n"
            await again.open(lambda found: [_taken(again, one) for one in found.leases])
            assert [one.lease.task for one in again.attempts.by_key.values()] == ([task] if outlives else [])
            assert outlives or _is_gone(bot.folder / "pid")
            (bot.folder / "go").touch()
            for one in list(again.attempts.by_key.values()):
                report = await again.report(one)
                assert (report.signal, report.fence) == (Signal.SUCCEED, attempt.lease.fence + 1)
                assert again.output[task] == b"one\ntwo\n"
        finally:
            await again.close()

    def _run(self, test: Callable[[FakeBot], Coroutine[Any, Any, None]]) -> None:
        async def run() -> None:
            async with self._bot() as bot:
                await test(bot)

        asyncio.run(run())

    @asynccontextmanager
    async def _bot(self) -> AsyncIterator[FakeBot]:
        folder = Path(tempfile.mkdtemp(prefix="taskyard-engine-"))
        bot = FakeBot(self.engine, self.options, folder)
        await bot.open()
        try:
            yield bot
        finally:
            (folder / "go").touch()
            for attempt in list(bot.attempts.by_key.values()):
                bot.engine.cancel(attempt, "lose")
            with suppress(asyncio.CancelledError):
                await bot.close()
            shutil.rmtree(folder, ignore_errors=True)


def _taken(bot: FakeBot, lease: Lease) -> LeasedAttempt:
    """Take an attempt of an earlier instance in hand, with a new fence."""
    fresh = msgspec.structs.replace(lease, fence=lease.fence + 1, lease_ms=LEASE_MS)
    now = time.monotonic()
    return bot.attempts.add(fresh, now, now)


def _is_gone(file: Path) -> bool:
    """Whether the process whose number is in a file has ended."""
    with suppress(ProcessLookupError, FileNotFoundError, ValueError):
        os.kill(int(file.read_text()), 0)
        return False
    return True
