-- look_tasks(ids: ints): the tasks with these ids, kept from others until the transaction ends.
SELECT id, graph_id, state, reason, moved_ms, attempt, began_after, ended, round, reruns_used, retries_used, slice_index,
       waits_since_ms, not_before_ms, rules, kind, priority, created_ms, weight, join_rule, on_impossible, is_handler,
       is_constrained, awaited, met, broken, impossible, handlers_ran, handlers_open, open_continuations, needs_admission, queue_id, bot_id,
       avoid_bot, fence, lease_until_ms, due_ms, loading
  FROM task WHERE id IN (:ids) ORDER BY id FOR UPDATE;

-- each carry_tasks(id: int, stored: text, source: text, state: text, reason: text, moved_ms: int, attempt: int, began_after: int, ended: text, round: int, reruns_used: int, retries_used: int, slice_index: int, waits_since_ms: int, not_before_ms: int, awaited: int, met: int, broken: int, impossible: int, handlers_ran: int, handlers_open: int, open_continuations: int, needs_admission: int, queue_id: int, bot_id: text, avoid_bot: text, fence: int, lease_until_ms: int, due_ms: int): take tasks along an arrow, if they are still at its source.
UPDATE task SET previous_state = :source, state = :state, reason = :reason, moved_ms = :moved_ms, attempt = :attempt,
       began_after = :began_after, ended = :ended, round = :round, reruns_used = :reruns_used,
       retries_used = :retries_used, slice_index = :slice_index, waits_since_ms = :waits_since_ms,
       not_before_ms = :not_before_ms, awaited = :awaited, met = :met, broken = :broken, impossible = :impossible,
       handlers_ran = :handlers_ran, handlers_open = :handlers_open, open_continuations = :open_continuations, needs_admission = :needs_admission,
       queue_id = :queue_id, bot_id = :bot_id, avoid_bot = :avoid_bot, fence = :fence, lease_until_ms = :lease_until_ms,
       due_ms = :due_ms
 WHERE id = :id AND state = :stored;

-- A move that touches fewer columns has a statement of its own: every index with a column in SET is written.
-- each carry_ready(id: int, stored: text, source: text, state: text, reason: text, moved_ms: int, waits_since_ms: int, not_before_ms: int, awaited: int, met: int, broken: int, impossible: int, due_ms: int): take tasks on that are released or admitted.
UPDATE task SET previous_state = :source, state = :state, reason = :reason, moved_ms = :moved_ms,
       waits_since_ms = :waits_since_ms, not_before_ms = :not_before_ms, awaited = :awaited, met = :met,
       broken = :broken, impossible = :impossible, due_ms = :due_ms
 WHERE id = :id AND state = :stored;

-- each carry_started(id: int, stored: text, source: text, state: text, reason: text, moved_ms: int, attempt: int, bot_id: text, fence: int, lease_until_ms: int, due_ms: int): take tasks on whose attempt begins.
UPDATE task SET previous_state = :source, state = :state, reason = :reason, moved_ms = :moved_ms, attempt = :attempt, ended = NULL,
       waits_since_ms = NULL, bot_id = :bot_id, avoid_bot = NULL, fence = :fence, lease_until_ms = :lease_until_ms,
       due_ms = :due_ms
 WHERE id = :id AND state = :stored;

-- each carry_sent(id: int, stored: text, source: text, state: text, reason: text, moved_ms: int, attempt: int, bot_id: text, fence: int, lease_until_ms: int, due_ms: int, awaited: int, met: int, broken: int, impossible: int): take tasks on that are released, admitted and begun at once.
UPDATE task SET previous_state = :source, state = :state, reason = :reason, moved_ms = :moved_ms, attempt = :attempt, ended = NULL,
       waits_since_ms = NULL, not_before_ms = NULL, bot_id = :bot_id, avoid_bot = NULL, fence = :fence,
       lease_until_ms = :lease_until_ms, due_ms = :due_ms, awaited = :awaited, met = :met, broken = :broken,
       impossible = :impossible
 WHERE id = :id AND state = :stored;

-- each carry_ended(id: int, stored: text, source: text, state: text, reason: text, moved_ms: int, ended: text): take tasks on whose attempt ended well.
UPDATE task SET previous_state = :source, state = :state, reason = :reason, moved_ms = :moved_ms, ended = :ended, bot_id = NULL,
       lease_until_ms = NULL, due_ms = NULL
 WHERE id = :id AND state = :stored;

-- each recount_edges(id: int, awaited: int, met: int, broken: int, impossible: int): write what the edges of tasks know.
UPDATE task SET awaited = :awaited, met = :met, broken = :broken, impossible = :impossible WHERE id = :id;

-- each keep_tasks(id: int, state: text, reason: text, awaited: int, met: int, broken: int, impossible: int, handlers_ran: int, handlers_open: int, open_continuations: int, needs_admission: int, waits_since_ms: int, lease_until_ms: int, due_ms: int): write what changed about tasks that did not move.
UPDATE task SET reason = :reason, awaited = :awaited, met = :met, broken = :broken, impossible = :impossible,
       handlers_ran = :handlers_ran, handlers_open = :handlers_open, open_continuations = :open_continuations, needs_admission = :needs_admission,
       waits_since_ms = :waits_since_ms, lease_until_ms = :lease_until_ms, due_ms = :due_ms
 WHERE id = :id AND state = :state;

