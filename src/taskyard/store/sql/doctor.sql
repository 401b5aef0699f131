-- survey_graphs(after: int, count: int): graphs as they are now, in pages.
SELECT id, state, active, behind, unhandled, events, extensions, created_ms, canceled_ms, loader, parent_id,
       parent_attempt FROM graph WHERE id > :after ORDER BY id LIMIT :count;

-- survey_records(ids: ints, grown: texts): since when graphs are where they are, what others were told of them, how often the audit says that they grew, and whether there is a definition of them.
SELECT g.id, g.moved_ms, g.events_published, (SELECT COUNT(*) FROM audit a WHERE a.subject_id = g.id AND a.action IN (:grown)),
       (SELECT COUNT(*) FROM graph_definition d WHERE d.id = g.id)
  FROM graph g WHERE g.id IN (:ids);

-- survey_tasks(graph_id: int, after: int, last: int, count: int): tasks as they are stored, by graph, in pages; nobody is kept from them.
SELECT id, graph_id, previous_state, state, reason, moved_ms, attempt, began_after, ended, round, reruns_used, retries_used,
       slice_index, waits_since_ms, not_before_ms, rules, kind, priority, created_ms, weight, join_rule, on_impossible,
       is_handler, is_constrained, awaited, met, broken, impossible, handlers_ran, handlers_open, loading, open_continuations, needs_admission,
       queue_id, bot_id, avoid_bot, fence, lease_until_ms, due_ms
  FROM task WHERE (graph_id, id) > (:graph_id, :after) AND graph_id <= :last ORDER BY graph_id, id LIMIT :count;

-- hold_tasks(ids: ints): these tasks as they are stored, kept from others until the transaction ends.
SELECT id, graph_id, previous_state, state, reason, moved_ms, attempt, began_after, ended, round, reruns_used, retries_used,
       slice_index, waits_since_ms, not_before_ms, rules, kind, priority, created_ms, weight, join_rule, on_impossible,
       is_handler, is_constrained, awaited, met, broken, impossible, handlers_ran, handlers_open, loading, open_continuations, needs_admission,
       queue_id, bot_id, avoid_bot, fence, lease_until_ms, due_ms
  FROM task WHERE id IN (:ids) ORDER BY id FOR UPDATE;

-- survey_definitions(ids: ints): what was asked for, as it is stored.
SELECT id, graph_id, label, definition FROM task_definition WHERE id IN (:ids);

-- survey_in_edges(ids: ints): the in-edges of tasks, as they are stored.
SELECT dependent_id, prerequisite_id, on_end, handled_round FROM edge WHERE dependent_id IN (:ids);

-- survey_stirs(task_id: int): whether a pass has to look at this.
SELECT id FROM admission_dirty WHERE task_id = :task_id LIMIT 1;

-- survey_seen(ids: texts): when bots were last heard of.
SELECT id, last_seen_ms FROM bot WHERE id IN (:ids);

-- survey_notes(first: int, last: int): how many notes of each kind are open about graphs.
SELECT graph_id, kind, COUNT(*) FROM continuation WHERE graph_id >= :first AND graph_id <= :last GROUP BY graph_id, kind;

-- survey_edges(ids: ints, tell: text): how many in-edges of tasks have heard which state of their prerequisites.
SELECT e.dependent_id, e.on_end,
       COALESCE((SELECT n.source FROM continuation n WHERE n.task_id = e.prerequisite_id AND n.kind = :tell
                    AND n.cursor <= e.dependent_id ORDER BY n.id LIMIT 1), p.state), COUNT(*)
  FROM edge e JOIN task p ON p.id = e.prerequisite_id WHERE e.dependent_id IN (:ids) GROUP BY 1, 2, 3;

-- survey_handlers(ids: ints, success: text, tell: text): how many handlers of tasks have heard of them, by the state that these have heard, and round.
SELECT h.prerequisite_id,
       COALESCE((SELECT n.source FROM continuation n WHERE n.task_id = h.dependent_id AND n.kind <> :tell
                    AND n.cursor <= h.prerequisite_id ORDER BY n.id LIMIT 1), d.state), h.handled_round, COUNT(*)
  FROM (SELECT prerequisite_id, dependent_id, MAX(handled_round) AS handled_round FROM edge
         WHERE prerequisite_id IN (:ids) AND on_end <> :success GROUP BY prerequisite_id, dependent_id) h
       JOIN task d ON d.id = h.dependent_id
 WHERE NOT EXISTS (SELECT 1 FROM continuation n WHERE n.task_id = h.prerequisite_id AND n.kind = :tell
                      AND n.cursor <= h.dependent_id)
 GROUP BY 1, 2, 3;

