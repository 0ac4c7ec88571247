-- A slot is one row a (version, node): so many units, each a child that runs one invocation at a time.

alter table slots add units integer check (units > 0);
update slots s set units = mates.units
from (select min(id) as id, count(*) as units from slots group by version_id, node_id) mates
where s.id = mates.id;
delete from slots where units is null;
-- Rows of one version have the same atoms, so the sums of nodes stay what they are.
alter table slots alter units set not null;
alter table slots add constraint slots_of_version_on_node unique (version_id, node_id);
drop index slots_by_version;

-- What engines keep in memory about nodes, functions and quotas, and must forget when it changes. Said by the rows
-- themselves, so that no writer forgets to; only by changes that are rare, because a notification holds up the commits of
-- the whole server. Connectivity is none of them: each engine knows the sessions that it holds.
create function tell_node() returns trigger language plpgsql as $$
begin
  perform pg_notify('clutch', 'node ' || new.id);
  return null;
end $$;
create trigger nodes_changed after update on nodes for each row when (
  (old.role, old.trust, old.trust_tier, old.community_flag, old.provision_state, old.maintenance, old.cordoned,
    old.region, old.runtimes, old.no_schedule_reasons, old.revoked_at, old.observed_generation >= 1)
  is distinct from
  (new.role, new.trust, new.trust_tier, new.community_flag, new.provision_state, new.maintenance, new.cordoned,
    new.region, new.runtimes, new.no_schedule_reasons, new.revoked_at, new.observed_generation >= 1)
) execute function tell_node();

-- With the version that runs now; 0: the function is gone.
create function tell_function() returns trigger language plpgsql as $$
begin
  perform pg_notify('clutch', case tg_op when 'DELETE' then 'function ' || old.id || ' 0'
    else 'function ' || new.id || ' ' || new.current_version end);
  return null;
end $$;
create trigger functions_changed after update of current_version or delete on functions
for each row execute function tell_function();

create function tell_quota() returns trigger language plpgsql as $$
begin
  perform pg_notify('clutch', 'quota ' || coalesce(new.org_id, old.org_id));
  return null;
end $$;
create trigger org_quotas_changed after insert or update or delete on org_quotas
for each row execute function tell_quota();
