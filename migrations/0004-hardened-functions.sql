-- Fuel, what a node's jail lacks, uploaded components, quotas.

-- D44: units of fuel that one invocation may burn; null: as many as its time allows.
alter table function_versions add fuel_max bigint check (fuel_max > 0);
alter table invocations add fuel_used bigint;

-- Layers of the jail that this node's kernel or user does not give; null until an agent has said.
alter table nodes add jail_missing text[];

-- Bytes that an org sent ahead of a deploy. Knowing a hash is no right to what it names: only who sent the bytes, or has
-- a version of them, deploys them by hash.
create table component_uploads (
  org_id text not null,
  sha256 text not null,
  size_bytes integer not null,
  created_at timestamptz not null,
  primary key (org_id, sha256)
);
create index component_uploads_by_time on component_uploads (created_at);

-- What a platform operator set for an org; where there is no row the engine's own defaults hold.
create table org_quotas (
  org_id text primary key,
  invocations_at_once integer check (invocations_at_once > 0),
  updated_at timestamptz not null
);
