-- survey_graphs(after: int, count: int): graphs as they are now, in pages.
SELECT id, state, active, behind, unhandled, events, extensions, created_ms, canceled_ms, loader
  FROM graph WHERE id > :after ORDER BY id LIMIT :count;

-- survey_tasks(graph_id: int, after: int, last: int, count: int): tasks as they are now, by graph, in pages; nobody is kept from them.
SELECT id, graph_id, state, reason, moved_ms, attempt, began_after, ended, round, reruns_used, retries_used, slice_index,
       waits_since_ms, not_before_ms, rules, kind, priority, created_ms, weight, join_rule, on_impossible, handles,
       excludes, awaited, met, broken, impossible, handlers_ran, handlers_hoped, telling, contends, queue_id, bot_id,
       not_by, fence, lease_until_ms, due_ms, hidden
  FROM task WHERE (graph_id, id) > (:graph_id, :after) AND graph_id <= :last ORDER BY graph_id, id LIMIT :count;

-- survey_notes(first: int, last: int): how many notes of each kind are open about graphs.
SELECT graph_id, kind, COUNT(*) FROM note WHERE graph_id >= :first AND graph_id <= :last GROUP BY graph_id, kind;

-- survey_edges(ids: ints, tell: text): how many in-edges of tasks have heard which state of their prerequisites.
SELECT e.dependent_id, e.on_end,
       COALESCE((SELECT n.source FROM note n WHERE n.task_id = e.prerequisite_id AND n.kind = :tell
                    AND n.cursor <= e.dependent_id ORDER BY n.id LIMIT 1), p.state), COUNT(*)
  FROM edge e JOIN task p ON p.id = e.prerequisite_id WHERE e.dependent_id IN (:ids) GROUP BY 1, 2, 3;

-- survey_handlers(ids: ints, success: text, tell: text): how many handlers of tasks have heard of them, by the state that these have heard, and round.
SELECT h.prerequisite_id,
       COALESCE((SELECT n.source FROM note n WHERE n.task_id = h.dependent_id AND n.kind <> :tell
                    AND n.cursor <= h.prerequisite_id ORDER BY n.id LIMIT 1), d.state), h.ran_for, COUNT(*)
  FROM (SELECT prerequisite_id, dependent_id, MAX(ran_for) AS ran_for FROM edge
         WHERE prerequisite_id IN (:ids) AND on_end <> :success GROUP BY prerequisite_id, dependent_id) h
       JOIN task d ON d.id = h.dependent_id
 WHERE NOT EXISTS (SELECT 1 FROM note n WHERE n.task_id = h.prerequisite_id AND n.kind = :tell
                      AND n.cursor <= h.dependent_id)
 GROUP BY 1, 2, 3;

-- survey_tellings(ids: ints, tell: text): how many notes about what tasks have to tell are open, and what the latest tells dependents.
SELECT c.task_id, c.notes, n.target
  FROM (SELECT task_id, COUNT(*) AS notes, MAX(CASE WHEN kind = :tell THEN id END) AS latest FROM note
         WHERE task_id IN (:ids) GROUP BY task_id) c LEFT JOIN note n ON n.id = c.latest;

-- survey_attempts(ids: ints): the latest attempt of tasks, and every one that is open.
SELECT task_id, number, bot_id, fence, ended_ms FROM attempt a
 WHERE task_id IN (:ids)
   AND (ended_ms IS NULL OR number = (SELECT MAX(m.number) FROM attempt m WHERE m.task_id = a.task_id))
 ORDER BY task_id, number;

-- survey_events(ids: ints, subject_id: int, number: int, count: int): what happened to tasks and graphs, in pages.
SELECT subject_id, number, graph_id, facts FROM event
 WHERE subject_id IN (:ids) AND (subject_id, number) > (:subject_id, :number)
 ORDER BY subject_id, number LIMIT :count;

-- survey_holds(held: text, after: int, count: int): tasks that a pass is said to hold though they are elsewhere, and no pass will look at them, in pages.
SELECT h.task_id, t.state FROM hold h JOIN task t ON t.id = h.task_id
 WHERE h.task_id > :after AND t.state <> :held AND NOT EXISTS (SELECT 1 FROM stir s WHERE s.task_id = h.task_id)
 ORDER BY h.task_id LIMIT :count;

-- survey_ran(success: text, count: int): edges that no handler has, and yet one is said to have run for.
SELECT prerequisite_id, dependent_id, ran_for FROM edge
 WHERE on_end = :success AND ran_for IS NOT NULL ORDER BY prerequisite_id, dependent_id LIMIT :count;

