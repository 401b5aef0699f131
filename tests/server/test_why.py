"""Why a task does not run: every reason, on a real server, caused by requests of people and bots."""

from collections.abc import Iterator
from typing import Any

import pytest

from taskyard.core.ids import Key, text_of
from taskyard.core.states import Reason, Signal
from taskyard.lifecycle.commands import Goodbye
from tests.server.frozen_clock_server import MINUTE, FrozenClockServer
from tests.server.running_server import Made, graph, task

DOOR = {"mutexes": [{"key": "door"}]}
YOUNGER = "younger tasks may pass it for another 1 min"
HOUR = 60 * MINUTE


@pytest.fixture
def server(sqlite_url: str) -> Iterator[FrozenClockServer]:
    with FrozenClockServer(sqlite_url) as made:
        yield made


@pytest.fixture
def either_server(database_url: str) -> Iterator[FrozenClockServer]:
    """On each of the two databases."""
    with FrozenClockServer(database_url) as made:
        yield made


def end(server: FrozenClockServer, signal: Signal, **said: Any) -> None:
    """Let b1 claim a task and report its end."""
    (lease,) = server.claim(want=1)
    server.report(lease, signal, **said)


# The graph.


def test_an_unmet_prerequisite_is_shown_with_its_own_reason(either_server: FrozenClockServer) -> None:
    server = either_server
    made = server.submit(graph(build=task(), test=task("build"), deploy=task("test")))
    server.bot()
    (lease,) = server.claim()
    server.clock.advance(2 * MINUTE)
    assert server.sentence(made, "test") == (
        "test is unscheduled: it waits for build (running); build is running: attempt 1 on b1 for 2 min"
    )
    found = server.why(made, "deploy")
    assert found["sentence"] == (
        "deploy is unscheduled: it waits for test (unscheduled); "
        "at the root, build is running: attempt 1 on b1 for 2 min"
    )
    assert [(one["depth"], one["root"], one["why"]["label"], one["why"]["reason"]) for one in found["causes"]] == [
        (1, False, "test", "prerequisite"),
        (2, True, "build", "under_way"),
    ]
    assert (found["roots"], found["more"], found["why"]["guard"]) == (1, 0, "graph")
    assert [one["needed_by"] for one in found["causes"]] == [made.tasks["deploy"], made.tasks["test"]]
    server.end(lease)
    assert server.sentence(made, "deploy") == (
        "deploy is unscheduled: it waits for test (waiting); test is waiting: 1 bot could run it now; it is next"
    )


def test_the_most_urgent_root_cause_is_shown_first_and_the_others_are_counted(server: FrozenClockServer) -> None:
    server.bot()
    gpu = task(dimensions={"pool": "default", "gpu": "h100"})
    made = server.submit(graph(a=task(), b=gpu, c=task(), all=task("a", "b", "c")))
    assert server.sentence(made, "all") == (
        "all is unscheduled: it waits for a (waiting), b (waiting), c (waiting); "
        "b is waiting: no bot has gpu: h100; the nearest is b1 (no gpu) (and 2 more root causes)"
    )


def test_of_many_prerequisites_a_few_are_named_and_the_others_counted(server: FrozenClockServer) -> None:
    parts = {f"p{number:03}": task() for number in range(150)}
    made = server.submit(graph(**parts, all=task(*parts), any={**task("p000", "p001"), "join": "any"}))
    found = server.why(made, "all")
    assert found["sentence"] == (
        "all is unscheduled: it waits for p000 (waiting), p001 (waiting), p002 (waiting) and 147 more; "
        "p000 is waiting: there is no bot (and 98 more root causes)"
    )
    assert (found["why"]["unmet"], len(found["why"]["prerequisites"]), len(found["causes"])) == (150, 100, 99)
    assert found["more"] == 51
    assert server.sentence(made, "any") == (
        "any is unscheduled: it waits for one of p000 (waiting), p001 (waiting); "
        "p000 is waiting: there is no bot (and 1 more root cause)"
    )


