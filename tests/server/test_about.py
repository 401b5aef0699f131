"""The route `about`: for every caller with a valid token, and for no other."""

from taskyard.server.settings import Settings
from tests.server.running_server import RunningServer, graph, task


def test_a_caller_gets_the_scopes_of_its_token(server: RunningServer) -> None:
    shown = server.get("/api/v1/about")
    assert (shown["kind"], shown["scopes"], shown["pool"], shown["expires_ms"]) == ("user", ["admin"], None, None)
    assert shown["actor"].startswith("admin (")
    assert abs(shown["now_ms"] - server.engine.clock.now()) < 60_000
    reader = server.token("pool:lab:read", "pool:*:submit", expires_in_ms=1_000_000)
    shown = server.get("/api/v1/about", token=reader)
    assert shown["scopes"] == ["pool:*:submit", "pool:lab:read"]
    assert shown["expires_ms"] > shown["now_ms"]
    shown = server.get("/api/v1/about", token=server.token(kind="bot", pool="lab"))
    assert (shown["kind"], shown["scopes"], shown["pool"]) == ("bot", [], "lab")
    assert server.ask("GET", "/api/v1/about", token=None).status == 401


def test_a_running_task_sees_only_its_own_graph(server: RunningServer) -> None:
    made = server.submit(graph(a=task()))
    server.hello()
    (lease,) = server.claim()
    shown = server.get("/api/v1/about", token=server.run_token(lease))
    assert (shown["kind"], shown["actor"]) == ("run", f"task {made.tasks['a']}-1")
    assert shown["scopes"] == ["pool:default:read", "pool:default:submit"]


def test_without_authentication_every_caller_has_every_right(sqlite_url: str) -> None:
    with RunningServer(sqlite_url, Settings(public_url="http://yard", authentication=False)) as open_yard:
        shown = open_yard.get("/api/v1/about", token=None)
    assert (shown["actor"], shown["scopes"]) == ("anyone", ["admin"])
