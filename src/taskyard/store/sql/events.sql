-- each insert_events(graph_id: int, number: int, subject_id: int, at_ms: int, facts: text): insert what happened to tasks and graphs.
INSERT INTO event (graph_id, number, subject_id, at_ms, facts)
VALUES (:graph_id, :number, :subject_id, :at_ms, :facts);

-- select_events_of_subject(subject_id: int, after: int, count: int): the events of a task or a graph, in order.
SELECT subject_id, number, graph_id, at_ms, facts FROM event
 WHERE subject_id = :subject_id AND number > :after ORDER BY number LIMIT :count;

-- select_events_in_graph(graph_id: int, after: int, count: int): all events in a graph, in order.
SELECT subject_id, number, graph_id, at_ms, facts FROM event
 WHERE graph_id = :graph_id AND number > :after ORDER BY number LIMIT :count;

-- select_unpublished_events(count: int): the events of graphs that are loaded which are not published yet, in order per graph.
SELECT e.subject_id, e.number, e.graph_id, e.at_ms, e.facts FROM graph g JOIN event e ON e.graph_id = g.id AND e.number > g.events_published
 WHERE g.events > g.events_published AND g.loader IS NULL ORDER BY e.graph_id, e.number LIMIT :count;

-- skip_old_events(before_ms: int, count: int): mark some graphs as published whose last event was before a time.
UPDATE graph SET events_published = events WHERE id IN (
    SELECT g.id FROM graph g JOIN event e ON e.graph_id = g.id AND e.number = g.events
     WHERE g.events > g.events_published AND e.at_ms < :before_ms ORDER BY g.id LIMIT :count
);

-- select_stream(): the state of the stream of events.
SELECT last, gone, wanted_until_ms, since_ms, skipped FROM event_stream WHERE id = 1;

-- lock_stream(): the state of the stream of events; no row while another transaction numbers events.
SELECT last, gone, wanted_until_ms, since_ms, skipped FROM event_stream WHERE id = 1 FOR UPDATE SKIP LOCKED;

-- wait_for_stream(): the state of the stream of events, once no other transaction numbers events.
SELECT last, gone, wanted_until_ms, since_ms, skipped FROM event_stream WHERE id = 1 FOR UPDATE;

-- update_stream(last: int, gone: int, wanted_until_ms: int, since_ms: int, skipped: int): write the state of the stream of events.
UPDATE event_stream SET last = :last, gone = :gone, wanted_until_ms = :wanted_until_ms, since_ms = :since_ms, skipped = :skipped
 WHERE id = 1;

-- each insert_streamed_events(number: int, graph_id: int, event_number: int): add events to the stream.
INSERT INTO streamed_event (number, graph_id, event_number) VALUES (:number, :graph_id, :event_number);

-- select_streamed_events(after: int, count: int): events of the stream after a number, in order, where their graph still exists.
SELECT s.number, e.subject_id, e.number, e.graph_id, e.at_ms, e.facts
  FROM streamed_event s LEFT JOIN event e ON e.graph_id = s.graph_id AND e.number = s.event_number
 WHERE s.number > :after ORDER BY s.number LIMIT :count;

-- delete_streamed_events(upto: int, count: int): delete some of the events of the stream up to a number.
DELETE FROM streamed_event WHERE number IN (SELECT number FROM streamed_event WHERE number <= :upto ORDER BY number LIMIT :count);

-- select_event_targets(): the targets of the stream.
SELECT name, position, added_ms, delivered_ms FROM event_target ORDER BY name;

-- select_oldest_undelivered(): when the oldest event happened that some target has not got yet.
SELECT e.at_ms FROM streamed_event s JOIN event e ON e.graph_id = s.graph_id AND e.number = s.event_number
 WHERE s.number > (SELECT MIN(position) FROM event_target) ORDER BY s.number LIMIT 1;

-- select_unnumbered_graphs(ids: ints): those of some graphs with events that are not in the stream yet.
SELECT id FROM graph WHERE id IN (:ids) AND events > events_published AND EXISTS (SELECT 1 FROM event_target);

-- insert_event_target(name: text, position: int, at_ms: int): add a target of the stream, unless it is there.
INSERT INTO event_target (name, position, added_ms, delivered_ms) VALUES (:name, :position, :at_ms, :at_ms) ON CONFLICT DO NOTHING;

-- advance_event_target(name: text, position: int, at_ms: int): set up to which number the stream is delivered to a target.
UPDATE event_target SET position = :position, delivered_ms = :at_ms WHERE name = :name AND position < :position;

-- delete_event_target(name: text): delete a target of the stream.
DELETE FROM event_target WHERE name = :name;

-- each update_published(graph_id: int, number: int): set up to which number the events of graphs are published.
UPDATE graph SET events_published = :number WHERE id = :graph_id AND events_published < :number;

-- each insert_audits(at_ms: int, actor: text, action: text, subject_id: int, note: text): insert audit rows.
INSERT INTO audit (at_ms, actor, action, subject_id, note) VALUES (:at_ms, :actor, :action, :subject_id, :note);

-- select_audits_of_subject(subject_id: int, count: int): the audit of a task or a graph.
SELECT at_ms, actor, action, subject_id, note FROM audit WHERE subject_id = :subject_id ORDER BY id LIMIT :count;

-- select_audit_page(before: int, count: int): a page of the audit, newest first.
SELECT id, at_ms, actor, action, subject_id, note FROM audit WHERE id < :before ORDER BY id DESC LIMIT :count;

-- select_audit_page_of_subject(subject_id: int, before: int, count: int): a page of the audit of a task or a graph, newest first.
SELECT id, at_ms, actor, action, subject_id, note FROM audit
 WHERE subject_id = :subject_id AND id < :before ORDER BY id DESC LIMIT :count;

-- select_responses(keys: texts): the responses stored for these idempotency keys.
SELECT key, digest, response FROM idempotency_key WHERE key IN (:keys);

-- each insert_responses(key: text, digest: text, response: text, at_ms: int, graph_id: int): store the responses to requests with idempotency keys.
INSERT INTO idempotency_key (key, digest, response, at_ms, graph_id) VALUES (:key, :digest, :response, :at_ms, :graph_id);

-- delete_old_responses(before_ms: int, count: int): delete some responses stored before a time, oldest first.
DELETE FROM idempotency_key WHERE key IN (SELECT key FROM idempotency_key WHERE at_ms < :before_ms ORDER BY at_ms LIMIT :count);
