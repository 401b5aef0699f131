-- lock_bots(ids: texts): the bots with these ids, locked.
SELECT b.id, b.session, b.recent_polls, b.slots, b.last_seen_ms, COALESCE(b.quarantined, s.quarantined),
       COALESCE(b.maintenance, s.maintenance), CASE WHEN s.draining = 1 THEN 1 ELSE b.draining END, b.terminated,
       b.missing, b.events, d.dimensions, COALESCE(s.terminated, 0), b.draining, b.previous_sessions, b.pool,
       d.caches, b.snapshot_id, b.failures, b.failed_ms
  FROM bot b JOIN bot_dimensions d ON d.bot_id = b.id LEFT JOIN bot_settings s ON s.bot_id = b.id
 WHERE b.id IN (:ids) ORDER BY b.id FOR UPDATE OF b;

-- lock_callers(ids: texts): what a poll needs to know of bots, locked.
SELECT id, session, recent_polls, missing, changes, pool FROM bot WHERE id IN (:ids) ORDER BY id FOR UPDATE;

-- select_fleet(): all bots, with the number of attempts that each runs.
SELECT b.id, b.session, b.recent_polls, b.slots, b.last_seen_ms, COALESCE(b.quarantined, s.quarantined),
       COALESCE(b.maintenance, s.maintenance), CASE WHEN s.draining = 1 THEN 1 ELSE b.draining END, b.terminated,
       b.missing, b.events, d.dimensions, COALESCE(s.terminated, 0), b.draining,
       (SELECT COUNT(*) FROM task t WHERE t.bot_id = b.id)
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
       draining = excluded.draining, terminated = 0, missing = 0, changes = bot.changes + 1, reserved_task_id = NULL
 WHERE bot.pool IS NULL OR bot.pool = excluded.pool;

-- each release_bot_names(id: text): let the names of bots belong to no pool.
UPDATE bot SET pool = NULL, changes = changes + 1 WHERE id = :id;

-- each upsert_bot_dimensions(bot_id: text, dimensions: text): store the dimensions of bots.
INSERT INTO bot_dimensions (bot_id, dimensions) VALUES (:bot_id, :dimensions)
ON CONFLICT (bot_id) DO UPDATE SET dimensions = excluded.dimensions, caches = '';

-- each upsert_bot_snapshots(id: int, dimensions: text, version: text, used_ms: int): store what bots are now; an equal snapshot is there once.
INSERT INTO bot_snapshot (id, dimensions, version, used_ms) VALUES (:id, :dimensions, :version, :used_ms)
ON CONFLICT (id) DO UPDATE SET used_ms = excluded.used_ms;

-- each touch_bot_snapshots(id: text, used_ms: int): note that bots have had their snapshots until now.
UPDATE bot_snapshot SET used_ms = :used_ms WHERE id = (SELECT snapshot_id FROM bot WHERE bot.id = :id);

-- each update_bot_snapshots(id: text, snapshot_id: int, version: text): set what bots are from now on.
UPDATE bot SET snapshot_id = :snapshot_id, version = :version, changes = changes + 1 WHERE id = :id;

-- select_bot_snapshots(ids: ints): what bots were at some time.
SELECT id, dimensions, version FROM bot_snapshot WHERE id IN (:ids);

-- delete_bot_snapshots(before_ms: int, count: int): delete snapshots that no bot has, and had since a time.
DELETE FROM bot_snapshot WHERE id IN (
   SELECT s.id FROM bot_snapshot s WHERE s.used_ms < :before_ms
      AND NOT EXISTS (SELECT 1 FROM bot b WHERE b.snapshot_id = s.id) LIMIT :count);

-- each update_bot_caches(bot_id: text, caches: text): store which caches bots hold.
UPDATE bot_dimensions SET caches = :caches WHERE bot_id = :bot_id;

-- each update_bot_failures(id: text, failures: int, failed_ms: int): store how often in a row bots have lost attempts.
UPDATE bot SET failures = :failures, failed_ms = :failed_ms, changes = changes + 1 WHERE id = :id;

-- select_dead_bots(ids: texts, before_ms: int, count: int): those of some bots that have ended or are missing, hold no task, and were last seen before a time.
SELECT b.id FROM bot b WHERE b.id IN (:ids) AND b.terminated + b.missing > 0 AND b.last_seen_ms < :before_ms
   AND NOT EXISTS (SELECT 1 FROM task t WHERE t.bot_id = b.id) ORDER BY b.id LIMIT :count;

-- delete_bot_events(bots: texts, count: int): delete the oldest events of bots.
DELETE FROM bot_event WHERE (bot_id, id) IN (
   SELECT e.bot_id, e.id FROM bot_event e WHERE e.bot_id IN (:bots) ORDER BY e.id DESC LIMIT :count);

-- delete_bot_settings(bots: texts): delete the settings of bots.
DELETE FROM bot_settings WHERE bot_id IN (:bots);

-- delete_bot_dimensions(bots: texts): delete the dimensions of bots.
DELETE FROM bot_dimensions WHERE bot_id IN (:bots);

