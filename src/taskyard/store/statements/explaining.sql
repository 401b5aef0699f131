-- read_prerequisites(dependent_id: int, states: texts, count: int): some prerequisites of a task that are in some states.
SELECT e.prerequisite_id, e.on_end, t.state FROM edge e JOIN task t ON t.id = e.prerequisite_id
 WHERE e.dependent_id = :dependent_id AND t.state IN (:states) ORDER BY e.prerequisite_id LIMIT :count;

-- read_holders_for_a_graph(bot_id: text, kind: text, count: int): tasks of one kind that somebody runs and that name mutexes or limits.
SELECT id FROM task WHERE bot_id = :bot_id AND kind = :kind AND is_constrained = 1 ORDER BY id LIMIT :count;

-- read_labels(ids: ints): the labels of tasks.
SELECT id, label FROM task_definition WHERE id IN (:ids);

-- read_endings(ids: ints): the last attempts of tasks, as far as they have ended.
SELECT t.id, a.number, a.bot_id, a.exit_code FROM task t JOIN attempt a ON a.task_id = t.id AND a.number = t.attempt
 WHERE t.id IN (:ids) AND a.ended_ms IS NOT NULL;

-- read_wishes(subjects: ints, action: text, count: int): who last asked for something about tasks and graphs.
SELECT subject_id, actor, at_ms FROM audit WHERE subject_id IN (:subjects) AND action = :action
 ORDER BY at_ms DESC, id DESC LIMIT :count;

-- read_remarks(subjects: ints, action: text): what was noted with something about tasks, the last last.
SELECT subject_id, note FROM audit WHERE subject_id IN (:subjects) AND action = :action ORDER BY at_ms, id;

-- read_queues(ids: ints): what queues ask for.
SELECT id, pool, dimensions FROM queue WHERE id IN (:ids);

-- read_ahead(queue_id: int, priority: int, created_ms: int, id: int, count: int): who waits before a task in its queue.
SELECT id FROM task WHERE queue_id = :queue_id AND state = 'waiting'
   AND (priority, created_ms, id) < (:priority, :created_ms, :id) ORDER BY priority, created_ms, id LIMIT :count;

-- A pool that is limited has its holders among those who contend, and only they are looked at.
-- read_pool_use(pool: text, states: texts): how much of a pool is in use.
SELECT COALESCE(SUM(t.weight), 0) FROM task t JOIN queue q ON q.id = t.queue_id
 WHERE t.needs_admission = 1 AND t.state IN (:states) AND q.pool = :pool;

-- read_limit_use(name: text, states: texts): how much of a named limit is in use.
SELECT COALESCE(SUM(l.amount), 0) FROM task t JOIN task_limit l ON l.task_id = t.id AND l.name = :name
 WHERE t.needs_admission = 1 AND t.state IN (:states);

-- The newest sorts first, so the oldest, who stand before the others, are the last.
-- read_line(pool: text, reasons: texts, priority: int, created_ms: int, id: int, count: int): of the oldest that are held, how many stand before a task in the line for a pool, and how many were looked at.
SELECT COALESCE(SUM(CASE WHEN h.name = :pool AND h.reason IN (:reasons)
   AND (t.priority, t.created_ms, t.id) < (:priority, :created_ms, :id) THEN 1 ELSE 0 END), 0), COUNT(*)
  FROM (SELECT task_id, reason, name FROM hold ORDER BY task_id DESC LIMIT :count) h JOIN task t ON t.id = h.task_id;

-- read_happened(subjects: ints, count: int): what last happened to some tasks.
SELECT subject_id, number, graph_id, at_ms, facts FROM event WHERE subject_id IN (:subjects)
 ORDER BY at_ms DESC, number DESC LIMIT :count;

-- read_bot_words(bot_id: text, at_ms: int, count: int): what was noted of a bot at a moment, among its newest events.
SELECT kind FROM (SELECT at_ms, kind FROM bot_event WHERE bot_id = :bot_id ORDER BY id LIMIT :count) e
 WHERE e.at_ms = :at_ms;

-- The newest sorts first: whoever came just before a task in another graph has the next ids.
-- read_older_rivals(key: text, task_id: int, count: int): tasks that name a mutex, just beyond one of them.
SELECT task_id FROM task_mutex WHERE key = :key AND task_id > :task_id ORDER BY task_id LIMIT :count;

-- read_newer_rivals(key: text, task_id: int, count: int): tasks that name a mutex, just before one of them.
SELECT task_id FROM task_mutex WHERE key = :key AND task_id < :task_id ORDER BY task_id DESC LIMIT :count;
