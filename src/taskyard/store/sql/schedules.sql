-- select_unplanned_schedules(kind: text, count: int): documents of schedules that have changed since they were planned, or never were.
SELECT c.name, c.pool, c.version, c.body, c.changed_ms, c.changed_by
  FROM catalogue c LEFT JOIN schedule_plan p ON p.name = c.name
 WHERE c.kind = :kind AND (p.name IS NULL OR p.version <> c.version) ORDER BY c.name LIMIT :count;

-- select_lost_schedules(kind: text, count: int): schedules that are planned, and whose documents are deleted.
SELECT p.name FROM schedule_plan p
 WHERE NOT EXISTS (SELECT 1 FROM catalogue c WHERE c.kind = :kind AND c.name = p.name) ORDER BY p.name LIMIT :count;

-- select_due_schedules(kind: text, now: int, count: int): the schedules whose next run is due, the first ones first.
SELECT c.name, c.pool, c.version, c.body, c.changed_ms, c.changed_by, p.next_ms
  FROM schedule_plan p JOIN catalogue c ON c.kind = :kind AND c.name = p.name AND c.version = p.version
 WHERE p.next_ms <= :now ORDER BY p.next_ms, p.name LIMIT :count;

-- select_next_schedule(): when the next run of any schedule is due.
SELECT MIN(next_ms) FROM schedule_plan WHERE next_ms IS NOT NULL;

-- select_schedule_plans(names: texts): what is planned of these schedules.
SELECT name, version, next_ms, last_ms, note FROM schedule_plan WHERE name IN (:names);

-- lock_schedule_plan(name: text): what is planned of a schedule, locked.
SELECT name, version, next_ms, last_ms, note FROM schedule_plan WHERE name = :name FOR UPDATE;

-- upsert_schedule_plan(name: text, version: int, next_ms: int, last_ms: int, note: text): store what is planned of a schedule.
INSERT INTO schedule_plan (name, version, next_ms, last_ms, note) VALUES (:name, :version, :next_ms, :last_ms, :note)
ON CONFLICT (name) DO UPDATE SET version = excluded.version, next_ms = excluded.next_ms, last_ms = excluded.last_ms,
       note = excluded.note;

-- delete_schedule_plans(names: texts): forget what is planned of these schedules.
DELETE FROM schedule_plan WHERE name IN (:names);

-- select_earlier_launch(name: text, due_ms: int): the newest launch of a schedule before one of its runs, and whether anything of it can still move.
SELECT g.id, g.active FROM launch l JOIN graph g ON g.id = l.graph_id
 WHERE l.schedule = :name AND l.due_ms < :due_ms ORDER BY l.due_ms DESC LIMIT 1;

-- select_last_launches(names: texts): the newest launch of each of these schedules.
SELECT l.schedule, l.graph_id, l.due_ms FROM launch l
 WHERE l.schedule IN (:names)
   AND l.due_ms = (SELECT MAX(o.due_ms) FROM launch o WHERE o.schedule = l.schedule);
