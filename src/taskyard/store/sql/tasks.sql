-- lock_tasks(ids: ints): the tasks with these ids, locked.
SELECT id, graph_id, state, reason, moved_ms, attempt, began_after, ended, round, reruns_used, retries_used, slice_index,
       waits_since_ms, not_before_ms, rules, kind, priority, created_ms, weight, join_rule, on_impossible, is_handler,
       is_constrained, awaited, met, broken, impossible, handlers_ran, handlers_open, open_continuations, needs_admission, queue_id, bot_id,
       avoid_bot, fence, lease_until_ms, due_ms, loading
  FROM task WHERE id IN (:ids) ORDER BY id FOR UPDATE;

-- each move_tasks(id: int, stored: text, source: text, state: text, reason: text, moved_ms: int, attempt: int, began_after: int, ended: text, round: int, reruns_used: int, retries_used: int, slice_index: int, waits_since_ms: int, not_before_ms: int, awaited: int, met: int, broken: int, impossible: int, handlers_ran: int, handlers_open: int, open_continuations: int, needs_admission: int, queue_id: int, bot_id: text, avoid_bot: text, fence: int, lease_until_ms: int, due_ms: int, gone_wrong: text): move tasks along an arrow, if they are still at its source.
UPDATE task SET previous_state = :source, state = :state, reason = :reason, moved_ms = :moved_ms, attempt = :attempt,
       began_after = :began_after, ended = :ended, round = :round, reruns_used = :reruns_used,
       retries_used = :retries_used, slice_index = :slice_index, waits_since_ms = :waits_since_ms,
       not_before_ms = :not_before_ms, awaited = :awaited, met = :met, broken = :broken, impossible = :impossible,
       handlers_ran = :handlers_ran, handlers_open = :handlers_open, open_continuations = :open_continuations, needs_admission = :needs_admission,
       queue_id = :queue_id, bot_id = :bot_id, avoid_bot = :avoid_bot, fence = :fence, lease_until_ms = :lease_until_ms,
       due_ms = :due_ms, gone_wrong = :gone_wrong
 WHERE id = :id AND state = :stored;

-- A move that changes fewer columns has its own statement, because every index with a column in SET is written.
-- each move_ready_tasks(id: int, stored: text, source: text, state: text, reason: text, moved_ms: int, waits_since_ms: int, not_before_ms: int, awaited: int, met: int, broken: int, impossible: int, due_ms: int): move tasks that are released or admitted.
UPDATE task SET previous_state = :source, state = :state, reason = :reason, moved_ms = :moved_ms,
       waits_since_ms = :waits_since_ms, not_before_ms = :not_before_ms, awaited = :awaited, met = :met,
       broken = :broken, impossible = :impossible, due_ms = :due_ms
 WHERE id = :id AND state = :stored;

-- each move_started_tasks(id: int, stored: text, source: text, state: text, reason: text, moved_ms: int, attempt: int, bot_id: text, fence: int, lease_until_ms: int, due_ms: int): move tasks whose attempt begins.
UPDATE task SET previous_state = :source, state = :state, reason = :reason, moved_ms = :moved_ms, attempt = :attempt, ended = NULL,
       waits_since_ms = NULL, bot_id = :bot_id, avoid_bot = NULL, fence = :fence, lease_until_ms = :lease_until_ms,
       due_ms = :due_ms
 WHERE id = :id AND state = :stored;

-- each move_sent_tasks(id: int, stored: text, source: text, state: text, reason: text, moved_ms: int, attempt: int, bot_id: text, fence: int, lease_until_ms: int, due_ms: int, awaited: int, met: int, broken: int, impossible: int): move tasks that are released, admitted and started at once.
UPDATE task SET previous_state = :source, state = :state, reason = :reason, moved_ms = :moved_ms, attempt = :attempt, ended = NULL,
       waits_since_ms = NULL, not_before_ms = NULL, bot_id = :bot_id, avoid_bot = NULL, fence = :fence,
       lease_until_ms = :lease_until_ms, due_ms = :due_ms, awaited = :awaited, met = :met, broken = :broken,
       impossible = :impossible
 WHERE id = :id AND state = :stored;

