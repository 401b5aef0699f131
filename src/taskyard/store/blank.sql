BEGIN TRANSACTION;
CREATE TABLE admission_dirty (
	id INTEGER NOT NULL,
	task_id INTEGER,
	CONSTRAINT admission_dirty_pk PRIMARY KEY (id)
);
CREATE TABLE admission_lock (
	id INTEGER NOT NULL,
	epoch INTEGER DEFAULT 0 NOT NULL,
	holder TEXT,
	until_ms INTEGER,
	CONSTRAINT admission_lock_pk PRIMARY KEY (id)
);
INSERT INTO "admission_lock" VALUES(1,0,NULL,NULL);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE artifact (
	task_id INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	name TEXT NOT NULL,
	pool TEXT NOT NULL,
	tree TEXT NOT NULL,
	path TEXT NOT NULL,
	size INTEGER DEFAULT 0 NOT NULL,
	content_type TEXT NOT NULL,
	CONSTRAINT artifact_pk PRIMARY KEY (task_id, attempt, name)
)
 WITHOUT ROWID
;
CREATE TABLE attempt (
	task_id INTEGER NOT NULL,
	number INTEGER NOT NULL,
	bot_id TEXT NOT NULL,
	session TEXT NOT NULL,
	poll_id TEXT NOT NULL,
	fence INTEGER DEFAULT 0 NOT NULL,
	round INTEGER DEFAULT 0 NOT NULL,
	slice_index INTEGER DEFAULT 0 NOT NULL,
	snapshot_id INTEGER,
	claim_fence INTEGER,
	claimed_ms INTEGER NOT NULL,
	ended_ms INTEGER,
	signal TEXT,
	reason TEXT,
	exit_code INTEGER,
	CONSTRAINT attempt_pk PRIMARY KEY (task_id, number)
)
 WITHOUT ROWID
;
CREATE TABLE attempt_block (
	bot_id TEXT NOT NULL,
	block INTEGER NOT NULL,
	CONSTRAINT attempt_block_pk PRIMARY KEY (bot_id, block)
)
 WITHOUT ROWID
;
CREATE TABLE attempt_files (
	task_id INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	pool TEXT NOT NULL,
	tree TEXT NOT NULL,
	files INTEGER DEFAULT 0 NOT NULL,
	bytes INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT attempt_files_pk PRIMARY KEY (task_id, attempt)
)
 WITHOUT ROWID
;
CREATE TABLE attempt_stats (
	task_id INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	prepared_ms INTEGER,
	cached_ms INTEGER,
	downloaded_ms INTEGER,
	ran_ms INTEGER,
	uploaded_ms INTEGER,
	cleaned_ms INTEGER,
	cpu_s FLOAT,
	memory_bytes INTEGER,
	read_bytes INTEGER,
	written_bytes INTEGER,
	truncated INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT attempt_stats_pk PRIMARY KEY (task_id, attempt)
)
 WITHOUT ROWID
;
CREATE TABLE audit (
	id INTEGER NOT NULL,
	at_ms INTEGER NOT NULL,
	actor TEXT NOT NULL,
	action TEXT NOT NULL,
	subject_id INTEGER NOT NULL,
	note TEXT NOT NULL,
	CONSTRAINT audit_pk PRIMARY KEY (id)
);
CREATE TABLE bot (
	id TEXT NOT NULL,
	pool TEXT,
	session TEXT NOT NULL,
	previous_sessions TEXT NOT NULL,
	recent_polls TEXT NOT NULL,
	slots INTEGER DEFAULT 1 NOT NULL,
	first_seen_ms INTEGER NOT NULL,
	last_seen_ms INTEGER NOT NULL,
	server TEXT NOT NULL,
	quarantined TEXT,
	maintenance TEXT,
	draining INTEGER DEFAULT 0 NOT NULL,
	terminated INTEGER DEFAULT 0 NOT NULL,
	missing INTEGER DEFAULT 0 NOT NULL,
	version TEXT,
	snapshot_id INTEGER,
	failures INTEGER DEFAULT 0 NOT NULL,
	failed_ms INTEGER,
	changes INTEGER DEFAULT 0 NOT NULL,
	events INTEGER DEFAULT 0 NOT NULL,
	reserved_task_id INTEGER,
	CONSTRAINT bot_pk PRIMARY KEY (id)
);
CREATE TABLE bot_dimensions (
	bot_id TEXT NOT NULL,
	dimensions TEXT NOT NULL,
	caches TEXT DEFAULT '' NOT NULL,
	CONSTRAINT bot_dimensions_pk PRIMARY KEY (bot_id),
	CONSTRAINT bot_dimensions_bot_id_fk FOREIGN KEY(bot_id) REFERENCES bot (id)
);
CREATE TABLE bot_event (
	bot_id TEXT NOT NULL,
	id TEXT NOT NULL,
	at_ms INTEGER NOT NULL,
	kind TEXT NOT NULL,
	task_id INTEGER,
	attempt INTEGER,
	note TEXT NOT NULL,
	CONSTRAINT bot_event_pk PRIMARY KEY (bot_id, id),
	CONSTRAINT bot_event_bot_id_fk FOREIGN KEY(bot_id) REFERENCES bot (id)
)
 WITHOUT ROWID