def test_a_failed_prerequisite_is_shown_with_how_it_ended(either_server: FrozenClockServer) -> None:
    server = either_server
    made = server.submit(graph(build=task(), test=task("build"), deploy=task("test")))
    server.bot()
    end(server, Signal.FAIL, exit_code=2)
    server.clock.advance(MINUTE)
    assert server.sentence(made, "test") == (
        "test is blocked: it needs build (failed, exit code 2 in attempt 1 on b1); rerun that to go on"
    )
    assert server.sentence(made, "deploy") == (
        "deploy is unscheduled: it waits for test (blocked); "
        "at the root, build is failed: exit code 2 in attempt 1 on b1, 1 min ago"
    )
    found = server.why(made, "test")["why"]
    assert (found["reason"], found["prerequisites"]) == (
        "prerequisite_failed",
        [
            {
                "task": made.tasks["build"],
                "label": "build",
                "state": "failed",
                "on": "success",
                "ending": "exit code 2 in attempt 1 on b1",
            }
        ],
    )


def test_a_task_that_fails_with_its_prerequisite_says_so(server: FrozenClockServer) -> None:
    made = server.submit(graph(a=task(), b={**task("a"), "on_impossible": "fail"}, c=task("b")))
    server.bot()
    end(server, Signal.FAIL, exit_code=1)
    assert (
        server.sentence(made, "b") == "b is failed: it needs a (failed, exit code 1 in attempt 1 on b1), a moment ago"
    )
    assert server.sentence(made, "c") == (
        "c is blocked: it needs b (failed, a prerequisite failed); rerun that to go on; "
        "at the root, a is failed: exit code 1 in attempt 1 on b1, a moment ago"
    )


def test_a_condition_that_cannot_come_true_is_shown(server: FrozenClockServer) -> None:
    made = server.submit(graph(a=task(), page={**task(), "requires": [{"task": "a", "on": "failure"}]}, b=task("page")))
    server.bot()
    end(server, Signal.SUCCEED, exit_code=0)
    assert server.sentence(made, "page") == "page is skipped: its condition cannot come true after a (successful)"
    assert server.sentence(made, "b") == (
        "b is skipped: its condition cannot come true after page (skipped, condition); "
        "at the root, a is successful: done in attempt 1 on b1, a moment ago"
    )


def test_the_person_who_canceled_a_prerequisite_is_named(server: FrozenClockServer) -> None:
    made = server.submit(graph(a=task(), b=task("a")))
    token = server.token("pool:default:cancel", name="ann")
    server.ask("POST", f"/api/v1/tasks/{made.tasks['a']}/cancel", token=token)
    actor = server.why(made, "a")["why"]["actor"]
    assert actor.startswith("ann (")
    assert server.sentence(made, "a") == f"a is canceled: canceled by {actor}, a moment ago"
    assert (
        server.sentence(made, "b") == f"b is blocked: it needs a (canceled, canceled by {actor}); rerun that to go on"
    )


def test_the_person_who_canceled_a_subtree_is_named_for_all_its_tasks(server: FrozenClockServer) -> None:
    made = server.submit(graph(a=task(), b=task("a"), c=task("b")))
    server.ask("POST", f"/api/v1/tasks/{made.tasks['a']}/cancel", {"subtree": True})
    found = server.why(made, "c")["why"]
    assert found["actor"].startswith("admin (")
    assert found["sentence"] == f"c is canceled: canceled by {found['actor']}, a moment ago"


def test_a_task_of_a_large_graph_that_is_being_canceled_is_about_to_end(server: FrozenClockServer) -> None:
    made = server.submit(graph(**{f"t{number:03}": task() for number in range(600)}))
    server.ask("POST", f"/api/v1/graphs/{made.id}/cancel")
    found = server.why(made, "t599")["why"]
    assert (found["state"], found["reason"]) == ("waiting", "asked")
    assert found["sentence"] == f"t599 is waiting: its graph is canceled by {found['actor']}, and it is about to end"
    server.settle()
    assert server.sentence(made, "t599") == f"t599 is canceled: canceled by {found['actor']}, a moment ago"


def test_a_task_of_a_large_graph_that_is_not_released_yet_is_about_to_be(server: FrozenClockServer) -> None:
    answer = server.ask("POST", "/api/v1/graphs", graph(**{f"t{number:04}": task() for number in range(1_100)}))
    made = Made(answer.json["graph_id"], answer.json["nameMapping"])
    assert server.sentence(made, "t1099") == "t1099 is unscheduled: the ends of its prerequisites are about to reach it"


