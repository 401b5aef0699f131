-- The condition of the index stands in the text, as for `candidates`.
-- graphs_called(name: text, after: int, count: int): graphs of a name that are older than one, the newest first.
SELECT id FROM graph_definition WHERE name = :name AND name <> '' AND id > :after ORDER BY id LIMIT :count;

-- times_taken(graph_id: int, labels: texts, states: texts): how long the last attempts of tasks took that are in one of these states, by label.
SELECT d.label, a.ended_ms - a.claimed_ms
  FROM task_definition d JOIN task t ON t.id = d.id JOIN attempt a ON a.task_id = t.id AND a.number = t.attempt
 WHERE d.graph_id = :graph_id AND d.label IN (:labels) AND t.state IN (:states) AND a.ended_ms IS NOT NULL;

-- Whoever takes over the end of another is as good as ended.
-- tasks_to_come(graph_id: int, after: int, ended: texts, count: int): tasks of a graph that have not ended, and since when they run, in pages.
SELECT t.id, t.state, t.join_rule, t.not_before_ms, d.label, a.claimed_ms
  FROM task t JOIN task_definition d ON d.id = t.id
       LEFT JOIN attempt a ON a.task_id = t.id AND a.number = t.attempt AND a.ended_ms IS NULL
 WHERE t.graph_id = :graph_id AND t.id > :after AND t.loading = 0 AND NOT t.state IN (:ended)
   AND NOT EXISTS (SELECT 1 FROM task_reuse u WHERE u.task_id = t.id)
 ORDER BY t.id LIMIT :count;

-- last_ended(graph_id: int, states: texts): the task of a graph that came last to one of these states.
SELECT id FROM task WHERE graph_id = :graph_id AND loading = 0 AND state IN (:states) ORDER BY moved_ms DESC, id LIMIT 1;

-- ended_before(dependent_id: int, states: texts, count: int): the prerequisites of a task that are in one of these states, and since when.
SELECT e.prerequisite_id, e.on_end, t.state, t.moved_ms FROM edge e JOIN task t ON t.id = e.prerequisite_id
 WHERE e.dependent_id = :dependent_id AND t.state IN (:states) ORDER BY t.moved_ms DESC LIMIT :count;