;
CREATE TABLE bot_queue (
	bot_id TEXT NOT NULL,
	queue_id INTEGER NOT NULL,
	CONSTRAINT bot_queue_pk PRIMARY KEY (bot_id, queue_id),
	CONSTRAINT bot_queue_bot_id_fk FOREIGN KEY(bot_id) REFERENCES bot (id),
	CONSTRAINT bot_queue_queue_id_fk FOREIGN KEY(queue_id) REFERENCES queue (id)
)
 WITHOUT ROWID
;
CREATE TABLE bot_settings (
	bot_id TEXT NOT NULL,
	quarantined TEXT,
	maintenance TEXT,
	draining INTEGER DEFAULT 0 NOT NULL,
	terminated INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT bot_settings_pk PRIMARY KEY (bot_id),
	CONSTRAINT bot_settings_bot_id_fk FOREIGN KEY(bot_id) REFERENCES bot (id)
);
CREATE TABLE bot_snapshot (
	id INTEGER NOT NULL,
	dimensions TEXT NOT NULL,
	version TEXT NOT NULL,
	used_ms INTEGER NOT NULL,
	CONSTRAINT bot_snapshot_pk PRIMARY KEY (id)
);
CREATE TABLE catalogue (
	kind TEXT NOT NULL,
	name TEXT NOT NULL,
	pool TEXT NOT NULL,
	version INTEGER DEFAULT 1 NOT NULL,
	body TEXT NOT NULL,
	changed_ms INTEGER NOT NULL,
	changed_by TEXT NOT NULL,
	CONSTRAINT catalogue_pk PRIMARY KEY (kind, name)
);
CREATE TABLE catalogue_lock (
	id INTEGER NOT NULL,
	changes INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT catalogue_lock_pk PRIMARY KEY (id)
);
INSERT INTO "catalogue_lock" VALUES(1,0);
CREATE TABLE catalogue_reference (
	kind TEXT NOT NULL,
	name TEXT NOT NULL,
	to_kind TEXT NOT NULL,
	to_name TEXT NOT NULL,
	CONSTRAINT catalogue_reference_pk PRIMARY KEY (kind, name, to_kind, to_name)
)
 WITHOUT ROWID
;
CREATE TABLE catalogue_version (
	kind TEXT NOT NULL,
	name TEXT NOT NULL,
	version INTEGER NOT NULL,
	pool TEXT NOT NULL,
	body TEXT,
	changed_ms INTEGER NOT NULL,
	changed_by TEXT NOT NULL,
	CONSTRAINT catalogue_version_pk PRIMARY KEY (kind, name, version)
);
CREATE TABLE continuation (
	id INTEGER NOT NULL,
	kind TEXT NOT NULL,
	graph_id INTEGER NOT NULL,
	task_id INTEGER,
	source TEXT,
	target TEXT,
	cursor INTEGER DEFAULT 0 NOT NULL,
	tasks TEXT NOT NULL,
	actor TEXT NOT NULL,
	CONSTRAINT continuation_pk PRIMARY KEY (id),
	CONSTRAINT continuation_graph_id_fk FOREIGN KEY(graph_id) REFERENCES graph (id)
);
CREATE TABLE dead_delivery (
	webhook TEXT NOT NULL,
	id TEXT NOT NULL,
	body TEXT NOT NULL,
	died_ms INTEGER NOT NULL,
	error TEXT NOT NULL,
	again INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT dead_delivery_pk PRIMARY KEY (webhook, id)
)
 WITHOUT ROWID