def test_a_list_of_tasks_gives_the_reasons_that_why_gives(either_server: FrozenClockServer) -> None:
    server = either_server
    server.bot()
    gpu = task(dimensions={"pool": "default", "gpu": "h100"})
    made = server.submit(graph(runs=task(), later=task(not_before="1h"), gpu=gpu, after=task("gpu")))
    server.claim(want=1)
    listed = server.get(f"/api/v1/graphs/{made.id}/tasks")["items"]
    reasons = {one["label"]: one["reason"] for one in listed}
    assert reasons == {"runs": "under_way", "later": "not_before", "gpu": "no_bot", "after": "prerequisite"}
    assert reasons == {label: server.why(made, label)["why"]["reason"] for label in made.tasks}


# Admission.


def test_what_no_pass_has_seen_is_for_the_next_pass(server: FrozenClockServer) -> None:
    answer = server.ask("POST", "/api/v1/graphs", graph(a=task(**DOOR)))
    made = Made(answer.json["graph_id"], answer.json["nameMapping"])
    found = server.why(made, "a")
    assert found["sentence"] == "a is pending: the next pass of the scheduler decides"
    assert (found["why"]["reason"], found["why"]["guard"]) == ("unseen", "admission")


def test_a_start_that_is_put_off_and_one_that_is_tried_again_say_when(server: FrozenClockServer) -> None:
    made = server.submit(
        graph(a=task(not_before="1h"), b={**task(priority=1), "reruns": {"count": 1, "delay": "90s"}}, c=task("a"))
    )
    found = server.why(made, "a")
    assert found["sentence"] == "a is pending: it may start in 1 h, at 2026-01-01 01:00:00Z"
    assert (found["why"]["reason"], found["why"]["until_ms"]) == ("not_before", server.clock.now() + HOUR)
    server.bot()
    end(server, Signal.FAIL, exit_code=1)
    assert server.sentence(made, "b") == "b is pending: it is tried again in 1 min, at 2026-01-01 00:01:30Z"


def test_the_holder_of_a_mutex_is_named_with_its_graph_and_since_when(either_server: FrozenClockServer) -> None:
    server = either_server
    server.bot()
    first = server.submit(graph("first", holds=task(**DOOR)))
    second = server.submit(graph(waits=task(**DOOR)))
    server.clock.advance(MINUTE)
    third = server.submit(graph(last=task(**DOOR, priority=200)))
    (lease,) = server.claim()
    server.clock.advance(11 * MINUTE)
    found = server.why(second, "waits")
    assert found["sentence"] == (
        f"waits is pending: mutex door is held by holds (task {first.tasks['holds']} of graph {first.id}, running) "
        "for 12 min; it has waited for 12 min, and no younger task passes it any more"
    )
    assert found["why"]["other"] == {
        "task": first.tasks["holds"], "label": "holds", "graph_id": first.id, "state": "running",
    }  # fmt: skip
    assert (found["why"]["reason"], found["why"]["name"]) == ("mutex", "door")
    assert server.clock.now() - found["why"]["other_since_ms"] == 12 * MINUTE + 2  # each submission takes a tick
    server.report(lease, Signal.SUCCEED)
    assert server.sentence(second, "waits") == "waits is waiting: 1 bot could run it now; it is next"
    assert server.sentence(third, "last") == (
        f"last is pending: mutex door is held by waits (task {second.tasks['waits']} of graph {second.id}, waiting) "
        "for a moment; it has waited for 11 min, and no younger task passes it any more"
    )


def test_the_task_that_staked_a_mutex_is_named(server: FrozenClockServer) -> None:
    server.bot()
    server.submit(graph(holds=task(mutexes=[{"key": "a"}])))
    first = server.submit(graph(both=task(mutexes=[{"key": "a"}, {"key": "b"}])))
    server.clock.advance(MINUTE)
    made = server.submit(graph(second=task(mutexes=[{"key": "b"}])))
    assert server.sentence(made, "second") == (
        f"second is pending: both (task {first.tasks['both']} of graph {first.id}, pending) comes first at mutex b, "
        "and has waited for 1 min; younger tasks may pass it for another 1 min"
    )


