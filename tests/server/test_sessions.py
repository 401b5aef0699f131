"""Sessions of the page: signing in with a token or a link, what their requests need, and how they end."""

from collections.abc import Iterator
from http.cookies import SimpleCookie
from typing import Any

import pytest

from taskyard.server.auth import COOKIE, HEADER, digest_of
from taskyard.server.settings import Settings
from tests.server.running_server import Answer, RunningServer, graph, task


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(f"sqlite:///{tmp_path_factory.mktemp('yard')}/yard.db") as made:
        yield made


class Browser:
    """What a browser and the page send: the cookie, the origin and the header."""

    def __init__(self, server: RunningServer, signed_in: Answer) -> None:
        assert signed_in.status == 201, signed_in.body
        self.server = server
        self.cookie = SimpleCookie(signed_in.headers["set-cookie"])[COOKIE]
        self.header = signed_in.json["header"]

    def ask(self, method: str, path: str, body: object = None, **changed: str) -> Answer:
        sent = {"Cookie": f"{COOKIE}={self.cookie.value}", "Origin": self.server.http.url, HEADER: self.header}
        return self.server.ask(method, path, body, token=None, headers=sent | changed)


def sign_in(server: RunningServer, **said: str) -> Answer:
    return server.ask("POST", "/api/v1/session", said, token=None)


def test_a_token_is_exchanged_for_a_cookie_that_scripts_cannot_read(server: RunningServer) -> None:
    browser = Browser(server, sign_in(server, token=server.admin))
    assert browser.cookie["httponly"]
    assert (browser.cookie["samesite"], browser.cookie["path"]) == ("strict", "/api")
    assert browser.ask("GET", "/api/v1/session").json["header"] == browser.header
    assert browser.ask("GET", "/api/v1/graphs").status == 200
    assert browser.cookie.value not in str(browser.ask("GET", "/api/v1/session").json)


def test_a_change_needs_the_origin_and_the_header_of_the_session(server: RunningServer) -> None:
    browser, document = Browser(server, sign_in(server, token=server.admin)), graph(a=task())
    assert browser.ask("POST", "/api/v1/graphs", document).status == 201
    assert browser.ask("POST", "/api/v1/graphs", document, Origin="http://yard").status == 201  # the public URL
    other = Browser(server, sign_in(server, token=server.admin))
    for changed in ({"Origin": "http://elsewhere"}, {"Origin": "null"}, {HEADER: ""}, {HEADER: other.header}):
        refused = browser.ask("POST", "/api/v1/graphs", document, **changed)
        assert (refused.status, refused.json["code"]) == (403, "forbidden"), changed


def test_a_session_has_the_rights_of_its_token_and_ends_with_it(server: RunningServer) -> None:
    token = server.token("pool:default:read")
    browser = Browser(server, sign_in(server, token=token))
    assert browser.ask("GET", "/api/v1/graphs").status == 200
    assert browser.ask("POST", "/api/v1/graphs", graph(a=task())).status == 403
    server.ask("DELETE", f"/api/v1/tokens/{token.split('_')[2]}")
    assert browser.ask("GET", "/api/v1/graphs").json["code"] == "no_session"


def test_signing_out_ends_the_session_and_no_other(server: RunningServer) -> None:
    one, other = (Browser(server, sign_in(server, token=server.admin)) for _ in range(2))
    assert one.ask("DELETE", "/api/v1/session", **{HEADER: other.header}).status == 403
    assert one.ask("DELETE", "/api/v1/session").status == 204
    assert one.ask("GET", "/api/v1/graphs").status == 401
    assert other.ask("GET", "/api/v1/graphs").status == 200


def test_a_link_signs_in_once(server: RunningServer) -> None:
    code = server.ask("POST", "/api/v1/session/links").json["code"]
    browser = Browser(server, sign_in(server, code=code))
    assert browser.ask("GET", "/api/v1/about").json["scopes"] == ["admin"]
    assert sign_in(server, code=code).json["code"] == "bad_token"


def test_a_link_of_a_revoked_token_signs_nobody_in(server: RunningServer) -> None:
    token = server.token("pool:default:read")
    code = server.ask("POST", "/api/v1/session/links", token=token).json["code"]
    server.ask("DELETE", f"/api/v1/tokens/{token.split('_')[2]}")
    assert sign_in(server, code=code).status == 401


def test_only_tokens_of_users_sign_in(server: RunningServer) -> None:
    assert server.ask("POST", "/api/v1/session", {"token": "of nobody"}, token=None).status == 401
    assert sign_in(server, token=server.token(kind="bot")).status == 403
    given: list[dict[str, Any]] = [{}, {"token": "a", "code": "b"}, {"token": 5}, {"password": "x"}]
    for said in given:
        assert server.ask("POST", "/api/v1/session", said, token=None).status == 400, said


def test_what_is_stored_of_a_session_does_not_open_it(server: RunningServer) -> None:
    browser = Browser(server, sign_in(server, token=server.admin))
    digest = digest_of(browser.cookie.value)
    with server.engine.store.read() as repo:
        assert repo.tokens.session(digest, "browser") is not None
    assert browser.ask("GET", "/api/v1/graphs", Cookie=f"{COOKIE}={digest}").status == 401


def test_without_authentication_everybody_is_signed_in(tmp_path_factory: pytest.TempPathFactory) -> None:
    url = f"sqlite:///{tmp_path_factory.mktemp('open')}/yard.db"
    with RunningServer(url, Settings(authentication=False)) as server:
        shown = server.ask("GET", "/api/v1/session", token=None)
        assert (shown.status, shown.json["scopes"]) == (200, ["admin"])