;
CREATE TABLE dimension_aggregation (
	id TEXT NOT NULL,
	dimensions TEXT NOT NULL,
	CONSTRAINT dimension_aggregation_pk PRIMARY KEY (id)
);
CREATE TABLE edge (
	prerequisite_id INTEGER NOT NULL,
	dependent_id INTEGER NOT NULL,
	on_end TEXT NOT NULL,
	handled_round INTEGER,
	CONSTRAINT edge_pk PRIMARY KEY (prerequisite_id, dependent_id, on_end),
	CONSTRAINT edge_prerequisite_id_fk FOREIGN KEY(prerequisite_id) REFERENCES task (id),
	CONSTRAINT edge_dependent_id_fk FOREIGN KEY(dependent_id) REFERENCES task (id)
)
 WITHOUT ROWID
;
CREATE TABLE event (
	graph_id INTEGER NOT NULL,
	number INTEGER NOT NULL,
	subject_id INTEGER NOT NULL,
	at_ms INTEGER NOT NULL,
	facts TEXT NOT NULL,
	CONSTRAINT event_pk PRIMARY KEY (graph_id, number)
)
 WITHOUT ROWID
;
CREATE TABLE event_stream (
	id INTEGER NOT NULL,
	last INTEGER DEFAULT 0 NOT NULL,
	gone INTEGER DEFAULT 0 NOT NULL,
	wanted_until_ms INTEGER DEFAULT 0 NOT NULL,
	since_ms INTEGER DEFAULT 0 NOT NULL,
	skipped INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT event_stream_pk PRIMARY KEY (id)
);
INSERT INTO "event_stream" VALUES(1,0,0,0,0,0);
CREATE TABLE event_target (
	name TEXT NOT NULL,
	position INTEGER NOT NULL,
	added_ms INTEGER NOT NULL,
	delivered_ms INTEGER NOT NULL,
	CONSTRAINT event_target_pk PRIMARY KEY (name)
);
CREATE TABLE forgotten_bot (
	id TEXT NOT NULL,
	pool TEXT NOT NULL,
	forgotten_ms INTEGER NOT NULL,
	CONSTRAINT forgotten_bot_pk PRIMARY KEY (id)
);
CREATE TABLE graph (
	id INTEGER NOT NULL,
	state TEXT NOT NULL,
	active INTEGER DEFAULT 0 NOT NULL,
	behind INTEGER DEFAULT 0 NOT NULL,
	unhandled INTEGER DEFAULT 0 NOT NULL,
	events INTEGER DEFAULT 0 NOT NULL,
	events_published INTEGER DEFAULT 0 NOT NULL,
	extensions INTEGER DEFAULT 0 NOT NULL,
	created_ms INTEGER NOT NULL,
	moved_ms INTEGER NOT NULL,
	canceled_ms INTEGER,
	loader TEXT,
	parent_id INTEGER,
	parent_attempt INTEGER,
	CONSTRAINT graph_pk PRIMARY KEY (id),
	CONSTRAINT graph_state_is_known CHECK (state IN ('blocked', 'canceled', 'canceling', 'finished', 'running')),
	CONSTRAINT graph_active_is_not_negative CHECK (active >= 0),
	CONSTRAINT graph_behind_is_not_negative CHECK (behind >= 0),
	CONSTRAINT graph_unhandled_is_not_negative CHECK (unhandled >= 0)
);
CREATE TABLE graph_definition (
	id INTEGER NOT NULL,
	scheduler_id TEXT NOT NULL,
	name TEXT NOT NULL,
	routing TEXT NOT NULL,
	description TEXT NOT NULL,
	tags TEXT NOT NULL,
	digest TEXT NOT NULL,
	CONSTRAINT graph_definition_pk PRIMARY KEY (id),
	CONSTRAINT graph_definition_id_fk FOREIGN KEY(id) REFERENCES graph (id)
);
CREATE TABLE graph_pool (
	graph_id INTEGER NOT NULL,
	pool TEXT NOT NULL,
	CONSTRAINT graph_pool_pk PRIMARY KEY (graph_id, pool),
	CONSTRAINT graph_pool_graph_id_fk FOREIGN KEY(graph_id) REFERENCES graph (id)
)
 WITHOUT ROWID
