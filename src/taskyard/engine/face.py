"""The engine as a server calls it: nothing here keeps the event loop waiting."""

import asyncio
from collections.abc import Iterable

from taskyard.engine.engine import Engine
from taskyard.engine.wishing import Wished
from taskyard.lifecycle.commands import Cancel, Goodbye, Hello, Poll, Rerun
from taskyard.lifecycle.finding import Finding
from taskyard.lifecycle.outcomes import Far, Refusal
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
        return await self._wish(command)

    async def rerun(self, command: Rerun) -> Wished:
        """Try a task again, or all that failed in a graph."""
        return await self._wish(command)

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

    async def _wish(self, command: Cancel | Rerun) -> Wished:
        """A thread finds out how far a wish reaches if that is too far for a transaction."""
        answer: Wished | Far = await asyncio.wrap_future(self._loop.put(command))
        return await asyncio.to_thread(self._engine.wishing.go, command) if isinstance(answer, Far) else answer
