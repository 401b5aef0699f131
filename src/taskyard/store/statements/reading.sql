-- read_graphs(after: int, state: text, name: text, all_pools: int, pools: texts, count: int): whole graphs beyond an id, the newest first.
SELECT g.id, g.state, g.active, g.behind, g.unhandled, g.created_ms, g.moved_ms, g.canceled_ms,
       d.scheduler_id, d.name, d.routing, d.description, d.tags, r.source_id, r.labels, r.reused
  FROM graph g JOIN graph_definition d ON d.id = g.id LEFT JOIN graph_rerun r ON r.graph_id = g.id
 WHERE g.id > :after AND g.loader IS NULL AND (:state = '' OR g.state = :state) AND (:name = '' OR d.name = :name)
   AND (:all_pools = 1 OR EXISTS (SELECT 1 FROM graph_pool p WHERE p.graph_id = g.id AND p.pool IN (:pools)))
 ORDER BY g.id LIMIT :count;

-- read_graph(id: int): a graph, if it is whole.
SELECT g.id, g.state, g.active, g.behind, g.unhandled, g.created_ms, g.moved_ms, g.canceled_ms,
       d.scheduler_id, d.name, d.routing, d.description, d.tags, r.source_id, r.labels, r.reused
  FROM graph g JOIN graph_definition d ON d.id = g.id LEFT JOIN graph_rerun r ON r.graph_id = g.id WHERE g.id = :id AND g.loader IS NULL;

-- read_running(bot: text, kind: text, after: int, all_pools: int, pools: texts, count: int): what somebody runs of one kind beyond an id, in pages.
SELECT t.id FROM task t
 WHERE t.bot_id = :bot AND t.kind = :kind AND t.id > :after
   AND (:all_pools = 1 OR EXISTS (SELECT 1 FROM graph_pool p WHERE p.graph_id = t.graph_id AND p.pool IN (:pools)))
 ORDER BY t.id LIMIT :count;

-- read_counts(graph_id: int, reason: text): how many tasks of a graph are in each state, and how many of them for a reason.
SELECT state, COUNT(*), SUM(CASE WHEN reason = :reason THEN 1 ELSE 0 END) FROM task WHERE graph_id = :graph_id AND loading = 0 GROUP BY state;

-- read_totals(): how many tasks there are in each state.
SELECT state, COUNT(*) FROM task GROUP BY state;

-- read_tasks(graph_id: int, after: int, state: text, count: int): tasks of a graph beyond an id, in pages.
SELECT id FROM task WHERE graph_id = :graph_id AND id > :after AND loading = 0 AND (:state = '' OR state = :state)
 ORDER BY id LIMIT :count;

-- read_graphs_ending(mask: int, ending: int, count: int): graphs whose ids end in some digits, in no order.
SELECT id FROM graph WHERE (id & :mask) = :ending LIMIT :count;

-- An index has every id, so this reads no rows.
-- read_tasks_ending(mask: int, ending: int, count: int): tasks whose ids end in some digits, in no order.
SELECT id FROM task WHERE (id & :mask) = :ending LIMIT :count;

-- read_names(graph_id: int, after: int, count: int): the labels of the tasks of a graph beyond an id, in pages.
SELECT d.label, t.id FROM task t JOIN task_definition d ON d.id = t.id
 WHERE t.graph_id = :graph_id AND t.id > :after AND t.loading = 0 ORDER BY t.id LIMIT :count;

-- read_sinks(graph_id: int, done: texts, count: int): tasks of a graph that nothing requires, but for those in some states.
SELECT t.id FROM task t
 WHERE t.graph_id = :graph_id AND t.loading = 0 AND NOT t.state IN (:done)
   AND NOT EXISTS (SELECT 1 FROM edge e WHERE e.prerequisite_id = t.id)
 ORDER BY t.id LIMIT :count;