-- survey_queues(after: int, count: int): queues, in pages.
SELECT id, number, hash, root, pool, dimensions FROM queue WHERE number > :after ORDER BY number LIMIT :count;

-- count_numbers(): how many queues the service counts, how many there are, and the highest number of one.
SELECT queues, (SELECT COUNT(*) FROM queue), (SELECT MAX(number) FROM queue) FROM service WHERE id = 1;

-- survey_bots(after: text, count: int): bots with how many events they count and the newest they have, in pages.
SELECT b.id, b.events, (SELECT MIN(e.id) FROM bot_event e WHERE e.bot_id = b.id) FROM bot b
 WHERE b.id > :after ORDER BY b.id LIMIT :count;

-- survey_bot_queues(bot_id: text, queue_id: int, count: int): which queues bots are said to serve, in pages.
SELECT s.bot_id, s.queue_id, d.dimensions, q.dimensions
  FROM bot_queue s JOIN queue q ON q.id = s.queue_id LEFT JOIN bot_dimensions d ON d.bot_id = s.bot_id
 WHERE (s.bot_id, s.queue_id) > (:bot_id, :queue_id) ORDER BY s.bot_id, s.queue_id LIMIT :count;

-- survey_mutexes(states: texts, key: text, task_id: int, count: int): the mutexes of tasks in some states, by key, in pages.
SELECT m.key, m.task_id, m.party FROM task_mutex m JOIN task t ON t.id = m.task_id
 WHERE t.state IN (:states) AND (m.key, m.task_id) > (:key, :task_id) ORDER BY m.key, m.task_id LIMIT :count;

-- survey_limits(states: texts): how much of each named limit tasks in some states use.
SELECT l.name, CAST(SUM(l.amount) AS bigint) FROM task_limit l JOIN task t ON t.id = l.task_id
 WHERE t.state IN (:states) GROUP BY l.name ORDER BY l.name;

-- survey_pools(states: texts): how much weight tasks in some states have in each pool, and how many they are.
SELECT q.pool, CAST(SUM(t.weight) AS bigint), COUNT(*) FROM task t JOIN queue q ON q.id = t.queue_id
 WHERE t.state IN (:states) AND t.weight > 0 GROUP BY q.pool ORDER BY q.pool;

-- survey_strays(count: int): what attempts left, of which nobody knows.
SELECT 'result', r.task_id, r.attempt FROM result r
 WHERE NOT EXISTS (SELECT 1 FROM attempt a WHERE a.task_id = r.task_id AND a.number = r.attempt)
UNION ALL SELECT 'attempt_stats', s.task_id, s.attempt FROM attempt_stats s
 WHERE NOT EXISTS (SELECT 1 FROM attempt a WHERE a.task_id = s.task_id AND a.number = s.attempt)
UNION ALL SELECT 'output_chunk', c.task_id, c.attempt FROM output_chunk c
 WHERE NOT EXISTS (SELECT 1 FROM attempt a WHERE a.task_id = c.task_id AND a.number = c.attempt)
 LIMIT :count;

-- each mend_tasks(id: int, awaited: int, met: int, broken: int, impossible: int, handlers_ran: int, handlers_hoped: int, telling: int, handles: int, excludes: int, contends: int, queue_id: int, due_ms: int, attempt: int, round: int, reruns_used: int, retries_used: int): write what was counted afresh about tasks.
UPDATE task SET awaited = :awaited, met = :met, broken = :broken, impossible = :impossible,
       handlers_ran = :handlers_ran, handlers_hoped = :handlers_hoped, telling = :telling, handles = :handles,
       excludes = :excludes, contends = :contends, queue_id = :queue_id, due_ms = :due_ms, attempt = :attempt,
       round = :round, reruns_used = :reruns_used, retries_used = :retries_used
 WHERE id = :id;

-- each mend_attempts(task_id: int, number: int, bot_id: text, fence: int): these attempts are open, and these bots have them.
UPDATE attempt SET bot_id = :bot_id, fence = :fence, ended_ms = NULL, signal = NULL, reason = NULL, exit_code = NULL
 WHERE task_id = :task_id AND number = :number;

-- each forget_ran(prerequisite_id: int, on_end: text): nobody ran for these edges.
UPDATE edge SET ran_for = NULL WHERE prerequisite_id = :prerequisite_id AND on_end = :on_end;

-- each mend_queues(id: int, hash: int, root: text, pool: text): write what follows from the dimensions of queues.
UPDATE queue SET hash = :hash, root = :root, pool = :pool WHERE id = :id;

-- each unserve(bot_id: text, queue_id: int): bots do not serve these queues.
DELETE FROM bot_queue WHERE bot_id = :bot_id AND queue_id = :queue_id;
