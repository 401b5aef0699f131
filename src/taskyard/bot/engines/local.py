"""The local engine: runs attempts as processes of this machine, by way of a runner and its watchdog.

Nothing of it outlives the bot for longer than a moment, so it adopts nothing.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Final

from taskyard.bot import process_cleanup
from taskyard.bot.attempts import LeasedAttempt
from taskyard.bot.caches import CacheStore
from taskyard.bot.config import Dimensions, detect_dimensions
from taskyard.bot.engines.protocol import Adoptable, EngineHost
from taskyard.bot.executor import Executor
from taskyard.bot.ipc import Ping, Pong, ToAgent, ToRunner, WatchdogDied
from taskyard.bot.payloads import TaskEnvironment
from taskyard.bot.runner_client import Heartbeat, RunnerClient
from taskyard.wire.bot_protocol import Welcome

#: The maintenance reason that a bot reports while its runner does not answer.
RUNNER_FROZEN: Final = "its runner does not answer"
#: A runner that dies this often in one bot process will not work.
RUNNER_STARTS_MAX: Final = 10
_LOG = logging.getLogger("taskyard.bot")


class LocalEngine:
    """The executor of a bot, and the runner that it works with."""

    def __init__(self, host: EngineHost) -> None:
        self._host, self._config, self._state = host, host.config, host.state
        self._attempts, self._control = host.attempts, host.control
        self.on_change, self.on_lost = self._control.on_change, self._control.on_lost
        self.report_trouble = self._control.report_trouble
        self._caches = CacheStore(host.state, host.config.caches)
        self._executor = Executor(host, self._caches, self)
        self._runner: RunnerClient | None = None
        self._runner_starts = 0
        self._heartbeat = Heartbeat()
        self._is_frozen = False  # the runner does not answer
        self._restarting: asyncio.Task[None] | None = None
        # Called for each of a bot's attempts: without a method in between (`benchmarks.endtoend`, no-ops).
        self.start: Callable[[Sequence[LeasedAttempt]], None] = self._executor.accept
        self.extend = self._executor.extend
        self.cancel = self._executor.stop
        self.cancel_all = self._executor.kill_all

    @property
    def capacity(self) -> int:
        """The slots of the bot."""
        return self._config.slots

    @property
    def caches_held(self) -> Callable[[], tuple[str, ...] | None]:
        """What returns the caches of this machine, if these have changed."""
        return self._caches.report

    def dimensions(self) -> Dimensions:
        """Return the dimensions of this machine."""
        return detect_dimensions()

    async def open(self) -> None:
        """End what an earlier instance left, and start the runner."""
        # The hello allows the server to give the last instance's attempts to others, so nothing of them may still run.
        await asyncio.to_thread(process_cleanup.kill_marked, self._config.marker)
        self._state.clear_work()
        self._start_runner()

    @property
    def outlives_bot(self) -> bool:
        """No: everything ends with the bot."""
        return False

    def adopt(self) -> Adoptable:
        """Return nothing: what earlier instances ran has ended."""
        return Adoptable()

    def welcomed(self, welcome: Welcome, adopted: Sequence[LeasedAttempt]) -> None:
        """Open the caches of the pool."""
        assert not adopted, "it has asked for none"
        self._caches.open(welcome.pool)
        self._executor.pool = welcome.pool

    def poll(self, now: float) -> None:
        """Check the runner, and the timers of attempts and caches."""
        self._check_runner(now)
        self._executor.tick(now)
        self._caches.tick(now)

    async def close(self) -> None:
        """Leave nothing running, whatever happened."""
        self._executor.cancel_transfers()
        if self._restarting is not None:
            self._restarting.cancel()
        runner, self._runner = self._runner, None
        if runner is not None:
            self._executor.kill_all()
            await runner.close()
        await asyncio.to_thread(process_cleanup.kill_marked, self._config.marker)
        await self._caches.close()

    # The runner.

    def send_to_runner(self, *frames: ToRunner) -> None:
        """Send frames to the runner, if there is one."""
        if self._runner is not None:
            self._runner.send(*frames)

    def _start_runner(self) -> None:
        self._runner_starts += 1
        env = TaskEnvironment(self._config).for_runner
        self._unfreeze()
        self._heartbeat = Heartbeat()
        self._runner = RunnerClient(env, self._on_runner_frame, self._runner_lost, self._config.user)

    def _on_runner_frame(self, frame: ToAgent, end: socket.socket | None) -> None:
        if isinstance(frame, Pong):
            self._heartbeat.answered()
            if self._is_frozen:
                self._unfreeze()
                self._executor.resume()
        elif isinstance(frame, WatchdogDied):
            self._control.report_trouble(f"the watchdog, process {frame.pid}, died; the runner starts another one")
        else:
            self._executor.on_runner_frame(frame, end)

    def _check_runner(self, now: float) -> None:
        """Ping the runner, and suspend work if it does not answer."""
        if self._runner is None or (self._restarting is not None and not self._restarting.done()):
            return
        if self._heartbeat.tick(now):
            self.send_to_runner(Ping())
        if self._heartbeat.is_frozen and not self._is_frozen:
            self._freeze()

    def _freeze(self) -> None:
        """Start and renew nothing: what runs ends with its lease, which the watchdog enforces."""
        assert self._runner is not None, "only a runner can be frozen"
        self._control.report_trouble(
            f"the runner, process {self._runner.pid}, does not answer: it is stopped, or gets no CPU time"
        )
        self._control.on_lost()
        self._executor.pause()
        self._attempts.renews = False
        self._is_frozen = True
        self._control.maintain(RUNNER_FROZEN)

    def _unfreeze(self) -> None:
        if self._is_frozen:
            _LOG.info("the runner answers again")
            self._attempts.renews = True
            self._is_frozen = False
            self._control.maintain(None)

    def _runner_lost(self) -> None:
        if self._runner is not None:
            self._executor.pause()
            self._restarting = asyncio.ensure_future(self._restart_runner(self._runner))

    async def _restart_runner(self, gone: RunnerClient) -> None:
        """Kill what a dead runner left, and start another runner."""
        self._control.report_trouble("the runner died; what it ran is lost")
        self._control.on_lost()
        await gone.close()
        await asyncio.to_thread(process_cleanup.kill_marked, self._config.marker)
        self._executor.lose_all()
        if self._runner_starts >= RUNNER_STARTS_MAX:
            _LOG.error("the runner died %d times; this bot ends", self._runner_starts)
            self._control.fail()
            return
        self._start_runner()
        self._executor.resume()
