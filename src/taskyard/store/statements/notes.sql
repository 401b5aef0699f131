-- each add_notes(kind: text, graph_id: int, task_id: int, source: text, target: text, tasks: text, actor: text): promise what does not fit into one transaction.
INSERT INTO continuation (kind, graph_id, task_id, source, target, tasks, actor)
VALUES (:kind, :graph_id, :task_id, :source, :target, :tasks, :actor);

-- notes(after: int, count: int): what is promised and not yet done, in order.
SELECT id, kind, graph_id, task_id, source, target, cursor, tasks, actor FROM continuation WHERE id > :after ORDER BY id LIMIT :count;

-- look_note(id: int): one note, kept from others until the transaction ends.
SELECT id, kind, graph_id, task_id, source, target, cursor, tasks, actor FROM continuation WHERE id = :id FOR UPDATE;

-- notes_about(tasks: ints): the notes about what these tasks have to tell, in order.
SELECT id, kind, graph_id, task_id, source, target, cursor, tasks, actor FROM continuation WHERE task_id IN (:tasks) ORDER BY id;

-- notes_in(graph_id: int, kind: text): the notes of one kind about a graph, in order, kept from others.
SELECT id, kind, graph_id, task_id, source, target, cursor, tasks, actor FROM continuation
 WHERE graph_id = :graph_id AND kind = :kind ORDER BY id FOR UPDATE;

-- advance_note(id: int, cursor: int): a note is done up to here.
UPDATE continuation SET cursor = :cursor WHERE id = :id;

-- drop_note(id: int): a note is done.
DELETE FROM continuation WHERE id = :id;

-- servers(): since when each server has been up, and when it last said so.
SELECT name, since_ms, seen_ms FROM server;

-- set_server(name: text, since_ms: int, seen_ms: int): a server is up.
INSERT INTO server (name, since_ms, seen_ms) VALUES (:name, :since_ms, :seen_ms)
ON CONFLICT (name) DO UPDATE SET since_ms = excluded.since_ms, seen_ms = excluded.seen_ms;

-- forget_servers(before_ms: int): delete the servers that have not been up since.
DELETE FROM server WHERE seen_ms < :before_ms;

-- clock@sqlite(): a file has no clock: its one server has the time.
SELECT NULL;

-- clock@postgres(): what time it is for all who share this database.
SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS bigint);
