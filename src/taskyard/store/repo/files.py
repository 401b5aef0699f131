"""Repository of what refers to files: inputs of tasks, outputs of attempts, and artifacts."""

from collections.abc import Collection, Sequence

from taskyard.core.structs import value
from taskyard.store.queries import Row, Session


@value
class AttemptFilesRow:
    """The output files of an attempt."""

    attempt: int
    pool: str
    tree: str
    files: int
    bytes: int


@value
class ArtifactRow:
    """A named file of an attempt."""

    name: str
    pool: str
    tree: str
    path: str
    size: int
    content_type: str


@value
class PrerequisiteFiles:
    """The output files of a prerequisite; pool and tree are None if it has none."""

    task: int
    label: str
    state: str
    pool: str | None
    tree: str | None


class FilesRepo:
    """The tables `task_input_tree`, `attempt_files` and `artifact`."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def add_input_trees(self, rows: Sequence[Row]) -> None:
        """Insert which trees the definitions of tasks name: task, tree."""
        self._session.execute_many("insert_input_trees", rows)

    def set_outputs(self, rows: Sequence[Row]) -> None:
        """Store the output files of attempts: task, attempt, pool, tree, files, bytes."""
        self._session.execute_many("upsert_attempt_files", rows)

    def copy_attempt(self, task: int, attempt: int, source: int) -> None:
        """Copy the output files and the named files of the last attempt of a task to an attempt of another one."""
        for name in ("copy_last_files", "copy_last_artifacts"):
            self._session.execute(name, task, attempt, source)

    def set_artifacts(self, rows: Sequence[Row]) -> None:
        """Store named files: task, attempt, name, pool, tree, path, size, content type."""
        self._session.execute_many("upsert_artifacts", rows)

    def copy(self, ids: Collection[int]) -> None:
        """Copy the files of the attempts that these tasks reuse, as those of attempt 0."""
        if ids:
            self._session.execute("copy_attempt_files", ids)
            self._session.execute("copy_artifacts", ids)

    def outputs(self, task: int) -> dict[int, AttemptFilesRow]:
        """Return the output files of the attempts of a task."""
        return {row[0]: AttemptFilesRow(*row) for row in self._session.fetch("select_attempt_files", task)}

    def artifacts(self, task: int, attempt: int, after: str, count: int) -> list[ArtifactRow]:
        """Return named files of an attempt after a name."""
        return [ArtifactRow(*row) for row in self._session.fetch("select_artifacts", task, attempt, after, count)]

    def artifact(self, task: int, attempt: int, name: str) -> ArtifactRow | None:
        """Return a named file of an attempt."""
        found = self._session.fetch("select_artifact", task, attempt, name)
        return ArtifactRow(*found[0]) if found else None

    def outputs_of_prerequisites(self, ids: Collection[int]) -> list[PrerequisiteFiles]:
        """Return the output files of the last attempts of the prerequisites of tasks."""
        return [PrerequisiteFiles(*row) for row in self._session.fetch("select_input_files", ids)] if ids else []

    def used_trees(self, trees: Collection[str]) -> set[str]:
        """Return those of these trees that something refers to."""
        return {row[0] for row in self._session.fetch("select_used_trees", trees)} if trees else set()

    def delete(self, ids: Collection[int]) -> None:
        """Delete what these tasks and their attempts refer to; the garbage collector of files removes the content."""
        if ids:
            for name in ("delete_input_trees", "delete_attempt_files", "delete_artifacts"):
                self._session.execute(name, ids)