-- each move_ended_tasks(id: int, stored: text, source: text, state: text, reason: text, moved_ms: int, ended: text): move tasks whose attempt succeeded.
UPDATE task SET previous_state = :source, state = :state, reason = :reason, moved_ms = :moved_ms, ended = :ended, bot_id = NULL,
       lease_until_ms = NULL, due_ms = NULL
 WHERE id = :id AND state = :stored;

-- each update_edge_counts(id: int, awaited: int, met: int, broken: int, impossible: int): write the edge counts of tasks.
UPDATE task SET awaited = :awaited, met = :met, broken = :broken, impossible = :impossible WHERE id = :id;

-- each update_unmoved_tasks(id: int, state: text, reason: text, awaited: int, met: int, broken: int, impossible: int, handlers_ran: int, handlers_open: int, open_continuations: int, needs_admission: int, waits_since_ms: int, fence: int, lease_until_ms: int, due_ms: int): write tasks that changed without moving.
UPDATE task SET reason = :reason, awaited = :awaited, met = :met, broken = :broken, impossible = :impossible,
       handlers_ran = :handlers_ran, handlers_open = :handlers_open, open_continuations = :open_continuations, needs_admission = :needs_admission,
       waits_since_ms = :waits_since_ms, fence = :fence, lease_until_ms = :lease_until_ms, due_ms = :due_ms
 WHERE id = :id AND state = :state;

-- each insert_tasks(id: int, graph_id: int, state: text, reason: text, moved_ms: int, not_before_ms: int, rules: text, kind: text, priority: int, created_ms: int, weight: int, join_rule: text, on_impossible: text, is_handler: int, is_constrained: int, awaited: int, met: int, broken: int, impossible: int, queue_id: int, due_ms: int, loading: int, caches: text): insert new tasks.
INSERT INTO task (id, graph_id, state, reason, moved_ms, not_before_ms, rules, kind, priority, created_ms, weight,
       join_rule, on_impossible, is_handler, is_constrained, awaited, met, broken, impossible, queue_id, due_ms, loading, caches)
VALUES (:id, :graph_id, :state, :reason, :moved_ms, :not_before_ms, :rules, :kind, :priority, :created_ms, :weight,
       :join_rule, :on_impossible, :is_handler, :is_constrained, :awaited, :met, :broken, :impossible, :queue_id, :due_ms, :loading, :caches);

-- each insert_definitions(id: int, graph_id: int, label: text, definition: text, digest: text, submitter: text, user_name: text): insert the definitions of tasks.
INSERT INTO task_definition (id, graph_id, label, definition, digest, submitter, user_name)
VALUES (:id, :graph_id, :label, :definition, :digest, :submitter, :user_name);

-- each insert_mutexes(task_id: int, key: text, party: text): insert the mutexes of tasks.
INSERT INTO task_mutex (task_id, key, party) VALUES (:task_id, :key, :party);

-- each insert_limits(task_id: int, name: text, amount: int): insert the limits that tasks use.
INSERT INTO task_limit (task_id, name, amount) VALUES (:task_id, :name, :amount);

-- select_definitions(ids: ints): the definitions of tasks, and who submitted them.
SELECT id, label, definition, submitter FROM task_definition WHERE id IN (:ids);

-- select_graph_tasks_definitions(graph_id: int): the definitions of all tasks of a graph.
SELECT id, label, definition, digest FROM task_definition WHERE graph_id = :graph_id;

-- select_tasks_by_label(graph_id: int, labels: texts): the ids of the tasks of a graph with these labels.
SELECT label, id FROM task_definition WHERE graph_id = :graph_id AND label IN (:labels);

-- select_task_page(graph_id: int, states: texts, after: int, count: int): a page of the tasks of a graph in some states.
SELECT id FROM task WHERE graph_id = :graph_id AND id > :after AND state IN (:states) ORDER BY id LIMIT :count;

-- select_task_states_page(graph_id: int, after: int, count: int): a page of the tasks of a graph, with the state of each.
SELECT id, state FROM task WHERE graph_id = :graph_id AND id > :after ORDER BY id LIMIT :count;

