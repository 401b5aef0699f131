-- insert_rerun(graph_id: int, source_id: int, labels: text, to_run: int, reused: int): insert which graph a graph runs again.
INSERT INTO graph_rerun (graph_id, source_id, labels, to_run, reused)
VALUES (:graph_id, :source_id, :labels, :to_run, :reused) ON CONFLICT DO NOTHING;

-- select_rerun(graph_id: int): which graph a graph runs again, from which tasks, and how many tasks run and how many are reused.
SELECT source_id, labels, to_run, reused FROM graph_rerun WHERE graph_id = :graph_id;

-- delete_rerun(graph_id: int): delete which graph a graph runs again.
DELETE FROM graph_rerun WHERE graph_id = :graph_id;

-- each insert_reuses(task_id: int, source_id: int, source_graph_id: int, attempt: int): insert which attempts tasks reuse.
INSERT INTO task_reuse (task_id, source_id, source_graph_id, attempt)
VALUES (:task_id, :source_id, :source_graph_id, :attempt);

-- each copy_results(task_id: int, source_id: int, attempt: int): copy the results of reused attempts, as results of attempt 0.
INSERT INTO result (task_id, attempt, body, digest)
VALUES (:task_id, 0, (SELECT o.body FROM result o WHERE o.task_id = :source_id AND o.attempt = :attempt),
        (SELECT o.digest FROM result o WHERE o.task_id = :source_id AND o.attempt = :attempt));

-- copy_reused_results(ids: ints): copy the results of the attempts that these tasks reuse, as those of attempt 0.
INSERT INTO result (task_id, attempt, body, digest)
SELECT u.task_id, 0, o.body, o.digest FROM task_reuse u
  JOIN result o ON o.task_id = u.source_id AND o.attempt = u.attempt WHERE u.task_id IN (:ids);

-- select_reuses(ids: ints): which attempts these tasks reuse, and how long those took.
SELECT u.task_id, u.source_id, u.source_graph_id, u.attempt, a.ended_ms - a.claimed_ms
  FROM task_reuse u LEFT JOIN attempt a ON a.task_id = u.source_id AND a.number = u.attempt WHERE u.task_id IN (:ids);

-- select_originals(ids: ints): for tasks that reuse an attempt, the task that really ran.
SELECT task_id, source_id FROM task_reuse WHERE task_id IN (:ids);

-- delete_reuses(ids: ints): delete which attempts these tasks reuse.
DELETE FROM task_reuse WHERE task_id IN (:ids);

-- delete_copied_results(ids: ints): delete the results that these tasks copied.
DELETE FROM result WHERE task_id IN (:ids) AND attempt = 0;

-- select_finished_tasks(graph_id: int, after: int, count: int): a page of the tasks of a graph, with the size of the last result and the reused attempt of each.
SELECT t.id, t.state, t.attempt, LENGTH(r.body), u.source_id, u.source_graph_id, u.attempt
  FROM task t LEFT JOIN result r ON r.task_id = t.id AND r.attempt = t.attempt LEFT JOIN task_reuse u ON u.task_id = t.id
 WHERE t.graph_id = :graph_id AND t.id > :after ORDER BY t.id LIMIT :count;

-- A key is locked before its followers are read, so that none is added meanwhile.
-- lock_reuse_keys(keys: texts): what is known about these keys, locked.
SELECT key, leader_id, source_id, source_graph_id, attempt, size, finished_ms FROM reuse_key
 WHERE key IN (:keys) ORDER BY key FOR UPDATE;

-- lock_led_keys(ids: ints): the keys that these tasks lead, locked.
SELECT key, leader_id, source_id, source_graph_id, attempt, size, finished_ms FROM reuse_key
 WHERE leader_id IN (:ids) ORDER BY key FOR UPDATE;

-- each insert_reuse_keys@sqlite(key: text, leader_id: int): insert new keys with their leaders.
INSERT INTO reuse_key (key, leader_id) VALUES (:key, :leader_id);

-- each insert_reuse_keys@postgres(key: text, leader_id: int): insert new keys with their leaders; another server may have been faster.
INSERT INTO reuse_key (key, leader_id) VALUES (:key, :leader_id) ON CONFLICT DO NOTHING;

-- each reserve_reuse_keys@sqlite(key: text, leader_id: int): insert new keys with the tasks that may lead them.
INSERT OR IGNORE INTO reuse_key (key, leader_id) VALUES (:key, :leader_id);

-- each reserve_reuse_keys@postgres(key: text, leader_id: int): insert new keys with the tasks that may lead them.
INSERT INTO reuse_key (key, leader_id) VALUES (:key, :leader_id) ON CONFLICT DO NOTHING;

-- select_with_reuse_keys(ids: ints): those of these tasks that have a key without a result.
SELECT leader_id FROM reuse_key WHERE leader_id IN (:ids) AND source_id IS NULL;

