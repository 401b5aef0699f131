-- insert_rerun(graph_id: int, source_id: int, labels: text, to_run: int, reused: int): insert which graph a graph runs again.
INSERT INTO graph_rerun (graph_id, source_id, labels, to_run, reused)
VALUES (:graph_id, :source_id, :labels, :to_run, :reused) ON CONFLICT DO NOTHING;

-- select_rerun(graph_id: int): which graph a graph runs again, from which tasks, and how many tasks run and how many are reused.
SELECT source_id, labels, to_run, reused FROM graph_rerun WHERE graph_id = :graph_id;

-- delete_rerun(graph_id: int): delete which graph a graph runs again.
DELETE FROM graph_rerun WHERE graph_id = :graph_id;

-- each insert_reuses(task_id: int, source_id: int, source_graph_id: int, attempt: int): insert which attempts tasks reuse.
INSERT INTO task_reuse (task_id, source_id, source_graph_id, attempt)
VALUES (:task_id, :source_id, :source_graph_id, :attempt);

-- each copy_results(task_id: int, source_id: int, attempt: int): copy the results of reused attempts, as results of attempt 0.
INSERT INTO result (task_id, attempt, body)
VALUES (:task_id, 0, (SELECT o.body FROM result o WHERE o.task_id = :source_id AND o.attempt = :attempt));

-- select_reuses(ids: ints): which attempts these tasks reuse.
SELECT task_id, source_id, source_graph_id, attempt FROM task_reuse WHERE task_id IN (:ids);

-- delete_reuses(ids: ints): delete which attempts these tasks reuse.
DELETE FROM task_reuse WHERE task_id IN (:ids);

-- delete_copied_results(ids: ints): delete the results that these tasks copied.
DELETE FROM result WHERE task_id IN (:ids) AND attempt = 0;

-- select_finished_tasks(graph_id: int, after: int, count: int): a page of the tasks of a graph, with the size of the last result and the reused attempt of each.
SELECT t.id, t.state, t.attempt, LENGTH(r.body), u.source_id, u.source_graph_id, u.attempt
  FROM task t LEFT JOIN result r ON r.task_id = t.id AND r.attempt = t.attempt LEFT JOIN task_reuse u ON u.task_id = t.id
 WHERE t.graph_id = :graph_id AND t.id > :after ORDER BY t.id LIMIT :count;
