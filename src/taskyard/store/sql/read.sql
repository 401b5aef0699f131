-- select_graph_rows(after: int, state: text, name: text, all_pools: int, pools: texts, count: int): a page of the loaded graphs, newest first.
SELECT g.id, g.state, g.active, g.behind, g.unhandled, g.created_ms, g.moved_ms, g.canceled_ms,
       d.scheduler_id, d.name, d.routing, d.description, d.tags, r.source_id, r.labels, r.reused
  FROM graph g JOIN graph_definition d ON d.id = g.id LEFT JOIN graph_rerun r ON r.graph_id = g.id
 WHERE g.id > :after AND g.loader IS NULL AND (:state = '' OR g.state = :state) AND (:name = '' OR d.name = :name)
   AND (:all_pools = 1 OR EXISTS (SELECT 1 FROM graph_pool p WHERE p.graph_id = g.id AND p.pool IN (:pools)))
 ORDER BY g.id LIMIT :count;

-- select_graph_row(id: int): a graph, if it is loaded.
SELECT g.id, g.state, g.active, g.behind, g.unhandled, g.created_ms, g.moved_ms, g.canceled_ms,
       d.scheduler_id, d.name, d.routing, d.description, d.tags, r.source_id, r.labels, r.reused
  FROM graph g JOIN graph_definition d ON d.id = g.id LEFT JOIN graph_rerun r ON r.graph_id = g.id WHERE g.id = :id AND g.loader IS NULL;

-- select_leased_of_kind(bot: text, kind: text, after: int, all_pools: int, pools: texts, count: int): a page of the tasks of one kind that a bot holds.
SELECT t.id FROM task t
 WHERE t.bot_id = :bot AND t.kind = :kind AND t.id > :after
   AND (:all_pools = 1 OR EXISTS (SELECT 1 FROM graph_pool p WHERE p.graph_id = t.graph_id AND p.pool IN (:pools)))
 ORDER BY t.id LIMIT :count;

-- count_tasks_by_state(graph_id: int, reason: text): how many tasks of a graph are in each state, and how many of them for a reason.
SELECT state, COUNT(*), SUM(CASE WHEN reason = :reason THEN 1 ELSE 0 END) FROM task WHERE graph_id = :graph_id AND loading = 0 GROUP BY state;

-- count_all_tasks_by_state(): how many tasks there are in each state.
SELECT state, COUNT(*) FROM task GROUP BY state;

-- select_loaded_task_page(graph_id: int, after: int, state: text, count: int): a page of the loaded tasks of a graph.
SELECT id FROM task WHERE graph_id = :graph_id AND id > :after AND loading = 0 AND (:state = '' OR state = :state)
 ORDER BY id LIMIT :count;

-- select_graphs_by_id_suffix(mask: int, ending: int, count: int): graphs whose ids end in some digits, in no order.
SELECT id FROM graph WHERE (id & :mask) = :ending LIMIT :count;

-- This scans an index, not the rows.
-- select_tasks_by_id_suffix(mask: int, ending: int, count: int): tasks whose ids end in some digits, in no order.
SELECT id FROM task WHERE (id & :mask) = :ending LIMIT :count;

-- select_labels_page(graph_id: int, after: int, count: int): a page of the labels of the tasks of a graph.
SELECT d.label, t.id FROM task t JOIN task_definition d ON d.id = t.id
 WHERE t.graph_id = :graph_id AND t.id > :after AND t.loading = 0 ORDER BY t.id LIMIT :count;

-- select_sinks(graph_id: int, done: texts, count: int): tasks of a graph without dependents, except for those in some states.
SELECT t.id FROM task t
 WHERE t.graph_id = :graph_id AND t.loading = 0 AND NOT t.state IN (:done)
   AND NOT EXISTS (SELECT 1 FROM edge e WHERE e.prerequisite_id = t.id)
 ORDER BY t.id LIMIT :count;

-- select_last_attempts(ids: ints): the last attempts of tasks: bot, begin, end, exit code, and whether there is a result.
SELECT t.id, a.bot_id, a.claimed_ms, a.ended_ms, a.exit_code, CASE WHEN r.task_id IS NULL THEN 0 ELSE 1 END
  FROM task t LEFT JOIN attempt a ON a.task_id = t.id AND a.number = t.attempt
  LEFT JOIN result r ON r.task_id = t.id AND r.attempt = t.attempt WHERE t.id IN (:ids);

-- select_results(task_id: int): the results of all attempts of a task.
SELECT attempt, body FROM result WHERE task_id = :task_id ORDER BY attempt;