-- survey_tellings(ids: ints, tell: text): how many notes about what tasks have to tell are open, and what the latest tells dependents.
SELECT c.task_id, c.notes, n.target
  FROM (SELECT task_id, COUNT(*) AS notes, MAX(CASE WHEN kind = :tell THEN id END) AS latest FROM continuation
         WHERE task_id IN (:ids) GROUP BY task_id) c LEFT JOIN continuation n ON n.id = c.latest;

-- survey_attempts(ids: ints, task_id: int, number: int, count: int): the attempts of tasks, in pages.
SELECT task_id, number, bot_id, fence, round, slice_index, claimed_ms, ended_ms, signal, reason, exit_code FROM attempt
 WHERE task_id IN (:ids) AND (task_id, number) > (:task_id, :number) ORDER BY task_id, number LIMIT :count;

-- survey_events(ids: ints, subject_id: int, number: int, count: int): what happened to tasks and graphs, in pages.
SELECT subject_id, number, graph_id, at_ms, facts FROM event
 WHERE subject_id IN (:ids) AND (subject_id, number) > (:subject_id, :number)
 ORDER BY subject_id, number LIMIT :count;

-- survey_holds(held: text, after: int, count: int): tasks that a pass is said to hold though they are elsewhere, and no pass will look at them, in pages.
SELECT h.task_id, t.state FROM hold h JOIN task t ON t.id = h.task_id
 WHERE h.task_id > :after AND t.state <> :held AND NOT EXISTS (SELECT 1 FROM admission_dirty s WHERE s.task_id = h.task_id)
 ORDER BY h.task_id LIMIT :count;

-- survey_queues(after: int, count: int): queues, in pages.
SELECT id, number, hash, root, pool, dimensions FROM queue WHERE number > :after ORDER BY number LIMIT :count;

-- count_numbers(): how many queues the service counts, how many there are, and the highest number of one.
SELECT queues, (SELECT COUNT(*) FROM queue), (SELECT MAX(number) FROM queue) FROM service WHERE id = 1;

-- survey_bots(after: text, came: text, left: text, missed: text, count: int): bots with what they are said to be, and what their events say of the same, in pages.
SELECT b.id, b.events, b.first_seen_ms, b.terminated, b.missing,
       (SELECT MIN(e.id) FROM bot_event e WHERE e.bot_id = b.id),
       (SELECT e.at_ms FROM bot_event e WHERE e.bot_id = b.id ORDER BY e.id DESC LIMIT 1),
       (SELECT e.kind FROM bot_event e WHERE e.bot_id = b.id AND e.kind IN (:came, :left) ORDER BY e.id LIMIT 1),
       (SELECT e.kind FROM bot_event e WHERE e.bot_id = b.id AND e.kind IN (:came, :missed) ORDER BY e.id LIMIT 1)
  FROM bot b WHERE b.id > :after ORDER BY b.id LIMIT :count;

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
UNION ALL SELECT 'graph', g.id, g.parent_attempt FROM graph g WHERE g.parent_id IS NOT NULL AND g.loader IS NULL
   AND NOT EXISTS (SELECT 1 FROM attempt a WHERE a.task_id = g.parent_id AND a.number = g.parent_attempt)
 LIMIT :count;

-- survey_hollow(bot: text, kind: text, count: int): what somebody runs of one kind that has a graph inside, where that graph is missing.
SELECT t.id FROM task t WHERE t.bot_id = :bot AND t.kind = :kind
   AND NOT EXISTS (SELECT 1 FROM graph g WHERE g.parent_id = t.id AND g.parent_attempt = t.attempt AND g.loader IS NULL)
 LIMIT :count;

-- survey_unheard(ids: ints): those of some graphs that are at rest inside an attempt that goes on.
SELECT g.id FROM graph g JOIN task t ON t.id = g.parent_id AND t.attempt = g.parent_attempt
 WHERE g.id IN (:ids) AND g.active = 0 AND g.loader IS NULL AND t.bot_id IS NOT NULL;