-- each add_tasks(id: int, graph_id: int, state: text, reason: text, moved_ms: int, not_before_ms: int, rules: text, kind: text, priority: int, created_ms: int, weight: int, join_rule: text, on_impossible: text, is_handler: int, is_constrained: int, awaited: int, met: int, broken: int, impossible: int, queue_id: int, due_ms: int, loading: int): insert tasks as they are born.
INSERT INTO task (id, graph_id, state, reason, moved_ms, not_before_ms, rules, kind, priority, created_ms, weight,
       join_rule, on_impossible, is_handler, is_constrained, awaited, met, broken, impossible, queue_id, due_ms, loading)
VALUES (:id, :graph_id, :state, :reason, :moved_ms, :not_before_ms, :rules, :kind, :priority, :created_ms, :weight,
       :join_rule, :on_impossible, :is_handler, :is_constrained, :awaited, :met, :broken, :impossible, :queue_id, :due_ms, :loading);

-- each add_definitions(id: int, graph_id: int, label: text, definition: text, digest: text, submitter: text): insert what was asked for.
INSERT INTO task_definition (id, graph_id, label, definition, digest, submitter)
VALUES (:id, :graph_id, :label, :definition, :digest, :submitter);

-- each add_mutexes(task_id: int, key: text, party: text): insert the mutexes of tasks.
INSERT INTO task_mutex (task_id, key, party) VALUES (:task_id, :key, :party);

-- each add_limits(task_id: int, name: text, amount: int): insert the demands of tasks.
INSERT INTO task_limit (task_id, name, amount) VALUES (:task_id, :name, :amount);

-- definitions(ids: ints): what was asked for, and by whom.
SELECT id, label, definition, submitter FROM task_definition WHERE id IN (:ids);

-- definitions_of_graph(graph_id: int): every definition of a graph, by label.
SELECT id, label, definition, digest FROM task_definition WHERE graph_id = :graph_id;

-- tasks_with_labels(graph_id: int, labels: texts): the ids of some labels of a graph.
SELECT label, id FROM task_definition WHERE graph_id = :graph_id AND label IN (:labels);

-- tasks_in(graph_id: int, states: texts, after: int, count: int): some tasks of a graph, in pages.
SELECT id FROM task WHERE graph_id = :graph_id AND id > :after AND state IN (:states) ORDER BY id LIMIT :count;

-- tasks_window(graph_id: int, after: int, count: int): the next tasks of a graph, wherever they are.
SELECT id, state FROM task WHERE graph_id = :graph_id AND id > :after ORDER BY id LIMIT :count;

-- roots_in(graph_id: int, state: text, after: int, count: int): tasks of a graph and whether they wait for nobody, in pages.
SELECT id, CASE WHEN state = :state AND loading = 0 AND awaited + broken + impossible = 0 THEN 1 ELSE 0 END
  FROM task WHERE graph_id = :graph_id AND id > :after ORDER BY id LIMIT :count;

-- hidden_in(graph_id: int, after: int, count: int): tasks of a graph that are still being loaded, in pages.
SELECT id FROM task WHERE graph_id = :graph_id AND id > :after AND loading = 1 ORDER BY id LIMIT :count;

-- each unhide(id: int): tasks are loaded.
UPDATE task SET loading = 0 WHERE id = :id;

-- due(now: int, count: int): the tasks about which the clock has something to say, and since when.
SELECT id, due_ms FROM task WHERE due_ms IS NOT NULL AND due_ms <= :now ORDER BY due_ms LIMIT :count;

-- leased_by(bots: texts, count: int): what these bots have.
SELECT id, bot_id FROM task WHERE bot_id IN (:bots) LIMIT :count;

-- leased_in(bots: texts, count: int): what these bots have, and in which session each of it was taken.
SELECT t.id, t.bot_id, a.session FROM task t JOIN attempt a ON a.task_id = t.id AND a.number = t.attempt
 WHERE t.bot_id IN (:bots) LIMIT :count;

-- each let_go(bot_id: text, sessions: text, slash: text, until_ms: int, due_ms: int): end the leases of all that bots took in sessions whose names, each with a slash behind it, begin so.
UPDATE task SET lease_until_ms = :until_ms, due_ms = :due_ms WHERE bot_id = :bot_id AND lease_until_ms > :until_ms
   AND EXISTS (SELECT 1 FROM attempt a WHERE a.task_id = task.id AND a.number = task.attempt
                  AND SUBSTR(a.session || :slash, 1, LENGTH(:sessions)) = :sessions);

-- The condition of the index stands in the text: with a parameter no database would use it.
-- candidates@sqlite(queues: ints, count: int): for each queue, who is first in it.
SELECT t.id, t.queue_id, t.priority, t.created_ms, t.avoid_bot
  FROM json_each(:queues) q CROSS JOIN task t
 WHERE t.id IN (SELECT w.id FROM task w JOIN graph g ON g.id = w.graph_id
                 WHERE w.queue_id = q.value AND w.state = 'waiting' AND g.canceled_ms IS NULL
                 ORDER BY w.priority, w.created_ms, w.id LIMIT :count);

-- candidates@postgres(queues: ints, count: int): for each queue, who is first in it and in nobody else's hands.
SELECT t.id, t.queue_id, t.priority, t.created_ms, t.avoid_bot
  FROM unnest(:queues) q CROSS JOIN LATERAL
       (SELECT w.* FROM task w JOIN graph g ON g.id = w.graph_id
         WHERE w.queue_id = q AND w.state = 'waiting' AND g.canceled_ms IS NULL
         ORDER BY w.priority, w.created_ms, w.id LIMIT :count FOR UPDATE OF w SKIP LOCKED) t;
