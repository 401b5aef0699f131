-- each insert_input_trees(task_id: int, tree: text): insert which trees the definitions of tasks name.
INSERT INTO task_input_tree (task_id, tree) VALUES (:task_id, :tree);

-- each upsert_attempt_files(task_id: int, attempt: int, pool: text, tree: text, files: int, bytes: int): store the output files of attempts.
INSERT INTO attempt_files (task_id, attempt, pool, tree, files, bytes) VALUES (:task_id, :attempt, :pool, :tree, :files, :bytes)
ON CONFLICT (task_id, attempt) DO UPDATE SET pool = excluded.pool, tree = excluded.tree, files = excluded.files, bytes = excluded.bytes;

-- each upsert_artifacts(task_id: int, attempt: int, name: text, pool: text, tree: text, path: text, size: int, content_type: text): store named files of attempts.
INSERT INTO artifact (task_id, attempt, name, pool, tree, path, size, content_type)
VALUES (:task_id, :attempt, :name, :pool, :tree, :path, :size, :content_type)
ON CONFLICT (task_id, attempt, name) DO UPDATE SET pool = excluded.pool, tree = excluded.tree, path = excluded.path,
   size = excluded.size, content_type = excluded.content_type;

-- copy_attempt_files(ids: ints): copy the output files of the attempts that these tasks reuse, as those of attempt 0.
INSERT INTO attempt_files (task_id, attempt, pool, tree, files, bytes)
SELECT u.task_id, 0, f.pool, f.tree, f.files, f.bytes FROM task_reuse u
  JOIN attempt_files f ON f.task_id = u.source_id AND f.attempt = u.attempt WHERE u.task_id IN (:ids);

-- copy_artifacts(ids: ints): copy the named files of the attempts that these tasks reuse, as those of attempt 0.
INSERT INTO artifact (task_id, attempt, name, pool, tree, path, size, content_type)
SELECT u.task_id, 0, a.name, a.pool, a.tree, a.path, a.size, a.content_type FROM task_reuse u
  JOIN artifact a ON a.task_id = u.source_id AND a.attempt = u.attempt WHERE u.task_id IN (:ids);

-- copy_last_files(task_id: int, attempt: int, source_id: int): copy the output files of the last attempt of a task to an attempt of another one.
INSERT INTO attempt_files (task_id, attempt, pool, tree, files, bytes)
SELECT :task_id, :attempt, f.pool, f.tree, f.files, f.bytes FROM task s
  JOIN attempt_files f ON f.task_id = s.id AND f.attempt = s.attempt WHERE s.id = :source_id;

-- copy_last_artifacts(task_id: int, attempt: int, source_id: int): copy the named files of the last attempt of a task to an attempt of another one.
INSERT INTO artifact (task_id, attempt, name, pool, tree, path, size, content_type)
SELECT :task_id, :attempt, a.name, a.pool, a.tree, a.path, a.size, a.content_type FROM task s
  JOIN artifact a ON a.task_id = s.id AND a.attempt = s.attempt WHERE s.id = :source_id;

-- select_attempt_files(task_id: int): the output files of the attempts of a task.
SELECT attempt, pool, tree, files, bytes FROM attempt_files WHERE task_id = :task_id ORDER BY attempt;

-- select_artifacts(task_id: int, attempt: int, after: text, count: int): a page of the named files of an attempt.
SELECT name, pool, tree, path, size, content_type FROM artifact
 WHERE task_id = :task_id AND attempt = :attempt AND name > :after ORDER BY name LIMIT :count;

-- select_artifact(task_id: int, attempt: int, name: text): a named file of an attempt.
SELECT name, pool, tree, path, size, content_type FROM artifact WHERE task_id = :task_id AND attempt = :attempt AND name = :name;

-- select_input_files(ids: ints): the output files of the prerequisites of tasks, with their labels.
SELECT e.dependent_id, d.label, p.state, f.pool, f.tree FROM edge e JOIN task p ON p.id = e.prerequisite_id
  JOIN task_definition d ON d.id = p.id LEFT JOIN attempt_files f ON f.task_id = p.id AND f.attempt = p.attempt
 WHERE e.dependent_id IN (:ids);

-- select_used_trees(trees: texts): which of these trees something refers to.
SELECT tree FROM task_input_tree WHERE tree IN (:trees) UNION SELECT tree FROM attempt_files WHERE tree IN (:trees)
UNION SELECT tree FROM artifact WHERE tree IN (:trees);

-- delete_input_trees(ids: ints): delete which trees the definitions of these tasks name.
DELETE FROM task_input_tree WHERE task_id IN (:ids);

-- delete_attempt_files(ids: ints): delete the output files of these tasks.
DELETE FROM attempt_files WHERE task_id IN (:ids);

-- delete_artifacts(ids: ints): delete the named files of these tasks.
DELETE FROM artifact WHERE task_id IN (:ids);