-- select_last_results(ids: ints): the results of the last attempts of tasks.
SELECT t.id, r.body FROM task t JOIN result r ON r.task_id = t.id AND r.attempt = t.attempt WHERE t.id IN (:ids);

-- select_bot_page(after: text, count: int, assigned: text): a page of bots.
SELECT b.id, b.slots, b.first_seen_ms, b.last_seen_ms, COALESCE(b.quarantined, s.quarantined),
       COALESCE(b.maintenance, s.maintenance), CASE WHEN s.draining = 1 THEN 1 ELSE b.draining END,
       b.terminated, d.dimensions, (SELECT COUNT(*) FROM task t WHERE t.bot_id = b.id), b.missing,
       COALESCE(s.terminated, 0),
       (SELECT COUNT(*) FROM task t WHERE t.bot_id = b.id AND t.reason = :assigned), b.version, d.caches, b.failures
  FROM bot b JOIN bot_dimensions d ON d.bot_id = b.id LEFT JOIN bot_settings s ON s.bot_id = b.id
 WHERE b.id > :after ORDER BY b.id LIMIT :count;

-- select_bot(id: text, assigned: text): one bot.
SELECT b.id, b.slots, b.first_seen_ms, b.last_seen_ms, COALESCE(b.quarantined, s.quarantined),
       COALESCE(b.maintenance, s.maintenance), CASE WHEN s.draining = 1 THEN 1 ELSE b.draining END,
       b.terminated, d.dimensions, (SELECT COUNT(*) FROM task t WHERE t.bot_id = b.id), b.missing,
       COALESCE(s.terminated, 0),
       (SELECT COUNT(*) FROM task t WHERE t.bot_id = b.id AND t.reason = :assigned), b.version, d.caches, b.failures
  FROM bot b JOIN bot_dimensions d ON d.bot_id = b.id LEFT JOIN bot_settings s ON s.bot_id = b.id
 WHERE b.id = :id;

-- select_queues_of_roots(roots: texts, after: int, count: int): queues below some roots, in the order of their numbers.
SELECT id, number, hash, root, pool, dimensions FROM queue WHERE root IN (:roots) AND number > :after
 ORDER BY number LIMIT :count;

-- The condition of the partial index is written out, as in `claim_candidates`.
-- count_waiting(queues: ints, count: int): how many tasks wait in queues, each up to a number.
SELECT q.id, (SELECT COUNT(*) FROM (SELECT 1 FROM task t WHERE t.queue_id = q.id AND t.state = 'waiting' LIMIT :count) w)
  FROM queue q WHERE q.id IN (:queues);

-- The condition of the partial index is written out, as in `claim_candidates`.
-- count_waiting_by_queue(pool: text): how many tasks wait in each queue of a pool, or of all pools if that is empty, and when the first was created.
SELECT t.queue_id, COUNT(*), MIN(t.created_ms) FROM task t
 WHERE t.state = 'waiting' AND t.queue_id IN (SELECT q.id FROM queue q WHERE q.pool <> '' AND (q.pool = :pool OR :pool = ''))
 GROUP BY t.queue_id;

-- count_leased_by_queue(): how many tasks of each queue bots hold.
SELECT queue_id, COUNT(*) FROM task WHERE bot_id IS NOT NULL GROUP BY queue_id;

-- count_held_by_queue(reason: text, states: texts): how many tasks of each queue the last admission pass held for a reason.
SELECT t.queue_id, COUNT(*) FROM hold h JOIN task t ON t.id = h.task_id
 WHERE h.reason = :reason AND t.state IN (:states) GROUP BY t.queue_id;

-- select_queues_of_pool(pool: text): the queues of a pool, or of all pools if that is empty.
SELECT id, pool, dimensions FROM queue WHERE pool <> '' AND (pool = :pool OR :pool = '');

-- select_queues_like(pattern: text): the queues whose dimensions are like a pattern.
SELECT id, dimensions FROM queue WHERE dimensions LIKE :pattern;

-- count_held_of_queues(queues: ints): how many tasks of these queues each bot holds.
SELECT bot_id, queue_id, COUNT(*) FROM task WHERE bot_id IS NOT NULL AND queue_id IN (:queues) GROUP BY bot_id, queue_id;

-- select_kept_bots(states: texts): the bots that are kept free for a task in one of some states, with the dimensions of its queue.
SELECT b.id, q.dimensions FROM bot b JOIN task t ON t.id = b.reserved_task_id JOIN queue q ON q.id = t.queue_id
 WHERE b.reserved_task_id IS NOT NULL AND t.state IN (:states);

-- select_bot_settings(bot_id: text): the settings that an admin gave to a bot.
SELECT quarantined, maintenance, draining, terminated FROM bot_settings WHERE bot_id = :bot_id;

