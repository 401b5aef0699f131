"""A bot's agent: says who is there, takes work, sees it done and reported, and leaves nothing behind.

It is put together here; what to say when is in `dialogue.py`, what runs where in `bench.py`. It starts no task itself:
if it is killed, the runner ends everything, and the next life of the bot makes sure of that before it takes more.
"""

import asyncio
import contextlib
import logging
import secrets
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Final, TypeVar, cast

from taskyard.bot import process_cleanup
from taskyard.bot.attempts import RENEW_PART, LeasedAttempts
from taskyard.bot.begun_attempts import BegunFile, earlier, forget
from taskyard.bot.config import BotConfig
from taskyard.bot.enrolment import enrolled
from taskyard.bot.executor import Executor
from taskyard.bot.ipc import Ping, Pong, ToAgent, ToRunner
from taskyard.bot.payloads import Surroundings
from taskyard.bot.poll_loop import Dialogue, Introduction
from taskyard.bot.poll_payload import Consequences
from taskyard.bot.prefetch import PrefetchLimit
from taskyard.bot.process_cleanup import hide
from taskyard.bot.runner_client import Heartbeat, RunnerLink
from taskyard.bot.server_client import PAUSE_SECONDS_MAX, Away, Link, Stranger, Troubles, TurnedAway, answered
from taskyard.bot.state_folder import InUse, State
from taskyard.bot.task_user import TaskUser
from taskyard.wire.bot_protocol import WAIT_MAX_MS, Goodbye, Lease, Welcome

#: How often a busy bot looks at its clock, and an idle one.
TICK_SECONDS: Final = 0.05
IDLE_TICK_SECONDS: Final = 1.0
#: A wish that is parked when the bot wants to end is awaited for so long: the server answers it once it has heard.
PARKED_SECONDS_MAX: Final = 2.0
#: How long a bot that was told to end, at once or with nothing in hand, tries to say so.
LAST_WORDS_SECONDS_MAX: Final = 5.0
#: What a bot says of itself while its runner does not answer.
FROZEN: Final = "its runner does not answer"
#: A runner that dies so often in one life will not live.
RUNNERS_MAX: Final = 10

_LOG = logging.getLogger("taskyard.bot")
T = TypeVar("T")


def run(config: BotConfig) -> int:
    """Be a bot until told to end: the first signal lets what runs come to its end, the second does not."""
    hide()  # this process has the bot's token, and tasks may run as the same user
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_with_signals(config))


async def serve(
    config: BotConfig,
    stop: asyncio.Event,
    kill: asyncio.Event | None = None,
    again: asyncio.Event | None = None,
) -> int:
    """Be a bot until `stop`; `kill` ends what runs, and at `again` the bot looks anew at what it is."""
    try:
        state = State(config.state, config.user)
    except InUse as error:
        _LOG.error("%s", error)
        return 1
    try:
        known = await _first_of(enrolled(config, state.enrolment), stop)
        if known is None:
            return 0
        config = known
        agent = Agent(config, state, (stop, kill or asyncio.Event(), again or asyncio.Event()))
        if config.user is not None:
            config.user.take_files()
            _warn_of_functions(config.user)
        return await agent.live()
    except TurnedAway as error:  # while it enrolled; later on, the agent itself hears of it
        _LOG.error("%s", error)
        return error.exit_code
    finally:
        state.close()