-- select_own_reuse_keys(ids: ints): the keys that these tasks have.
SELECT key, leader_id FROM reuse_key WHERE leader_id IN (:ids) ORDER BY key;

-- delete_reserved_reuse_keys(keys: texts): delete keys of tasks that have other keys by now, and that have no result.
DELETE FROM reuse_key WHERE key IN (:keys) AND source_id IS NULL;

-- delete_own_reuse_keys(ids: ints): delete the keys that these tasks have, and that have no result.
DELETE FROM reuse_key WHERE leader_id IN (:ids) AND source_id IS NULL;

-- select_with_results(ids: ints): those of these tasks of which a prerequisite has a result.
SELECT DISTINCT e.dependent_id FROM edge e JOIN result r ON r.task_id = e.prerequisite_id WHERE e.dependent_id IN (:ids);

-- select_leader_states(ids: ints): the states of tasks, and why.
SELECT id, state, reason FROM task WHERE id IN (:ids);

-- lock_leader_states(ids: ints): the states of tasks, locked, and why.
SELECT id, state, reason FROM task WHERE id IN (:ids) ORDER BY id FOR UPDATE;

-- each change_reuse_leaders(key: text, leader_id: int): give keys another leader, or none.
UPDATE reuse_key SET leader_id = :leader_id WHERE key = :key;

-- each finish_reuse_keys(key: text, source_id: int, source_graph_id: int, attempt: int, finished_ms: int, file_size: int): store that the leaders of keys have succeeded, and the size of what is copied: of the result, and for each named file that of a file.
INSERT INTO reuse_key (key, source_id, source_graph_id, attempt, finished_ms, size)
VALUES (:key, :source_id, :source_graph_id, :attempt, :finished_ms,
        NULLIF(COALESCE((SELECT LENGTH(o.body) FROM result o WHERE o.task_id = :source_id AND o.attempt = :attempt), 0)
               + :file_size * (SELECT COUNT(*) FROM artifact a WHERE a.task_id = :source_id AND a.attempt = :attempt), 0))
ON CONFLICT (key) DO UPDATE SET leader_id = NULL, source_id = excluded.source_id, source_graph_id = excluded.source_graph_id,
       attempt = excluded.attempt, finished_ms = excluded.finished_ms, size = excluded.size;

-- delete_idle_reuse_keys(keys: texts): delete those of these keys that have neither a leader nor a result.
DELETE FROM reuse_key WHERE key IN (:keys) AND leader_id IS NULL AND source_id IS NULL;

-- A key that a task leads stays without its old result.
-- clear_reuse_sources(ids: ints): forget the results of these tasks, where another task leads the key.
UPDATE reuse_key SET source_id = NULL, source_graph_id = NULL, attempt = NULL, size = NULL, finished_ms = NULL
 WHERE source_id IN (:ids) AND leader_id IS NOT NULL;

-- delete_reuse_sources(ids: ints): forget the results of these tasks.
DELETE FROM reuse_key WHERE source_id IN (:ids);

-- each insert_reuse_followers(task_id: int, key: text, priority: int, created_ms: int): insert tasks that wait for the leader of their key.
INSERT INTO reuse_follower (task_id, key, priority, created_ms) VALUES (:task_id, :key, :priority, :created_ms);

-- select_reuse_followers(keys: texts, count: int): the first tasks that wait for the leaders of keys, by key.
SELECT key, task_id FROM reuse_follower WHERE key IN (:keys) ORDER BY key, priority, created_ms, task_id LIMIT :count;

-- delete_reuse_followers(ids: ints): these tasks wait for no leader any more.
DELETE FROM reuse_follower WHERE task_id IN (:ids);

-- select_reuse_leaders(ids: ints): for tasks that wait for a leader, who that is.
SELECT f.task_id, k.leader_id FROM reuse_follower f JOIN reuse_key k ON k.key = f.key
 WHERE f.task_id IN (:ids) AND k.leader_id IS NOT NULL;

-- select_reuse_policies(): for how long pools reuse results, and whether across submitters.
SELECT pool, window_ms, shared FROM reuse_policy ORDER BY pool;

-- upsert_reuse_policy(pool: text, window_ms: int, shared: int): configure for how long a pool reuses results, and whether across submitters.
INSERT INTO reuse_policy (pool, window_ms, shared) VALUES (:pool, :window_ms, :shared)
ON CONFLICT (pool) DO UPDATE SET window_ms = excluded.window_ms, shared = excluded.shared;

-- select_received(ids: ints): the results of the prerequisites of tasks, with their labels; of a long one its digest instead.
SELECT e.dependent_id, d.label, CASE WHEN r.digest IS NULL THEN r.body ELSE NULL END, r.digest
  FROM edge e JOIN task p ON p.id = e.prerequisite_id
  JOIN result r ON r.task_id = p.id AND r.attempt = p.attempt JOIN task_definition d ON d.id = p.id
 WHERE e.dependent_id IN (:ids);