-- select_roots_page(graph_id: int, state: text, after: int, count: int): a page of the tasks of a graph, and whether each is in a state and waits for no other task.
SELECT id, CASE WHEN state = :state AND loading = 0 AND awaited + broken + impossible = 0 THEN 1 ELSE 0 END
  FROM task WHERE graph_id = :graph_id AND id > :after ORDER BY id LIMIT :count;

-- select_loading_page(graph_id: int, after: int, count: int): a page of the tasks of a graph that are still being loaded.
SELECT id FROM task WHERE graph_id = :graph_id AND id > :after AND loading = 1 ORDER BY id LIMIT :count;

-- each mark_tasks_loaded(id: int): mark tasks as loaded.
UPDATE task SET loading = 0 WHERE id = :id;

-- select_due_tasks(now: int, count: int): the tasks whose timer has run out, longest due first.
SELECT id, due_ms FROM task WHERE due_ms IS NOT NULL AND due_ms <= :now ORDER BY due_ms LIMIT :count;

-- select_holders(ids: ints): the bots that hold some of these tasks.
SELECT DISTINCT bot_id FROM task WHERE id IN (:ids) AND bot_id IS NOT NULL AND queue_id <> 0;

-- select_leased_tasks(bots: texts, count: int): the tasks that these bots hold.
SELECT id, bot_id FROM task WHERE bot_id IN (:bots) LIMIT :count;

-- select_leased_tasks_with_session(bots: texts, count: int): the tasks that these bots hold, with the session that claimed each.
SELECT t.id, t.bot_id, a.session FROM task t JOIN attempt a ON a.task_id = t.id AND a.number = t.attempt
 WHERE t.bot_id IN (:bots) LIMIT :count;

-- each end_leases(bot_id: text, sessions: text, kept: text, slash: text, until_ms: int, due_ms: int): end the leases that bots took in sessions with a name prefix, except for one session; a slash follows each name before it is compared.
UPDATE task SET lease_until_ms = :until_ms, due_ms = :due_ms WHERE bot_id = :bot_id AND lease_until_ms > :until_ms
   AND EXISTS (SELECT 1 FROM attempt a WHERE a.task_id = task.id AND a.number = task.attempt
                  AND SUBSTR(a.session || :slash, 1, LENGTH(:sessions)) = :sessions AND a.session <> :kept);

-- The condition of the partial index is written out, as in `claim_candidates`.
-- claim_kinds(queue_id: int, kinds: texts, count: int): the first waiting tasks of some kinds in a queue, locked; skips tasks that another transaction has locked.
SELECT w.id FROM task w JOIN graph g ON g.id = w.graph_id
 WHERE w.queue_id = :queue_id AND w.state = 'waiting' AND w.kind IN (:kinds) AND g.canceled_ms IS NULL
 ORDER BY w.priority, w.created_ms, w.id LIMIT :count FOR UPDATE OF w SKIP LOCKED;

-- The condition of the partial index is written out: with a parameter no database would use the index.
-- first_queues@sqlite(queues: ints, count: int): the queues whose first waiting tasks come first, each with that task; it is not locked, and its graph may be canceled.
SELECT t.queue_id, t.priority, t.created_ms, t.id FROM json_each(:queues) q CROSS JOIN task t
 WHERE t.id = (SELECT w.id FROM task w WHERE w.queue_id = q.value AND w.state = 'waiting'
                ORDER BY w.priority, w.created_ms, w.id LIMIT 1)
 ORDER BY t.priority, t.created_ms, t.id LIMIT :count;

-- first_queues@postgres(queues: ints, count: int): the queues whose first waiting tasks come first, each with that task; it is not locked, and its graph may be canceled.
SELECT h.queue_id, h.priority, h.created_ms, h.id
  FROM unnest(:queues) q CROSS JOIN LATERAL
       (SELECT w.queue_id, w.priority, w.created_ms, w.id FROM task w WHERE w.queue_id = q AND w.state = 'waiting'
         ORDER BY w.priority, w.created_ms, w.id LIMIT 1) h
 ORDER BY h.priority, h.created_ms, h.id LIMIT :count;