def test_whether_younger_tasks_pass_a_task_at_its_mutex_is_shown(either_server: FrozenClockServer) -> None:
    server = either_server
    server.bot()
    server.submit(graph(holds=task(**DOOR)))
    made = server.submit(graph(waits=task(**DOOR)))

    def found() -> tuple[str, object, object]:
        why = server.why(made, "waits")
        waited, since = why["sentence"].partition("; ")[2], why["why"]["mutex_since_ms"]
        return waited, server.clock.now() - since < 4 * MINUTE, (why["why"]["stakes_ms"] or since) - since

    assert found() == (YOUNGER, True, MINUTE)
    server.clock.advance(3 * MINUTE)
    assert found() == ("it has waited for 3 min, and no younger task passes it any more", True, MINUTE)
    server.engine.set_stake_after("door", 5 * MINUTE)
    assert found() == ("younger tasks may pass it for another 2 min", True, 5 * MINUTE)
    server.engine.set_stake_after("door", None)
    assert found() == ("younger tasks may pass it, however long it waits", True, 0)


def test_a_mutex_that_was_released_is_for_the_next_pass(server: FrozenClockServer) -> None:
    server.bot()
    server.submit(graph(holds=task(**DOOR)))
    made = server.submit(graph(waits=task(**DOOR)))
    (lease,) = server.claim()
    server.end(lease)  # and no pass has run since
    assert server.sentence(made, "waits") == "waits is pending: the next pass of the scheduler decides"


def test_a_holder_that_the_asker_may_not_see_has_no_name(server: FrozenClockServer) -> None:
    server.bot()
    server.bot("x1", pool="secret")
    server.submit(graph(holds=task(**DOOR, dimensions={"pool": "secret"})))
    made = server.submit(graph(waits=task(**DOOR)))
    token = server.token("pool:default:read")
    found = server.why(made, "waits", token=token)
    assert (
        found["sentence"]
        == "waits is pending: mutex door is held by a task that you may not see for a moment; " + YOUNGER
    )
    assert found["why"]["other"] == {"task": None, "label": "", "graph_id": "", "state": "waiting"}


def test_a_named_limit_is_shown_with_its_use(server: FrozenClockServer) -> None:
    server.bot()
    server.engine.set_limit("licences", 5)
    server.submit(graph(uses=task(limits={"licences": 3})))
    made = server.submit(graph(wants=task(limits={"licences": 4})))
    found = server.why(made, "wants")
    assert found["sentence"] == "wants is pending: limit licences has 3 of 5 in use, and it needs 4"
    assert [found["why"][key] for key in ("reason", "name", "used", "total", "need")] == ["limit", "licences", 3, 5, 4]
    server.engine.set_limit("licences", 9)  # and no pass has run since
    assert server.sentence(made, "wants") == "wants is pending: the next pass of the scheduler decides"


def test_a_full_pool_is_shown_with_its_use_and_the_place_in_line(either_server: FrozenClockServer) -> None:
    server = either_server
    server.engine.set_pool("lab", 10)
    server.bot(pool="lab")
    lab = {"dimensions": {"pool": "lab"}}
    server.submit(graph(big=task(**lab, weight=7)))
    server.submit(graph(next=task(**lab, weight=5)))
    made = server.submit(graph(then=task(**lab, weight=4)))
    server.clock.advance(9 * MINUTE)
    found = server.why(made, "then")
    assert found["sentence"] == (
        "then is pending: pool lab has 7 of 10 in use, and it needs 4; it has waited for 9 min; it is number 2 in line"
    )
    assert [found["why"][key] for key in ("reason", "name", "used", "total", "need", "place")] == [
        "capacity", "lab", 7, 10, 4, 2,
    ]  # fmt: skip
    assert found["why"]["waits_since_ms"] == server.clock.now() - 9 * MINUTE


def test_the_place_in_line_at_a_mutex_is_shown(either_server: FrozenClockServer) -> None:
    server = either_server
    server.bot()
    door = {"mutexes": [{"key": "door"}]}
    made = [server.submit(graph(**{name: task(**door)})) for name in ("first", "second", "third")]
    found = server.why(made[2], "third")
    assert (found["why"]["reason"], found["why"]["place"]) == ("mutex", 2)
    assert "; it is number 2 in line there; younger tasks may pass it" in found["sentence"]
    assert "in line" not in server.sentence(made[1], "second"), "it is the next one"


