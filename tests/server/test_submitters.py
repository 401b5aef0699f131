"""The submitters of tasks, which bots get to separate the calls of different people."""

from tests.server.running_server import RunningServer, graph, task
from tests.server.test_bot_api import hello, poll


def test_a_bot_gets_the_submitter_of_each_task(either_server: RunningServer) -> None:
    ada, ben = (either_server.token("pool:lab:submit", "pool:lab:read") for _ in range(2))
    bot = either_server.token(kind="bot", pool="lab")
    hello(either_server, bot)
    lab = {"dimensions": {"pool": "lab"}}
    made = either_server.submit(graph(ada=task(**lab)), token=ada)
    either_server.submit(graph(ben=task(**lab)), token=ben)
    grown = either_server.ask("POST", f"/api/v1/graphs/{made.id}/tasks", graph(grown=task(**lab)), token=ben)
    assert grown.status == 200, grown.body
    leases = {one["label"]: one for one in poll(either_server, bot, want=3, poll="p1")["leases"]}
    whose = {label: one["submitter"] for label, one in leases.items()}
    assert whose == {"ada": ada.split("_")[2], "ben": ben.split("_")[2], "grown": ben.split("_")[2]}


def test_what_a_running_task_submits_belongs_to_the_submitter_of_that_task(either_server: RunningServer) -> None:
    ada = either_server.token("pool:lab:submit", "pool:lab:read")
    bot = either_server.token(kind="bot", pool="lab")
    hello(either_server, bot)
    lab = {"dimensions": {"pool": "lab"}}
    either_server.submit(graph(first=task(**lab)), token=ada)
    (first,) = poll(either_server, bot, want=1, poll="p1")["leases"]
    extended = either_server.ask(
        "POST", f"/api/v1/graphs/{first['graph']}/tasks", graph(b=task(**lab)), token=first["token"]
    )
    assert extended.status == 200, extended.body
    either_server.submit(graph(c=task(**lab)), token=first["token"])
    leases = poll(either_server, bot, want=2, poll="p2")["leases"]
    assert {one["label"]: one["submitter"] for one in leases} == dict.fromkeys("bc", ada.split("_")[2])


def test_a_graph_inside_a_task_belongs_to_the_submitter_of_the_task(either_server: RunningServer) -> None:
    ada = either_server.token("pool:*:submit", "pool:*:read")
    bot = either_server.token(kind="bot", pool="lab")
    hello(either_server, bot)
    inner = graph(inner=task(dimensions={"pool": "lab"}))
    either_server.submit({"tasks": {"outer": {"task": {"payload": {"graph": inner}}}}}, token=ada)
    (lease,) = poll(either_server, bot, want=1, poll="p1", wait_ms=20_000)["leases"]
    assert (lease["label"], lease["submitter"]) == ("inner", ada.split("_")[2])
