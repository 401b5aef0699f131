"""The agent of a bot: opens a session with the server, takes work, has it run and reports it.

This module wires the parts together: `poll_loop.py` decides when to send which request, an engine runs attempts. The
agent starts no task itself: if it is killed, its engine ends everything in time, and the next instance of the bot
either adopts what runs or makes sure that nothing does, before it takes more.
"""

import asyncio
import contextlib
import logging
import secrets
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Final, TypeVar, cast

from msgspec.structs import replace

from taskyard.bot import process_cleanup
from taskyard.bot.attempts import RENEW_PART, Key, LeasedAttempt, LeasedAttempts
from taskyard.bot.begun_attempts import BegunFile, read_earlier, remove_earlier
from taskyard.bot.config import BotConfig
from taskyard.bot.engines.protocol import EngineHost, EngineUnusable, make_engine
from taskyard.bot.enrolment import with_own_token
from taskyard.bot.health_check import HealthCheck
from taskyard.bot.payloads import passed_on
from taskyard.bot.poll_loop import HelloSender, PollLoop
from taskyard.bot.poll_payload import PollEffects
from taskyard.bot.prefetch import PrefetchLimit
from taskyard.bot.process_cleanup import BOT_MARK, deny_inspection
from taskyard.bot.server_client import (
    PAUSE_SECONDS_MAX,
    BotRejected,
    ServerClient,
    ServerUnavailable,
    SessionUnknown,
    TroubleReporter,
    retry_until_answered,
    return_home,
)
from taskyard.bot.state_folder import StateFolder, StateFolderInUse
from taskyard.bot.task_user import TaskUser
from taskyard.wire.bot_protocol import POLL_ITEMS_MAX, WAIT_MAX_MS, Begun, Goodbye, Lease, Welcome

#: How often the agent checks its timers while it has attempts, and while it has none.
TICK_SECONDS: Final = 0.05
IDLE_TICK_SECONDS: Final = 1.0
#: When the bot ends, it waits this long for the answer to a parked request: the server answers once it knows that the
#: bot drains.
PARKED_SECONDS_MAX: Final = 2.0
#: How long a bot that ends at once, or with nothing in hand, tries to tell the server.
GOODBYE_SECONDS_MAX: Final = 5.0
_LOG = logging.getLogger("taskyard.bot")
T = TypeVar("T")


def run(config: BotConfig) -> int:
    """Run a bot until a signal ends it: the first lets running tasks finish, the second kills them."""
    deny_inspection()  # this process holds the bot's token, and tasks may run as the same user
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_with_signals(config))


async def serve(
    config: BotConfig,
    stop: asyncio.Event,
    kill: asyncio.Event | None = None,
    refresh: asyncio.Event | None = None,
) -> int:
    """Run a bot until `stop`; `kill` ends what runs; `refresh` sends the bot's current details to the server again."""
    try:
        state = StateFolder(config.state, config.user)
    except StateFolderInUse as error:
        _LOG.error("%s", error)
        return 1
    try:
        known = await _unless_stopped(with_own_token(config, state.enrolment), stop)
        if known is None:
            return 0
        config = known
        agent = Agent(config, state, (stop, kill or asyncio.Event(), refresh or asyncio.Event()))
        if config.user is not None:
            config.user.use_files_as_user()
            _warn_if_functions_fail(config.user)
        return await agent.run()
    except BotRejected as error:  # during enrolment; later the agent itself handles it
        _LOG.error("%s", error)
        return error.exit_code
    except EngineUnusable as error:
        _LOG.error("%s", error)
        return 1
    finally:
        state.close()