;
CREATE TABLE graph_rerun (
	graph_id INTEGER NOT NULL,
	source_id INTEGER NOT NULL,
	labels TEXT NOT NULL,
	to_run INTEGER DEFAULT 0 NOT NULL,
	reused INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT graph_rerun_pk PRIMARY KEY (graph_id),
	CONSTRAINT graph_rerun_graph_id_fk FOREIGN KEY(graph_id) REFERENCES graph (id)
);
CREATE TABLE hash_key (
	id INTEGER NOT NULL,
	key_id TEXT NOT NULL,
	wrapped_key BLOB NOT NULL,
	CONSTRAINT hash_key_pk PRIMARY KEY (id)
);
CREATE TABLE hold (
	task_id INTEGER NOT NULL,
	reason TEXT NOT NULL,
	name TEXT,
	blocker_id INTEGER,
	since_ms INTEGER,
	mutex_since_ms INTEGER,
	CONSTRAINT hold_pk PRIMARY KEY (task_id),
	CONSTRAINT hold_task_id_fk FOREIGN KEY(task_id) REFERENCES task (id)
);
CREATE TABLE idempotency_key (
	"key" TEXT NOT NULL,
	digest TEXT NOT NULL,
	response TEXT NOT NULL,
	at_ms INTEGER,
	graph_id INTEGER,
	CONSTRAINT idempotency_key_pk PRIMARY KEY ("key")
);
CREATE TABLE launch (
	graph_id INTEGER NOT NULL,
	kind TEXT NOT NULL,
	name TEXT NOT NULL,
	version INTEGER DEFAULT 0 NOT NULL,
	launch_type TEXT NOT NULL,
	variables TEXT NOT NULL,
	options TEXT NOT NULL,
	actor TEXT NOT NULL,
	schedule TEXT,
	due_ms INTEGER,
	relaunch_of INTEGER,
	CONSTRAINT launch_pk PRIMARY KEY (graph_id),
	CONSTRAINT launch_graph_id_fk FOREIGN KEY(graph_id) REFERENCES graph (id)
);
CREATE TABLE link (
	task_id INTEGER NOT NULL,
	resource TEXT NOT NULL,
	update_task_id INTEGER NOT NULL,
	update_graph_id INTEGER NOT NULL,
	freshness TEXT NOT NULL,
	CONSTRAINT link_pk PRIMARY KEY (task_id),
	CONSTRAINT link_task_id_fk FOREIGN KEY(task_id) REFERENCES task (id)
);
CREATE TABLE mutex_policy (
	"key" TEXT NOT NULL,
	stake_after_ms INTEGER,
	CONSTRAINT mutex_policy_pk PRIMARY KEY ("key")
);
CREATE TABLE named_limit (
	name TEXT NOT NULL,
	total INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT named_limit_pk PRIMARY KEY (name)
);
CREATE TABLE output_chunk (
	task_id INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	number INTEGER NOT NULL,
	start INTEGER DEFAULT 0 NOT NULL,
	at_ms INTEGER NOT NULL,
	body BLOB NOT NULL,
	CONSTRAINT output_chunk_pk PRIMARY KEY (task_id, attempt, number)
);
CREATE TABLE pool (
	name TEXT NOT NULL,
	capacity INTEGER,
	from_bots INTEGER DEFAULT 0 NOT NULL,
	unit TEXT DEFAULT 'slots' NOT NULL,
	adjustment FLOAT DEFAULT 1 NOT NULL,
	external INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT pool_pk PRIMARY KEY (name)
);
CREATE TABLE pool_minute (
	minute_ms INTEGER NOT NULL,
	pool TEXT NOT NULL,
	submitted INTEGER DEFAULT 0 NOT NULL,
	started INTEGER DEFAULT 0 NOT NULL,
	successful INTEGER DEFAULT 0 NOT NULL,
	failed INTEGER DEFAULT 0 NOT NULL,
	error INTEGER DEFAULT 0 NOT NULL,
	canceled INTEGER DEFAULT 0 NOT NULL,
	skipped INTEGER DEFAULT 0 NOT NULL,
	waiting INTEGER DEFAULT 0 NOT NULL,
	oldest_ms INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT pool_minute_pk PRIMARY KEY (minute_ms, pool)
)
 WITHOUT ROWID
;
CREATE TABLE progress (
	task_id INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	at_ms INTEGER NOT NULL,
	body TEXT,
	checkpoint BLOB,
	CONSTRAINT progress_pk PRIMARY KEY (task_id, attempt)
)
 WITHOUT ROWID
