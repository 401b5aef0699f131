-- select_servers(): all servers, since when each has been up, and when it was last seen.
SELECT name, since_ms, seen_ms FROM server;

-- upsert_server(name: text, since_ms: int, seen_ms: int): store that a server is up.
INSERT INTO server (name, since_ms, seen_ms) VALUES (:name, :since_ms, :seen_ms)
ON CONFLICT (name) DO UPDATE SET since_ms = excluded.since_ms, seen_ms = excluded.seen_ms;

-- delete_old_servers(before_ms: int): delete the servers that were last seen before a time.
DELETE FROM server WHERE seen_ms < :before_ms;

-- select_time@sqlite(): no time: a file has one server, and the server has a clock.
SELECT NULL;

-- select_time@postgres(): the time for all servers of this database, in milliseconds.
SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS bigint);
