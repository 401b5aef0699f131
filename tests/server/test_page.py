"""How the page is served: caching, deep links, headers, and what there is before it is built."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskyard.server.page import Page
from tests.server.running_server import RunningServer

INDEX = "<!doctype html><title>Taskyard</title>" + " " * 2_000
SCRIPT = "assets/index-1a2b3c.js"
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("page")
    (folder / "assets").mkdir()
    (folder / "index.html").write_text(INDEX)
    (folder / SCRIPT).write_text("let one = 1;")
    (folder.parent / "beside.txt").write_text("not a part of the page")
    with RunningServer(f"sqlite:///{tmp_path_factory.mktemp('yard')}/yard.db") as made:
        made.http.app._page = Page(folder)
        yield made


def test_the_index_and_deep_links_are_never_kept_and_scripts_for_ever(server: RunningServer) -> None:
    for path in ("/", "/graphs/7f3a", "/tasks/x/log?line=5"):
        found = server.ask("GET", path, token=None, headers=BROWSER)
        assert (found.status, found.body.decode()) == (200, INDEX), path
        assert found.headers["cache-control"] == "no-cache"
    script = server.ask("GET", f"/{SCRIPT}", token=None)
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert script.headers["content-type"].startswith("text/javascript")


def test_what_has_not_changed_is_not_sent_again(server: RunningServer) -> None:
    etag = server.ask("GET", "/", token=None).headers["etag"]
    again = server.ask("GET", "/", token=None, headers={"If-None-Match": etag})
    assert (again.status, again.body) == (304, b"")


def test_files_are_compressed_for_those_who_can_read_that(server: RunningServer) -> None:
    found = server.ask("GET", "/", token=None, headers={"Accept-Encoding": "br, gzip"})
    assert found.headers["content-encoding"] == "gzip"
    assert gzip.decompress(found.body).decode() == INDEX
    assert "content-encoding" not in server.ask("GET", "/", token=None).headers


def test_the_policy_allows_no_inline_script_nothing_from_elsewhere_and_no_frames(server: RunningServer) -> None:
    for path in ("/", f"/{SCRIPT}"):
        headers = server.ask("GET", path, token=None).headers
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")


def test_what_is_neither_a_file_nor_opened_in_a_browser_is_not_found(server: RunningServer) -> None:
    for path in ("/graphs/7f3a", "/assets/gone.js", "/../beside.txt", "/%2e%2e/beside.txt", "/%00"):
        assert server.ask("GET", path, token=None).json["code"] == "not_found", path
    assert server.ask("GET", "/api/v1/nothing", headers=BROWSER).json["code"] == "not_found"
    assert server.ask("POST", "/", {}, headers=BROWSER).status in {404, 405}


def test_a_head_has_no_body(server: RunningServer) -> None:
    found = server.ask("HEAD", "/", token=None)
    assert (found.status, found.body) == (200, b"")


def test_a_page_that_is_not_built_says_how_to_build_it(server: RunningServer, tmp_path: Path) -> None:
    built, server.http.app._page = server.http.app._page, Page(tmp_path)
    try:
        found = server.ask("GET", "/", token=None, headers=BROWSER)
    finally:
        server.http.app._page = built
    assert (found.status, found.headers["cache-control"]) == (200, "no-store")
    assert "make page" in found.body.decode()
