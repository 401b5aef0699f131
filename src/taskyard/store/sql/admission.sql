-- each insert_dirty(task_id: int): mark tasks as dirty for the next admission pass; null stands for all bots and pools.
INSERT INTO admission_dirty (task_id) VALUES (:task_id);

-- select_dirty(after: int, count: int): what the admission pass has to look at, in pages.
SELECT id, task_id FROM admission_dirty WHERE id > :after ORDER BY id LIMIT :count;

-- delete_dirty(ids: ints): delete marks that an admission pass has taken up.
DELETE FROM admission_dirty WHERE id IN (:ids);

-- lock_admission_lock(): the row of the admission lock; no row while another transaction takes the lock.
SELECT epoch, holder, until_ms FROM admission_lock WHERE id = 1 FOR UPDATE SKIP LOCKED;

-- take_admission_lock(epoch: int, holder: text, until_ms: int): give the admission lock to a holder.
UPDATE admission_lock SET epoch = :epoch, holder = :holder, until_ms = :until_ms WHERE id = 1;

-- extend_admission_lock(epoch: int, until_ms: int): extend the admission lock, if its holder still has it.
UPDATE admission_lock SET until_ms = :until_ms WHERE id = 1 AND epoch = :epoch AND holder IS NOT NULL;

-- release_admission_lock(epoch: int): release the admission lock, if its holder still has it.
UPDATE admission_lock SET holder = NULL, until_ms = NULL WHERE id = 1 AND epoch = :epoch;

-- select_contenders(state: text, after: int, count: int): tasks of one state that need admission, in pages.
SELECT id, state, priority, created_ms, weight, queue_id, not_before_ms, moved_ms, is_constrained, waits_since_ms FROM task
 WHERE needs_admission = 1 AND state = :state AND id > :after ORDER BY id LIMIT :count;

-- select_contenders_by_id(ids: ints): those of these tasks that need admission.
SELECT id, state, priority, created_ms, weight, queue_id, not_before_ms, moved_ms, is_constrained, waits_since_ms FROM task
 WHERE needs_admission = 1 AND id IN (:ids);

-- select_mutexes(ids: ints): the mutexes of tasks.
SELECT task_id, key, party FROM task_mutex WHERE task_id IN (:ids) ORDER BY task_id, key;

-- select_limits(ids: ints): the limits that tasks use.
SELECT task_id, name, amount FROM task_limit WHERE task_id IN (:ids) ORDER BY task_id, name;

-- Only PostgreSQL has several writers. The number of the advisory lock spells "pool".
-- lock_pools_shared@sqlite(): nothing: SQLite has one writer.
SELECT 1;

-- lock_pools_shared@postgres(): keep other transactions from configuring pools until this one ends.
SELECT pg_advisory_xact_lock_shared(1886351212);

-- lock_pools_exclusive@sqlite(): nothing: SQLite has one writer.
SELECT 1;

-- lock_pools_exclusive@postgres(): wait for the transactions that rely on the configured pools, and keep others from relying on them.
SELECT pg_advisory_xact_lock(1886351212);

-- select_pools(): all pools that are configured.
SELECT name, capacity, from_bots, unit, adjustment, external FROM pool ORDER BY name;

-- upsert_pool(name: text, capacity: int, from_bots: int, unit: text, adjustment: float, external: int): configure a pool.
INSERT INTO pool (name, capacity, from_bots, unit, adjustment, external)
VALUES (:name, :capacity, :from_bots, :unit, :adjustment, :external)
ON CONFLICT (name) DO UPDATE
   SET capacity = excluded.capacity, from_bots = excluded.from_bots,
       unit = excluded.unit, adjustment = excluded.adjustment, external = excluded.external;

-- select_tasks_without_admission(pool: text, states: texts, apart: texts, count: int): tasks of a pool that have a weight and do not need admission yet, except for those that wait for some reasons.
SELECT t.id FROM task t JOIN queue q ON q.id = t.queue_id
 WHERE q.pool = :pool AND t.needs_admission = 0 AND t.weight > 0 AND t.state IN (:states) AND NOT t.reason IN (:apart)
 ORDER BY t.id LIMIT :count;

-- select_named_limits(): all named limits.
SELECT name, total FROM named_limit ORDER BY name;

-- upsert_named_limit(name: text, total: int): configure a named limit.
INSERT INTO named_limit (name, total) VALUES (:name, :total) ON CONFLICT (name) DO UPDATE SET total = excluded.total;

-- select_stake_after(): per mutex key, how long mutexes hold a task before it reserves the key.
SELECT key, stake_after_ms FROM mutex_policy ORDER BY key;

-- upsert_stake_after(key: text, stake_after_ms: int): configure after how long a task reserves a mutex key.
INSERT INTO mutex_policy (key, stake_after_ms) VALUES (:key, :stake_after_ms)
ON CONFLICT (key) DO UPDATE SET stake_after_ms = excluded.stake_after_ms;

-- Newer ids are smaller, so the oldest tasks come last by id.
-- select_mutexes_in_state(state: text, count: int): the mutexes of tasks in a state, with what holds each task, oldest tasks first.
SELECT m.key, m.party, t.id, t.graph_id, t.state, t.moved_ms, h.reason, h.name, h.mutex_since_ms
  FROM task t JOIN task_mutex m ON m.task_id = t.id LEFT JOIN hold h ON h.task_id = t.id
 WHERE t.needs_admission = 1 AND t.state = :state AND t.is_constrained <> 0 ORDER BY t.id DESC LIMIT :count;

-- select_holds(ids: ints): why the last admission pass held these tasks.
SELECT task_id, reason, name, blocker_id, since_ms, mutex_since_ms FROM hold WHERE task_id IN (:ids);

-- each upsert_holds(task_id: int, reason: text, name: text, blocker_id: int, since_ms: int, mutex_since_ms: int): store why tasks are held; the time since which a mutex holds a task is kept once it is known.
INSERT INTO hold (task_id, reason, name, blocker_id, since_ms, mutex_since_ms)
VALUES (:task_id, :reason, :name, :blocker_id, :since_ms, :mutex_since_ms)
ON CONFLICT (task_id) DO UPDATE SET reason = excluded.reason, name = excluded.name, blocker_id = excluded.blocker_id,
       since_ms = excluded.since_ms, mutex_since_ms = COALESCE(hold.mutex_since_ms, excluded.mutex_since_ms);

-- each delete_holds(task_id: int): delete why these tasks are held.
DELETE FROM hold WHERE task_id = :task_id;
