"""Where and who a caller is: told to everybody with a good token, and to nobody else."""

from taskyard.server.settings import Settings
from tests.server.running_server import RunningServer, graph, task


def test_a_caller_is_told_what_its_token_is_good_for(server: RunningServer) -> None:
    told = server.get("/api/v1/about")
    assert (told["kind"], told["scopes"], told["pool"], told["expires_ms"]) == ("user", ["admin"], None, None)
    assert told["actor"].startswith("admin (")
    assert abs(told["now_ms"] - server.engine.clock.now()) < 60_000
    reader = server.token("pool:lab:read", "pool:*:submit", expires_in_ms=1_000_000)
    told = server.get("/api/v1/about", token=reader)
    assert told["scopes"] == ["pool:*:submit", "pool:lab:read"]
    assert told["expires_ms"] > told["now_ms"]
    told = server.get("/api/v1/about", token=server.token(kind="bot", pool="lab"))
    assert (told["kind"], told["scopes"], told["pool"]) == ("bot", [], "lab")
    assert server.ask("GET", "/api/v1/about", token=None).status == 401


def test_a_running_task_is_told_of_its_own_graph_only(server: RunningServer) -> None:
    made = server.submit(graph(a=task()))
    server.hello()
    (lease,) = server.claim()
    told = server.get("/api/v1/about", token=server.run_token(lease))
    assert (told["kind"], told["actor"]) == ("run", f"task {made.tasks['a']}-1")
    assert told["scopes"] == ["pool:default:read", "pool:default:submit"]


def test_without_authentication_everybody_may_do_everything(sqlite_url: str) -> None:
    with RunningServer(sqlite_url, Settings(public_url="http://yard", authentication=False)) as open_yard:
        told = open_yard.get("/api/v1/about", token=None)
    assert (told["actor"], told["scopes"]) == ("anyone", ["admin"])
