-- each add_events(graph_id: int, number: int, subject_id: int, at_ms: int, facts: text): note what happened.
INSERT INTO event (graph_id, number, subject_id, at_ms, facts)
VALUES (:graph_id, :number, :subject_id, :at_ms, :facts);

-- events_of(subject_id: int, after: int, count: int): what happened to a task or a graph, in order.
SELECT subject_id, number, graph_id, at_ms, facts FROM event
 WHERE subject_id = :subject_id AND number > :after ORDER BY number LIMIT :count;

-- events_in(graph_id: int, after: int, count: int): what happened in a graph, in order.
SELECT subject_id, number, graph_id, at_ms, facts FROM event
 WHERE graph_id = :graph_id AND number > :after ORDER BY number LIMIT :count;

-- untold(count: int): what nobody outside was told yet, in order per graph.
SELECT e.subject_id, e.number, e.graph_id, e.at_ms, e.facts FROM graph g JOIN event e ON e.graph_id = g.id AND e.number > g.events_published
 WHERE g.events > g.events_published ORDER BY e.graph_id, e.number LIMIT :count;

-- each tell(graph_id: int, number: int): others were told what happened to graphs, up to an event.
UPDATE graph SET events_published = :number WHERE id = :graph_id AND events_published < :number;

-- each add_audits(at_ms: int, actor: text, action: text, subject_id: int, note: text): note what a person asked for.
INSERT INTO audit (at_ms, actor, action, subject_id, note) VALUES (:at_ms, :actor, :action, :subject_id, :note);

-- audits_of(subject_id: int, count: int): what people asked for about a task or a graph.
SELECT at_ms, actor, action, subject_id, note FROM audit WHERE subject_id = :subject_id ORDER BY id LIMIT :count;

-- page_audits(before: int, count: int): what people asked for, the newest first.
SELECT id, at_ms, actor, action, subject_id, note FROM audit WHERE id < :before ORDER BY id DESC LIMIT :count;

-- page_audits_of(subject_id: int, before: int, count: int): what people asked for about a task or a graph, the newest first.
SELECT id, at_ms, actor, action, subject_id, note FROM audit
 WHERE subject_id = :subject_id AND id < :before ORDER BY id DESC LIMIT :count;

-- answers(keys: texts): what was answered to these keys.
SELECT key, digest, response FROM idempotency_key WHERE key IN (:keys);

-- each add_answers(key: text, digest: text, response: text, at_ms: int): remember what was answered.
INSERT INTO idempotency_key (key, digest, response, at_ms) VALUES (:key, :digest, :response, :at_ms);

-- forget_answers(before_ms: int, count: int): keys that are older are not kept; the oldest go first, in pages.
DELETE FROM idempotency_key WHERE key IN (SELECT key FROM idempotency_key WHERE at_ms < :before_ms ORDER BY at_ms LIMIT :count);
