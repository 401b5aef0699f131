-- check_graphs(after: int, count: int): graphs, in pages by id.
SELECT id, state, active, behind, unhandled, events, extensions, created_ms, canceled_ms, loader, parent_id,
       parent_attempt FROM graph WHERE id > :after ORDER BY id LIMIT :count;

-- check_graph_extras(ids: ints, grown: texts): up to which event the events of graphs are published, how often the audit says that they were extended, and whether they have a definition.
SELECT g.id, g.events_published, (SELECT COUNT(*) FROM audit a WHERE a.subject_id = g.id AND a.action IN (:grown)),
       (SELECT COUNT(*) FROM graph_definition d WHERE d.id = g.id)
  FROM graph g WHERE g.id IN (:ids);

-- check_tasks(graph_id: int, after: int, last: int, count: int): tasks up to the graph `last`, in pages by graph and id, without a lock.
SELECT id, graph_id, state, reason, moved_ms, attempt, round, reruns_used, retries_used, slice_index, waits_since_ms, not_before_ms,
       rules, weight, join_rule, on_impossible, is_constrained, awaited, met, broken, impossible, handlers_ran,
       handlers_open, loading, open_continuations, needs_admission, (SELECT q.pool FROM queue q WHERE q.id = task.queue_id), bot_id, fence,
       lease_until_ms, due_ms
  FROM task WHERE (graph_id, id) > (:graph_id, :after) AND graph_id <= :last ORDER BY graph_id, id LIMIT :count;

-- check_tasks_locked(ids: ints): these tasks, locked until the transaction ends.
SELECT id, graph_id, state, reason, moved_ms, attempt, round, reruns_used, retries_used, slice_index, waits_since_ms, not_before_ms,
       rules, weight, join_rule, on_impossible, is_constrained, awaited, met, broken, impossible, handlers_ran,
       handlers_open, loading, open_continuations, needs_admission, (SELECT q.pool FROM queue q WHERE q.id = task.queue_id), bot_id, fence,
       lease_until_ms, due_ms
  FROM task WHERE id IN (:ids) ORDER BY id FOR UPDATE;

-- check_definitions(ids: ints): the definitions of tasks.
SELECT id, graph_id, definition FROM task_definition WHERE id IN (:ids);

-- check_dirty(task_id: int): whether the next pass has to look at this.
SELECT id FROM admission_dirty WHERE task_id = :task_id LIMIT 1;

-- check_graph_continuations(first: int, last: int): how many continuations of each kind are open for graphs.
SELECT graph_id, kind, COUNT(*) FROM continuation WHERE graph_id >= :first AND graph_id <= :last GROUP BY graph_id, kind;

-- check_edges(ids: ints, propagate: text): how many in-edges of tasks know their prerequisites in which state; an open continuation has not told its dependents yet.
SELECT e.dependent_id, e.on_end,
       COALESCE((SELECT n.source FROM continuation n WHERE n.task_id = e.prerequisite_id AND n.kind = :propagate
                    AND n.cursor <= e.dependent_id ORDER BY n.id LIMIT 1), p.state), COUNT(*)
  FROM edge e JOIN task p ON p.id = e.prerequisite_id WHERE e.dependent_id IN (:ids) GROUP BY 1, 2, 3;

-- check_handlers(ids: ints, success: text, propagate: text): how many handlers of failed tasks know of the failure, by the state that is counted for them, and round.
SELECT h.prerequisite_id,
       COALESCE((SELECT n.source FROM continuation n WHERE n.task_id = h.dependent_id AND n.kind <> :propagate
                    AND n.cursor <= h.prerequisite_id ORDER BY n.id LIMIT 1), d.state), h.handled_round, COUNT(*)
  FROM (SELECT prerequisite_id, dependent_id, MAX(handled_round) AS handled_round FROM edge
         WHERE prerequisite_id IN (:ids) AND on_end <> :success GROUP BY prerequisite_id, dependent_id) h
       JOIN task d ON d.id = h.dependent_id
 WHERE NOT EXISTS (SELECT 1 FROM continuation n WHERE n.task_id = h.prerequisite_id AND n.kind = :propagate
                      AND n.cursor <= h.dependent_id)
 GROUP BY 1, 2, 3;

-- check_task_continuations(ids: ints, propagate: text): how many continuations of tasks are open, and the state of which the latest tells the dependents.
SELECT c.task_id, c.notes, n.target
  FROM (SELECT task_id, COUNT(*) AS notes, MAX(CASE WHEN kind = :propagate THEN id END) AS latest FROM continuation
         WHERE task_id IN (:ids) GROUP BY task_id) c LEFT JOIN continuation n ON n.id = c.latest;

