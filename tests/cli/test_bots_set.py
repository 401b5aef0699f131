"""`bots set` sends the given changes, and no others."""

import json
from typing import Any

import pytest

from taskyard.cli import main
from tests.cli.test_output import BOT
from tests.sdk.faulty_server import faulty_server, json_reply


@pytest.mark.parametrize(
    ("flags", "changes"),
    [
        (["--terminate"], {"terminated": True}),
        (["--no-terminate"], {"terminated": False}),
        (["--drain", "--no-terminate"], {"draining": True, "terminated": False}),
        (["--no-drain", "--no-quarantine"], {"draining": False, "quarantined": None}),
        (["--maintenance", "new disk"], {"maintenance": "new disk"}),
    ],
)
def test_only_given_settings_of_a_bot_change(
    flags: list[str], changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with faulty_server() as server:
        monkeypatch.setenv("TASKYARD_URL", server.url)
        monkeypatch.setenv("TASKYARD_TOKEN", "x")
        server.reply_with(json_reply(BOT))
        main.call(None, ["bots", "set", "b", *flags])  # type: ignore[arg-type]
        (asked,) = server.asked
    assert (asked.method, asked.path, json.loads(asked.body)) == ("PATCH", "/api/v1/bots/b", changes)