-- each mend_tasks(id: int, graph_id: int, previous_state: text, state: text, reason: text, moved_ms: int, attempt: int, began_after: int, ended: text, round: int, reruns_used: int, retries_used: int, slice_index: int, waits_since_ms: int, not_before_ms: int, rules: text, kind: text, priority: int, created_ms: int, weight: int, join_rule: text, on_impossible: text, is_handler: int, is_constrained: int, awaited: int, met: int, broken: int, impossible: int, handlers_ran: int, handlers_open: int, loading: int, open_continuations: int, needs_admission: int, queue_id: int, bot_id: text, avoid_bot: text, fence: int, lease_until_ms: int, due_ms: int): write what was counted afresh about tasks, where they still are.
UPDATE task SET graph_id = :graph_id, previous_state = :previous_state, reason = :reason, moved_ms = :moved_ms, attempt = :attempt,
       began_after = :began_after, ended = :ended, round = :round, reruns_used = :reruns_used,
       retries_used = :retries_used, slice_index = :slice_index, waits_since_ms = :waits_since_ms,
       not_before_ms = :not_before_ms, rules = :rules, kind = :kind, priority = :priority, created_ms = :created_ms,
       weight = :weight, join_rule = :join_rule, on_impossible = :on_impossible, is_handler = :is_handler,
       is_constrained = :is_constrained, awaited = :awaited, met = :met, broken = :broken, impossible = :impossible,
       handlers_ran = :handlers_ran, handlers_open = :handlers_open, loading = :loading, open_continuations = :open_continuations,
       needs_admission = :needs_admission, queue_id = :queue_id, bot_id = :bot_id, avoid_bot = :avoid_bot, fence = :fence,
       lease_until_ms = :lease_until_ms, due_ms = :due_ms
 WHERE id = :id AND state = :state;

-- each mend_attempts(task_id: int, number: int, bot_id: text, fence: int, round: int, slice_index: int, claimed_ms: int, ended_ms: int, signal: text, reason: text): write what was counted afresh about attempts. How a process ended nobody else knows; one that is open has not.
UPDATE attempt SET bot_id = :bot_id, fence = :fence, round = :round, slice_index = :slice_index,
       claimed_ms = :claimed_ms, ended_ms = :ended_ms, signal = :signal, reason = :reason,
       exit_code = CASE WHEN :ended_ms IS NULL THEN NULL ELSE exit_code END
 WHERE task_id = :task_id AND number = :number;

-- each mend_graphs(id: int, state: text, active: int, behind: int, unhandled: int, events: int, events_published: int, extensions: int, created_ms: int, moved_ms: int, canceled_ms: int, loader: text): write what was counted afresh about graphs.
UPDATE graph SET state = :state, active = :active, behind = :behind, unhandled = :unhandled, events = :events,
       events_published = :events_published, extensions = :extensions, created_ms = :created_ms, moved_ms = :moved_ms, canceled_ms = :canceled_ms,
       loader = :loader
 WHERE id = :id;

-- each mend_definitions(id: int, graph_id: int, label: text): write to which graph definitions belong, and what they call themselves.
UPDATE task_definition SET graph_id = :graph_id, label = :label WHERE id = :id;

-- each mend_events(subject_id: int, graph_id: int): write to which graph events belong.
UPDATE event SET graph_id = :graph_id WHERE subject_id = :subject_id;

-- each put_edges(prerequisite_id: int, dependent_id: int, on_end: text, handled_round: int): there are these edges.
INSERT INTO edge (prerequisite_id, dependent_id, on_end, handled_round)
VALUES (:prerequisite_id, :dependent_id, :on_end, :handled_round)
ON CONFLICT (prerequisite_id, dependent_id, on_end) DO UPDATE SET handled_round = excluded.handled_round;

-- each take_edges(prerequisite_id: int, dependent_id: int, on_end: text): there are no such edges.
DELETE FROM edge WHERE prerequisite_id = :prerequisite_id AND dependent_id = :dependent_id AND on_end = :on_end;

-- each put_mutexes(task_id: int, key: text, party: text): tasks name these mutexes.
INSERT INTO task_mutex (task_id, key, party) VALUES (:task_id, :key, :party)
ON CONFLICT (task_id, key) DO UPDATE SET party = excluded.party;

-- each take_mutexes(task_id: int, key: text): tasks name no such mutexes.
DELETE FROM task_mutex WHERE task_id = :task_id AND key = :key;

-- each put_limits(task_id: int, name: text, amount: int): tasks have these demands.
INSERT INTO task_limit (task_id, name, amount) VALUES (:task_id, :name, :amount)
ON CONFLICT (task_id, name) DO UPDATE SET amount = excluded.amount;

-- each take_limits(task_id: int, name: text): tasks have no such demands.
DELETE FROM task_limit WHERE task_id = :task_id AND name = :name;

-- each mend_bots(id: text, events: int, first_seen_ms: int, terminated: int, missing: int): write what the events of bots say.
UPDATE bot SET events = :events, first_seen_ms = :first_seen_ms, terminated = :terminated, missing = :missing,
       version = version + 1
 WHERE id = :id;

-- each mend_queues(id: int, hash: int, root: text, pool: text): write what follows from the dimensions of queues.
UPDATE queue SET hash = :hash, root = :root, pool = :pool WHERE id = :id;

-- each unserve(bot_id: text, queue_id: int): bots do not serve these queues.
DELETE FROM bot_queue WHERE bot_id = :bot_id AND queue_id = :queue_id;
