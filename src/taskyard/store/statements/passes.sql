-- each add_stirs(task_id: int): a pass has to look at these tasks again; null means at all bots and pools.
INSERT INTO admission_dirty (task_id) VALUES (:task_id);

-- stirs(after: int, count: int): what a pass has to look at, in pages.
SELECT id, task_id FROM admission_dirty WHERE id > :after ORDER BY id LIMIT :count;

-- drop_stirs(ids: ints): a pass has taken these up.
DELETE FROM admission_dirty WHERE id IN (:ids);

-- lock_pass(): the lock of the pass, if nobody is just taking it.
SELECT epoch, holder, until_ms FROM admission_lock WHERE id = 1 FOR UPDATE SKIP LOCKED;

-- take_pass(epoch: int, holder: text, until_ms: int): somebody has the lock from now on.
UPDATE admission_lock SET epoch = :epoch, holder = :holder, until_ms = :until_ms WHERE id = 1;

-- hold_pass(epoch: int, until_ms: int): the holder goes on, if it still is the holder.
UPDATE admission_lock SET until_ms = :until_ms WHERE id = 1 AND epoch = :epoch AND holder IS NOT NULL;

-- leave_pass(epoch: int): the holder is done, if it still is the holder.
UPDATE admission_lock SET holder = NULL, until_ms = NULL WHERE id = 1 AND epoch = :epoch;

-- contenders(state: text, after: int, count: int): tasks of one state that take part in admission, in pages.
SELECT id, state, priority, created_ms, weight, queue_id, not_before_ms, moved_ms, is_constrained, waits_since_ms FROM task
 WHERE needs_admission = 1 AND state = :state AND id > :after ORDER BY id LIMIT :count;

-- contenders_among(ids: ints): those of some tasks that take part in admission.
SELECT id, state, priority, created_ms, weight, queue_id, not_before_ms, moved_ms, is_constrained, waits_since_ms FROM task
 WHERE needs_admission = 1 AND id IN (:ids);

-- mutexes_of(ids: ints): the mutexes that tasks name.
SELECT task_id, key, party FROM task_mutex WHERE task_id IN (:ids) ORDER BY task_id, key;

-- limits_of(ids: ints): the demands of tasks.
SELECT task_id, name, amount FROM task_limit WHERE task_id IN (:ids) ORDER BY task_id, name;

-- Only PostgreSQL has several writers; the number of the lock spells "pool".
-- rely_on_pools@sqlite(): nobody else writes anyway.
SELECT 1;

-- rely_on_pools@postgres(): nobody describes a pool before this transaction ends.
SELECT pg_advisory_xact_lock_shared(1886351212);

-- change_pools@sqlite(): nobody else writes anyway.
SELECT 1;

-- change_pools@postgres(): nobody who relies on pools as they were is left, and nobody does until this transaction ends.
SELECT pg_advisory_xact_lock(1886351212);

-- pools(): every pool that is described.
SELECT name, capacity, from_bots FROM pool ORDER BY name;

-- set_pool(name: text, capacity: int, from_bots: int): describe a pool.
INSERT INTO pool (name, capacity, from_bots) VALUES (:name, :capacity, :from_bots)
ON CONFLICT (name) DO UPDATE SET capacity = excluded.capacity, from_bots = excluded.from_bots;

-- uncontending(pool: text, states: texts, count: int): tasks of a pool that no pass looks at yet.
SELECT t.id FROM task t JOIN queue q ON q.id = t.queue_id
 WHERE q.pool = :pool AND t.needs_admission = 0 AND t.weight > 0 AND t.state IN (:states) ORDER BY t.id LIMIT :count;

-- named_limits(): every named limit.
SELECT name, total FROM named_limit ORDER BY name;

-- set_limit(name: text, total: int): describe a named limit.
INSERT INTO named_limit (name, total) VALUES (:name, :total) ON CONFLICT (name) DO UPDATE SET total = excluded.total;

-- stake_after(): per mutex key, how long mutexes hold a task before it stakes the key.
SELECT key, stake_after_ms FROM mutex_policy ORDER BY key;

-- set_stake_after(key: text, stake_after_ms: int): say so of one mutex key.
INSERT INTO mutex_policy (key, stake_after_ms) VALUES (:key, :stake_after_ms)
ON CONFLICT (key) DO UPDATE SET stake_after_ms = excluded.stake_after_ms;

-- The newest sorts first, so the oldest are the last.
-- mutex_rows(state: text, count: int): the mutexes of tasks in a state, with what holds each task, the oldest tasks first.
SELECT m.key, m.party, t.id, t.graph_id, t.state, t.moved_ms, h.reason, h.name, h.mutex_since_ms
  FROM task t JOIN task_mutex m ON m.task_id = t.id LEFT JOIN hold h ON h.task_id = t.id
 WHERE t.needs_admission = 1 AND t.state = :state AND t.is_constrained = 1 ORDER BY t.id DESC LIMIT :count;

-- holds_of(ids: ints): what the last pass said of tasks that it held.
SELECT task_id, reason, name, blocker_id, since_ms, mutex_since_ms FROM hold WHERE task_id IN (:ids);

-- each set_holds(task_id: int, reason: text, name: text, blocker_id: int, since_ms: int, mutex_since_ms: int): note why tasks are held; since when by a mutex stays once it is known.
INSERT INTO hold (task_id, reason, name, blocker_id, since_ms, mutex_since_ms)
VALUES (:task_id, :reason, :name, :blocker_id, :since_ms, :mutex_since_ms)
ON CONFLICT (task_id) DO UPDATE SET reason = excluded.reason, name = excluded.name, blocker_id = excluded.blocker_id,
       since_ms = excluded.since_ms, mutex_since_ms = COALESCE(hold.mutex_since_ms, excluded.mutex_since_ms);

-- each drop_holds(task_id: int): tasks are held no more.
DELETE FROM hold WHERE task_id = :task_id;
