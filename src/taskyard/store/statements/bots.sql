-- look_bots(ids: texts): these bots as they stand, kept from others until the transaction ends.
SELECT b.id, b.session, b.recent_polls, b.slots, b.last_seen_ms, COALESCE(b.quarantined, s.quarantined),
       COALESCE(b.maintenance, s.maintenance), CASE WHEN s.draining = 1 THEN 1 ELSE b.draining END, b.terminated,
       b.missing, b.events, d.dimensions, COALESCE(s.terminated, 0), b.previous_sessions, b.draining, b.pool
  FROM bot b JOIN bot_dimensions d ON d.bot_id = b.id LEFT JOIN bot_settings s ON s.bot_id = b.id
 WHERE b.id IN (:ids) ORDER BY b.id FOR UPDATE OF b;

-- greet_bots(ids: texts): what is needed to hear these bots, kept from others until the transaction ends.
SELECT id, session, recent_polls, missing, version, pool FROM bot WHERE id IN (:ids) ORDER BY id FOR UPDATE;

-- fleet(): every bot as it stands, with how many attempts it runs.
SELECT b.id, b.session, b.recent_polls, b.slots, b.last_seen_ms, COALESCE(b.quarantined, s.quarantined),
       COALESCE(b.maintenance, s.maintenance), CASE WHEN s.draining = 1 THEN 1 ELSE b.draining END, b.terminated,
       b.missing, b.events, d.dimensions, COALESCE(s.terminated, 0),
       (SELECT COUNT(*) FROM task t WHERE t.bot_id = b.id), b.draining
  FROM bot b JOIN bot_dimensions d ON d.bot_id = b.id LEFT JOIN bot_settings s ON s.bot_id = b.id
 ORDER BY b.id;

-- each see_bots(id: text, recent_polls: text, last_seen_ms: int, server: text): these bots were heard of, by this server.
UPDATE bot SET recent_polls = :recent_polls, last_seen_ms = :last_seen_ms, server = :server, missing = 0 WHERE id = :id;

-- servers_of(ids: texts): which server each of these bots last spoke to.
SELECT id, server FROM bot WHERE id IN (:ids);

-- each add_bots(id: text, pool: text, session: text, previous_sessions: text, slots: int, first_seen_ms: int, last_seen_ms: int, server: text, quarantined: text, maintenance: text, draining: int): bots began a session, unless their names belong to another pool.
INSERT INTO bot (id, pool, session, previous_sessions, recent_polls, slots, first_seen_ms, last_seen_ms, server, quarantined, maintenance, draining)
VALUES (:id, :pool, :session, :previous_sessions, '', :slots, :first_seen_ms, :last_seen_ms, :server, :quarantined, :maintenance, :draining)
ON CONFLICT (id) DO UPDATE SET pool = excluded.pool, session = excluded.session, previous_sessions = excluded.previous_sessions, slots = excluded.slots,
       recent_polls = CASE WHEN bot.session = excluded.session THEN bot.recent_polls ELSE '' END,
       last_seen_ms = excluded.last_seen_ms, server = excluded.server, quarantined = excluded.quarantined, maintenance = excluded.maintenance,
       draining = excluded.draining, terminated = 0, missing = 0, version = bot.version + 1
 WHERE bot.pool IS NULL OR bot.pool = excluded.pool;

-- each free_bots(id: text): the names of bots belong to no pool.
UPDATE bot SET pool = NULL, version = version + 1 WHERE id = :id;

-- each set_bot_dimensions(bot_id: text, dimensions: text): what bots have.
INSERT INTO bot_dimensions (bot_id, dimensions) VALUES (:bot_id, :dimensions)
ON CONFLICT (bot_id) DO UPDATE SET dimensions = excluded.dimensions;

-- each set_bot_settings(bot_id: text, quarantined: text, maintenance: text, draining: int, terminated: int): what an admin says about bots.
INSERT INTO bot_settings (bot_id, quarantined, maintenance, draining, terminated)
VALUES (:bot_id, :quarantined, :maintenance, :draining, :terminated)
ON CONFLICT (bot_id) DO UPDATE SET quarantined = excluded.quarantined, maintenance = excluded.maintenance,
       draining = excluded.draining, terminated = excluded.terminated;

-- each clear_endings(bot_id: text): new bots have begun in the place of those that were told to end.
UPDATE bot_settings SET terminated = 0 WHERE bot_id = :bot_id;

-- each end_bots(id: text): bots said goodbye.
UPDATE bot SET terminated = 1, version = version + 1 WHERE id = :id;

-- each renew_bots(id: text): something else was said about bots.
UPDATE bot SET version = version + 1 WHERE id = :id;

-- each miss_bots(id: text): the silence of bots was noticed.
UPDATE bot SET missing = 1 WHERE id = :id;

-- silent(before_ms: int, count: int): bots not heard of since, whose silence nobody has noticed.
SELECT id FROM bot WHERE missing = 0 AND terminated = 0 AND last_seen_ms < :before_ms ORDER BY last_seen_ms LIMIT :count;

-- each count_bot_events(id: text, events: int): bots have this many events.
UPDATE bot SET events = :events WHERE id = :id;

-- each add_bot_events(bot_id: text, id: text, at_ms: int, kind: text, task_id: int, attempt: int, note: text): note what happened to bots.
INSERT INTO bot_event (bot_id, id, at_ms, kind, task_id, attempt, note)
VALUES (:bot_id, :id, :at_ms, :kind, :task_id, :attempt, :note);

-- bot_events(bot_id: text, count: int): what happened to a bot, the newest first.
SELECT bot_id, id, at_ms, kind, task_id, attempt, note FROM bot_event WHERE bot_id = :bot_id ORDER BY id LIMIT :count;

-- drop_bot_queues(bots: texts): forget which queues these bots serve.
DELETE FROM bot_queue WHERE bot_id IN (:bots);

-- each add_bot_queues(bot_id: text, queue_id: int): bots serve these queues.
INSERT INTO bot_queue (bot_id, queue_id) VALUES (:bot_id, :queue_id) ON CONFLICT DO NOTHING;

-- queues_after(number: int): the queues that came after the one with this number.
SELECT id, number, hash, root, pool, dimensions FROM queue WHERE number > :number ORDER BY number;

-- queues_with(dimensions: texts): the queues that ask for just this.
SELECT id, dimensions FROM queue WHERE dimensions IN (:dimensions);

-- queues_near(hashes: ints): which queues have one of these hashes.
SELECT id, hash FROM queue WHERE hash IN (:hashes);

-- lock_queues(): how many queues there are; nobody else adds one until the transaction ends.
SELECT queues FROM service WHERE id = 1 FOR UPDATE;

-- each add_queues(id: int, number: int, hash: int, root: text, pool: text, dimensions: text): insert queues.
INSERT INTO queue (id, number, hash, root, pool, dimensions)
VALUES (:id, :number, :hash, :root, :pool, :dimensions);

-- count_queues(queues: int): there are this many queues.
UPDATE service SET queues = :queues WHERE id = 1;
