-- seals(): the key by which what the server gives out is sealed, and the one before it while that is still good.
SELECT body FROM signing_key ORDER BY id;

-- drop_seals(id: int): forget all keys from one on.
DELETE FROM signing_key WHERE id >= :id;

-- each put_seals(id: int, body: bytes): keep keys.
INSERT INTO signing_key (id, body) VALUES (:id, :body);

-- add_seal(body: bytes): keep a key, if there is none.
INSERT INTO signing_key (id, body) VALUES (1, :body) ON CONFLICT DO NOTHING;

-- each add_tokens(id: text, kind: text, name: text, digest: text, scopes: text, pool: text, created_ms: int, expires_ms: int): tokens were made.
INSERT INTO token (id, kind, name, digest, scopes, pool, created_ms, expires_ms)
VALUES (:id, :kind, :name, :digest, :scopes, :pool, :created_ms, :expires_ms);

-- find_tokens(ids: texts): the tokens with these ids.
SELECT id, kind, name, digest, scopes, pool, created_ms, expires_ms, revoked_ms FROM token WHERE id IN (:ids);

-- page_tokens(before_ms: int, id: text, count: int): tokens made before a moment, or then and with a smaller id; the newest first.
SELECT id, kind, name, digest, scopes, pool, created_ms, expires_ms, revoked_ms FROM token
 WHERE (created_ms, id) < (:before_ms, :id) ORDER BY created_ms DESC, id DESC LIMIT :count;

-- revoke_token(id: text, revoked_ms: int): a token is good for nothing from now on.
UPDATE token SET revoked_ms = :revoked_ms WHERE id = :id AND revoked_ms IS NULL;

-- expire_token(id: text, expires_ms: int): a token is good for no longer than this.
UPDATE token SET expires_ms = :expires_ms WHERE id = :id AND (expires_ms IS NULL OR expires_ms > :expires_ms);

-- tokens_with(scope: text, now_ms: int): the tokens that have a scope and are good, kept from others until the transaction ends.
SELECT id FROM token
 WHERE scopes LIKE :scope AND revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > :now_ms) ORDER BY id FOR UPDATE;

-- pools_of(graphs: ints): in which pools the tasks of these graphs may run.
SELECT graph_id, pool FROM graph_pool WHERE graph_id IN (:graphs);
