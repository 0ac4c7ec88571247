-- Nodes, functions, placement, history. Ids and times come from the engine (ND-27): no default here makes either,
-- and no table refers to one of the identity system's.

create table engines (
  id text primary key,
  version text not null,
  address text not null,
  -- Grows while the engine lives. Observers watch it stand still; nobody compares clocks.
  beat bigint not null,
  started_at timestamptz not null
);

create table sites (
  id text primary key,
  org_id text not null,
  name text not null,
  created_at timestamptz not null,
  unique (org_id, name)
);

create table pools (
  id text primary key,
  org_id text not null,
  site_id text not null references sites (id),
  name text not null,
  kind text not null check (kind in ('metal-host', 'vps-host', 'provider', 'metal-dedicated')),
  created_at timestamptz not null,
  unique (org_id, name)
);

create table nodes (
  id text primary key,
  org_id text not null,
  node_id text not null check (node_id ~ '^[a-z0-9][a-z0-9-]*$' and length(node_id) <= 63),
  label text,
  region text,
  contributor text,
  site_id text not null references sites (id),
  pool_id text not null references pools (id),
  role text not null check (role in ('host', 'dedicated', 'site', 'unassigned', 'job')),
  trust text not null check (trust in ('platform', 'tenant-owned', 'tenant-controlled')),
  trust_tier text not null check (trust_tier in ('secure', 'community')),
  pending_trust_tier text check (pending_trust_tier in ('secure', 'community')),
  provision_state text not null check (provision_state in (
    'adopting', 'adopted', 'enrolling', 'inspecting', 'commissioning', 'ready', 'deploying', 'deployed',
    'releasing', 'rescue', 'failed', 'retiring', 'retired')),
  failure text,
  maintenance boolean not null,
  cordoned boolean not null,
  power text not null check (power in ('on', 'off', 'unknown')),
  connectivity text not null check (connectivity in ('disconnected', 'connected', 'unreachable', 'lost')),
  no_schedule_reasons text[] not null,
  generation bigint not null,
  observed_generation bigint not null,
  identity_generation bigint not null,
  version bigint not null,
  cpu_millis integer,
  mem_mb integer,
  runtimes text[],
  community_flag boolean not null,
  jailer_flag boolean not null,
  agent_version text,
  used_cpu_millis integer not null check (used_cpu_millis >= 0),
  used_mem_mb integer not null check (used_mem_mb >= 0),
  last_seen_at timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  revoked_at timestamptz
);
create unique index nodes_live_name on nodes (org_id, node_id) where revoked_at is null;
create index nodes_by_org on nodes (org_id, id);

-- One row an identity generation of a node. The token is known by its hash alone.
create table node_credentials (
  node_id text not null references nodes (id),
  identity_generation bigint not null,
  token_hash bytea not null unique,
  public_key bytea,
  created_at timestamptz not null,
  bound_at timestamptz,
  primary key (node_id, identity_generation)
);
create index node_credentials_by_key on node_credentials (public_key) where public_key is not null;

-- The last session of each node; live while disconnected_at is null.
create table node_sessions (
  node_id text primary key references nodes (id),
  engine_id text not null,
  epoch bigint not null,
  transport text not null check (transport in ('quic', 'tls')),
  remote_address text not null,
  connected_at timestamptz not null,
  disconnected_at timestamptz
);
create index node_sessions_by_engine on node_sessions (engine_id) where disconnected_at is null;

create table commands (
  id text primary key,
  org_id text not null,
  node_id text not null references nodes (id),
  kind text not null,
  state text not null check (state in ('queued', 'sent', 'running', 'succeeded', 'failed', 'expired', 'cancelled')),
  output text,
  deadline_ms integer not null,
  created_at timestamptz not null,
  ended_at timestamptz
);
create index commands_by_node on commands (node_id, created_at desc);

-- What was deployed, by content. The bytes stand in the blob store.
create table components (
  sha256 text primary key,
  size_bytes integer not null,
  kind text not null check (kind in ('component', 'preview1')),
  created_at timestamptz not null
);

create table artifacts (
  component_sha256 text not null references components (sha256),
  preparer text not null,
  mem_mb integer not null,
  sha256 text not null,
  size_bytes integer not null,
  created_at timestamptz not null,
  primary key (component_sha256, preparer, mem_mb)
);

create table functions (
  id text primary key,
  org_id text not null,
  name text not null check (name ~ '^[a-z0-9][a-z0-9-]*$' and length(name) <= 63),
  current_version integer not null,
  last_version integer not null,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  unique (org_id, name)
);

create table function_versions (
  id text primary key,
  function_id text not null references functions (id) on delete cascade,
  org_id text not null,
  version integer not null,
  component_sha256 text not null references components (sha256),
  size_bytes integer not null,
  cpu_millis integer not null check (cpu_millis between 100 and 16000),
  mem_mb integer not null check (mem_mb between 16 and 4096),
  allow_community boolean not null,
  region text,
  timeout_ms integer not null,
  idempotent boolean not null,
  public boolean not null,
  created_at timestamptz not null,
  created_by text not null,
  unique (function_id, version)
);

-- A durable right of a function's version to run on a node, one invocation at a time: its atoms are booked on the node in
-- the same transaction. A version may hold several on one node. It outlives its version until what runs has ended, so it
-- refers to none; whoever changes slots and used_* locks the node's row first.
create table slots (
  id text primary key,
  org_id text not null,
  function_id text not null,
  function_name text not null,
  version_id text not null,
  version integer not null,
  node_id text not null references nodes (id),
  -- The engine that counts its invocations: the one that holds the node's session.
  engine_id text not null,
  cpu_millis integer not null check (cpu_millis > 0),
  mem_mb integer not null check (mem_mb > 0),
  created_at timestamptz not null
);
create index slots_by_node on slots (node_id);
create index slots_by_version on slots (version_id);
create index slots_by_engine on slots (engine_id);

create table invocations (
  id text primary key,
  org_id text not null,
  function_id text not null,
  function_name text not null,
  version integer not null,
  node_id text,
  node_name text,
  trust_tier text,
  started_at timestamptz not null,
  duration_ms integer not null,
  ok boolean not null,
  exit_code integer,
  reason text,
  error text,
  mem_peak_mb integer,
  stdout_bytes integer not null,
  stderr_bytes integer not null
);
create index invocations_by_function on invocations (function_id, id desc);
create index invocations_by_time on invocations (started_at);

-- The audit trail: who did what, from where. `data` never holds a secret.
create table events (
  id text primary key,
  org_id text,
  at timestamptz not null,
  kind text not null,
  actor_kind text not null check (actor_kind in ('user', 'api-key', 'node', 'engine')),
  actor text not null,
  ip text,
  request_id text,
  subject text,
  data jsonb not null
);
create index events_by_org on events (org_id, id desc);
create index events_by_time on events (at);

-- A create that came twice: the same key with the same body answers as the first (rule 6, D40, D51).
create table idempotency_keys (
  org_id text not null,
  procedure text not null,
  key text not null,
  request_hash bytea not null,
  answer jsonb,
  -- Of a call outside a transaction: the engine that runs it. Without an answer when that engine starts again, it died.
  engine_id text,
  created_at timestamptz not null,
  primary key (org_id, procedure, key)
);
create index idempotency_keys_by_time on idempotency_keys (created_at);
