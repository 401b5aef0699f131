-- add_rerun(graph_id: int, source_id: int, labels: text, to_run: int, reused: int): a graph runs another again.
INSERT INTO graph_rerun (graph_id, source_id, labels, to_run, reused)
VALUES (:graph_id, :source_id, :labels, :to_run, :reused) ON CONFLICT DO NOTHING;

-- rerun_of(graph_id: int): which graph a graph runs again, from where, and how many tasks it was born with of each sort.
SELECT source_id, labels, to_run, reused FROM graph_rerun WHERE graph_id = :graph_id;

-- drop_rerun(graph_id: int): forget that a graph runs another again.
DELETE FROM graph_rerun WHERE graph_id = :graph_id;

-- each add_reuses(task_id: int, source_id: int, source_graph_id: int, attempt: int): tasks take over what others have done.
INSERT INTO task_reuse (task_id, source_id, source_graph_id, attempt)
VALUES (:task_id, :source_id, :source_graph_id, :attempt);

-- each copy_results(task_id: int, source_id: int, attempt: int): tasks publish what others have published.
INSERT INTO result (task_id, attempt, body)
VALUES (:task_id, 0, (SELECT o.body FROM result o WHERE o.task_id = :source_id AND o.attempt = :attempt));

-- reuses(ids: ints): from which attempts of which tasks tasks have what they are.
SELECT task_id, source_id, source_graph_id, attempt FROM task_reuse WHERE task_id IN (:ids);

-- drop_reuses(ids: ints): forget what these tasks took over.
DELETE FROM task_reuse WHERE task_id IN (:ids);

-- drop_copies(ids: ints): forget what these tasks publish without having run.
DELETE FROM result WHERE task_id IN (:ids) AND attempt = 0;

-- done_in(graph_id: int, after: int, count: int): where the tasks of a graph are, what they published last and where they have it from, in pages.
SELECT t.id, t.state, t.attempt, LENGTH(r.body), u.source_id, u.source_graph_id, u.attempt
  FROM task t LEFT JOIN result r ON r.task_id = t.id AND r.attempt = t.attempt LEFT JOIN task_reuse u ON u.task_id = t.id
 WHERE t.graph_id = :graph_id AND t.id > :after ORDER BY t.id LIMIT :count;