-- read_runs(ids: ints): the last attempts of tasks: who ran them, when, how they ended, and whether they published a result.
SELECT t.id, a.bot_id, a.claimed_ms, a.ended_ms, a.exit_code, CASE WHEN r.task_id IS NULL THEN 0 ELSE 1 END
  FROM task t LEFT JOIN attempt a ON a.task_id = t.id AND a.number = t.attempt
  LEFT JOIN result r ON r.task_id = t.id AND r.attempt = t.attempt WHERE t.id IN (:ids);

-- read_results(task_id: int): what the attempts of a task published.
SELECT attempt, body FROM result WHERE task_id = :task_id ORDER BY attempt;

-- read_last_results(ids: ints): what the last attempts of tasks published.
SELECT t.id, r.body FROM task t JOIN result r ON r.task_id = t.id AND r.attempt = t.attempt WHERE t.id IN (:ids);

-- read_bots(after: text, count: int, assigned: text): bots beyond an id, in pages.
SELECT b.id, b.slots, b.first_seen_ms, b.last_seen_ms, COALESCE(b.quarantined, s.quarantined),
       COALESCE(b.maintenance, s.maintenance), CASE WHEN s.draining = 1 THEN 1 ELSE b.draining END,
       b.terminated, d.dimensions, (SELECT COUNT(*) FROM task t WHERE t.bot_id = b.id), b.missing,
       COALESCE(s.terminated, 0),
       (SELECT COUNT(*) FROM task t WHERE t.bot_id = b.id AND t.reason = :assigned)
  FROM bot b JOIN bot_dimensions d ON d.bot_id = b.id LEFT JOIN bot_settings s ON s.bot_id = b.id
 WHERE b.id > :after ORDER BY b.id LIMIT :count;

-- read_bot(id: text, assigned: text): one bot.
SELECT b.id, b.slots, b.first_seen_ms, b.last_seen_ms, COALESCE(b.quarantined, s.quarantined),
       COALESCE(b.maintenance, s.maintenance), CASE WHEN s.draining = 1 THEN 1 ELSE b.draining END,
       b.terminated, d.dimensions, (SELECT COUNT(*) FROM task t WHERE t.bot_id = b.id), b.missing,
       COALESCE(s.terminated, 0),
       (SELECT COUNT(*) FROM task t WHERE t.bot_id = b.id AND t.reason = :assigned)
  FROM bot b JOIN bot_dimensions d ON d.bot_id = b.id LEFT JOIN bot_settings s ON s.bot_id = b.id
 WHERE b.id = :id;

-- read_bot_settings(bot_id: text): what an admin said about a bot.
SELECT quarantined, maintenance, draining, terminated FROM bot_settings WHERE bot_id = :bot_id;

-- read_bot_events(bot_id: text, at_ms: int, after: text, count: int): what happened to a bot, the newest first, beyond an event of a moment.
SELECT id, at_ms, kind, task_id, attempt, note FROM bot_event
 WHERE bot_id = :bot_id AND (at_ms < :at_ms OR at_ms = :at_ms AND id > :after) ORDER BY at_ms DESC, id LIMIT :count;

-- read_bot_attempts(bot_id: text, looked: int): what a bot has in hand, and what it had of so many attempts, those of the newest tasks first.
SELECT task_id, number, claimed_ms, ended_ms, signal, reason
  FROM (SELECT * FROM attempt ORDER BY task_id, number LIMIT :looked) newest WHERE bot_id = :bot_id
 UNION
SELECT a.task_id, a.number, a.claimed_ms, a.ended_ms, a.signal, a.reason
  FROM task t JOIN attempt a ON a.task_id = t.id AND a.number = t.attempt WHERE t.bot_id = :bot_id;

-- read_aggregation(id: text): which dimensions the bots had when they were last put together.
SELECT dimensions FROM dimension_aggregation WHERE id = :id;

-- set_aggregation(id: text, dimensions: text): keep which dimensions the bots have.
INSERT INTO dimension_aggregation (id, dimensions) VALUES (:id, :dimensions)
ON CONFLICT (id) DO UPDATE SET dimensions = excluded.dimensions;