-- select_bot_event_page(bot_id: text, at_ms: int, after: text, count: int): a page of the events of a bot, newest first.
SELECT id, at_ms, kind, task_id, attempt, note FROM bot_event
 WHERE bot_id = :bot_id AND (at_ms < :at_ms OR at_ms = :at_ms AND id > :after) ORDER BY at_ms DESC, id LIMIT :count;

-- select_bot_attempts(bot_id: text, looked: int): the attempts that a bot runs, and those that it had among the attempts of the newest tasks.
SELECT task_id, number, claimed_ms, ended_ms, signal, reason
  FROM (SELECT * FROM attempt ORDER BY task_id, number LIMIT :looked) newest WHERE bot_id = :bot_id
 UNION
SELECT a.task_id, a.number, a.claimed_ms, a.ended_ms, a.signal, a.reason
  FROM task t JOIN attempt a ON a.task_id = t.id AND a.number = t.attempt WHERE t.bot_id = :bot_id;

-- select_aggregation(id: text): the stored dimensions of all bots together.
SELECT dimensions FROM dimension_aggregation WHERE id = :id;

-- select_prerequisites_in_states(dependent_id: int, states: texts, count: int): prerequisites of a task that are in some states.
SELECT e.prerequisite_id, e.on_end, t.state FROM edge e JOIN task t ON t.id = e.prerequisite_id
 WHERE e.dependent_id = :dependent_id AND t.state IN (:states) ORDER BY e.prerequisite_id LIMIT :count;

-- select_subgraph_holders(bot_id: text, kind: text, count: int): tasks of one kind that a bot holds and that have mutexes or limits.
SELECT id FROM task WHERE bot_id = :bot_id AND kind = :kind AND is_constrained <> 0 ORDER BY id LIMIT :count;

-- select_labels(ids: ints): the labels of tasks.
SELECT id, label FROM task_definition WHERE id IN (:ids);

-- select_ended_attempts(ids: ints): the last attempts of tasks, where they have ended.
SELECT t.id, a.number, a.bot_id, a.exit_code FROM task t JOIN attempt a ON a.task_id = t.id AND a.number = t.attempt
 WHERE t.id IN (:ids) AND a.ended_ms IS NOT NULL;

-- select_last_requests(subjects: ints, action: text, count: int): who requested an action on tasks and graphs, latest first.
SELECT subject_id, actor, at_ms FROM audit WHERE subject_id IN (:subjects) AND action = :action
 ORDER BY at_ms DESC, id DESC LIMIT :count;

-- select_audit_notes(subjects: ints, action: text): the notes in the audit of tasks for an action, latest last.
SELECT subject_id, note FROM audit WHERE subject_id IN (:subjects) AND action = :action ORDER BY at_ms, id;

-- select_queues(ids: ints): the pools and dimensions of queues.
SELECT id, pool, dimensions FROM queue WHERE id IN (:ids);

-- select_tasks_ahead(queue_id: int, priority: int, created_ms: int, id: int, count: int): the tasks before another one in its queue.
SELECT id FROM task WHERE queue_id = :queue_id AND state = 'waiting'
   AND (priority, created_ms, id) < (:priority, :created_ms, :id) ORDER BY priority, created_ms, id LIMIT :count;

-- In a limited pool every holder needs admission, so the index of those tasks is enough.
-- sum_pool_use(pool: text, states: texts): how much of a pool is in use.
SELECT COALESCE(SUM(t.weight), 0) FROM task t JOIN queue q ON q.id = t.queue_id
 WHERE t.needs_admission = 1 AND t.state IN (:states) AND q.pool = :pool;

-- sum_limit_use(name: text, states: texts): how much of a named limit is in use.
SELECT COALESCE(SUM(l.amount), 0) FROM task t JOIN task_limit l ON l.task_id = t.id AND l.name = :name
 WHERE t.needs_admission = 1 AND t.state IN (:states);

-- Newer ids are smaller, so the oldest tasks, which come first in the line, come last by id.
-- count_held_before(name: text, reasons: texts, priority: int, created_ms: int, id: int, count: int): among the oldest held tasks, how many come before a task in the line for a pool or a mutex, and how many were looked at.
SELECT COALESCE(SUM(CASE WHEN h.name = :name AND h.reason IN (:reasons)
   AND (t.priority, t.created_ms, t.id) < (:priority, :created_ms, :id) THEN 1 ELSE 0 END), 0), COUNT(*)
  FROM (SELECT task_id, reason, name FROM hold ORDER BY task_id DESC LIMIT :count) h JOIN task t ON t.id = h.task_id;