;
CREATE TABLE purged_graph (
	graph_id INTEGER NOT NULL,
	settled_ms INTEGER NOT NULL,
	parts INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT purged_graph_pk PRIMARY KEY (graph_id),
	CONSTRAINT purged_graph_graph_id_fk FOREIGN KEY(graph_id) REFERENCES graph (id)
);
CREATE TABLE queue (
	id INTEGER NOT NULL,
	number INTEGER NOT NULL,
	hash INTEGER NOT NULL,
	root TEXT NOT NULL,
	pool TEXT NOT NULL,
	dimensions TEXT NOT NULL,
	used_ms INTEGER NOT NULL,
	CONSTRAINT queue_pk PRIMARY KEY (id),
	CONSTRAINT queue_number_key UNIQUE (number),
	CONSTRAINT queue_dimensions_key UNIQUE (dimensions)
);
INSERT INTO "queue" VALUES(0,0,0,'server','','',0);
CREATE TABLE resource_update (
	resource TEXT NOT NULL,
	digest TEXT NOT NULL,
	task_id INTEGER NOT NULL,
	graph_id INTEGER NOT NULL,
	CONSTRAINT resource_update_pk PRIMARY KEY (resource, digest, task_id),
	CONSTRAINT resource_update_task_id_fk FOREIGN KEY(task_id) REFERENCES task (id)
)
 WITHOUT ROWID
;
CREATE TABLE result (
	task_id INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	body TEXT NOT NULL,
	digest TEXT,
	CONSTRAINT result_pk PRIMARY KEY (task_id, attempt)
)
 WITHOUT ROWID
;
CREATE TABLE retention (
	pool TEXT NOT NULL,
	kind TEXT NOT NULL,
	keep_ms INTEGER,
	CONSTRAINT retention_pk PRIMARY KEY (pool, kind)
)
 WITHOUT ROWID
;
CREATE TABLE reuse_follower (
	task_id INTEGER NOT NULL,
	"key" TEXT NOT NULL,
	priority INTEGER DEFAULT 0 NOT NULL,
	created_ms INTEGER NOT NULL,
	CONSTRAINT reuse_follower_pk PRIMARY KEY (task_id),
	CONSTRAINT reuse_follower_task_id_fk FOREIGN KEY(task_id) REFERENCES task (id)
);
CREATE TABLE reuse_key (
	"key" TEXT NOT NULL,
	leader_id INTEGER,
	source_id INTEGER,
	source_graph_id INTEGER,
	attempt INTEGER,
	size INTEGER,
	finished_ms INTEGER,
	CONSTRAINT reuse_key_pk PRIMARY KEY ("key")
)
 WITHOUT ROWID
;
CREATE TABLE reuse_policy (
	pool TEXT NOT NULL,
	window_ms INTEGER,
	shared INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT reuse_policy_pk PRIMARY KEY (pool)
);
CREATE TABLE schedule_plan (
	name TEXT NOT NULL,
	version INTEGER DEFAULT 0 NOT NULL,
	next_ms INTEGER,
	last_ms INTEGER,
	note TEXT,
	CONSTRAINT schedule_plan_pk PRIMARY KEY (name)
);
CREATE TABLE secret (
	pool TEXT NOT NULL,
	name TEXT NOT NULL,
	version INTEGER DEFAULT 1 NOT NULL,
	digest TEXT NOT NULL,
	key_id TEXT NOT NULL,
	wrapped_key BLOB NOT NULL,
	body BLOB NOT NULL,
	created_ms INTEGER NOT NULL,
	changed_ms INTEGER NOT NULL,
	changed_by TEXT NOT NULL,
	CONSTRAINT secret_pk PRIMARY KEY (pool, name)
);
CREATE TABLE secret_bytes (
	task_id INTEGER NOT NULL,
	first_id INTEGER NOT NULL,
	digest TEXT NOT NULL,
	key_id TEXT NOT NULL,
	wrapped_key BLOB NOT NULL,
	body BLOB NOT NULL,
	CONSTRAINT secret_bytes_pk PRIMARY KEY (task_id),
	CONSTRAINT secret_bytes_task_id_fk FOREIGN KEY(task_id) REFERENCES task (id)
);
CREATE TABLE server (
	name TEXT NOT NULL,
	since_ms INTEGER NOT NULL,
	seen_ms INTEGER NOT NULL,
	CONSTRAINT server_pk PRIMARY KEY (name)
);
CREATE TABLE service (
	id INTEGER NOT NULL,
	queues INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT service_pk PRIMARY KEY (id)
);
INSERT INTO "service" VALUES(1,0);
CREATE TABLE session (
	digest TEXT NOT NULL,
	kind TEXT NOT NULL,
	token_id TEXT NOT NULL,
	created_ms INTEGER NOT NULL,
	expires_ms INTEGER NOT NULL,
	CONSTRAINT session_pk PRIMARY KEY (digest),
	CONSTRAINT session_kind_is_known CHECK (kind IN ('browser', 'link'))
);
CREATE TABLE signing_key (
	id INTEGER NOT NULL,
	body BLOB NOT NULL,
	CONSTRAINT signing_key_pk PRIMARY KEY (id)
);
CREATE TABLE streamed_event (
	number INTEGER NOT NULL,
	graph_id INTEGER NOT NULL,
	event_number INTEGER NOT NULL,
	CONSTRAINT streamed_event_pk PRIMARY KEY (number)
)
 WITHOUT ROWID