def test_a_reserved_pool_is_shown_with_the_task_that_it_is_reserved_for(server: FrozenClockServer) -> None:
    server.engine.set_pool("lab", 10)
    server.bot(pool="lab")
    lab = {"dimensions": {"pool": "lab"}}
    server.submit(graph(runs=task(**lab, weight=7)))
    first = server.submit(graph(huge=task(**lab, weight=8)))
    server.advance(11 * MINUTE)
    made = server.submit(graph(small=task(**lab, weight=1)))
    assert server.sentence(made, "small") == (
        f"small is pending: pool lab is kept free for huge (task {first.tasks['huge']} of graph {first.id}, pending), "
        "which has waited longer; it has waited for a moment; it is number 2 in line"
    )


def test_a_pool_whose_bots_are_its_capacity_counts_their_slots(server: FrozenClockServer) -> None:
    server.engine.set_pool("lab", from_bots=True)
    server.bot(pool="lab", slots=2)
    lab = {"dimensions": {"pool": "lab"}}
    server.submit(graph(one=task(**lab), two=task(**lab)))
    made = server.submit(graph(three=task(**lab)))
    assert server.sentence(made, "three") == (
        "three is pending: pool lab has 2 of 2 in use, and it needs 1; it has waited for a moment; "
        "it is number 1 in line"
    )


def test_a_task_with_mutexes_and_no_bot_holds_nothing(server: FrozenClockServer) -> None:
    made = server.submit(graph(a=task(**DOOR, dimensions={"pool": "default", "gpu": "h100"})))
    assert server.sentence(made, "a") == "a is pending: it would hold its mutexes for nothing; there is no bot"
    server.bot(gpu="a100")
    found = server.why(made, "a")
    assert found["sentence"] == (
        "a is pending: it would hold its mutexes for nothing; no bot has gpu: h100; the nearest is b1 (gpu: a100)"
    )
    assert (found["why"]["reason"], found["why"]["guard"]) == ("no_bot", "admission")


# Matching.


def test_the_nearest_bot_is_named_with_every_key_that_differs(either_server: FrozenClockServer) -> None:
    server = either_server
    wanted = {"pool": "default", "gpu": "h100", "os": ["Linux", "Debian"]}
    made = server.submit(graph(a=task(dimensions=wanted)))
    assert server.sentence(made, "a") == "a is waiting: there is no bot"
    server.bot("b1", gpu="a100", os="Windows")
    server.bot("b2", gpu="a100", os="Linux")
    found = server.why(made, "a")
    assert (
        found["sentence"] == "a is waiting: no bot has gpu: h100, os: Debian; the nearest is b2 (gpu: a100, os: Linux)"
    )
    assert found["why"]["bots"] == {
        "known": 2,
        "whole": True,
        "matching": 0,
        "standing": {},
        "named": [],
        "absent": {"gpu": ["h100"], "os": ["Debian"]},
        "nearest": {
            "bot": "b2",
            "differs": [
                {"key": "gpu", "wanted": ["h100"], "has": ["a100"]},
                {"key": "os", "wanted": ["Debian"], "has": ["Linux"]},
            ],
        },
        "kept": [],
        "meant": {},
    }
    assert found["why"]["dimensions"] == {"gpu": ["h100"], "os": ["Debian", "Linux"], "pool": ["default"]}


def test_a_number_that_no_bot_has_and_a_misspelt_key_are_shown(server: FrozenClockServer) -> None:
    server.bot("b1", memory_gb="16")
    made = server.submit(
        graph(
            a=task(dimensions={"pool": "default", "memory_gb": ">=64"}),
            b=task(dimensions={"pool": "default", "Memory_GB": ">=16"}),
            c=task(dimensions={"pool": "default", "memory_gb": [">=8", "!=32"]}),
        )
    )
    assert server.sentence(made, "a") == "a is waiting: no bot has memory_gb: >=64; the nearest is b1 (memory_gb: 16)"
    assert server.sentence(made, "b") == (
        "b is waiting: no bot has Memory_GB: >=16 (did you mean memory_gb?); the nearest is b1 (no Memory_GB)"
    )
    assert server.why(made, "b")["why"]["bots"]["meant"] == {"Memory_GB": "memory_gb"}
    assert server.sentence(made, "c") == "c is waiting: 1 bot could run it now; it is next"