-- check_attempts(ids: ints, task_id: int, number: int, count: int, span: int): the attempts of tasks, in pages, each with its block, if that is stored.
SELECT task_id, number, bot_id, fence, claimed_ms, ended_ms, signal,
       (SELECT b.block FROM attempt_block b WHERE b.bot_id = attempt.bot_id AND b.block = attempt.task_id / :span) FROM attempt
 WHERE task_id IN (:ids) AND (task_id, number) > (:task_id, :number) ORDER BY task_id, number LIMIT :count;

-- check_events(ids: ints, subject_id: int, number: int, count: int): the events of tasks and graphs, in pages.
SELECT subject_id, number, graph_id, at_ms, facts FROM event
 WHERE subject_id IN (:ids) AND (subject_id, number) > (:subject_id, :number)
 ORDER BY subject_id, number LIMIT :count;

-- check_holds(held: text, after: int, count: int): tasks with a hold that are not in the state `held`, and that no pass is asked to look at, in pages.
SELECT h.task_id, t.state FROM hold h JOIN task t ON t.id = h.task_id
 WHERE h.task_id > :after AND t.state <> :held AND NOT EXISTS (SELECT 1 FROM admission_dirty s WHERE s.task_id = h.task_id)
 ORDER BY h.task_id LIMIT :count;

-- check_queues(after: int, count: int): queues, in pages.
SELECT id, number, hash, root, pool, dimensions FROM queue WHERE number > :after ORDER BY number LIMIT :count;

-- check_queue_counts(): the stored number of the newest queue, and the highest number of one.
SELECT queues, (SELECT MAX(number) FROM queue) FROM service WHERE id = 1;

-- check_bots(after: text, came: text, left: text, missed: text, count: int): bots with their stored numbers and what their events say of the same, in pages.
SELECT b.id, b.events, b.terminated, b.missing,
       (SELECT MIN(e.id) FROM bot_event e WHERE e.bot_id = b.id),
       (SELECT e.kind FROM bot_event e WHERE e.bot_id = b.id AND e.kind IN (:came, :left) ORDER BY e.id LIMIT 1),
       (SELECT e.kind FROM bot_event e WHERE e.bot_id = b.id AND e.kind IN (:came, :missed) ORDER BY e.id LIMIT 1)
  FROM bot b WHERE b.id > :after ORDER BY b.id LIMIT :count;

-- check_bot_queues(bot_id: text, queue_id: int, count: int): which queues bots serve, with the dimensions of both, in pages.
SELECT s.bot_id, s.queue_id, d.dimensions, q.dimensions
  FROM bot_queue s JOIN queue q ON q.id = s.queue_id LEFT JOIN bot_dimensions d ON d.bot_id = s.bot_id
 WHERE (s.bot_id, s.queue_id) > (:bot_id, :queue_id) ORDER BY s.bot_id, s.queue_id LIMIT :count;

-- check_mutexes(states: texts, key: text, task_id: int, count: int): the mutexes of tasks in some states, by key, in pages.
SELECT m.key, m.task_id, m.party FROM task_mutex m JOIN task t ON t.id = m.task_id
 WHERE t.state IN (:states) AND (m.key, m.task_id) > (:key, :task_id) ORDER BY m.key, m.task_id LIMIT :count;

-- check_limits(states: texts): how much of each named limit tasks in some states use.
SELECT l.name, CAST(SUM(l.amount) AS bigint) FROM task_limit l JOIN task t ON t.id = l.task_id
 WHERE t.state IN (:states) GROUP BY l.name ORDER BY l.name;

-- check_pools(states: texts): how much weight tasks in some states have in each pool, and how many they are.
SELECT q.pool, CAST(SUM(t.weight) AS bigint), COUNT(*) FROM task t JOIN queue q ON q.id = t.queue_id
 WHERE t.state IN (:states) AND t.weight > 0 GROUP BY q.pool ORDER BY q.pool;

-- check_orphans(count: int): rows of attempts, and graphs inside attempts, whose attempt does not exist.
SELECT 'attempt', t.task_id, t.number FROM attempt t WHERE NOT EXISTS (SELECT 1 FROM task o WHERE o.id = t.task_id)
UNION ALL SELECT 'result', r.task_id, r.attempt FROM result r
 WHERE NOT EXISTS (SELECT 1 FROM attempt a WHERE a.task_id = r.task_id AND a.number = r.attempt)
   AND NOT (r.attempt = 0 AND EXISTS (SELECT 1 FROM task_reuse u WHERE u.task_id = r.task_id))
UNION ALL SELECT 'attempt_stats', s.task_id, s.attempt FROM attempt_stats s
 WHERE NOT EXISTS (SELECT 1 FROM attempt a WHERE a.task_id = s.task_id AND a.number = s.attempt)
UNION ALL SELECT 'output_chunk', c.task_id, c.attempt FROM output_chunk c
 WHERE NOT EXISTS (SELECT 1 FROM attempt a WHERE a.task_id = c.task_id AND a.number = c.attempt)