;
CREATE TABLE task (
	id INTEGER NOT NULL,
	graph_id INTEGER NOT NULL,
	previous_state TEXT,
	state TEXT NOT NULL,
	reason TEXT NOT NULL,
	moved_ms INTEGER NOT NULL,
	attempt INTEGER DEFAULT 0 NOT NULL,
	began_after INTEGER DEFAULT 0 NOT NULL,
	ended TEXT,
	round INTEGER DEFAULT 1 NOT NULL,
	reruns_used INTEGER DEFAULT 0 NOT NULL,
	retries_used INTEGER DEFAULT 0 NOT NULL,
	slice_index INTEGER DEFAULT 0 NOT NULL,
	waits_since_ms INTEGER,
	not_before_ms INTEGER,
	rules TEXT NOT NULL,
	kind TEXT NOT NULL,
	priority INTEGER DEFAULT 0 NOT NULL,
	created_ms INTEGER NOT NULL,
	weight INTEGER DEFAULT 0 NOT NULL,
	join_rule TEXT NOT NULL,
	on_impossible TEXT NOT NULL,
	is_handler INTEGER DEFAULT 0 NOT NULL,
	is_constrained INTEGER DEFAULT 0 NOT NULL,
	awaited INTEGER DEFAULT 0 NOT NULL,
	met INTEGER DEFAULT 0 NOT NULL,
	broken INTEGER DEFAULT 0 NOT NULL,
	impossible INTEGER DEFAULT 0 NOT NULL,
	handlers_ran INTEGER DEFAULT 0 NOT NULL,
	handlers_open INTEGER DEFAULT 0 NOT NULL,
	loading INTEGER DEFAULT 0 NOT NULL,
	open_continuations INTEGER DEFAULT 0 NOT NULL,
	needs_admission INTEGER DEFAULT 0 NOT NULL,
	queue_id INTEGER NOT NULL,
	bot_id TEXT,
	avoid_bot TEXT,
	fence INTEGER DEFAULT 0 NOT NULL,
	lease_until_ms INTEGER,
	due_ms INTEGER,
	caches TEXT,
	gone_wrong TEXT,
	CONSTRAINT task_pk PRIMARY KEY (id),
	CONSTRAINT task_moves_along_an_arrow CHECK (previous_state IS NULL AND state = 'unscheduled' OR previous_state IS NOT NULL AND CASE state WHEN 'waiting' THEN previous_state = 'pending' WHEN 'running' THEN previous_state = 'waiting' WHEN 'successful' THEN previous_state = 'unscheduled' OR previous_state = 'pending' OR previous_state = 'running' WHEN 'pending' THEN previous_state = 'unscheduled' OR previous_state = 'pending' OR previous_state = 'waiting' OR previous_state = 'running' WHEN 'unscheduled' THEN previous_state = 'blocked' OR previous_state = 'failed' OR previous_state = 'error' OR previous_state = 'canceled' OR previous_state = 'skipped' WHEN 'blocked' THEN previous_state = 'unscheduled' WHEN 'stopping' THEN previous_state = 'running' WHEN 'failed' THEN previous_state = 'unscheduled' OR previous_state = 'running' WHEN 'error' THEN previous_state = 'unscheduled' OR previous_state = 'blocked' OR previous_state = 'pending' OR previous_state = 'waiting' OR previous_state = 'running' WHEN 'canceled' THEN previous_state = 'unscheduled' OR previous_state = 'blocked' OR previous_state = 'pending' OR previous_state = 'waiting' OR previous_state = 'stopping' WHEN 'skipped' THEN previous_state = 'unscheduled' OR previous_state = 'blocked' ELSE FALSE END),
	CONSTRAINT task_a_bot_has_what_is_leased CHECK ((bot_id IS NOT NULL) = (state IN ('running', 'stopping'))),
	CONSTRAINT task_awaited_is_not_negative CHECK (awaited >= 0),
	CONSTRAINT task_met_is_not_negative CHECK (met >= 0),
	CONSTRAINT task_broken_is_not_negative CHECK (broken >= 0),
	CONSTRAINT task_impossible_is_not_negative CHECK (impossible >= 0),
	CONSTRAINT task_handlers_ran_is_not_negative CHECK (handlers_ran >= 0),
	CONSTRAINT task_handlers_open_is_not_negative CHECK (handlers_open >= 0),
	CONSTRAINT task_open_continuations_is_not_negative CHECK (open_continuations >= 0),
	CONSTRAINT task_graph_id_fk FOREIGN KEY(graph_id) REFERENCES graph (id)
);
CREATE TABLE task_child (
	graph_id INTEGER NOT NULL,
	parent_id INTEGER NOT NULL,
	parent_attempt INTEGER NOT NULL,
	watched INTEGER DEFAULT 1 NOT NULL,
	CONSTRAINT task_child_pk PRIMARY KEY (graph_id),
	CONSTRAINT task_child_graph_id_fk FOREIGN KEY(graph_id) REFERENCES graph (id)
)
 WITHOUT ROWID