class Agent:
    """One life of a bot."""

    def __init__(
        self, config: BotConfig, state: State, told: tuple[asyncio.Event, asyncio.Event, asyncio.Event]
    ) -> None:
        self._config, self._state = config, state
        self._stop, self._kill, self._again = told
        self._life = secrets.token_hex(4)
        self._introduction = Introduction(config, f"{state.name(config.marker)}/{self._life}", self._welcomed)
        self._introduction.begun = earlier(state.begun)
        self._known = False  # the server has heard of this life, and what the ones before had begun
        self._begun = BegunFile(state.begun, self._life, state.own_files)
        self._desk, self._appetite = LeasedAttempts(self._begun), PrefetchLimit(config.slots)
        self._troubles = Troubles(config, self._introduction.session)
        self.trouble = self._troubles.note
        self._bench = Executor(config, state, self._desk, self._appetite, self)
        self._dialogue = Dialogue(
            config, self._introduction.session, self._desk, self._appetite, self, self._introduction.hello
        )
        self._runner: RunnerLink | None = None
        self._runners = 0
        self._heartbeat = Heartbeat()
        self._busy = asyncio.Event()  # there is something in hand
        self._broken = asyncio.Event()  # this life cannot go on
        self._mending: asyncio.Task[None] | None = None
        self._welcome: Welcome | None = None
        self._replaced = False  # another bot has begun in this one's name

    async def live(self) -> int:
        """Live, and say with which code the program should end."""
        # Only when nothing of the last life is left may its attempts be given again, which hello does.
        await asyncio.to_thread(process_cleanup.clear, self._config.marker)
        self._state.sweep()
        self._start_runner()
        aside = [asyncio.ensure_future(one) for one in (self._tick(), self._look_anew())]
        try:
            return await self._session()
        except TurnedAway as error:
            _LOG.error("%s", error)
            self._replaced = error.replaced
            return error.exit_code
        finally:
            for task in aside:
                task.cancel()
            await asyncio.gather(*aside, return_exceptions=True)
            await self._end()
            if self._replaced:
                # Nothing is left of what it ran: others need not wait for the leases.
                await self._say_goodbye()

    # What the server says, by way of the dialogue.

    def take(self, leases: list[Lease], sent: float) -> None:
        """Run these; a bot that was to take one batch has it now."""
        if self._config.once:
            self._dialogue.wishing = False
        self._bench.take(leases, sent)
        self._busy.set()

    def heed(self, consequences: Consequences) -> None:
        """Hold, stop or give up attempts."""
        self._bench.heed(consequences)

    def terminate(self) -> None:
        """An admin wants this bot to end: as after a first signal, what it has in hand comes to its end."""
        if not self._stop.is_set():
            _LOG.info("an admin wants this bot to end")
            self._stop.set()

    def _welcomed(self, welcome: Welcome) -> None:
        """Let polls wait for no longer than a lease allows: that of what they bring counts from when they were sent.

        Pauses while the server is away are as short as renewals are apart: it gives leases their time anew when it is
        back, and results have to reach it within that.
        """
        self._welcome = welcome
        if not self._known:
            self._known, self._introduction.begun = True, []
            with self._state.own_files():
                forget(self._state.begun, self._life)
        self._dialogue.wait_ms = min(WAIT_MAX_MS, welcome.wait_max_ms)
        self._dialogue.pause_s_max = min(PAUSE_SECONDS_MAX, welcome.lease_ms / 1000 * RENEW_PART)

    # The course of a life.

    async def _session(self) -> int:
        begun = await self._unless_told(answered(self._introduction.hello_once))
        if not begun:
            return 0
        if self._config.connected is not None and self._welcome is not None:
            self._config.connected(self._welcome)
        _LOG.info("%s is at work, with %d slots", self._config.name, self._config.slots)
        self._dialogue.nudge()
        await self._first(self._stop.wait(), self._kill.wait(), self._batch_done(), self._broken.wait())
        if self._stop.is_set() and not self._kill.is_set():
            await self._drain()
        if self._kill.is_set():
            await self._kill_all()
        await self._say_goodbye()
        return 1 if self._broken.is_set() else 0

    async def _drain(self) -> None:
        """Take nothing more, and let everything come to its end."""
        _LOG.info("ending: %d tasks are awaited; another signal ends them", self._desk.unfinished)
        self._dialogue.wishing = False
        self._introduction.draining = True
        told = False
        with contextlib.suppress(TimeoutError):
            # Who has nothing in hand does not wait for a server that may never come back.
            async with asyncio.timeout(None if self._desk.held else LAST_WORDS_SECONDS_MAX):
                told = await self._unless_told(answered(self._introduction.hello_once), self._kill)
        if told or self._desk.held:
            await self._first(self._all_told(), self._kill.wait(), self._broken.wait())

    async def _kill_all(self) -> None:
        """End everything now, and try to say so."""
        self._dialogue.wishing = False
        self._bench.kill_all()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS_MAX):
                await self._first(self._all_told(), self._broken.wait())

    async def _batch_done(self) -> None:
        """Come back when the one batch of a bot that takes one is done; else never."""
        if not self._config.once:
            await asyncio.Event().wait()
        while self._dialogue.wishing:
            await asyncio.sleep(0.02)
        await self._all_told()

    async def _all_told(self) -> None:
        """Wait until nothing is in hand and nothing can come any more."""
        quiet_since = None
        while quiet_since is None or time.monotonic() - quiet_since < PARKED_SECONDS_MAX:
            self._dialogue.nudge()
            if self._desk.held:
                quiet_since = None
            elif self._dialogue.quiet:
                return
            else:
                quiet_since = quiet_since or time.monotonic()
            await asyncio.sleep(0.01)

    async def _say_goodbye(self) -> None:
        link = Link(self._config)
        try:
            await link.goodbye(Goodbye(self._config.name, self._introduction.session))
        except (Away, Stranger, TurnedAway) as error:
            _LOG.warning("could not say goodbye: %s", error)
        finally:
            link.close()

    async def _end(self) -> None:
        """Leave nothing behind, whatever happened."""
        await self._dialogue.close()
        await self._troubles.close()
        self._bench.abandon()
        if self._mending is not None:
            self._mending.cancel()
        runner, self._runner = self._runner, None
        if runner is not None:
            self._bench.kill_all()
            await runner.close()
        await asyncio.to_thread(process_cleanup.clear, self._config.marker)
        self._begun.close()
        if not self._desk.held:
            self._begun.remove()

    # The runner.

    def _start_runner(self) -> None:
        self._runners += 1
        env = Surroundings(self._config).of_runner
        self._thaw()
        self._heartbeat = Heartbeat()
        self._runner = RunnerLink(env, self._hear_runner, self._runner_lost, self._config.user)

    def _hear_runner(self, frame: ToAgent, end: socket.socket | None) -> None:
        if isinstance(frame, Pong):
            self._heartbeat.answered()
            if self._introduction.maintenance is not None:
                self._thaw()
                self._bench.resume()
        else:
            self._bench.hear(frame, end)

    def _check_runner(self, now: float) -> None:
        """See that the runner answers."""
        if self._runner is None or (self._mending is not None and not self._mending.done()):
            return
        if self._heartbeat.look(now):
            self.tell_runner(Ping())
        if self._heartbeat.is_frozen and self._introduction.maintenance is None:
            self._freeze()

    def _freeze(self) -> None:
        """Begin nothing more and renew nothing: what runs ends with its lease, for which the watchdog sees to it."""
        assert self._runner is not None, "only a runner can be frozen"
        self._troubles.note(f"the runner, process {self._runner.pid}, does not answer: it is stopped, or has no time")
        self._bench.pause()
        self._desk.renews = False
        self._introduction.maintenance = FROZEN
        self._again.set()

    def _thaw(self) -> None:
        if self._introduction.maintenance is not None:
            _LOG.info("the runner answers again")
            self._desk.renews = True
            self._introduction.maintenance = None
            self._again.set()

    def tell_runner(self, *told: ToRunner) -> None:
        """Tell the runner, if there is one."""
        if self._runner is not None:
            self._runner.tell(*told)

    def _runner_lost(self) -> None:
        if self._runner is not None:
            self._bench.pause()
            self._mending = asyncio.ensure_future(self._mend(self._runner))

    async def _mend(self, gone: RunnerLink) -> None:
        """Clear what a dead runner left, and go on with another."""
        self._troubles.note("the runner has died; what it ran is lost")
        await gone.close()
        await asyncio.to_thread(process_cleanup.clear, self._config.marker)
        self._bench.lose_all()
        if self._runners >= RUNNERS_MAX:
            _LOG.error("the runner has died %d times; this bot ends", self._runners)
            self._broken.set()
            return
        self._start_runner()
        self._bench.resume()

    # What time brings.

    def changed(self) -> None:
        """There is something to tell the server."""
        self._dialogue.nudge()

    async def _tick(self) -> None:
        while True:
            if self._desk.held:
                await asyncio.sleep(TICK_SECONDS)
            else:
                await self._some_work()
            self._check_runner(time.monotonic())
            self._bench.tick(time.monotonic())
            if self._desk.held:
                self._dialogue.nudge()
            if self._introduction.has_changed():
                self._again.set()

    async def _some_work(self) -> None:
        """Wait for work, but not for ever."""
        self._busy.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(IDLE_TICK_SECONDS):
                await self._busy.wait()

    async def _look_anew(self) -> None:
        while True:
            await self._again.wait()
            self._again.clear()
            await answered(self._introduction.hello_once)

    async def _unless_told(self, what: Awaitable[object], *also: asyncio.Event) -> bool:
        """Wait for something; False when the bot is told to end before."""
        told = also or (self._stop, self._kill)
        task: asyncio.Future[object] = asyncio.ensure_future(what)
        try:
            await self._first(_ended(task), *(event.wait() for event in told))
            if not task.done():
                return False
            task.result()
            return True
        finally:
            task.cancel()

    async def _first(self, *ones: Awaitable[object]) -> None:
        """Wait for whatever comes first; a talk that broke is raised."""
        tasks = [asyncio.ensure_future(one) for one in ones]
        try:
            await asyncio.wait(
                cast("list[asyncio.Future[object]]", [*tasks, self._dialogue.broken]),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if self._dialogue.broken.done():
            self._dialogue.broken.result()


def _warn_of_functions(user: TaskUser) -> None:
    """Say it if a user cannot start the interpreter that makes the calls of Python functions."""
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


async def _ended(task: "asyncio.Future[object]") -> None:
    await asyncio.wait([task])


async def _first_of(what: Coroutine[None, None, T], stop: asyncio.Event) -> T | None:
    """Wait for something; None when the bot is told to end before."""
    task, told = asyncio.ensure_future(what), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([task, told], return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        told.cancel()


async def _with_signals(config: BotConfig) -> int:
    stop, kill, again = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def told() -> None:
        (kill if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, told)
    loop.add_signal_handler(signal.SIGHUP, again.set)
    return await serve(config, stop, kill, again)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Choose the faster loop where it is there."""
    try:
        import uvloop  # noqa: PLC0415 - it is not there on every system
    except ImportError:
        return None
    return uvloop.new_event_loop