-- select_recent_events(subjects: ints, count: int): the latest events of tasks.
SELECT subject_id, number, graph_id, at_ms, facts FROM event WHERE subject_id IN (:subjects)
 ORDER BY at_ms DESC, number DESC LIMIT :count;

-- select_bot_event_kinds(bot_id: text, at_ms: int, count: int): the kinds of the events of a bot at a time, among its newest events.
SELECT kind FROM (SELECT at_ms, kind FROM bot_event WHERE bot_id = :bot_id ORDER BY id LIMIT :count) e
 WHERE e.at_ms = :at_ms;

-- Newer ids are smaller: tasks submitted just before another one have the next larger ids.
-- select_older_mutex_rivals(key: text, task_id: int, count: int): tasks with a mutex, just older than another task.
SELECT task_id FROM task_mutex WHERE key = :key AND task_id > :task_id ORDER BY task_id LIMIT :count;

-- select_newer_mutex_rivals(key: text, task_id: int, count: int): tasks with a mutex, just newer than another task.
SELECT task_id FROM task_mutex WHERE key = :key AND task_id < :task_id ORDER BY task_id DESC LIMIT :count;

-- The condition of the partial index is written out, as in `claim_candidates`.
-- select_older_graphs_by_name(name: text, after: int, count: int): graphs of a name that are older than one, newest first.
SELECT id FROM graph_definition WHERE name = :name AND name <> '' AND id > :after ORDER BY id LIMIT :count;

-- select_attempt_durations(graph_id: int, labels: texts, states: texts): how long the last attempts of tasks in some states took, by label.
SELECT d.label, a.ended_ms - a.claimed_ms
  FROM task_definition d JOIN task t ON t.id = d.id JOIN attempt a ON a.task_id = t.id AND a.number = t.attempt
 WHERE d.graph_id = :graph_id AND d.label IN (:labels) AND t.state IN (:states) AND a.ended_ms IS NOT NULL;

-- A task that reuses an attempt counts as ended.
-- select_unfinished_tasks(graph_id: int, after: int, ended: texts, count: int): a page of the tasks of a graph that have not ended, and since when each runs.
SELECT t.id, t.state, t.join_rule, t.not_before_ms, d.label, a.claimed_ms
  FROM task t JOIN task_definition d ON d.id = t.id
       LEFT JOIN attempt a ON a.task_id = t.id AND a.number = t.attempt AND a.ended_ms IS NULL
 WHERE t.graph_id = :graph_id AND t.id > :after AND t.loading = 0 AND NOT t.state IN (:ended)
   AND NOT EXISTS (SELECT 1 FROM task_reuse u WHERE u.task_id = t.id)
 ORDER BY t.id LIMIT :count;

-- select_last_ended(graph_id: int, states: texts): the task of a graph that reached one of some states last; of several in one millisecond, the one with the highest id.
SELECT id FROM task WHERE graph_id = :graph_id AND loading = 0 AND state IN (:states) ORDER BY moved_ms DESC, id DESC LIMIT 1;

-- select_ended_prerequisites(dependent_id: int, states: texts, count: int): the prerequisites of a task in some states, and since when, latest first.
SELECT e.prerequisite_id, e.on_end, t.state, t.moved_ms FROM edge e JOIN task t ON t.id = e.prerequisite_id
 WHERE e.dependent_id = :dependent_id AND t.state IN (:states) ORDER BY t.moved_ms DESC LIMIT :count;

-- select_edges_of_graph(graph_id: int, count: int): the edges between the tasks of a graph.
SELECT e.prerequisite_id, e.dependent_id, e.on_end FROM task t JOIN edge e ON e.prerequisite_id = t.id
 WHERE t.graph_id = :graph_id AND t.loading = 0 ORDER BY e.prerequisite_id, e.dependent_id LIMIT :count;

-- select_states_of_graph(graph_id: int, count: int): the state of each task of a graph.
SELECT state FROM task WHERE graph_id = :graph_id AND loading = 0 ORDER BY id LIMIT :count;

-- select_times_of_graph(graph_id: int, count: int): the state of each task of a graph, with the bot, the begin and the end of its last attempt.
SELECT t.state, a.bot_id, a.claimed_ms, a.ended_ms FROM task t LEFT JOIN attempt a ON a.task_id = t.id AND a.number = t.attempt
 WHERE t.graph_id = :graph_id AND t.loading = 0 ORDER BY t.id LIMIT :count;

-- count_loaded_tasks(graph_id: int, count: int): how many tasks a graph has, up to a number.
SELECT COUNT(*) FROM (SELECT 1 FROM task WHERE graph_id = :graph_id AND loading = 0 LIMIT :count) w;
