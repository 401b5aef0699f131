-- lock_bots(ids: texts): the bots with these ids, locked.
SELECT b.id, b.session, b.recent_polls, b.slots, b.last_seen_ms, COALESCE(b.quarantined, s.quarantined),
       COALESCE(b.maintenance, s.maintenance), CASE WHEN s.draining = 1 THEN 1 ELSE b.draining END, b.terminated,
       b.missing, b.events, d.dimensions, COALESCE(s.terminated, 0), b.previous_sessions, b.draining, b.pool
  FROM bot b JOIN bot_dimensions d ON d.bot_id = b.id LEFT JOIN bot_settings s ON s.bot_id = b.id
 WHERE b.id IN (:ids) ORDER BY b.id FOR UPDATE OF b;

-- lock_callers(ids: texts): what a poll needs to know of bots, locked.
SELECT id, session, recent_polls, missing, version, pool FROM bot WHERE id IN (:ids) ORDER BY id FOR UPDATE;

-- select_fleet(): all bots, with the number of attempts that each runs.
SELECT b.id, b.session, b.recent_polls, b.slots, b.last_seen_ms, COALESCE(b.quarantined, s.quarantined),
       COALESCE(b.maintenance, s.maintenance), CASE WHEN s.draining = 1 THEN 1 ELSE b.draining END, b.terminated,
       b.missing, b.events, d.dimensions, COALESCE(s.terminated, 0),
       (SELECT COUNT(*) FROM task t WHERE t.bot_id = b.id), b.draining
  FROM bot b JOIN bot_dimensions d ON d.bot_id = b.id LEFT JOIN bot_settings s ON s.bot_id = b.id
 ORDER BY b.id;

-- each record_polls(id: text, recent_polls: text, last_seen_ms: int, server: text): record the latest polls of bots, and which server got them.
UPDATE bot SET recent_polls = :recent_polls, last_seen_ms = :last_seen_ms, server = :server, missing = 0 WHERE id = :id;

-- select_last_servers(ids: texts): the server that each of these bots last spoke to.
SELECT id, server FROM bot WHERE id IN (:ids);

-- each begin_bot_sessions(id: text, pool: text, session: text, previous_sessions: text, slots: int, first_seen_ms: int, last_seen_ms: int, server: text, quarantined: text, maintenance: text, draining: int): begin the sessions of bots, unless a name belongs to another pool.
INSERT INTO bot (id, pool, session, previous_sessions, recent_polls, slots, first_seen_ms, last_seen_ms, server, quarantined, maintenance, draining)
VALUES (:id, :pool, :session, :previous_sessions, '', :slots, :first_seen_ms, :last_seen_ms, :server, :quarantined, :maintenance, :draining)
ON CONFLICT (id) DO UPDATE SET pool = excluded.pool, session = excluded.session, previous_sessions = excluded.previous_sessions, slots = excluded.slots,
       recent_polls = CASE WHEN bot.session = excluded.session THEN bot.recent_polls ELSE '' END,
       last_seen_ms = excluded.last_seen_ms, server = excluded.server, quarantined = excluded.quarantined, maintenance = excluded.maintenance,
       draining = excluded.draining, terminated = 0, missing = 0, version = bot.version + 1
 WHERE bot.pool IS NULL OR bot.pool = excluded.pool;

-- each release_bot_names(id: text): let the names of bots belong to no pool.
UPDATE bot SET pool = NULL, version = version + 1 WHERE id = :id;

-- each upsert_bot_dimensions(bot_id: text, dimensions: text): store the dimensions of bots.
INSERT INTO bot_dimensions (bot_id, dimensions) VALUES (:bot_id, :dimensions)
ON CONFLICT (bot_id) DO UPDATE SET dimensions = excluded.dimensions;

-- each upsert_bot_settings(bot_id: text, quarantined: text, maintenance: text, draining: int, terminated: int): store the settings that an admin gives to bots.
INSERT INTO bot_settings (bot_id, quarantined, maintenance, draining, terminated)
VALUES (:bot_id, :quarantined, :maintenance, :draining, :terminated)
ON CONFLICT (bot_id) DO UPDATE SET quarantined = excluded.quarantined, maintenance = excluded.maintenance,
       draining = excluded.draining, terminated = excluded.terminated;

-- each clear_bot_termination(bot_id: text): withdraw the order to terminate, because a new bot of this name has begun.
UPDATE bot_settings SET terminated = 0 WHERE bot_id = :bot_id;

-- each end_bot_sessions(id: text): end the sessions of bots.
UPDATE bot SET terminated = 1, version = version + 1 WHERE id = :id;

-- each increment_bot_versions(id: text): count one more change of these bots.
UPDATE bot SET version = version + 1 WHERE id = :id;

-- each mark_bots_missing(id: text): mark bots as missing.
UPDATE bot SET missing = 1 WHERE id = :id;

-- select_silent_bots(before_ms: int, count: int): bots last seen before a time that are not marked as missing.
SELECT id FROM bot WHERE missing = 0 AND terminated = 0 AND last_seen_ms < :before_ms ORDER BY last_seen_ms LIMIT :count;

-- each update_bot_event_counts(id: text, events: int): write how many events bots have.
UPDATE bot SET events = :events WHERE id = :id;

-- each insert_bot_events(bot_id: text, id: text, at_ms: int, kind: text, task_id: int, attempt: int, note: text): insert events of bots.
INSERT INTO bot_event (bot_id, id, at_ms, kind, task_id, attempt, note)
VALUES (:bot_id, :id, :at_ms, :kind, :task_id, :attempt, :note);

-- select_bot_events(bot_id: text, count: int): the events of a bot, newest first.
SELECT bot_id, id, at_ms, kind, task_id, attempt, note FROM bot_event WHERE bot_id = :bot_id ORDER BY id LIMIT :count;

-- delete_bot_queues(bots: texts): delete which queues these bots serve.
DELETE FROM bot_queue WHERE bot_id IN (:bots);

-- each insert_bot_queues(bot_id: text, queue_id: int): insert which queues bots serve.
INSERT INTO bot_queue (bot_id, queue_id) VALUES (:bot_id, :queue_id) ON CONFLICT DO NOTHING;

-- upsert_aggregation(id: text, dimensions: text): store the dimensions of all bots together.
INSERT INTO dimension_aggregation (id, dimensions) VALUES (:id, :dimensions)
ON CONFLICT (id) DO UPDATE SET dimensions = excluded.dimensions;

-- select_queues_after(number: int): the queues created after a queue number.
SELECT id, number, hash, root, pool, dimensions FROM queue WHERE number > :number ORDER BY number;

-- select_queues_by_dimensions(dimensions: texts): the queues with these dimensions.
SELECT id, dimensions FROM queue WHERE dimensions IN (:dimensions);

-- select_queues_by_hash(hashes: ints): the queues with one of these hashes.
SELECT id, hash FROM queue WHERE hash IN (:hashes);

-- lock_queue_count(): how many queues there are; the lock keeps other transactions from adding one.
SELECT queues FROM service WHERE id = 1 FOR UPDATE;

-- each insert_queues(id: int, number: int, hash: int, root: text, pool: text, dimensions: text): insert queues.
INSERT INTO queue (id, number, hash, root, pool, dimensions)
VALUES (:id, :number, :hash, :root, :pool, :dimensions);

-- update_queue_count(queues: int): set how many queues there are.
UPDATE service SET queues = :queues WHERE id = 1;
