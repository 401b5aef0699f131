"""The programs that tests bring with them."""

import socket
from pathlib import Path

import pytest

from tests import debian
from tests.brokers import RabbitMQ, Redis
from tests.cli.waiting import is_gone, until

pytest_plugins = ["pytester"]


def test_brokers_answer_on_loopback(rabbitmq: RabbitMQ, redis: Redis) -> None:
    for broker in (rabbitmq, redis):
        socket.create_connection(("127.0.0.1", broker.port)).close()


def test_a_broker_ends_and_keeps_its_port(redis: Redis) -> None:
    with Redis() as own:
        first, port = own.pid, own.port
        own.stop()
        until(lambda: is_gone(first), "the end of Redis")
        own.start()
        assert own.port == port != redis.port
        assert own.pid != first


def test_what_cannot_be_had_is_counted_as_not_tested(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that needs a broker where none can be installed is not a silent skip."""
    monkeypatch.setitem(debian.PROGRAMS, "Redis", ("usr/bin/no-such-program", "no-such-package"))
    monkeypatch.setattr(debian, "CACHE", Path(pytester.path) / "cache")
    monkeypatch.setenv("PATH", "")
    debian.find_program.cache_clear()
    pytester.makeconftest("from tests.conftest import *")
    pytester.makepyfile("def test_it(redis): ...")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist")
    debian.find_program.cache_clear()
    result.stdout.fnmatch_lines(
        ["*NOT TESTED*", "*Redis cannot be installed: there is no apt-get here*", "*1 NOT TESTED*"]
    )
