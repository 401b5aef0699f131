"""A server with a broker, in this process: an engine on a real database, and the thread that publishes."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from taskyard.core.matching import canonical
from taskyard.core.states import Signal
from taskyard.engine.engine import Engine
from taskyard.lifecycle.commands import Hello, Lease, Poll
from taskyard.lifecycle.poll import PollOutcome
from taskyard.lifecycle.submit import Submitted
from taskyard.server.amqp import AmqpThread, Link
from taskyard.server.settings import Settings, load_signer, prepare
from tests.cli.waiting import until
from tests.engine.harness import report
from tests.lifecycle.harness import Labels


def new_scheduler_id() -> str:
    """A name by which tests share a broker."""
    return f"t{uuid.uuid4().hex[:16]}"


class Yard:
    """An engine that publishes."""

    def __init__(self, engine: Engine, broker_url: str) -> None:
        self.engine = engine
        self.scheduler_id = engine.scheduler_id
        self.amqp = AmqpThread(engine, Settings(amqp=broker_url), load_signer(engine))
        self._polls = iter(range(1, 1_000_000))

    def submit(self, document: object) -> Labels:
        answer = self.engine.submit(document)
        assert isinstance(answer, Submitted), answer
        with self.engine.store.read() as repo:
            return Labels(answer.graph, {label: id for id, label, _, _ in repo.tasks.definitions_of(answer.graph)})

    def hello(self, bot: str = "b1") -> None:
        assert self.engine.hello(Hello(bot, "s1", canonical({"id": bot, "pool": "default"}), 8)) is None

    def claim(self, want: int = 8, bot: str = "b1") -> tuple[Lease, ...]:
        answer = self.engine.poll(Poll(bot, "s1", f"p{next(self._polls)}", want=want))
        assert isinstance(answer, PollOutcome), answer
        return answer.leases

    def end(self, lease: Lease, signal: Signal = Signal.SUCCEED, bot: str = "b1") -> None:
        answer = self.engine.poll(Poll(bot, "s1", f"p{next(self._polls)}", (report(lease, signal),)))
        assert isinstance(answer, PollOutcome), answer

    def logged(self, labels: Labels) -> list[str]:
        """The ids of all events in a graph."""
        with self.engine.store.read() as repo:
            return [f"{labels.text}-{one.number}" for one in repo.events.in_graph(labels.graph, 0, 10_000)]

    def backlog(self) -> int:
        """How many events the broker has not got, numbered or not."""
        with self.engine.store.read() as repo:
            (target,) = repo.targets.all()
            return repo.stream.read().last - target.position + len(repo.events.unpublished(1))

    def until_link(self, link: Link) -> None:
        until(lambda: self.amqp.link is link, f"the link to be {link}, not {self.amqp.link}: {self.amqp.fault}")


@contextmanager
def opened_yard(
    url: str, broker_url: str, scheduler_id: str = "", before: Callable[[Engine], object] = lambda _: None
) -> Iterator[Yard]:
    """An engine on a database, and its thread, which has added its target."""
    with Engine.open(url, scheduler_id=scheduler_id or new_scheduler_id()) as engine:
        prepare(engine)
        before(engine)
        yard = Yard(engine, broker_url)
        yard.amqp.start()
        try:
            until(lambda: bool(_targets(engine)), "the target")
            yield yard
        finally:
            yard.amqp.stop()


def _targets(engine: Engine) -> object:
    with engine.store.read() as repo:
        return repo.targets.all()
