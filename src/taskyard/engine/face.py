"""The engine as a server calls it: nothing here keeps the event loop waiting."""

import asyncio
from collections.abc import Iterable

from taskyard.engine.engine import Engine, Wished
from taskyard.lifecycle.commands import Cancel, Goodbye, Hello, Poll, Rerun
from taskyard.lifecycle.finding import Finding
from taskyard.lifecycle.outcomes import Refusal
from taskyard.lifecycle.polling import Polled
from taskyard.lifecycle.submit import Submitted
from taskyard.views.story import Story


class AsyncEngine:
    """An engine to be awaited."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop = engine.loop

    async def submit(
        self, document: object, *, graph_id: str | None = None, key: str = "", actor: str = ""
    ) -> Submitted | Refusal:
        """Store a graph. A thread checks it: a large one takes seconds."""
        return await asyncio.to_thread(self._engine.submit, document, graph_id=graph_id, key=key, actor=actor)

    async def extend(self, graph_id: str, document: object, *, actor: str = "") -> Submitted | Refusal:
        """Add tasks to a graph."""
        return await asyncio.to_thread(self._engine.extend, graph_id, document, actor=actor)

    async def cancel(self, command: Cancel) -> Wished:
        """End a task, a task with everything behind it, or a graph."""
        answer: Wished = await asyncio.wrap_future(self._loop.put(command))
        return answer

    async def rerun(self, command: Rerun) -> Wished:
        """Try a task again, or all that failed in a graph."""
        answer: Wished = await asyncio.wrap_future(self._loop.put(command))
        return answer

    async def set_pool(
        self, name: str, capacity: int | None = None, *, from_bots: bool = False, actor: str = ""
    ) -> Refusal | None:
        """Give a pool a capacity, fixed or that of its live bots, or none."""
        return await asyncio.to_thread(self._engine.set_pool, name, capacity, from_bots=from_bots, actor=actor)

    async def set_limit(self, name: str, total: int, *, actor: str = "") -> Refusal | None:
        """Say how much there is of something that tasks share."""
        return await asyncio.to_thread(self._engine.set_limit, name, total, actor=actor)

    async def set_order(self, key: str, *, greedy: bool, actor: str = "") -> None:
        """Say whether a mutex is given to whoever can have it, or in the order of creation."""
        await asyncio.to_thread(self._engine.set_order, key, greedy=greedy, actor=actor)

    async def story(self, task_id: str) -> Story | Refusal:
        """Tell everything that happened to a task."""
        return await asyncio.to_thread(self._engine.story, task_id)

    async def doctor(self) -> list[Finding]:
        """Recount every stored number. A thread does: a large store takes minutes."""
        return await asyncio.to_thread(self._engine.doctor)

    async def repair(self, findings: Iterable[Finding], actor: str = "") -> int:
        """Mend what the doctor found and can be mended."""
        return await asyncio.to_thread(self._engine.repair, findings, actor)

    async def hello(self, command: Hello) -> None:
        """Begin a bot's session, or take note of what changed about it."""
        await asyncio.wrap_future(self._loop.put(command))

    async def poll(self, command: Poll) -> Polled | Refusal:
        """Take a bot's results and renewals, and give it tasks."""
        answer: Polled | Refusal = await asyncio.wrap_future(self._loop.put(command))
        return answer

    async def goodbye(self, command: Goodbye) -> None:
        """End a bot's session."""
        await asyncio.wrap_future(self._loop.put(command))