;
CREATE TABLE task_definition (
	id INTEGER NOT NULL,
	graph_id INTEGER NOT NULL,
	label TEXT NOT NULL,
	definition TEXT NOT NULL,
	digest TEXT,
	submitter TEXT NOT NULL,
	user_name TEXT NOT NULL,
	CONSTRAINT task_definition_pk PRIMARY KEY (id),
	CONSTRAINT task_definition_id_fk FOREIGN KEY(id) REFERENCES task (id)
);
CREATE TABLE task_input_tree (
	task_id INTEGER NOT NULL,
	tree TEXT NOT NULL,
	CONSTRAINT task_input_tree_pk PRIMARY KEY (task_id, tree)
)
 WITHOUT ROWID
;
CREATE TABLE task_limit (
	task_id INTEGER NOT NULL,
	name TEXT NOT NULL,
	amount INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT task_limit_pk PRIMARY KEY (task_id, name),
	CONSTRAINT task_limit_task_id_fk FOREIGN KEY(task_id) REFERENCES task (id)
)
 WITHOUT ROWID
;
CREATE TABLE task_mutex (
	task_id INTEGER NOT NULL,
	"key" TEXT NOT NULL,
	party TEXT,
	CONSTRAINT task_mutex_pk PRIMARY KEY (task_id, "key"),
	CONSTRAINT task_mutex_task_id_fk FOREIGN KEY(task_id) REFERENCES task (id)
)
 WITHOUT ROWID
;
CREATE TABLE task_reuse (
	task_id INTEGER NOT NULL,
	source_id INTEGER NOT NULL,
	source_graph_id INTEGER NOT NULL,
	attempt INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT task_reuse_pk PRIMARY KEY (task_id),
	CONSTRAINT task_reuse_task_id_fk FOREIGN KEY(task_id) REFERENCES task (id)
);
CREATE TABLE task_secret (
	task_id INTEGER NOT NULL,
	slice_index INTEGER NOT NULL,
	variable TEXT NOT NULL,
	pool TEXT NOT NULL,
	name TEXT NOT NULL,
	is_file INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT task_secret_pk PRIMARY KEY (task_id, slice_index, variable),
	CONSTRAINT task_secret_task_id_fk FOREIGN KEY(task_id) REFERENCES task (id)
)
 WITHOUT ROWID
;
CREATE TABLE task_tag (
	tag TEXT NOT NULL,
	last_id INTEGER NOT NULL,
	first_id INTEGER NOT NULL,
	CONSTRAINT task_tag_pk PRIMARY KEY (tag, last_id)
)
 WITHOUT ROWID
