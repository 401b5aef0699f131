-- each add_stats(task_id: int, attempt: int, prepared_ms: int, ran_ms: int, uploaded_ms: int, cpu_s: float, memory_bytes: int, read_bytes: int, written_bytes: int, truncated: int): keep what attempts took.
INSERT INTO attempt_stats (task_id, attempt, prepared_ms, ran_ms, uploaded_ms, cpu_s, memory_bytes, read_bytes, written_bytes, truncated)
VALUES (:task_id, :attempt, :prepared_ms, :ran_ms, :uploaded_ms, :cpu_s, :memory_bytes, :read_bytes, :written_bytes, :truncated);

-- stats_of(task_id: int): what the attempts of a task took.
SELECT attempt, prepared_ms, ran_ms, uploaded_ms, cpu_s, memory_bytes, read_bytes, written_bytes, truncated
  FROM attempt_stats WHERE task_id = :task_id ORDER BY attempt;

-- printed(ids: ints): how much of what the last attempts of tasks printed is kept, and the number of its last chunk.
SELECT t.id, c.number, c.start + LENGTH(c.body) FROM task t JOIN output_chunk c ON c.task_id = t.id AND c.attempt = t.attempt
   AND c.number = (SELECT MAX(n.number) FROM output_chunk n WHERE n.task_id = t.id AND n.attempt = t.attempt)
 WHERE t.id IN (:ids);

-- printed_of(task_id: int): how much each attempt of a task printed.
SELECT attempt, MAX(start + LENGTH(body)) FROM output_chunk WHERE task_id = :task_id GROUP BY attempt ORDER BY attempt;

-- each add_chunks(task_id: int, attempt: int, number: int, start: int, at_ms: int, body: bytes): keep what attempts printed.
INSERT INTO output_chunk (task_id, attempt, number, start, at_ms, body) VALUES (:task_id, :attempt, :number, :start, :at_ms, :body);

-- chunks(task_id: int, attempt: int, first: int, count: int): what an attempt printed, from the chunk on that holds a byte.
SELECT start, body FROM output_chunk
 WHERE task_id = :task_id AND attempt = :attempt
   AND number >= (SELECT COALESCE(MAX(n.number), 1) FROM output_chunk n
                   WHERE n.task_id = :task_id AND n.attempt = :attempt AND n.start <= :first)
 ORDER BY number LIMIT :count;

-- chunk_times(task_id: int, attempt: int, first: int, since_ms: int, count: int): when output came, from the chunk on that holds a byte.
SELECT start, at_ms FROM output_chunk
 WHERE task_id = :task_id AND attempt = :attempt AND at_ms >= :since_ms
   AND number >= (SELECT COALESCE(MAX(n.number), 1) FROM output_chunk n
                   WHERE n.task_id = :task_id AND n.attempt = :attempt AND n.start <= :first)
 ORDER BY number LIMIT :count;

-- each note_progress(task_id: int, attempt: int, at_ms: int, body: text, checkpoint: bytes): keep what attempts say of themselves.
INSERT INTO progress (task_id, attempt, at_ms, body, checkpoint) VALUES (:task_id, :attempt, :at_ms, :body, :checkpoint)
ON CONFLICT (task_id, attempt) DO UPDATE SET at_ms = excluded.at_ms, body = COALESCE(excluded.body, progress.body),
   checkpoint = COALESCE(excluded.checkpoint, progress.checkpoint);

-- progress_of(ids: ints): what the last attempts of tasks said of themselves.
SELECT p.task_id, p.body FROM progress p JOIN task t ON t.id = p.task_id AND t.attempt = p.attempt WHERE p.task_id IN (:ids);

-- checkpoints(ids: ints): what earlier attempts of tasks left, the newest last.
SELECT task_id, attempt, checkpoint FROM progress WHERE task_id IN (:ids) AND checkpoint IS NOT NULL ORDER BY task_id, attempt;

-- inputs(ids: ints): what the prerequisites of tasks published: task, label, result.
SELECT e.dependent_id, d.label, r.body FROM edge e JOIN task p ON p.id = e.prerequisite_id
  JOIN result r ON r.task_id = p.id AND r.attempt = p.attempt JOIN task_definition d ON d.id = p.id
 WHERE e.dependent_id IN (:ids);

-- result_of(task_id: int, attempt: int): what an attempt published.
SELECT body FROM result WHERE task_id = :task_id AND attempt = :attempt;
