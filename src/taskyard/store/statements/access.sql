-- seal(): the key by which what the server gives out is sealed.
SELECT body FROM seal WHERE id = 1;

-- add_seal(body: bytes): keep a key, if there is none.
INSERT INTO seal (id, body) VALUES (1, :body) ON CONFLICT DO NOTHING;

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

-- pools_of(graphs: ints): in which pools the tasks of these graphs may run.
SELECT graph_id, pool FROM graph_pool WHERE graph_id IN (:graphs);
