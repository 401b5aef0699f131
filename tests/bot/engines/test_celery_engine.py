"""The Celery engine passes the tests of every engine, with workers on RabbitMQ and on Redis."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskyard.bot.engines.conformance import EngineConformance
from tests.brokers import RabbitMQ, Redis

#: What Celery's own modules warn about is not ours.
pytestmark = pytest.mark.filterwarnings("default")


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