def test_plays_and_checkouts_go_only_to_bots_that_have_ansible_and_git(server: FrozenClockServer) -> None:
    server.bot("b1", git=["2.39", "2.39.5"])
    made = server.submit(
        graph(
            play=task(payload={"ansible": "site.yml"}),
            old=task(payload={"ansible": "site.yml"}, dimensions={"pool": "default", "ansible": "2.16"}),
            project=task(payload={"git": "https://git.example/ops.git"}),
        )
    )
    assert [text_of(Key(lease.task)) for lease in server.claim(want=3)] == [made.tasks["project"]]
    assert server.sentence(made, "play") == "play is waiting: no bot has ansible: >=2; the nearest is b1 (no ansible)"
    server.bot("b1", ansible=["2.19", "2.19.14"])
    assert server.sentence(made, "old") == (
        "old is waiting: no bot has ansible: 2.16; the nearest is b1 (ansible: 2.19, 2.19.14)"
    )
    assert [text_of(Key(lease.task)) for lease in server.claim(want=3)] == [made.tasks["play"]]


def test_bots_that_have_all_dimensions_but_not_together_are_distinguished_from_none(server: FrozenClockServer) -> None:
    made = server.submit(graph(a=task(dimensions={"pool": "default", "gpu": "h100", "os": "Linux"})))
    server.bot("b1", gpu="h100", os="Windows")
    server.bot("b2", os="Linux")
    assert server.sentence(made, "a") == (
        "a is waiting: no one bot has all of gpu: h100, os: Linux, pool: default; the nearest is b1 (os: Windows)"
    )


def test_busy_bots_are_counted_and_so_are_those_before_it(either_server: FrozenClockServer) -> None:
    server = either_server
    server.bot("b1", slots=1)
    server.bot("b2", slots=1, quarantined="disk full")
    server.submit(graph(one=task()))
    assert server.claim(want=1)
    made = server.submit(graph(two=task(), three=task()))
    assert server.sentence(made, "two") == (
        "two is waiting: 1 bot could run it and it is busy; b2 is quarantined (disk full); it is next"
    )
    found = server.why(made, "three")
    assert found["sentence"] == (
        "three is waiting: 1 bot could run it and it is busy; b2 is quarantined (disk full); 1 task before it"
    )
    assert (found["why"]["ahead"], found["why"]["bots"]["standing"]) == (1, {"busy": 1, "quarantined": 1})


def test_unavailable_bots_are_shown_with_the_reason(server: FrozenClockServer) -> None:
    made = server.submit(graph(a=task()))
    server.bot("dead")
    server.bot("gone")
    assert server.engine.goodbye(Goodbye("gone", "s1")) is None
    server.advance(2 * HOUR)
    server.be_silent()
    server.bot("b1", maintenance="new disk")
    server.bot("b2", draining=True)
    server.bot("b3", quarantined="hot")
    found = server.why(made, "a")
    assert found["sentence"] == (
        "a is waiting: 5 bots could run it, but b1 is in maintenance (new disk), b2 is draining, "
        "b3 is quarantined (hot) and 2 more"
    )
    assert found["why"]["bots"]["standing"] == {"quarantined": 1, "maintenance": 1, "draining": 1, "dead": 1, "gone": 1}
    assert found["why"]["reason"] == "bots_away"


@pytest.mark.parametrize(("last", "said"), [("dead", "was last seen 2 h ago"), ("gone", "said goodbye 2 h ago")])
def test_a_silent_bot_is_shown_with_the_time_of_its_last_request(
    server: FrozenClockServer, last: str, said: str
) -> None:
    made = server.submit(graph(a=task()))
    server.bot("b1")
    if last == "gone":
        server.engine.goodbye(Goodbye("b1", "s1"))
    server.advance(2 * HOUR)
    server.be_silent()
    assert server.sentence(made, "a") == f"a is waiting: 1 bot could run it, but b1 {said}"


def test_a_bot_that_lost_a_task_leaves_it_to_another(server: FrozenClockServer) -> None:
    made = server.submit(graph(a=task(), b=task(dimensions={"id": "b2", "pool": "default"})))
    server.bot("b1", slots=1)
    assert [lease.task for lease in server.claim(want=1)] == [made.key("a")]
    server.bot("b2", slots=1)
    assert [lease.task for lease in server.claim("b2", 1)] == [made.key("b")]
    server.report(server.lease(made, "a"), Signal.LOSE)
    assert server.sentence(made, "a") == (
        "a is waiting: 1 bot could run it and it is busy; b1 has lost it and leaves it to others; it is next"
    )