-- delete_bots(bots: texts): delete bots.
DELETE FROM bot WHERE id IN (:bots);

-- each insert_forgotten_bots(id: text, pool: text, forgotten_ms: int): store to which pools the names of forgotten bots belong.
INSERT INTO forgotten_bot (id, pool, forgotten_ms) VALUES (:id, :pool, :forgotten_ms) ON CONFLICT DO NOTHING;

-- select_forgotten_bots(ids: texts): the pools to which the names of forgotten bots belong, locked.
SELECT id, pool FROM forgotten_bot WHERE id IN (:ids) ORDER BY id FOR UPDATE;

-- delete_forgotten_bots(ids: texts): let the names of forgotten bots belong to no pool.
DELETE FROM forgotten_bot WHERE id IN (:ids);

-- each upsert_bot_settings(bot_id: text, quarantined: text, maintenance: text, draining: int, terminated: int): store the settings that an admin gives to bots.
INSERT INTO bot_settings (bot_id, quarantined, maintenance, draining, terminated)
VALUES (:bot_id, :quarantined, :maintenance, :draining, :terminated)
ON CONFLICT (bot_id) DO UPDATE SET quarantined = excluded.quarantined, maintenance = excluded.maintenance,
       draining = excluded.draining, terminated = excluded.terminated;

-- each clear_bot_termination(bot_id: text): withdraw the order to terminate, because a new bot of this name has begun.
UPDATE bot_settings SET terminated = 0 WHERE bot_id = :bot_id;

-- each end_bot_sessions(id: text): end the sessions of bots.
UPDATE bot SET terminated = 1, changes = changes + 1 WHERE id = :id;

-- each count_bot_changes(id: text): count one more change of these bots.
UPDATE bot SET changes = changes + 1 WHERE id = :id;

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

-- select_held(bots: texts): the tasks that bots have in hand, with the queue of each.
SELECT bot_id, id, queue_id FROM task WHERE bot_id IN (:bots);

-- select_reservations(bots: texts, states: texts): the task for which each of these bots is kept free, with its queue if it is in one of some states.
SELECT b.id, b.reserved_task_id, t.queue_id FROM bot b LEFT JOIN task t ON t.id = b.reserved_task_id AND t.state IN (:states)
 WHERE b.reserved_task_id IS NOT NULL AND b.id IN (:bots);

-- select_reserved_bots(tasks: ints): the bots that are kept free for these tasks.
SELECT b.id, b.session, b.recent_polls, b.slots, b.last_seen_ms, COALESCE(b.quarantined, s.quarantined),
       COALESCE(b.maintenance, s.maintenance), CASE WHEN s.draining = 1 THEN 1 ELSE b.draining END, b.terminated,
       b.missing, b.events, d.dimensions, COALESCE(s.terminated, 0), b.reserved_task_id, b.draining
  FROM bot b JOIN bot_dimensions d ON d.bot_id = b.id LEFT JOIN bot_settings s ON s.bot_id = b.id
 WHERE b.reserved_task_id IN (:tasks);

-- each reserve_bots(id: text, task_id: int): write for which task each bot is kept free.
UPDATE bot SET reserved_task_id = :task_id WHERE id = :id;

-- upsert_aggregation(id: text, dimensions: text): store the dimensions of all bots together.
INSERT INTO dimension_aggregation (id, dimensions) VALUES (:id, :dimensions)
ON CONFLICT (id) DO UPDATE SET dimensions = excluded.dimensions;

-- select_queues_after(number: int): the queues created after a queue number.
SELECT id, number, hash, root, pool, dimensions FROM queue WHERE number > :number ORDER BY number;

-- select_queues_by_dimensions(dimensions: texts): the queues with these dimensions, and when they were used.
SELECT id, dimensions, used_ms FROM queue WHERE dimensions IN (:dimensions);

-- select_queues_by_hash(hashes: ints): the queues with one of these hashes.
SELECT id, hash FROM queue WHERE hash IN (:hashes);

-- lock_queue_count(): the number of the newest queue; the lock keeps other transactions from adding one.
SELECT queues FROM service WHERE id = 1 FOR UPDATE;

-- each insert_queues(id: int, number: int, hash: int, root: text, pool: text, dimensions: text, used_ms: int): insert queues.
INSERT INTO queue (id, number, hash, root, pool, dimensions, used_ms)
VALUES (:id, :number, :hash, :root, :pool, :dimensions, :used_ms);

-- each touch_queues(id: int, used_ms: int): note that queues are used.
UPDATE queue SET used_ms = :used_ms WHERE id = :id;

-- update_queue_count(queues: int): set the number of the newest queue.
UPDATE service SET queues = :queues WHERE id = 1;

-- select_sessions(): the sessions of all bots, and the sessions that they replaced.
SELECT id, session, previous_sessions FROM bot ORDER BY id FOR UPDATE;

-- each replace_sessions(id: text, session: text, previous_sessions: text): replace the sessions of bots, which have to say hello again.
UPDATE bot SET session = :session, previous_sessions = :previous_sessions, recent_polls = '', changes = changes + 1 WHERE id = :id;
