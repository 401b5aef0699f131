"""The engine as a server calls it: nothing here keeps the event loop waiting.

It has every method of an engine but those of its life: whoever made the engine starts and stops it.
"""

import asyncio
from collections.abc import Iterable

from taskyard.engine.engine import Answer, Engine
from taskyard.engine.failpoints import Boundary
from taskyard.engine.naming import May, anywhere
from taskyard.engine.wishing import Wished
from taskyard.engine.writer import Act
from taskyard.lifecycle.admission.scheduler import Passed
from taskyard.lifecycle.commands import Approve, Cancel, Done, Far, Goodbye, Hello, Poll, Publish, Refusal, Rerun
from taskyard.lifecycle.doctor.finding import Finding
from taskyard.lifecycle.poll import Polled
from taskyard.lifecycle.submit import Submitted
from taskyard.views.outline import Outline
from taskyard.views.story import Story


class AsyncEngine:
    """An engine to be awaited."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def submit(
        self,
        document: object,
        *,
        graph_id: str | None = None,
        key: str = "",
        actor: str = "",
        submitter: str = "",
        may: May = anywhere,
    ) -> Submitted | Refusal:
        """Store a graph. A thread checks it: a large one takes seconds."""
        return await asyncio.to_thread(
            self._engine.submit, document, graph_id=graph_id, key=key, actor=actor, submitter=submitter, may=may
        )

    async def extend(
        self,
        graph_id: str,
        document: object,
        *,
        key: str = "",
        actor: str = "",
        submitter: str = "",
        may: May = anywhere,
    ) -> Submitted | Refusal:
        """Add tasks to a graph."""
        return await asyncio.to_thread(
            self._engine.extend, graph_id, document, key=key, actor=actor, submitter=submitter, may=may
        )

    async def cancel(self, command: Cancel) -> Wished:
        """End a task, a task with everything behind it, or a graph."""
        return await self._wish(Cancel, command)

    async def rerun(self, command: Rerun) -> Wished:
        """Try a task again, or all that failed in a graph."""
        return await self._wish(Rerun, command)

    async def approve(self, command: Approve) -> Done | Refusal:
        """Decide about an approval that waits for a person."""
        answer: Done | Refusal = await asyncio.wrap_future(self._engine.ask(Approve, command))
        return answer

    async def renew(
        self,
        graph_id: str,
        labels: tuple[str, ...],
        *,
        key: str = "",
        actor: str = "",
        submitter: str = "",
        may: May = anywhere,
    ) -> Submitted | Refusal:
        """Store a graph that runs a settled one again. A thread reads all of that one."""
        return await asyncio.to_thread(
            self._engine.renew, graph_id, labels, key=key, actor=actor, submitter=submitter, may=may
        )

    async def set_pool(
        self, name: str, capacity: int | None = None, *, from_bots: bool = False, actor: str = ""
    ) -> Refusal | None:
        """Give a pool a capacity, fixed or that of its live bots, or none."""
        return await asyncio.to_thread(self._engine.set_pool, name, capacity, from_bots=from_bots, actor=actor)

    async def set_limit(self, name: str, total: int, *, actor: str = "", key: str = "") -> Refusal | None:
        """Say how much there is of something that tasks share."""
        return await asyncio.to_thread(self._engine.set_limit, name, total, actor=actor, key=key)

    async def set_stake_after(
        self, name: str, stake_after_ms: int | None, *, actor: str = "", key: str = ""
    ) -> Refusal | None:
        """Say how long mutexes hold a task before no younger one passes it at this key."""
        return await asyncio.to_thread(self._engine.set_stake_after, name, stake_after_ms, actor=actor, key=key)

    async def graph(self, graph_id: str) -> Outline | Refusal:
        """Tell where a graph stands, and whether it is settled."""
        return await asyncio.to_thread(self._engine.graph, graph_id)

    async def story(self, task_id: str) -> Story | Refusal:
        """Tell everything that happened to a task."""
        return await asyncio.to_thread(self._engine.story, task_id)

    async def doctor(self) -> list[Finding]:
        """Recount every stored number. A thread does: a large store takes minutes."""
        return await asyncio.to_thread(self._engine.doctor)

    async def repair(self, findings: Iterable[Finding], actor: str = "") -> int | Refusal:
        """Mend what the doctor found and can be mended."""
        return await asyncio.to_thread(self._engine.repair, findings, actor)

    async def publish(self, command: Publish, key: str = "") -> Refusal | None:
        """Keep what a running task says of itself."""
        return await asyncio.to_thread(self._engine.publish, command, key)

    async def hello(self, command: Hello) -> Refusal | None:
        """Begin a bot's session, or take note of what changed about it; refuse a session that was replaced."""
        answer: Refusal | None = await asyncio.wrap_future(self._engine.ask(Hello, command))
        return answer

    async def poll(self, command: Poll) -> Polled | Refusal:
        """Take a bot's results and renewals, and give it tasks."""
        answer: Polled | Refusal = await asyncio.wrap_future(self._engine.ask(Poll, command))
        return answer

    async def goodbye(self, command: Goodbye) -> Refusal | None:
        """End a bot's session."""
        answer: Refusal | None = await asyncio.wrap_future(self._engine.ask(Goodbye, command))
        return answer

    async def schedule(self) -> Passed:
        """Let in every pending task that may go, within the bounds of one call. A thread thinks about it."""
        return await asyncio.to_thread(self._engine.schedule)

    async def transact(self, act: Act[Answer], boundary: Boundary = Boundary.OTHER) -> Answer:
        """Carry out `act` in a transaction of its own. It has to bear being carried out again."""
        return await asyncio.wrap_future(self._engine.loop.begin(act, boundary))

    async def _wish(self, kind: type, command: Cancel | Rerun) -> Wished:
        """A thread finds out how far a wish reaches if that is too far for a transaction."""
        answer: Wished | Far = await asyncio.wrap_future(self._engine.ask(kind, command))
        return await asyncio.to_thread(self._engine.wishing.go, command) if isinstance(answer, Far) else answer