def test_a_bot_of_a_pool_that_the_asker_may_not_see_has_no_name(server: FrozenClockServer) -> None:
    server.bot("x1", pool="secret", quarantined="hot")
    slices = [{"dimensions": {"pool": "secret"}, "wait_for_capacity": True}, {"dimensions": {"pool": "default"}}]
    made = server.submit(graph(a={"task": {"slices": slices, "payload": {"command": ["true"]}}}))
    token = server.token("pool:default:read")
    assert server.sentence(made, "a", token=token) == (
        "a is waiting: 1 bot could run it, but a bot that you may not see is quarantined (hot); "
        "slice 1 of 2 waits for another 1 d"
    )
    other = server.submit(graph(a=task(dimensions={"pool": "default", "gpu": "h100"})))
    assert server.sentence(other, "a", token=token) == "a is waiting: there is no bot"


def test_a_task_of_several_slices_says_how_long_this_one_waits(server: FrozenClockServer) -> None:
    slices = [
        {"dimensions": {"pool": "default", "gpu": "h100"}, "expires": "10m", "wait_for_capacity": True},
        {"dimensions": {"pool": "default"}},
    ]
    made = server.submit(graph(a={"task": {"slices": slices, "payload": {"command": ["true"]}}}))
    server.bot()
    server.clock.advance(2 * MINUTE)
    server.bot()
    found = server.why(made, "a")
    assert found["sentence"] == (
        "a is waiting: no bot has gpu: h100; the nearest is b1 (no gpu); slice 1 of 2 waits for another 8 min"
    )
    assert found["why"]["slice"] == {"number": 1, "count": 2, "until_ms": server.clock.now() + 8 * MINUTE}
    server.advance(8 * MINUTE)
    server.bot()
    assert server.sentence(made, "a") == (
        "a is waiting: 1 bot could run it now; it is next; slice 2 of 2 waits for another 1 d"
    )


def test_what_the_server_runs_itself_needs_no_bot(server: FrozenClockServer) -> None:
    answer = server.ask("POST", "/api/v1/graphs", graph(a={"task": {"payload": {"noop": True}}}))
    made = Made(answer.json["graph_id"], answer.json["nameMapping"])
    assert server.sentence(made, "a") == "a is waiting: the server runs it itself; it is next"
    server.settle()
    assert server.sentence(made, "a") == "a is successful: done in attempt 1, a moment ago"


# Under way, and over.


def test_a_running_task_is_shown_with_its_bot_and_since_when(server: FrozenClockServer) -> None:
    made = server.submit(graph(a=task()))
    server.bot()
    assert server.claim()
    server.clock.advance(MINUTE)
    found = server.why(made, "a")
    assert found["sentence"] == "a is running: attempt 1 on b1 for 1 min"
    assert [found["why"][key] for key in ("reason", "attempt", "bot", "since_ms", "guard")] == [
        "under_way", 1, "b1", server.clock.now() - MINUTE, None,
    ]  # fmt: skip
    server.ask("POST", f"/api/v1/tasks/{made.tasks['a']}/cancel")
    assert server.sentence(made, "a") == "a is stopping: cancel was asked; b1 is ending attempt 1"


def test_an_approval_says_that_a_person_has_to_decide_and_for_how_long(server: FrozenClockServer) -> None:
    ask = task(payload={"approval": "Ship it?", "timeout": "2h"})
    made = server.submit(graph(ask=ask, after=task("ask"), other=ask))
    server.clock.advance(MINUTE)
    found = server.why(made, "ask")["why"]
    assert found["sentence"] == (
        "ask is running: a person has to approve it; it has waited for 1 min, and waits for another 1 h"
    )
    assert (found["reason"], found["until_ms"]) == ("approval", server.clock.now() + 119 * MINUTE)
    assert server.sentence(made, "after") == f"after is unscheduled: it waits for ask (running); {found['sentence']}"
    server.ask("POST", f"/api/v1/tasks/{made.tasks['ask']}/approve", {"approved": False})
    assert server.sentence(made, "ask") == "ask is failed: a person said no in attempt 1, a moment ago"


