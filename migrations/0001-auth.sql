-- Part 1: what better-auth 1.7.5 needs, as its compileMigrations() prints it (script/auth-sql.ts). The only part whose
-- columns have a default of the database's own clock.

create table "users" ("id" text not null primary key, "name" text not null, "email" text not null unique, "email_verified" boolean not null, "image" text, "created_at" timestamptz default CURRENT_TIMESTAMP not null, "updated_at" timestamptz default CURRENT_TIMESTAMP not null);

create table "sessions" ("id" text not null primary key, "expires_at" timestamptz not null, "token" text not null unique, "created_at" timestamptz default CURRENT_TIMESTAMP not null, "updated_at" timestamptz not null, "ip_address" text, "user_agent" text, "user_id" text not null references "users" ("id") on delete cascade, "active_organization_id" text);

create table "accounts" ("id" text not null primary key, "account_id" text not null, "provider_id" text not null, "user_id" text not null references "users" ("id") on delete cascade, "access_token" text, "refresh_token" text, "id_token" text, "access_token_expires_at" timestamptz, "refresh_token_expires_at" timestamptz, "scope" text, "password" text, "created_at" timestamptz default CURRENT_TIMESTAMP not null, "updated_at" timestamptz not null);

create table "verifications" ("id" text not null primary key, "identifier" text not null, "value" text not null, "expires_at" timestamptz not null, "created_at" timestamptz default CURRENT_TIMESTAMP not null, "updated_at" timestamptz default CURRENT_TIMESTAMP not null);

create table "organizations" ("id" text not null primary key, "name" text not null, "slug" text not null unique, "logo" text, "created_at" timestamptz not null, "metadata" text);

create table "members" ("id" text not null primary key, "organization_id" text not null references "organizations" ("id") on delete cascade, "user_id" text not null references "users" ("id") on delete cascade, "role" text not null, "created_at" timestamptz not null);

create table "invitations" ("id" text not null primary key, "organization_id" text not null references "organizations" ("id") on delete cascade, "email" text not null, "role" text, "status" text not null, "expires_at" timestamptz not null, "created_at" timestamptz default CURRENT_TIMESTAMP not null, "inviter_id" text not null references "users" ("id") on delete cascade);

create table "apikey" ("id" text not null primary key, "config_id" text not null, "name" text, "start" text, "reference_id" text not null, "prefix" text, "key" text not null, "refill_interval" integer, "refill_amount" integer, "last_refill_at" timestamptz, "enabled" boolean, "rate_limit_enabled" boolean, "rate_limit_time_window" integer, "rate_limit_max" integer, "request_count" integer, "remaining" integer, "last_request" timestamptz, "expires_at" timestamptz, "created_at" timestamptz not null, "updated_at" timestamptz not null, "permissions" text, "metadata" text);

create table "device_code" ("id" text not null primary key, "device_code" text not null, "user_code" text not null, "user_id" text, "expires_at" timestamptz not null, "status" text not null, "last_polled_at" timestamptz, "polling_interval" integer, "client_id" text, "scope" text);

create table "rate_limits" ("id" text not null primary key, "key" text not null unique, "count" integer not null, "last_request" bigint not null);

create index "sessions_user_id_idx" on "sessions" ("user_id");

create index "accounts_user_id_idx" on "accounts" ("user_id");

create index "verifications_identifier_idx" on "verifications" ("identifier");

create index "members_organization_id_idx" on "members" ("organization_id");

create index "members_user_id_idx" on "members" ("user_id");

create index "invitations_organization_id_idx" on "invitations" ("organization_id");

create index "invitations_email_idx" on "invitations" ("email");

create index "apikey_config_id_idx" on "apikey" ("config_id");

create index "apikey_reference_id_idx" on "apikey" ("reference_id");

create index "apikey_key_idx" on "apikey" ("key");

create unique index "device_code_device_code_uidx" on "device_code" ("device_code");

create unique index "device_code_user_code_uidx" on "device_code" ("user_code");

-- Part 2: ours.

-- The first owner comes by a one-time link, of which only the hash is kept.
create table setup_links (
  token_hash bytea primary key,
  expires_at timestamptz not null
);

-- What each migration was when it ran (lower-case hex): a changed file is refused.
create table migration_hashes (
  name text primary key,
  sha256 text not null
);
