-- select_signing_keys(): the key that signs the tokens of running tasks, then the previous key while it is still accepted.
SELECT body FROM signing_key ORDER BY id;

-- delete_signing_keys(id: int): delete the signing keys from an id on.
DELETE FROM signing_key WHERE id >= :id;

-- each insert_signing_keys(id: int, body: bytes): insert signing keys.
INSERT INTO signing_key (id, body) VALUES (:id, :body);

-- insert_first_signing_key(body: bytes): insert a signing key, unless there is one.
INSERT INTO signing_key (id, body) VALUES (1, :body) ON CONFLICT DO NOTHING;

-- each insert_tokens(id: text, kind: text, name: text, digest: text, scopes: text, pool: text, created_ms: int, expires_ms: int): insert tokens.
INSERT INTO token (id, kind, name, digest, scopes, pool, created_ms, expires_ms)
VALUES (:id, :kind, :name, :digest, :scopes, :pool, :created_ms, :expires_ms);

-- select_tokens(ids: texts): the tokens with these ids.
SELECT id, kind, name, digest, scopes, pool, created_ms, expires_ms, revoked_ms FROM token WHERE id IN (:ids);

-- select_token_page(before_ms: int, id: text, count: int): a page of tokens, newest first, after a creation time and an id.
SELECT id, kind, name, digest, scopes, pool, created_ms, expires_ms, revoked_ms FROM token
 WHERE (created_ms, id) < (:before_ms, :id) ORDER BY created_ms DESC, id DESC LIMIT :count;

-- revoke_token(id: text, revoked_ms: int): revoke a token, unless it is revoked.
UPDATE token SET revoked_ms = :revoked_ms WHERE id = :id AND revoked_ms IS NULL;

-- expire_token(id: text, expires_ms: int): let a token expire at a time, unless it expires earlier.
UPDATE token SET expires_ms = :expires_ms WHERE id = :id AND (expires_ms IS NULL OR expires_ms > :expires_ms);

-- select_valid_tokens_with_scope(scope: text, now_ms: int): the valid tokens that have a scope, locked.
SELECT id FROM token
 WHERE scopes LIKE :scope AND revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > :now_ms) ORDER BY id FOR UPDATE;

-- each insert_sessions(digest: text, kind: text, token_id: text, created_ms: int, expires_ms: int): insert sessions.
INSERT INTO session (digest, kind, token_id, created_ms, expires_ms) VALUES (:digest, :kind, :token_id, :created_ms, :expires_ms);

-- select_session(digest: text, kind: text): the token of a session, and when the session ends.
SELECT token_id, expires_ms FROM session WHERE digest = :digest AND kind = :kind;

-- delete_session(digest: text, kind: text): delete a session.
DELETE FROM session WHERE digest = :digest AND kind = :kind;

-- delete_old_sessions(token_id: text, now_ms: int, kept: int): delete the sessions that are over, and of a token all but the newest ones.
DELETE FROM session WHERE expires_ms <= :now_ms OR (token_id = :token_id AND digest NOT IN
       (SELECT digest FROM session WHERE token_id = :token_id ORDER BY created_ms DESC, digest LIMIT :kept));
