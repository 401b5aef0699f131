-- each add_pool_minutes(minute_ms: int, pool: text, submitted: int, started: int, successful: int, failed: int, error: int, canceled: int, skipped: int, waiting: int, oldest_ms: int): add to the counts of a pool in a minute.
INSERT INTO pool_minute (minute_ms, pool, submitted, started, successful, failed, error, canceled, skipped, waiting, oldest_ms)
VALUES (:minute_ms, :pool, :submitted, :started, :successful, :failed, :error, :canceled, :skipped, :waiting, :oldest_ms)
ON CONFLICT (minute_ms, pool) DO UPDATE SET submitted = pool_minute.submitted + excluded.submitted,
       started = pool_minute.started + excluded.started, successful = pool_minute.successful + excluded.successful,
       failed = pool_minute.failed + excluded.failed, error = pool_minute.error + excluded.error,
       canceled = pool_minute.canceled + excluded.canceled, skipped = pool_minute.skipped + excluded.skipped,
       waiting = excluded.waiting, oldest_ms = excluded.oldest_ms;

-- select_pool_minutes(since_ms: int, all_pools: int, pools: texts): the counts of pools from a minute on, in order.
SELECT minute_ms, pool, submitted, started, successful, failed, error, canceled, skipped, waiting, oldest_ms
  FROM pool_minute WHERE minute_ms >= :since_ms AND (:all_pools = 1 OR pool IN (:pools)) ORDER BY minute_ms, pool;

-- delete_pool_minutes(before_ms: int): delete the counts of minutes before a time.
DELETE FROM pool_minute WHERE minute_ms < :before_ms;
