"""The Celery engine passes the tests of every engine, with workers on RabbitMQ and on Redis."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskyard.bot.engines.conformance import EngineConformance, FakeBot
from taskyard.wire.bot_protocol import Signal
from tests.brokers import RabbitMQ, Redis
from tests.debian import NOT_TESTED, NotAvailable
from tests.effort import SOAK

#: What Celery's own modules warn about is not ours.
pytestmark = [
    pytest.mark.filterwarnings("default"),
    # Beside many other tests a canceled attempt once ended as if it had begun: not explained yet.
    pytest.mark.skipif(not SOAK, reason="Celery under load: `make soak` runs it"),
]


class CeleryConformance(EngineConformance):
    """The tests, with one worker of two slots for all of them."""

    engine = "celery"

    @staticmethod
    def worker(broker: str, folder: Path) -> "subprocess.Popen[bytes]":
        """Start a worker."""
        return subprocess.Popen(
            [sys.executable, "-m", "taskyard", "celery-worker", "--slots", "2", "--state", str(folder)],
            env=os.environ | {"TASKYARD_BROKER": broker},
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )


class TestOnRedis(CeleryConformance):
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _worker(cls, redis: Redis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        cls.options = {"broker": redis.url}
        with cls.worker(redis.url, tmp_path_factory.mktemp("worker")) as process:
            yield
            process.terminate()


class TestOnRabbitMQ(CeleryConformance):
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _worker(cls, rabbitmq: RabbitMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        cls.options = {"broker": rabbitmq.url}
        with cls.worker(rabbitmq.url, tmp_path_factory.mktemp("worker")) as process:
            yield
            process.terminate()


@pytest.mark.parametrize("kind", [RabbitMQ, Redis])
def test_attempts_go_on_while_the_broker_is_restarted(kind: type[RabbitMQ] | type[Redis], tmp_path: Path) -> None:
    try:
        broker = kind()
    except NotAvailable as fault:
        pytest.skip(f"{NOT_TESTED}{fault}")
    with broker, CeleryConformance.worker(broker.url, tmp_path / "worker") as process:
        try:
            asyncio.run(_restart(broker, tmp_path))
        finally:
            process.terminate()


async def _restart(broker: RabbitMQ | Redis, folder: Path) -> None:
    bot = FakeBot("celery", {"broker": broker.url}, folder)
    await bot.open()
    try:
        attempt = bot.start('echo one; while ! [ -e "$FOLDER/go" ]; do sleep 0.05; done; echo two')
        await bot.until(lambda: bot.output.get(attempt.lease.task) == b"one\n", "it runs")
        await asyncio.to_thread(broker.stop)
        (folder / "go").touch()
        await asyncio.to_thread(broker.start)
        assert (await bot.report(attempt)).signal is Signal.SUCCEED
        assert bot.output[attempt.lease.task] == b"one\ntwo\n"
        assert (await bot.report(bot.start("true"))).signal is Signal.SUCCEED
    finally:
        await bot.close()


@pytest.mark.skipif(not SOAK, reason="it waits for the end of a lease")
def test_an_attempt_that_a_broker_has_lost_is_given_back(tmp_path: Path) -> None:
    try:
        broker = Redis()
    except NotAvailable as fault:
        pytest.skip(f"{NOT_TESTED}{fault}")
    with broker, CeleryConformance.worker(broker.url, tmp_path / "worker") as process:
        try:
            asyncio.run(_lose(broker, tmp_path))
        finally:
            process.terminate()


async def _lose(broker: RabbitMQ | Redis, folder: Path) -> None:
    bot = FakeBot("celery", {"broker": broker.url}, folder)
    await bot.open()
    try:
        hold = 'touch "$FOLDER/$TASKYARD_LABEL"; while ! [ -e "$FOLDER/go" ]; do sleep 0.05; done'
        running = [bot.start(hold) for _ in range(bot.engine.capacity)]
        await bot.until(lambda: len(bot.begun) == len(running), "all slots are taken")
        lost = bot.start(hold, 2_000)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(broker.stop)
        await asyncio.to_thread(broker.start)
        (folder / "go").touch()
        for one in running:
            assert (await bot.report(one)).signal is Signal.SUCCEED
        report = await bot.report(lost)
        assert (report.signal, report.reason) == (Signal.LOSE, "returned")
    finally:
        await bot.close()
