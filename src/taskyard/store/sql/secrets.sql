-- select_hash_key(): the encrypted key of the keyed hashes, and the key that encrypts it.
SELECT key_id, wrapped_key FROM hash_key WHERE id = 1;

-- insert_hash_key(key_id: text, wrapped_key: bytes): insert the key of the keyed hashes, unless there is one.
INSERT INTO hash_key (id, key_id, wrapped_key) VALUES (1, :key_id, :wrapped_key) ON CONFLICT DO NOTHING;

-- replace_hash_key(old_key_id: text, key_id: text, wrapped_key: bytes): store the key of the keyed hashes as another key encrypts it, or a new one, if the old one is still there.
UPDATE hash_key SET key_id = :key_id, wrapped_key = :wrapped_key WHERE id = 1 AND key_id = :old_key_id;

-- select_secret(pool: text, name: text): one secret, locked.
SELECT pool, name, version, digest, key_id, wrapped_key, body, created_ms, changed_ms, changed_by FROM secret
 WHERE pool = :pool AND name = :name FOR UPDATE;

-- select_secret_names(pools: texts, names: texts): which of these secrets there are, among those of other pairs.
SELECT pool, name FROM secret WHERE pool IN (:pools) AND name IN (:names);

-- select_secret_page(pool: text, name: text, count: int): a page of the secrets of all pools without their values, after a pool and a name.
SELECT pool, name, version, key_id, created_ms, changed_ms, changed_by FROM secret
 WHERE (pool, name) > (:pool, :name) AND pool <> '' ORDER BY pool, name LIMIT :count;

-- select_secret_page_of_pools(pools: texts, pool: text, name: text, count: int): a page of the secrets of some pools without their values, after a pool and a name.
SELECT pool, name, version, key_id, created_ms, changed_ms, changed_by FROM secret
 WHERE pool IN (:pools) AND (pool, name) > (:pool, :name) ORDER BY pool, name LIMIT :count;

-- upsert_secret(pool: text, name: text, version: int, digest: text, key_id: text, wrapped_key: bytes, body: bytes, at_ms: int, changed_by: text): insert a secret, or replace its value.
INSERT INTO secret (pool, name, version, digest, key_id, wrapped_key, body, created_ms, changed_ms, changed_by)
VALUES (:pool, :name, :version, :digest, :key_id, :wrapped_key, :body, :at_ms, :at_ms, :changed_by)
ON CONFLICT (pool, name) DO UPDATE SET version = excluded.version, digest = excluded.digest, key_id = excluded.key_id,
       wrapped_key = excluded.wrapped_key, body = excluded.body, changed_ms = excluded.changed_ms,
       changed_by = excluded.changed_by;

-- delete_secret(pool: text, name: text): delete a secret.
DELETE FROM secret WHERE pool = :pool AND name = :name;

-- select_secrets_of_keys(keys: texts, count: int): secrets that some keys encrypt.
SELECT pool, name, version, key_id, wrapped_key FROM secret WHERE key_id IN (:keys) ORDER BY pool, name LIMIT :count;

-- each rewrap_secrets(pool: text, name: text, version: int, key_id: text, wrapped_key: bytes): encrypt the keys of secrets with another key, if they still are of this version.
UPDATE secret SET key_id = :key_id, wrapped_key = :wrapped_key WHERE pool = :pool AND name = :name AND version = :version;

-- select_secret_bytes_of_keys(keys: texts, count: int): secret bytes that some keys encrypt.
SELECT task_id, first_id, key_id, wrapped_key FROM secret_bytes WHERE key_id IN (:keys) ORDER BY task_id LIMIT :count;

-- each rewrap_secret_bytes(task_id: int, key_id: text, wrapped_key: bytes): encrypt the keys of secret bytes with another key.
UPDATE secret_bytes SET key_id = :key_id, wrapped_key = :wrapped_key WHERE task_id = :task_id;

-- count_secrets_by_key(): the keys that encrypt named secrets or secret bytes, each with how many.
SELECT key_id, COUNT(*) FROM (SELECT key_id FROM secret UNION ALL SELECT key_id FROM secret_bytes) k GROUP BY key_id;

-- each insert_task_secrets(task_id: int, slice_index: int, variable: text, pool: text, name: text, is_file: int): insert the secrets that tasks name.
INSERT INTO task_secret (task_id, slice_index, variable, pool, name, is_file)
VALUES (:task_id, :slice_index, :variable, :pool, :name, :is_file);

-- each insert_secret_bytes(task_id: int, first_id: int, digest: text, key_id: text, wrapped_key: bytes, body: bytes): insert the secret bytes of requests.
INSERT INTO secret_bytes (task_id, first_id, digest, key_id, wrapped_key, body)
VALUES (:task_id, :first_id, :digest, :key_id, :wrapped_key, :body);

-- copy_secret_bytes(task_id: int, source_id: int): give a task the secret bytes of another one, if that still has them.
INSERT INTO secret_bytes (task_id, first_id, digest, key_id, wrapped_key, body)
SELECT :task_id, first_id, digest, key_id, wrapped_key, body FROM secret_bytes WHERE task_id = :source_id;

-- select_sealed_of_task(task_id: int, slice_index: int): the secrets that a slice of a task names, with what is stored of each.
SELECT s.variable, s.is_file, s.pool, s.name, n.version, COALESCE(n.key_id, b.key_id), COALESCE(n.wrapped_key, b.wrapped_key),
       COALESCE(n.body, b.body), b.first_id
  FROM task_secret s LEFT JOIN secret n ON n.pool = s.pool AND n.name = s.name
  LEFT JOIN secret_bytes b ON s.name = '' AND b.task_id = s.task_id
 WHERE s.task_id = :task_id AND s.slice_index = :slice_index ORDER BY s.variable;

-- select_lacking_secrets(ids: ints, keys: texts): the secrets that the current slices of tasks name and that do not exist or are encrypted with other keys than these.
SELECT t.id, s.pool, s.name, COALESCE(n.key_id, b.key_id)
  FROM task t JOIN task_secret s ON s.task_id = t.id AND s.slice_index = t.slice_index
  LEFT JOIN secret n ON n.pool = s.pool AND n.name = s.name
  LEFT JOIN secret_bytes b ON s.name = '' AND b.task_id = s.task_id
 WHERE t.id IN (:ids) AND NOT (COALESCE(n.key_id, b.key_id, '') IN (:keys)) ORDER BY t.id, s.variable;

-- select_secret_digests(ids: ints): the keyed hashes of the secrets that tasks name, by slice and variable.
SELECT s.task_id, s.slice_index, s.variable, s.is_file, s.pool, s.name, COALESCE(n.digest, b.digest)
  FROM task_secret s LEFT JOIN secret n ON n.pool = s.pool AND n.name = s.name
  LEFT JOIN secret_bytes b ON s.name = '' AND b.task_id = s.task_id
 WHERE s.task_id IN (:ids);

-- count_tasks_naming_secret(pool: text, name: text, states: texts): how many tasks in some states name a secret.
SELECT COUNT(DISTINCT s.task_id) FROM task_secret s JOIN task t ON t.id = s.task_id
 WHERE s.pool = :pool AND s.name = :name AND t.state IN (:states);

-- delete_task_secrets(ids: ints): delete which secrets these tasks name.
DELETE FROM task_secret WHERE task_id IN (:ids);

-- delete_secret_bytes(ids: ints): delete the secret bytes of these tasks.
DELETE FROM secret_bytes WHERE task_id IN (:ids);
