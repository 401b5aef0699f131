"""Caches survive between tasks of one submitter; nothing that a task puts in their place does harm."""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from taskyard.bot import state_folder
from taskyard.bot.caches import CacheLimits, CachePathTaken, CacheStore
from taskyard.bot.state_folder import StateFolder
from taskyard.bot.task_user import find
from taskyard.bot.workdir import remove_tree
from taskyard.wire.bot_protocol import CACHES_HELD_MAX, cache_key
from tests.bot.fake_server import FakeServer, bot, serving

IS_ROOT = os.geteuid() == 0
SHOW = "ls -A .npm; date +%N > .npm/$TASKYARD_LABEL"


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving(FakeServer()) as one:
        yield one


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateFolder]:
    one = StateFolder(tmp_path / "state")
    yield one
    one.close()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "work").mkdir()
    return str(tmp_path / "work")


def opened(state: StateFolder, pool: str = "p", **limits: Any) -> CacheStore:
    store = CacheStore(state, CacheLimits(**{"free_percent": 0} | limits))
    store.open(pool)
    return store


def printed(server: FakeServer, script: str, label: str = "it", submitter: str = "ann", **caches: str) -> str:
    """Run a script with caches; return what it printed."""
    task = server.add({"script": script, "caches": caches or {"npm": ".npm"}}, label=label, submitter=submitter)
    report = server.report(task)
    assert report.signal == "succeed", server.printed.get(task)
    assert report.stats is not None
    assert report.stats.cached_ms is not None
    assert report.stats.cleaned_ms is not None
    return server.printed.get(task, b"").decode()


def test_a_cache_is_there_again_for_later_tasks_of_the_same_submitter_only(server: FakeServer, tmp_path: Path) -> None:
    with bot(server, tmp_path) as first:
        assert printed(server, SHOW, "one") == ""
        assert printed(server, SHOW, "two") == "one\n"
        assert printed(server, SHOW, "other", submitter="bob") == ""
        assert printed(server, "ls deep/inside", npm="deep/inside") == "one\ntwo\n"
        first.end()
    with bot(server, tmp_path, name="b2"):
        assert printed(server, SHOW, "later") == "one\ntwo\n", "the next instance has it, too"
        server.wait_until(lambda: {cache_key("npm", "ann"), cache_key("npm", "bob")} in reported(server), "the report")


def reported(server: FakeServer) -> list[set[str]]:
    return [set(poll.caches) for poll in server.polls if poll.caches is not None]


def test_a_bot_reports_its_caches_only_when_they_change(server: FakeServer, tmp_path: Path) -> None:
    with bot(server, tmp_path):
        for _ in range(3):
            printed(server, SHOW)
        server.report(server.add({"command": ["true"]}))
        server.wait_until(lambda: reported(server), "the report")
    assert reported(server) == [{cache_key("npm", "ann")}]


def test_tasks_that_run_at_once_never_share_a_cache(server: FakeServer, tmp_path: Path) -> None:
    done = tmp_path / "done"
    wait = f"touch .npm/mine; while ! test -e {done}; do sleep 0.05; done"
    with bot(server, tmp_path / "state"):
        first = server.add({"script": wait, "caches": {"npm": ".npm"}}, submitter="ann")
        server.wait_until(lambda: cache_key("npm", "ann") in set().union(*reported(server)), "its begin")
        assert printed(server, f"ls -A .npm; touch {done}") == ""
        assert server.report(first).signal == "succeed"
        assert {printed(server, "ls -A .npm") for _ in range(2)} <= {"", "mine\n"}


@pytest.mark.parametrize(
    "deed", ["rm -r .npm; ln -s /etc .npm", "rm -r .npm; echo no > .npm", "rm -r .npm", "chmod 0 .npm"]
)
def test_whatever_a_task_leaves_in_the_place_of_a_cache_the_next_has_a_folder(
    server: FakeServer, tmp_path: Path, deed: str
) -> None:
    before = sorted(os.listdir("/etc"))
    with bot(server, tmp_path):
        printed(server, deed)
        assert printed(server, "ls -A .npm; test ! -L .npm; touch .npm/new") == ""
    assert sorted(os.listdir("/etc")) == before


def test_a_folder_around_a_cache_that_became_a_link_leads_nowhere(server: FakeServer, tmp_path: Path) -> None:
    target = tmp_path / "target"
    (target / "npm").mkdir(parents=True)
    (target / "npm" / "precious").touch()
    with bot(server, tmp_path / "state"):
        printed(server, f"mv deep moved; ln -s {target} deep", npm="deep/npm")
        assert printed(server, "ls -A deep/npm", npm="deep/npm") == ""
    assert (target / "npm" / "precious").exists()


@pytest.mark.parametrize(
    "payload",
    [
        {"caches": {"npm": "../out"}},
        {"caches": {"npm": "/usr/out"}},
        {"caches": {"npm": "a//b"}},
        {"caches": {"npm": "a"}, "cwd": "/usr"},
    ],
)
def test_a_bot_places_no_cache_outside_of_the_fresh_folder(
    server: FakeServer, tmp_path: Path, payload: dict[str, Any]
) -> None:
    task = server.add({"command": ["true"], **payload})
    with bot(server, tmp_path):
        assert (server.report(task).signal, server.report(task).exit_code) == ("fail", 126)
    assert b"cache" in server.printed[task]


