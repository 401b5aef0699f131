"""Files in `taskyard run`: what a document names of this machine is there, and what tasks leave comes back."""

from pathlib import Path

from tests.cli.program import run


def test_a_run_takes_files_of_this_machine_and_writes_what_tasks_leave(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.txt").write_text("a")
    tasks = {
        "build/1": {
            "task": {
                "payload": {
                    "script": "cat a.txt > out.txt; mkdir -p dist; echo app > dist/app",
                    "inputs": [{"local": "src"}],
                    "outputs": ["out.txt", "dist/"],
                }
            }
        },
        "test": {
            "requires": ["build/1"],
            "task": {
                "payload": {
                    "command": ["cat", "app"],
                    "cwd": "bin",
                    "inputs": [{"from": "build/1", "path": "dist", "to": "bin"}],
                }
            },
        },
    }
    answer = run(tasks, "--outputs", "left", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    left = {str(path.relative_to(tmp_path / "left")): path.read_text() for path in (tmp_path / "left").rglob("*.*")}
    assert left == {"build%2F1/out.txt": "a"}
    assert (tmp_path / "left" / "build%2F1" / "dist" / "app").read_text() == "app\n"


def test_a_label_that_is_too_long_for_a_folder_has_one_all_the_same(tmp_path: Path) -> None:
    labels = [f"{'é' * 200}{one}" for one in "ab"]
    tasks = {one: {"task": {"payload": {"script": f"echo {one[-1]} > x", "outputs": ["x"]}}} for one in labels}
    answer = run(tasks, "--outputs", "left", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert sorted(path.read_text() for path in (tmp_path / "left").glob("*/x")) == ["a\n", "b\n"]


def test_a_run_names_files_that_are_not_there_with_their_lines(tmp_path: Path) -> None:
    tasks = {"a": {"task": {"payload": {"script": "true", "inputs": [{"local": "none"}]}}}}
    answer = run(tasks, cwd=tmp_path)
    assert answer.returncode == 2
    assert "tasks.a.task.payload.inputs[0].local" in answer.stderr
    assert "No such file or directory" in answer.stderr


def test_a_run_reports_what_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    tasks = {"a": {"task": {"payload": {"script": "true"}}}}
    answer = run(tasks, "--outputs", "file/out", cwd=tmp_path)
    assert (answer.returncode, answer.stderr) == (2, "taskyard: cannot write outputs to file/out: Not a directory\n")