-- claim_candidates@sqlite(queues: ints, count: int): the first waiting tasks of each queue.
SELECT t.id, t.queue_id, t.priority, t.created_ms, t.avoid_bot
  FROM json_each(:queues) q CROSS JOIN task t
 WHERE t.id IN (SELECT w.id FROM task w JOIN graph g ON g.id = w.graph_id
                 WHERE w.queue_id = q.value AND w.state = 'waiting' AND g.canceled_ms IS NULL
                 ORDER BY w.priority, w.created_ms, w.id LIMIT :count);

-- claim_candidates@postgres(queues: ints, count: int): the first waiting tasks of each queue, locked; skips tasks that another transaction has locked.
SELECT t.id, t.queue_id, t.priority, t.created_ms, t.avoid_bot
  FROM unnest(:queues) q CROSS JOIN LATERAL
       (SELECT w.* FROM task w JOIN graph g ON g.id = w.graph_id
         WHERE w.queue_id = q AND w.state = 'waiting' AND g.canceled_ms IS NULL
         ORDER BY w.priority, w.created_ms, w.id LIMIT :count FOR UPDATE OF w SKIP LOCKED) t;

-- claim_window@sqlite(queues: ints, count: int): as claim_candidates, with the time since which each task waits, and its caches.
SELECT t.id, t.queue_id, t.priority, t.created_ms, t.avoid_bot, t.waits_since_ms, t.caches
  FROM json_each(:queues) q CROSS JOIN task t
 WHERE t.id IN (SELECT w.id FROM task w JOIN graph g ON g.id = w.graph_id
                 WHERE w.queue_id = q.value AND w.state = 'waiting' AND g.canceled_ms IS NULL
                 ORDER BY w.priority, w.created_ms, w.id LIMIT :count);

-- claim_window@postgres(queues: ints, count: int): as claim_candidates, with the time since which each task waits, and its caches.
SELECT t.id, t.queue_id, t.priority, t.created_ms, t.avoid_bot, t.waits_since_ms, t.caches
  FROM unnest(:queues) q CROSS JOIN LATERAL
       (SELECT w.* FROM task w JOIN graph g ON g.id = w.graph_id
         WHERE w.queue_id = q AND w.state = 'waiting' AND g.canceled_ms IS NULL
         ORDER BY w.priority, w.created_ms, w.id LIMIT :count FOR UPDATE OF w SKIP LOCKED) t;

-- As above, the condition of the partial index is written out.
-- select_any_with_caches@sqlite(queues: ints, count: int): a queue with a task that uses caches among its first waiting tasks.
SELECT q.value FROM json_each(:queues) q CROSS JOIN task t
 WHERE t.id = (SELECT w.id FROM task w WHERE w.queue_id = q.value AND w.state = 'waiting' AND w.caches IS NOT NULL
                ORDER BY w.priority, w.created_ms, w.id LIMIT 1)
   AND NOT EXISTS (SELECT 1 FROM (SELECT w.priority, w.created_ms, w.id FROM task w
                                   WHERE w.queue_id = q.value AND w.state = 'waiting'
                                   ORDER BY w.priority, w.created_ms, w.id LIMIT 1 OFFSET :count) o
                    WHERE (o.priority, o.created_ms, o.id) <= (t.priority, t.created_ms, t.id)) LIMIT 1;

-- select_any_with_caches@postgres(queues: ints, count: int): a queue with a task that uses caches among its first waiting tasks.
SELECT q FROM unnest(:queues) q CROSS JOIN LATERAL
       (SELECT w.priority, w.created_ms, w.id FROM task w
         WHERE w.queue_id = q AND w.state = 'waiting' AND w.caches IS NOT NULL
         ORDER BY w.priority, w.created_ms, w.id LIMIT 1) t
 WHERE NOT EXISTS (SELECT 1 FROM (SELECT w.priority, w.created_ms, w.id FROM task w
                                   WHERE w.queue_id = q AND w.state = 'waiting'
                                   ORDER BY w.priority, w.created_ms, w.id LIMIT 1 OFFSET :count) o
                    WHERE (o.priority, o.created_ms, o.id) <= (t.priority, t.created_ms, t.id)) LIMIT 1;

-- select_task_caches(ids: ints): the keys of the caches that tasks use.
SELECT id, caches FROM task WHERE id IN (:ids) AND caches IS NOT NULL;