def test_what_is_in_the_way_is_a_fault_of_the_task(state: StateFolder, folder: str) -> None:
    store = opened(state)
    os.mkdir(f"{folder}/full")
    Path(folder, "full", "file").touch()
    os.symlink(os.path.dirname(folder), f"{folder}/link")
    os.mkdir(f"{folder}/empty")
    for path in ("full", "full/file", "full/file/deeper", "link", "link/deeper"):
        with pytest.raises(CachePathTaken, match=f"something at {path} already"):
            store.place({"fine": f"fine-{path.replace('/', '-')}", "npm": path}, "ann", folder)
    assert store.place({"npm": "empty"}, "ann", folder) != []
    assert not os.path.lexists(f"{os.path.dirname(folder)}/deeper")
    assert sorted(os.listdir(folder)) == ["empty", "full", "link"], "what was placed before is taken back"


def test_caches_of_another_pool_stay_apart(state: StateFolder, folder: str) -> None:
    store = opened(state, "lab")
    store.put_back(store.place({"npm": "npm"}, "ann", folder))
    assert store.report() == (cache_key("npm", "ann"),)
    assert store.report() is None
    store = opened(state, "other")
    assert store.held() == ()
    assert opened(state, "lab").held() == (cache_key("npm", "ann"),)


def test_old_caches_and_the_least_used_of_too_many_are_removed(state: StateFolder, folder: str) -> None:
    store = opened(state, age_s=3_600.0)
    for number in range(CACHES_HELD_MAX + 3):
        store.put_back(store.place({f"c{number}": "here"}, "ann", folder))
    asyncio.run(store.trim())
    assert len(os.listdir(state.caches)) == CACHES_HELD_MAX
    assert cache_key("c0", "ann") not in store.held()
    assert cache_key("c3", "ann") in store.held()
    store = opened(state, age_s=0.0)
    asyncio.run(store.trim())
    assert (store.held(), os.listdir(state.caches)) == ((), [])


def test_caches_give_way_to_a_full_disk_and_those_in_use_stay(state: StateFolder, folder: str) -> None:
    store = opened(state, free_percent=101)
    store.put_back(store.place({"idle": "idle"}, "ann", folder))
    used = store.place({"used": "used"}, "ann", folder)
    asyncio.run(store.trim())
    assert store.held() == (cache_key("used", "ann"),)
    store.put_back(used)


def test_folders_that_are_not_in_the_index_are_removed(state: StateFolder, folder: str) -> None:
    store = opened(state)
    store.put_back(store.place({"npm": "npm"}, "ann", folder))
    (state.caches / "stray").mkdir()
    store = opened(state)
    asyncio.run(store.trim())
    assert (len(os.listdir(state.caches)), len(store.held())) == (1, 1)
    state.cache_index.write_text('[{"id": "../../etc"')
    store = opened(state)
    asyncio.run(store.trim())
    assert (os.listdir(state.caches), store.held()) == ([], ())


def test_a_hostile_tree_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("deeper", dir_fd=here)
        inner = os.open("deeper", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.symlink("/etc", "link", dir_fd=here)
    os.close(here)
    (top / "closed").mkdir()
    (top / "closed" / "file").touch()
    (top / "closed").chmod(0)
    remove_tree(str(top))
    assert not top.exists()
    assert os.path.exists("/etc/passwd")


@pytest.mark.skipif(not IS_ROOT, reason="only root can run tasks as another user")
def test_another_user_can_use_a_cache_and_not_list_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORK_FOLDERS", "CACHE_FOLDERS"):
        monkeypatch.setattr(state_folder, name, tmp_path / "shared" / name)
    for one in (tmp_path, *tmp_path.parents):
        if one.stat().st_mode & 0o001 == 0:
            one.chmod(one.stat().st_mode | 0o011)
    with ThreadPoolExecutor(1) as thread:  # as which user it accesses files is a matter of a thread
        thread.submit(use_a_cache_as_nobody, tmp_path / "state").result()


def use_a_cache_as_nobody(folder: Path) -> None:
    nobody = find("nobody")
    state = StateFolder(folder, nobody)
    store = opened(state)
    work = state.work / "1"
    with state.as_bot_user():
        work.mkdir()
        os.chown(work, nobody.uid, nobody.gid)
    (placed,) = store.place({"npm": "npm"}, "ann", str(work))
    assert (work / "npm").stat().st_uid == nobody.uid
    assert (state.caches.stat().st_uid, state.caches.stat().st_mode & 0o777) == (0, 0o711)
    with pytest.raises(PermissionError):
        os.listdir(state.caches)
    store.put_back([placed])
    assert store.held() == (cache_key("npm", "ann"),)
    (placed,) = store.place({"npm": "npm"}, "ann", str(work))
    with state.as_bot_user():  # something that the user of the tasks has not made
        (work / "npm").rmdir()
        (work / "npm").mkdir()
    store.put_back([placed])
    assert store.held() == ()
    with state.as_bot_user():
        state.close()