;
CREATE TABLE token (
	id TEXT NOT NULL,
	kind TEXT NOT NULL,
	name TEXT NOT NULL,
	digest TEXT NOT NULL,
	scopes TEXT NOT NULL,
	pool TEXT,
	created_ms INTEGER NOT NULL,
	expires_ms INTEGER,
	revoked_ms INTEGER,
	CONSTRAINT token_pk PRIMARY KEY (id),
	CONSTRAINT token_kind_is_known CHECK (kind IN ('bot', 'enrolment', 'user'))
);
CREATE TABLE webhook (
	name TEXT NOT NULL,
	pool TEXT,
	graph_id INTEGER,
	kinds TEXT NOT NULL,
	url TEXT NOT NULL,
	paused INTEGER DEFAULT 0 NOT NULL,
	version INTEGER DEFAULT 1 NOT NULL,
	changed_ms INTEGER NOT NULL,
	changed_by TEXT NOT NULL,
	failing_since_ms INTEGER,
	error TEXT,
	CONSTRAINT webhook_pk PRIMARY KEY (name)
);
CREATE TABLE webhook_sender (
	id INTEGER NOT NULL,
	holder TEXT NOT NULL,
	until_ms INTEGER NOT NULL,
	CONSTRAINT webhook_sender_pk PRIMARY KEY (id)
);
CREATE INDEX bot_reserved ON bot (reserved_task_id) WHERE reserved_task_id IS NOT NULL;
CREATE INDEX queue_of_root ON queue (root, hash);
CREATE INDEX bot_snapshot_used ON bot_snapshot (used_ms);
CREATE INDEX bot_queue_queue ON bot_queue (queue_id);
CREATE INDEX attempt_block_block ON attempt_block (block);
CREATE INDEX graph_loading ON graph (id) WHERE loader IS NOT NULL;
CREATE UNIQUE INDEX graph_of_attempt ON graph (parent_id, parent_attempt) WHERE parent_id IS NOT NULL;
CREATE INDEX graph_settled ON graph (moved_ms, id) WHERE active = 0 AND loader IS NULL;
CREATE INDEX graph_unpublished ON graph (id) WHERE events > events_published;
CREATE INDEX graph_name ON graph_definition (name, id) WHERE name <> '';
CREATE INDEX task_gone_wrong ON task (gone_wrong, id) WHERE gone_wrong IS NOT NULL;
CREATE INDEX task_in_admission ON task (state, id) WHERE needs_admission = 1;
CREATE INDEX task_due ON task (due_ms) WHERE due_ms IS NOT NULL;
CREATE INDEX task_in_queue ON task (queue_id, priority, created_ms, id) WHERE state = 'waiting';
CREATE INDEX task_of_bot ON task (bot_id) WHERE bot_id IS NOT NULL;
CREATE INDEX task_with_caches ON task (queue_id, priority, created_ms, id) WHERE state = 'waiting' AND caches IS NOT NULL;
CREATE INDEX task_of_graph ON task (graph_id, id);
CREATE INDEX edge_of_dependent ON edge (dependent_id, prerequisite_id);
CREATE UNIQUE INDEX task_label ON task_definition (graph_id, label);
CREATE INDEX task_mutex_key ON task_mutex ("key");
CREATE INDEX task_tag_last ON task_tag (last_id);
CREATE INDEX task_child_parent ON task_child (parent_id);
CREATE INDEX task_child_watched ON task_child (graph_id) WHERE watched = 1;
CREATE INDEX task_input_tree_tree ON task_input_tree (tree);
CREATE INDEX attempt_files_tree ON attempt_files (tree);
CREATE INDEX artifact_tree ON artifact (tree);
CREATE INDEX secret_of_key ON secret (key_id);
CREATE INDEX secret_bytes_of_key ON secret_bytes (key_id);
CREATE INDEX task_secret_of_name ON task_secret (pool, name);
CREATE INDEX reuse_key_leader ON reuse_key (leader_id, source_id) WHERE leader_id IS NOT NULL;
CREATE INDEX reuse_key_source ON reuse_key (source_id) WHERE source_id IS NOT NULL;
CREATE INDEX reuse_follower_order ON reuse_follower ("key", priority, created_ms, task_id);
CREATE INDEX catalogue_reference_to ON catalogue_reference (to_kind, to_name);
CREATE INDEX launch_of_template ON launch (kind, name, graph_id);
CREATE UNIQUE INDEX launch_of_schedule ON launch (schedule, due_ms) WHERE schedule IS NOT NULL;
CREATE INDEX schedule_plan_next ON schedule_plan (next_ms) WHERE next_ms IS NOT NULL;
CREATE INDEX resource_update_task ON resource_update (task_id);
CREATE INDEX link_update ON link (update_task_id);
CREATE INDEX idempotency_key_at ON idempotency_key (at_ms);
CREATE INDEX idempotency_key_graph ON idempotency_key (graph_id) WHERE graph_id IS NOT NULL;
CREATE INDEX audit_of_subject ON audit (subject_id);
CREATE INDEX event_of_subject ON event (subject_id, number);
CREATE INDEX continuation_of_graph ON continuation (graph_id);
CREATE INDEX continuation_of_task ON continuation (task_id);
CREATE INDEX token_created ON token (created_ms, id);
CREATE INDEX session_of_token ON session (token_id, created_ms);
CREATE INDEX graph_pool_pool ON graph_pool (pool, graph_id);
COMMIT;
