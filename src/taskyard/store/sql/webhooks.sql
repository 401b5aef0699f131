-- select_webhooks(): all webhooks, each with the number of deliveries that were given up.
SELECT name, pool, graph_id, kinds, url, paused, version, changed_ms, changed_by, failing_since_ms, error,
       (SELECT COUNT(*) FROM dead_delivery d WHERE d.webhook = w.name)
  FROM webhook w ORDER BY name;

-- upsert_webhook(name: text, pool: text, graph_id: int, kinds: text, url: text, paused: int, changed_ms: int, changed_by: text): store a webhook as it is to be from now on.
INSERT INTO webhook (name, pool, graph_id, kinds, url, paused, changed_ms, changed_by)
VALUES (:name, :pool, :graph_id, :kinds, :url, :paused, :changed_ms, :changed_by)
ON CONFLICT (name) DO UPDATE SET pool = excluded.pool, graph_id = excluded.graph_id, kinds = excluded.kinds, url = excluded.url,
   paused = excluded.paused, version = webhook.version + 1, changed_ms = excluded.changed_ms,
   changed_by = excluded.changed_by, failing_since_ms = NULL, error = NULL;

-- delete_webhook(name: text): delete a webhook.
DELETE FROM webhook WHERE name = :name;

-- pause_webhooks(): pause all webhooks that are not paused.
UPDATE webhook SET paused = 1, version = version + 1 WHERE paused = 0;

-- update_webhook_outcome(name: text, version: int, failing_since_ms: int, error: text): store how the last delivery ended.
UPDATE webhook SET failing_since_ms = :failing_since_ms, error = :error WHERE name = :name AND version = :version;

-- insert_dead_delivery(webhook: text, id: text, body: text, died_ms: int, error: text): store a delivery that was given up.
INSERT INTO dead_delivery (webhook, id, body, died_ms, error) VALUES (:webhook, :id, :body, :died_ms, :error)
ON CONFLICT (webhook, id) DO UPDATE SET died_ms = excluded.died_ms, error = excluded.error, again = 0;

-- select_dead_deliveries(webhook: text, after: text, count: int): a page of the deliveries of a webhook that were given up.
SELECT id, died_ms, error, again FROM dead_delivery WHERE webhook = :webhook AND id > :after ORDER BY id LIMIT :count;

-- select_deliveries_again(webhook: text, count: int): deliveries that are to be sent again.
SELECT id, body FROM dead_delivery WHERE webhook = :webhook AND again = 1 ORDER BY id LIMIT :count;

-- send_deliveries_again(webhook: text, ids: texts): have some deliveries sent again.
UPDATE dead_delivery SET again = 1 WHERE webhook = :webhook AND id IN (:ids);

-- send_all_deliveries_again(webhook: text): have all deliveries sent again.
UPDATE dead_delivery SET again = 1 WHERE webhook = :webhook;

-- delete_dead_delivery(webhook: text, id: text): delete a delivery that has succeeded after all.
DELETE FROM dead_delivery WHERE webhook = :webhook AND id = :id;

-- delete_dead_deliveries(webhook: text): delete all deliveries of a webhook.
DELETE FROM dead_delivery WHERE webhook = :webhook;

-- take_webhook_sender(holder: text, now_ms: int, until_ms: int): become the server that sends, or stay it, unless another one is.
INSERT INTO webhook_sender (id, holder, until_ms) VALUES (1, :holder, :until_ms)
ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, until_ms = excluded.until_ms
 WHERE webhook_sender.holder = excluded.holder OR webhook_sender.until_ms <= :now_ms;

-- release_webhook_sender(holder: text): let another server send at once.
DELETE FROM webhook_sender WHERE holder = :holder;