def test_a_task_with_a_graph_inside_names_that_graph(server: FrozenClockServer) -> None:
    inner = {"tasks": {"a": {"task": {"payload": {"command": ["true"]}, "dimensions": {"pool": "default"}}}}}
    made = server.submit(graph(outer=task(payload={"graph": inner})))
    found = server.why(made, "outer")["why"]
    inside = found["graph_inside"]
    assert found["sentence"] == f"outer is running: attempt 1 is graph {inside}, for a moment; ask why of that one"
    held = server.get(f"/api/v1/graphs/{inside}/why")
    assert held["groups"][0]["sentence"] == "a is waiting: there is no bot"
    server.bot()
    end(server, Signal.FAIL, exit_code=1)
    assert server.sentence(made, "outer") == (
        "outer is failed: the graph inside it did not finish in attempt 1, a moment ago"
    )


@pytest.mark.parametrize(
    ("signal", "said", "found"),
    [
        (Signal.SUCCEED, {"exit_code": 0}, "successful: done in attempt 1 on b1"),
        (Signal.FAIL, {"exit_code": 3}, "failed: exit code 3 in attempt 1 on b1"),
        (Signal.FAIL, {"exit_code": 137, "reason": Reason.SIGNALED}, "failed: ended by signal 9 in attempt 1 on b1"),
        (Signal.FAIL, {"reason": Reason.TIMED_OUT}, "failed: timed out in attempt 1 on b1"),
        (Signal.FAIL, {"reason": Reason.SILENT}, "failed: printed nothing for too long in attempt 1 on b1"),
        (
            Signal.FAIL,
            {"reason": Reason.BAD_RESULT, "exit_code": 0},
            "failed: its result, progress, checkpoint or files cannot be taken in attempt 1 on b1",
        ),
        (Signal.LOSE, {}, "in error: its bot was lost in attempt 1 on b1"),
        (
            Signal.LOSE,
            {"reason": Reason.MISSING},
            "in error: its playbook, inventory or files are not there in attempt 1 on b1",
        ),
        (Signal.LOSE, {"reason": Reason.BOT_FAILED}, "in error: its bot could not run it in attempt 1 on b1"),
    ],
)
def test_a_task_that_ended_says_how(
    server: FrozenClockServer, signal: Signal, said: dict[str, Any], found: str
) -> None:
    made = server.submit(graph(a=task(retries=0)))
    server.bot()
    end(server, signal, **said)
    server.clock.advance(MINUTE)
    assert server.sentence(made, "a") == f"a is {found}, 1 min ago"


def test_a_task_that_expired_or_had_no_bot_is_shown_so(server: FrozenClockServer) -> None:
    def sliced(**said: object) -> dict[str, object]:
        return {"task": {"slices": [{"dimensions": {"pool": "default"}, **said}], "payload": {"command": ["true"]}}}

    made = server.submit(graph(a=sliced(expires="1m"), b=sliced(wait_for_capacity=False), c=task(deadline="30s")))
    server.advance(MINUTE)
    assert server.sentence(made, "a") == "a is in error: waited too long for a bot, a moment ago"
    assert server.sentence(made, "b") == "b is in error: no bot could run it: no bot has pool: default, 1 min ago"
    assert server.sentence(made, "c") == "c is in error: its deadline passed, a moment ago"


def test_why_needs_the_right_to_read_the_task(server: FrozenClockServer) -> None:
    made = server.submit(graph(a=task()))
    path = f"/api/v1/tasks/{made.tasks['a']}/why"
    assert server.ask("GET", path, token=server.token("pool:other:read")).status == 403
    assert server.ask("GET", path, token=None).status == 401
    assert server.ask("GET", "/api/v1/tasks/7ffffffffffffff8/why").status == 404


def test_a_task_that_no_bot_could_run_says_for_good_what_was_missing(either_server: FrozenClockServer) -> None:
    server = either_server
    server.bot()
    alone = {"dimensions": {"pool": "default", "gpu": "h100"}, "wait_for_capacity": False}
    node = {"task": {"slices": [alone], "payload": {"command": ["true"]}}}
    made = server.submit({"tasks": {"a": node, "b": {**task("a")}}})
    server.bot("b2", gpu="h100")
    path = f"/api/v1/tasks/{made.tasks['a']}"
    shown = server.get(path)
    assert (shown["state"], shown["reason"], shown["note"]) == ("error", "no_bot", "no bot has gpu: h100")
    assert "no bot could run it: no bot has gpu: h100" in server.get(f"{path}/why")["sentence"]
    assert "no bot has gpu: h100" in server.get(f"/api/v1/tasks/{made.tasks['b']}/why")["sentence"]
    assert "no bot has gpu: h100" in {item["cause"] for item in server.get(f"{path}/story")["items"]}
