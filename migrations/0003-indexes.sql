-- For what loops and lists ask again and again.

-- Does a version still name this component? Asked when unused bytes are pruned, and by the foreign key at each deletion.
create index function_versions_by_component on function_versions (component_sha256);

-- Does an artifact still name these bytes?
create index artifacts_by_bytes on artifacts (sha256);

-- Nodes that left and are not unreachable yet: looked for every second by every engine.
create index nodes_disconnected on nodes (id) where connectivity = 'disconnected' and revoked_at is null;

-- The audit trail of one node or function.
create index events_by_subject on events (org_id, subject, id desc) where subject is not null;