class Agent:
    """One instance of a bot, from its start to its end."""

    def __init__(
        self, config: BotConfig, state: StateFolder, signals: tuple[asyncio.Event, asyncio.Event, asyncio.Event]
    ) -> None:
        self._config, self._state = config, state
        self._stop, self._kill, self._refresh = signals
        self._instance = secrets.token_hex(4)
        session = f"{state.session_prefix(config.marker, config.engine)}/{self._instance}"
        self._is_known = False  # the server knows this instance, and what earlier instances had begun
        earlier = read_earlier(state.begun)
        self._begun = BegunFile(state.begun, self._instance, state.as_bot_user)
        self._attempts, self._prefetch = LeasedAttempts(self._begun), PrefetchLimit(config.slots)
        self._troubles = TroubleReporter(config, session)
        self.report_trouble = self._troubles.report
        self._check = None if config.check is None else HealthCheck(config.check, _check_env(config), self._on_check)
        host = EngineHost(config, state, session, self._attempts, self._prefetch, self)
        self._engine = make_engine(config.engine, host)
        self._adoptable: dict[Key, Lease] = {}  # until the server has said which of them this instance has
        self._hello = HelloSender(config, session, self._on_welcome, self._engine.dimensions)
        self._hello.begun = earlier
        self._poll_loop = PollLoop(config, session, self._attempts, self._prefetch, self, self._hello.hello)
        self._poll_loop.check, self._poll_loop.caches = self._check, self._engine.caches_held
        self._has_work = asyncio.Event()  # set while there are attempts in hand
        self._fatal = asyncio.Event()  # this instance cannot go on
        self._welcome: Welcome | None = None
        self._replaced = False  # another bot has started under this name

    async def run(self) -> int:
        """Run the bot and return the exit code of the program."""
        # The hello allows the server to give the last instance's attempts to others, so nothing of them may still run.
        await self._engine.open()
        self._adopt()
        jobs = (self._tick(), self._refresh_on_request(), return_home(self._config))
        aside = [asyncio.ensure_future(one) for one in jobs]
        try:
            return await self._session()
        except BotRejected as error:
            _LOG.error("%s", error)
            self._replaced = error.replaced
            return error.exit_code
        finally:
            for task in aside:
                task.cancel()
            await asyncio.gather(*aside, return_exceptions=True)
            await self._shut_down()
            if self._replaced:
                # Nothing of what it ran is left: others need not wait for the leases to end.
                await self._say_goodbye()

    # Called by the poll loop.

    def accept(self, leases: list[Lease], sent: float) -> None:
        """Run these; a bot that takes a single batch asks for no more."""
        if self._config.once:
            self._poll_loop.wants_work = False
        attempts, now = self._attempts, time.monotonic()
        self._engine.start(
            [attempts.add(lease, sent, now) for lease in leases if (lease.task, lease.attempt) not in attempts.by_key]
        )
        self._has_work.set()

    def apply(self, effects: PollEffects) -> None:
        """Extend, stop or drop attempts after a reply."""
        if effects.renewed:
            self._engine.extend(effects.renewed)
        for attempt in (*effects.stop, *effects.revoked):
            self._engine.cancel(attempt, "stop")

    def terminate(self) -> None:
        """End because an admin asked for it: like a first signal, attempts in hand finish first."""
        if not self._stop.is_set():
            _LOG.info("an admin asked this bot to end")
            self._stop.set()

    def _adopt(self) -> None:
        """Ask the server, with the hello, for the attempts of earlier instances that may still run."""
        found = self._engine.adopt()
        self._adoptable = {(lease.task, lease.attempt): lease for lease in found.leases[:POLL_ITEMS_MAX]}
        self._hello.replaces = found.session
        self._hello.adopts = [Begun(lease.task, lease.attempt, lease.fence) for lease in self._adoptable.values()]

    def _take_adopted(self, welcome: Welcome, sent: float) -> list[LeasedAttempt]:
        """Take the adopted attempts in hand, each with its new fence."""
        now, attempts = time.monotonic(), []
        for one in welcome.adopted:
            lease = replace(self._adoptable[one.task, one.attempt], fence=one.fence, lease_ms=one.lease_ms)
            attempts.append(self._attempts.add(lease, sent, now))
            attempts[-1].stopping = "stop" if one.stop else ""
        self._adoptable, self._hello.adopts, self._hello.replaces = {}, [], ""
        if attempts:
            _LOG.info("going on with %d attempts of the last session", len(attempts))
            self._has_work.set()
        return attempts

    def _on_welcome(self, welcome: Welcome, sent: float) -> None:
        """Take over the server's limits.

        Polls wait no longer than a lease allows, because the lease of what they bring counts from when they were sent.
        Pauses while the server is away are as short as the time between renewals: a server that is back restarts all
        leases, and results have to reach it within that time.
        """
        if welcome.update is not None and self._welcome is None:
            _LOG.warning("%s", welcome.update)
        self._welcome = welcome
        self._engine.welcomed(welcome, [] if self._is_known else self._take_adopted(welcome, sent))
        if not self._is_known:
            self._is_known, self._hello.begun = True, []
            with self._state.as_bot_user():
                remove_earlier(self._state.begun, self._instance)
        self._poll_loop.wait_ms = min(WAIT_MAX_MS, welcome.wait_max_ms)
        self._poll_loop.limit_answers(welcome.lease_ms / 1000)
        self._poll_loop.pause_s_max = min(PAUSE_SECONDS_MAX, welcome.lease_ms / 1000 * RENEW_PART)

    # Starting and ending.

    async def _session(self) -> int:
        welcomed = await self._unless_signalled(retry_until_answered(self._hello.hello_once))
        if not welcomed:
            return 0
        if self._config.connected is not None and self._welcome is not None:
            self._config.connected(self._welcome)
        _LOG.info("bot %s is running with %d slots", self._config.name, self._config.slots)
        self._poll_loop.wake()
        await self._wait_first(self._stop.wait(), self._kill.wait(), self._wait_for_batch(), self._fatal.wait())
        if self._stop.is_set() and not self._kill.is_set():
            await self._drain()
        if self._kill.is_set():
            await self._kill_all()
        await self._say_goodbye()
        return 1 if self._fatal.is_set() else 0

    async def _drain(self) -> None:
        """Take no more work and let everything finish."""
        _LOG.info("ending: waiting for %d running tasks; a second signal kills them", self._attempts.unfinished)
        self._poll_loop.wants_work = False
        self._hello.draining = True
        announced = False
        with contextlib.suppress(TimeoutError):
            # With nothing in hand, do not wait for a server that may never come back.
            async with asyncio.timeout(None if self._attempts.by_key else GOODBYE_SECONDS_MAX):
                announced = await self._unless_signalled(retry_until_answered(self._hello.hello_once), self._kill)
        if announced or self._attempts.by_key:
            await self._wait_first(self._wait_until_reported(), self._kill.wait(), self._fatal.wait())

    async def _kill_all(self) -> None:
        """Kill everything now, and try to report it."""
        self._poll_loop.wants_work = False
        self._engine.cancel_all()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_SECONDS_MAX):
                await self._wait_first(self._wait_until_reported(), self._fatal.wait())

    async def _wait_for_batch(self) -> None:
        """Return when the single batch is done; never, for a bot that takes more than one."""
        if not self._config.once:
            await asyncio.Event().wait()
        while self._poll_loop.wants_work:
            await asyncio.sleep(0.02)
        await self._wait_until_reported()

    async def _wait_until_reported(self) -> None:
        """Wait until nothing is in hand and no request can bring more."""
        quiet_since = None
        while quiet_since is None or time.monotonic() - quiet_since < PARKED_SECONDS_MAX:
            self._poll_loop.wake()
            if self._attempts.by_key:
                quiet_since = None
            elif self._poll_loop.is_idle:
                return
            else:
                quiet_since = quiet_since or time.monotonic()
            await asyncio.sleep(0.01)

    async def _say_goodbye(self) -> None:
        """Give back what is left. What may still run elsewhere ends with its lease, or is adopted."""
        if self._attempts.unfinished and self._engine.outlives_bot:
            _LOG.warning("%d attempts may still run; the next start of this bot adopts them", self._attempts.unfinished)
            return
        client = ServerClient(self._config)
        try:
            await client.goodbye(Goodbye(self._config.name, self._hello.session))
        except (ServerUnavailable, SessionUnknown, BotRejected) as error:
            _LOG.warning("could not say goodbye: %s", error)
        finally:
            client.close()

    async def _shut_down(self) -> None:
        """Leave nothing running, whatever happened."""
        await self._poll_loop.close()
        if self._check is not None:
            await self._check.close()
        await self._troubles.close()
        await self._engine.close()
        self._begun.close()
        if not self._attempts.by_key:
            self._begun.remove()

    # Called by the engine.

    def maintain(self, why: str | None) -> None:
        """Tell the server that this bot takes no work for now, and why; None: it takes work again."""
        if why != self._hello.maintenance:
            self._hello.maintenance = why
            self._refresh.set()

    def refresh(self) -> None:
        """Tell the server the engine's current capacity and dimensions, and ask for as much work."""
        self._hello.slots = self._prefetch.slots = max(1, self._engine.capacity)
        self._refresh.set()
        self._poll_loop.wake()

    def fail(self) -> None:
        """End: the engine cannot go on."""
        self._fatal.set()

    # The health check.

    def on_lost(self) -> None:
        """Check the machine before more work is asked for."""
        if self._check is not None:
            self._check.expire()

    def _on_check(self, failure: str | None) -> None:
        """Tell the server that the machine is unfit, or fit again, and ask for work if it is fit."""
        if failure != self._hello.quarantined:
            if failure is None:
                _LOG.info("the health check passes again")
            else:
                self._troubles.report(failure)
            self._hello.quarantined = failure
            self._refresh.set()
        self._poll_loop.wake()

    # Timers.

    def on_change(self) -> None:
        """Wake the poll loop: there may be something to report."""
        self._poll_loop.wake()

    async def _tick(self) -> None:
        while True:
            if self._attempts.by_key:
                await asyncio.sleep(TICK_SECONDS)
            else:
                await self._wait_for_work()
            self._engine.poll(time.monotonic())
            if self._check is not None:
                self._check.tick(time.monotonic())
            if self._attempts.by_key:
                self._poll_loop.wake()
            if self._hello.has_changed():
                self._refresh.set()

    async def _wait_for_work(self) -> None:
        """Wait for work, for one idle tick at most."""
        self._has_work.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(IDLE_TICK_SECONDS):
                await self._has_work.wait()

    async def _refresh_on_request(self) -> None:
        while True:
            await self._refresh.wait()
            self._refresh.clear()
            await retry_until_answered(self._hello.hello_once)

    async def _unless_signalled(self, what: Awaitable[object], *also: asyncio.Event) -> bool:
        """Wait for something; False if a signal to end came first."""
        events = also or (self._stop, self._kill)
        task: asyncio.Future[object] = asyncio.ensure_future(what)
        try:
            await self._wait_first(_wait_done(task), *(event.wait() for event in events))
            if not task.done():
                return False
            task.result()
            return True
        finally:
            task.cancel()

    async def _wait_first(self, *ones: Awaitable[object]) -> None:
        """Wait for the first of these; raise the error that ended the poll loop."""
        tasks = [asyncio.ensure_future(one) for one in ones]
        try:
            await asyncio.wait(
                cast("list[asyncio.Future[object]]", [*tasks, self._poll_loop.failure]),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if self._poll_loop.failure.done():
            self._poll_loop.failure.result()


def _check_env(config: BotConfig) -> dict[str, str]:
    """Return the environment of the health check: what programs need, and the mark by which it is found and ended."""
    return passed_on(everything=config.inherit) | {BOT_MARK: config.marker}


def _warn_if_functions_fail(user: TaskUser) -> None:
    """Warn if the user of the tasks cannot read the interpreter that runs Python functions."""
    for needed in (sys.executable, process_cleanup.__file__):
        try:
            Path(needed).open("rb").close()
        except OSError:
            _LOG.warning(
                "user %s cannot read %s: commands and scripts run, Python functions will fail; "
                "install Taskyard where that user can read it",
                user.name,
                needed,
            )
            return


async def _wait_done(task: "asyncio.Future[object]") -> None:
    await asyncio.wait([task])


async def _unless_stopped(what: Coroutine[None, None, T], stop: asyncio.Event) -> T | None:
    """Wait for something; None if the bot is told to stop first."""
    task, stopped = asyncio.ensure_future(what), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        stopped.cancel()


async def _with_signals(config: BotConfig) -> int:
    stop, kill, refresh = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (kill if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, on_signal)
    loop.add_signal_handler(signal.SIGHUP, refresh.set)
    return await serve(config, stop, kill, refresh)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Choose uvloop where it is installed."""
    try:
        import uvloop  # noqa: PLC0415 - not installed on every system
    except ImportError:
        return None
    return uvloop.new_event_loop
