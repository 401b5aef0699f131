-- each insert_stats(task_id: int, attempt: int, prepared_ms: int, cached_ms: int, downloaded_ms: int, ran_ms: int, uploaded_ms: int, cleaned_ms: int, cpu_s: float, memory_bytes: int, read_bytes: int, written_bytes: int, truncated: int): insert the resources that attempts used.
INSERT INTO attempt_stats (task_id, attempt, prepared_ms, cached_ms, downloaded_ms, ran_ms, uploaded_ms, cleaned_ms, cpu_s,
       memory_bytes, read_bytes, written_bytes, truncated)
VALUES (:task_id, :attempt, :prepared_ms, :cached_ms, :downloaded_ms, :ran_ms, :uploaded_ms, :cleaned_ms, :cpu_s,
       :memory_bytes, :read_bytes, :written_bytes, :truncated);

-- select_stats(task_id: int): the resources that the attempts of a task used.
SELECT attempt, prepared_ms, cached_ms, downloaded_ms, ran_ms, uploaded_ms, cleaned_ms, cpu_s, memory_bytes, read_bytes,
       written_bytes, truncated
  FROM attempt_stats WHERE task_id = :task_id ORDER BY attempt;

-- select_last_chunks(ids: ints): the number of the last chunk of output, and the bytes of output, of the last attempts of tasks.
SELECT t.id, c.number, c.start + LENGTH(c.body) FROM task t JOIN output_chunk c ON c.task_id = t.id AND c.attempt = t.attempt
   AND c.number = (SELECT MAX(n.number) FROM output_chunk n WHERE n.task_id = t.id AND n.attempt = t.attempt)
 WHERE t.id IN (:ids);

-- select_output_sizes(task_id: int): the bytes of output of each attempt of a task.
SELECT attempt, MAX(start + LENGTH(body)) FROM output_chunk WHERE task_id = :task_id GROUP BY attempt ORDER BY attempt;

-- each insert_chunks(task_id: int, attempt: int, number: int, start: int, at_ms: int, body: bytes): insert chunks of output.
INSERT INTO output_chunk (task_id, attempt, number, start, at_ms, body) VALUES (:task_id, :attempt, :number, :start, :at_ms, :body);

-- select_chunks(task_id: int, attempt: int, first: int, count: int): the output of an attempt, from the chunk that has a byte on.
SELECT start, body FROM output_chunk
 WHERE task_id = :task_id AND attempt = :attempt
   AND number >= (SELECT COALESCE(MAX(n.number), 1) FROM output_chunk n
                   WHERE n.task_id = :task_id AND n.attempt = :attempt AND n.start <= :first)
 ORDER BY number LIMIT :count;

-- select_chunk_times(task_id: int, attempt: int, first: int, since_ms: int, count: int): when output arrived, from the chunk that has a byte on.
SELECT start, at_ms FROM output_chunk
 WHERE task_id = :task_id AND attempt = :attempt AND at_ms >= :since_ms
   AND number >= (SELECT COALESCE(MAX(n.number), 1) FROM output_chunk n
                   WHERE n.task_id = :task_id AND n.attempt = :attempt AND n.start <= :first)
 ORDER BY number LIMIT :count;

-- each upsert_progress(task_id: int, attempt: int, at_ms: int, body: text, checkpoint: bytes): store the progress and the checkpoint of attempts; null keeps what is stored.
INSERT INTO progress (task_id, attempt, at_ms, body, checkpoint) VALUES (:task_id, :attempt, :at_ms, :body, :checkpoint)
ON CONFLICT (task_id, attempt) DO UPDATE SET at_ms = excluded.at_ms, body = COALESCE(excluded.body, progress.body),
   checkpoint = COALESCE(excluded.checkpoint, progress.checkpoint);

-- select_progress(ids: ints): the progress of the last attempts of tasks.
SELECT p.task_id, p.body FROM progress p JOIN task t ON t.id = p.task_id AND t.attempt = p.attempt WHERE p.task_id IN (:ids);

-- select_checkpoints(ids: ints): the checkpoints of attempts of tasks, newest last.
SELECT task_id, attempt, checkpoint FROM progress WHERE task_id IN (:ids) AND checkpoint IS NOT NULL ORDER BY task_id, attempt;

-- select_inputs(ids: ints): the results of the prerequisites of tasks, with their labels.
SELECT e.dependent_id, d.label, r.body FROM edge e JOIN task p ON p.id = e.prerequisite_id
  JOIN result r ON r.task_id = p.id AND r.attempt = p.attempt JOIN task_definition d ON d.id = p.id
 WHERE e.dependent_id IN (:ids);

-- select_result(task_id: int, attempt: int): the result of an attempt.
SELECT body FROM result WHERE task_id = :task_id AND attempt = :attempt;
