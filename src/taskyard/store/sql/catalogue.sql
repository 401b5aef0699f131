-- select_catalogue_changes(): how often documents were changed.
SELECT changes FROM catalogue_lock WHERE id = 1;

-- lock_catalogue(): lock the catalogue against other transactions that change documents; how often they were changed.
SELECT changes FROM catalogue_lock WHERE id = 1 FOR UPDATE;

-- count_catalogue_change(): count a change of the catalogue.
UPDATE catalogue_lock SET changes = changes + 1 WHERE id = 1;

-- select_documents(kinds: texts, names: texts): the documents with one of these names, of some kinds.
SELECT kind, name, pool, version, body, changed_ms, changed_by FROM catalogue
 WHERE kind IN (:kinds) AND name IN (:names) ORDER BY kind, name;

-- lock_documents(kinds: texts, names: texts): the same, locked in the order of kind and name.
SELECT kind, name, pool, version, body, changed_ms, changed_by FROM catalogue
 WHERE kind IN (:kinds) AND name IN (:names) ORDER BY kind, name FOR UPDATE;

-- select_document_page(kinds: texts, kind: text, name: text, count: int): a page of the documents of some kinds, after a kind and a name.
SELECT kind, name, pool, version, body, changed_ms, changed_by FROM catalogue
 WHERE kind IN (:kinds) AND (kind, name) > (:kind, :name) ORDER BY kind, name LIMIT :count;

-- select_document_page_of_pools(kinds: texts, pools: texts, kind: text, name: text, count: int): the same, of some pools.
SELECT kind, name, pool, version, body, changed_ms, changed_by FROM catalogue
 WHERE kind IN (:kinds) AND pool IN (:pools) AND (kind, name) > (:kind, :name) ORDER BY kind, name LIMIT :count;

-- select_last_versions(kinds: texts, names: texts): the last version that documents had, deleted ones too.
SELECT kind, name, MAX(version) FROM catalogue_version WHERE kind IN (:kinds) AND name IN (:names) GROUP BY kind, name;

-- select_document_versions(kind: text, name: text, before: int, count: int): versions of a document, the newest first, before one.
SELECT version, pool, body, changed_ms, changed_by FROM catalogue_version
 WHERE kind = :kind AND name = :name AND version < :before ORDER BY version DESC LIMIT :count;

-- each upsert_documents(kind: text, name: text, pool: text, version: int, body: text, at_ms: int, changed_by: text): insert documents, or replace them.
INSERT INTO catalogue (kind, name, pool, version, body, changed_ms, changed_by)
VALUES (:kind, :name, :pool, :version, :body, :at_ms, :changed_by)
ON CONFLICT (kind, name) DO UPDATE SET pool = excluded.pool, version = excluded.version, body = excluded.body,
       changed_ms = excluded.changed_ms, changed_by = excluded.changed_by;

-- each insert_document_versions(kind: text, name: text, version: int, pool: text, body: text, at_ms: int, changed_by: text): insert versions of documents.
INSERT INTO catalogue_version (kind, name, version, pool, body, changed_ms, changed_by)
VALUES (:kind, :name, :version, :pool, :body, :at_ms, :changed_by);

-- each delete_old_versions(kind: text, name: text, version: int): delete the versions of documents up to one.
DELETE FROM catalogue_version WHERE kind = :kind AND name = :name AND version <= :version;

-- each delete_documents(kind: text, name: text): delete documents.
DELETE FROM catalogue WHERE kind = :kind AND name = :name;

-- each delete_references(kind: text, name: text): delete what documents refer to.
DELETE FROM catalogue_reference WHERE kind = :kind AND name = :name;

-- each insert_references(kind: text, name: text, to_kind: text, to_name: text): insert what documents refer to.
INSERT INTO catalogue_reference (kind, name, to_kind, to_name) VALUES (:kind, :name, :to_kind, :to_name);

-- select_referrers(kind: text, name: text, count: int): documents that refer to one, with their pools.
SELECT c.kind, c.name, c.pool FROM catalogue_reference r JOIN catalogue c ON c.kind = r.kind AND c.name = r.name
 WHERE r.to_kind = :kind AND r.to_name = :name ORDER BY c.kind, c.name LIMIT :count;

-- select_references_among(kind: text): which documents of one kind refer to which others of it, with the pools of the former.
SELECT c.name, c.pool, r.to_name FROM catalogue_reference r JOIN catalogue c ON c.kind = r.kind AND c.name = r.name
 WHERE r.kind = :kind AND r.to_kind = :kind ORDER BY c.name, r.to_name;

-- select_references(kinds: texts, names: texts): what the documents with one of these names refer to.
SELECT kind, name, to_kind, to_name FROM catalogue_reference WHERE kind IN (:kinds) AND name IN (:names);

-- select_document_names(kinds: texts, names: texts): which documents with one of these names there are.
SELECT kind, name FROM catalogue WHERE kind IN (:kinds) AND name IN (:names);

-- delete_launch(id: int): delete what a graph was launched from.
DELETE FROM launch WHERE graph_id = :id;

-- delete_links(ids: ints): delete which updates these tasks stand for.
DELETE FROM link WHERE task_id IN (:ids);

-- delete_resource_updates(ids: ints): delete which resources these tasks update.
DELETE FROM resource_update WHERE task_id IN (:ids);