UNION ALL SELECT 'progress', p.task_id, p.attempt FROM progress p
 WHERE NOT EXISTS (SELECT 1 FROM attempt a WHERE a.task_id = p.task_id AND a.number = p.attempt)
UNION ALL SELECT 'task_tag', r.last_id, 0 FROM task_tag r WHERE NOT EXISTS (SELECT 1 FROM task o WHERE o.id = r.last_id)
UNION ALL SELECT 'graph', g.id, g.parent_attempt FROM graph g WHERE g.parent_id IS NOT NULL AND g.loader IS NULL
   AND NOT EXISTS (SELECT 1 FROM attempt a WHERE a.task_id = g.parent_id AND a.number = g.parent_attempt)
 LIMIT :count;

-- check_gone_wrong(states: texts, count: int): tasks whose mark of having gone wrong differs from their state.
SELECT id, gone_wrong, state FROM task WHERE COALESCE(gone_wrong, '') <> CASE WHEN state IN (:states) THEN state ELSE '' END ORDER BY id LIMIT :count;

-- check_missing_inner(bot: text, kind: text, count: int): tasks that a bot runs, of a kind that has a graph inside, where that graph is missing.
SELECT t.id FROM task t WHERE t.bot_id = :bot AND t.kind = :kind
   AND NOT EXISTS (SELECT 1 FROM graph g WHERE g.parent_id = t.id AND g.parent_attempt = t.attempt AND g.loader IS NULL)
 LIMIT :count;

-- check_settled_inner(ids: ints): those of some graphs that have settled inside an attempt that is still running.
SELECT g.id FROM graph g JOIN task t ON t.id = g.parent_id AND t.attempt = g.parent_attempt
 WHERE g.id IN (:ids) AND g.active = 0 AND g.loader IS NULL AND t.bot_id IS NOT NULL;

-- check_followers(state: text, reason: text, active: texts, kind: text, count: int): tasks that wait for an equal one, where none is under way that leads them and no continuation is about to serve them.
SELECT t.id FROM task t JOIN graph g ON g.id = t.graph_id
 WHERE t.state = :state AND t.reason = :reason AND t.loading = 0 AND g.loader IS NULL AND g.canceled_ms IS NULL
   AND NOT EXISTS (SELECT 1 FROM reuse_follower f JOIN reuse_key k ON k.key = f.key JOIN task l ON l.id = k.leader_id
                    WHERE f.task_id = t.id AND l.state IN (:active) AND l.reason <> :reason)
   AND NOT EXISTS (SELECT 1 FROM reuse_follower f JOIN continuation c ON c.kind = :kind AND c.tasks = f.key WHERE f.task_id = t.id)
 ORDER BY t.id LIMIT :count;

-- check_leaders(active: texts, count: int): tasks that lead a key although they are not under way.
SELECT k.leader_id, COALESCE(t.state, '') FROM reuse_key k LEFT JOIN task t ON t.id = k.leader_id
 WHERE k.leader_id IS NOT NULL AND (t.id IS NULL OR NOT (t.state IN (:active))) ORDER BY k.key LIMIT :count;

-- each repair_tasks(id: int, state: text, awaited: int, met: int, broken: int, impossible: int, handlers_ran: int, handlers_open: int, open_continuations: int, needs_admission: int, due_ms: int): write the recounted counts of tasks that are still in this state.
UPDATE task SET awaited = :awaited, met = :met, broken = :broken, impossible = :impossible,
       handlers_ran = :handlers_ran, handlers_open = :handlers_open, open_continuations = :open_continuations, needs_admission = :needs_admission,
       due_ms = :due_ms
 WHERE id = :id AND state = :state;

-- each repair_graphs(id: int, state: text, active: int, behind: int, unhandled: int, events: int, events_published: int, extensions: int, moved_ms: int): write the recounted counts of graphs, and the state that follows from them.
UPDATE graph SET state = :state, active = :active, behind = :behind, unhandled = :unhandled, events = :events,
       events_published = :events_published, extensions = :extensions, moved_ms = COALESCE(:moved_ms, moved_ms)
 WHERE id = :id;

-- each repair_bots(id: text, events: int, terminated: int, missing: int): write what the events of bots say.
UPDATE bot SET events = :events, terminated = :terminated, missing = :missing, changes = changes + 1
 WHERE id = :id;

-- each repair_queues(id: int, hash: int, root: text, pool: text): write the columns that follow from the dimensions of queues.
UPDATE queue SET hash = :hash, root = :root, pool = :pool WHERE id = :id;

-- each repair_bot_queues(bot_id: text, queue_id: int): these bots do not serve these queues.
DELETE FROM bot_queue WHERE bot_id = :bot_id AND queue_id = :queue_id;

-- check_queueless(count: int): tasks whose queue does not exist.
SELECT t.id FROM task t WHERE NOT EXISTS (SELECT 1 FROM queue q WHERE q.id = t.queue_id) ORDER BY t.id LIMIT :count;
