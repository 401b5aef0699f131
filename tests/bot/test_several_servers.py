"""A bot with several servers: its connections move together, and it goes home."""

import asyncio
from pathlib import Path

import pytest

from taskyard.bot import server_client
from taskyard.bot.config import BotConfig
from taskyard.bot.server_client import ServerUnavailable, return_home
from taskyard.sdk.bot_http import ConnectionFailed, ServerConnection
from tests.engine.harness import WAIT_S
from tests.sdk.test_servers import answering, first_is


def config_of(*urls: str) -> BotConfig:
    """A bot that begins with the first of these servers."""
    named = (BotConfig(",".join(urls), "t", f"b{number}", 1, Path()) for number in range(1_000))
    return next(one for one in named if one.servers.home == urls[0])


def test_a_bot_goes_back_to_its_server_once_that_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_client, "HOME_SECONDS", 0.02)

    async def act() -> None:
        with answering(503) as home, answering() as other:
            config = config_of(home.url, other.url)
            going = asyncio.create_task(return_home(config))
            config.servers.move_on(home.url)
            async with asyncio.timeout(WAIT_S):
                while len(home.asked) < 3:
                    await asyncio.sleep(0.01)
                assert config.servers.current == other.url, "it is not ready"
                home.status = 200
                while config.servers.current != home.url:
                    await asyncio.sleep(0.01)
            assert set(home.asked) == {"/readyz"}
            going.cancel()

    asyncio.run(act())


def test_a_request_is_sent_to_the_next_server_at_once_and_to_the_first_one_after_a_pause() -> None:
    async def act() -> None:
        with answering(503) as one, answering(503) as other:
            client = server_client.ServerClient(config_of(one.url, other.url))
            said = []
            for _ in range(4):
                with pytest.raises(ServerUnavailable) as raised:
                    await client.poll(b"{}", 0)
                said.append(raised.value.elsewhere)
            assert said == [True, False, True, False]
            client.close()

    asyncio.run(act())


def test_a_request_that_waits_at_a_server_that_is_away_fails_at_once() -> None:
    async def act() -> None:
        asked = asyncio.Event()

        async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            asked.set()
            await reader.read()
            writer.close()

        silent = await asyncio.start_server(never, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        servers = first_is(url, "http://127.0.0.1:9")
        waiting = ServerConnection(servers)
        servers.on_leave = waiting.leave
        asking = asyncio.create_task(waiting.ask("POST", "/poll", b"{}", 3_600.0))
        async with asyncio.timeout(WAIT_S):
            await asked.wait()
            servers.move_on(url)
            with pytest.raises(ConnectionFailed, match="the server is away"):
                await asking
        assert waiting.asks_at_once
        silent.close()

    asyncio.run(act())
