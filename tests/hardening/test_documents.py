"""Hostile documents and texts: each is refused with a problem that says why, and no effect, or kept exactly."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from taskyard.lifecycle.commands import Lease
from tests.hardening.corpus import (
    GOOD,
    JSON_TEXTS,
    NAMES,
    NO_NAMES,
    NUMBERS,
    TEXTS,
    YAML_TEXTS,
    document,
    with_label,
    yaml,
)
from tests.hardening.store_digest import Digest
from tests.server.running_server import Answer, Made, RunningServer, fresh, graph, task

YAML = {"Content-Type": "application/yaml"}


def is_refused(answer: Answer, status: int = 400) -> bool:
    """Whether an answer is a problem that names at least one fault."""
    problem = answer.headers["content-type"] == "application/problem+json"
    return answer.status == status and problem and bool(answer.json["detail"]) and len(answer.body) < 100_000


@pytest.fixture(params=["sqlite", "postgres"], scope="module")
def either_server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """One server for each of the two databases."""
    if request.param == "sqlite":
        yield request.getfixturevalue("server")
        return
    postgres = request.getfixturevalue("postgres")
    url = postgres.fresh()
    with RunningServer(url) as made:
        yield made
    postgres.drop(url)


def test_a_document_whose_text_is_no_json_is_refused_and_changes_nothing(server: RunningServer, kept: Digest) -> None:
    before = kept()
    for name, body in JSON_TEXTS.items():
        for path in ("/api/v1/graphs", "/api/v1/requests"):
            assert is_refused(server.ask("POST", path, body)), name
    assert kept() == before


def test_a_document_whose_text_is_no_plain_yaml_is_refused_and_changes_nothing(
    server: RunningServer, kept: Digest
) -> None:
    before = kept()
    for name, body in YAML_TEXTS.items():
        assert is_refused(server.ask("POST", "/api/v1/graphs", body, headers=YAML)), name
    assert kept() == before


def test_a_number_that_is_not_what_a_field_takes_is_refused_and_changes_nothing(
    server: RunningServer, kept: Digest
) -> None:
    before = kept()
    for name, number in NUMBERS.items():
        body = GOOD.replace(b'"payload"', b'"priority":' + number.encode() + b',"payload"')
        assert is_refused(server.ask("POST", "/api/v1/graphs", body)), name
        pool = b'{"capacity":' + number.encode() + b"}"
        if name not in {"beyond patience", "exact no more", "too many", "null"}:
            assert is_refused(server.ask("PUT", "/api/v1/pools/lab", pool)), name
    assert kept() == before


def test_a_good_document_may_begin_with_a_mark_of_its_order_and_end_with_blanks(server: RunningServer) -> None:
    assert server.ask("POST", "/api/v1/graphs", b"\xef\xbb\xbf \n" + GOOD + b"\r\n \t").status == 201


@pytest.mark.parametrize(
    "word", ["no", "on", "yes", "n", "12:30", "0o17", "0x1f", "1_000", "2024-01-01", "=", "1e", ".5"]
)
def test_words_that_other_yaml_parsers_convert_stay_texts(server: RunningServer, word: str) -> None:
    answer = server.ask("POST", "/api/v1/graphs", yaml("", word), headers=YAML)
    assert answer.status == 201, answer.body
    assert env_of(server, answer) == word


def env_of(server: RunningServer, answer: Answer, label: str = "a") -> Any:
    shown = server.get(f"/api/v1/tasks/{answer.json['nameMapping'][label]}")
    return shown["definition"]["slices"][0]["payload"]["env"]["X"]


def test_texts_are_kept_to_the_letter_whatever_they_would_do_elsewhere(either_server: RunningServer) -> None:
    for name, text in TEXTS.items():
        for ascii_only in (True, False):
            written = json.dumps(text, ensure_ascii=ascii_only)
            answer = either_server.ask("POST", "/api/v1/graphs", document(written))
            assert answer.status == 201, (name, answer.body)
            assert env_of(either_server, answer) == text, name


def test_answers_are_json_without_raw_control_characters(server: RunningServer) -> None:
    for text in TEXTS.values():
        made = server.ask("POST", "/api/v1/graphs", document(json.dumps(text)))
        shown = server.ask("GET", f"/api/v1/tasks/{made.json['nameMapping']['a']}")
        assert shown.headers["content-type"] == "application/json"
        assert not [byte for byte in shown.body if byte < 0x20]


def test_names_that_people_could_not_read_or_type_are_refused_wherever_a_name_goes(
    server: RunningServer, kept: Digest
) -> None:
    bot = server.token(kind="bot", pool="default")
    before = kept()
    for name, text in NO_NAMES.items():
        hello = {"bot": text, "session": "s"}
        asked = [
            ("a label", server.ask("POST", "/api/v1/graphs", with_label(text))),
            ("a name", server.ask("POST", "/api/v1/graphs", json.loads(GOOD) | {"name": text})),
            ("a token", server.ask("POST", "/api/v1/tokens", {"name": text})),
            ("a scope", server.ask("POST", "/api/v1/tokens", {"name": "a", "scopes": [f"pool:{text}:read"]})),
            ("a mutex", server.ask("POST", "/api/v1/graphs", graph(a=task(mutexes=[{"key": text}])))),
            ("a bot", server.ask("POST", "/api/v1/bot/hello", hello, token=bot)),
        ]
        for place, answer in asked:
            assert is_refused(answer), (name, place, answer.body)
    assert kept() == before


def test_a_pool_needs_a_name_that_people_can_read_and_type_too(server: RunningServer, kept: Digest) -> None:
    before = kept()
    for name, text in NO_NAMES.items():
        if text and "/" not in text:  # else it is another path
            assert is_refused(server.ask("PUT", f"/api/v1/pools/{quote(text, safe='')}", {})), name
    assert kept() == before


def test_names_that_are_only_unusual_are_kept_to_the_letter(either_server: RunningServer) -> None:
    for name, text in NAMES.items():
        answer = either_server.ask("POST", "/api/v1/graphs", with_label(text) | {"name": text})
        assert (answer.status, list(answer.json["nameMapping"])) == (201, [text]), name
        assert either_server.get(f"/api/v1/graphs/{answer.json['graph_id']}")["name"] == text
        found = either_server.get(f"/api/v1/graphs?name={quote(text, safe='')}&limit=1")["items"]
        assert [one["id"] for one in found] == [answer.json["graph_id"]], name


def test_names_that_look_alike_are_distinguished(either_server: RunningServer) -> None:
    plain, alike = fresh("a"), fresh("a").replace("a", "\u0430", 1)
    both = graph(**{plain: task(), alike: task(plain)})
    assert set(either_server.submit(both).tasks) == {plain, alike}


# What tasks and bots send.


def running(server: RunningServer) -> tuple[Made, Lease]:
    """A task that runs on a bot of its own."""
    where = fresh("pool")
    made = server.submit(graph(a=task(dimensions={"pool": where})))
    server.hello(made.id, where)
    (lease,) = server.claim(made.id)
    return made, lease


def test_output_comes_back_byte_for_byte_and_never_as_a_page(either_server: RunningServer) -> None:
    made, lease = running(either_server)
    sent = b"".join(text.encode() for text in TEXTS.values()) + bytes(range(256))
    either_server.print(lease, 0, sent, bot=made.id)
    answer = either_server.ask("GET", f"/api/v1/tasks/{made.tasks['a']}/output")
    assert answer.body == sent
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["content-disposition"].startswith("attachment")
    either_server.end(lease, bot=made.id)


def test_progress_and_results_of_a_task_are_stored_exactly_or_refused(either_server: RunningServer) -> None:
    made, lease = running(either_server)
    path, token = f"/api/v1/tasks/{made.tasks['a']}", either_server.run_token(lease)
    for name, text in TEXTS.items():
        assert either_server.ask("PUT", f"{path}/result", {"said": [text]}, token=token).status == 204, name
        assert either_server.get(path)["result"] == {"said": [text]}, name
        listed = either_server.ask("PUT", f"{path}/progress", text.encode(), token=token)
        if listed.status == 204:
            assert either_server.get(path)["progress"] == text, name
        else:
            assert is_refused(listed, 413 if len(text) > 4_096 else 400), name
    for body in (b"\xff", b"a\0b", b'{"a":1,"a":2}', b'"\\ud800"', b"NaN", b"[" * 10_000, b""):
        assert is_refused(either_server.ask("PUT", f"{path}/result", body, token=token)), body[:20]
    assert either_server.get(path)["result"] == {"said": [""]}
    either_server.end(lease, bot=made.id)


@pytest.mark.parametrize(
    "said",
    [
        {"bot": "b9"},
        {"bot": 1, "session": "s"},
        {"bot": "b9", "session": "s", "slots": -1},
        {"bot": "b9", "session": "s", "slots": 2**63},
        {"bot": "b9", "session": "s\x00"},
        {"bot": "b9", "session": "s", "dimensions": {"os": ["\x1b[31m"]}},
        {"bot": "b9", "session": "s", "dimensions": {"o\x00s": ["linux"]}},
        {"bot": "b9", "session": "s", "dimensions": {"os": "linux"}},
        {"bot": "b9", "session": "s", "dimensions": {"os": ["x" * 10_000]}},
        {"bot": "b9", "session": "s", "dimensions": {f"k{number}": ["v"] for number in range(10_000)}},
        {"bot": "b9", "session": "x" * 100_000},
        {"bot": "b9", "session": "s", "quarantined": "a\x00b"},
    ],
    ids=lambda said: ",".join(f"{key}={str(value)[:12]!r}" for key, value in said.items())[:60],
)
def test_an_invalid_message_of_a_bot_is_refused_and_changes_nothing(
    server: RunningServer, kept: Digest, said: dict[str, Any]
) -> None:
    token = server.token(kind="bot", pool="default")
    before = kept()
    assert is_refused(server.ask("POST", "/api/v1/bot/hello", said, token=token))
    assert kept() == before


def test_settings_of_a_bot_are_stored_exactly(either_server: RunningServer) -> None:
    either_server.hello("odd")
    for name, text in TEXTS.items():
        if text:
            answer = either_server.ask("PATCH", "/api/v1/bots/odd", {"maintenance": text})
            assert (answer.status, answer.json["maintenance"]) == (200, text), name


# Ids.


@pytest.mark.parametrize(
    "id",
    [
        "..", "%2e%2e", "%2e%2e%2f%2e%2e%2fetc", "..%5c..", "%00", "%0d%0aX:%20y", "%1b%5b31m", "*", "%25", "-1", "0x1",
        "7fffffffffffffff", "ffffffffffffffff", "00000000000000000", "7FFFFFFFFFFFFF08", "%EF%BC%91" * 16, "1e15",
        "1;DROP%20TABLE", "1'--", "{graph_id}", "null", "undefined", "%ED%A0%80", "%C0%AE", "a" * 5_000,
    ],
)  # fmt: skip
def test_an_id_that_is_none_finds_nothing_and_changes_nothing(server: RunningServer, kept: Digest, id: str) -> None:
    before = kept()
    asked = [("GET", f"/graphs/{id}"), ("GET", f"/tasks/{id}"), ("GET", f"/tasks/{id}/output"), ("GET", f"/bots/{id}"),
             ("POST", f"/graphs/{id}/cancel"), ("POST", f"/tasks/{id}/rerun"), ("DELETE", f"/tokens/{id}"),
             ("PATCH", f"/bots/{id}")]  # fmt: skip
    for method, path in asked:
        answer = server.ask(method, f"/api/v1{path}", {} if method == "PATCH" else None)
        assert answer.status in {404, 405}, (method, path, answer.status)
        assert answer.headers["content-type"] == "application/problem+json"
        assert not [byte for byte in answer.body if byte < 0x20]
    put = server.ask("PUT", f"/api/v1/graphs/{id}", GOOD)
    assert put.status in {400, 404, 405}, put.body
    assert kept() == before
