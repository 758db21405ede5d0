-- name: reset
-- Empties a migrated database and puts back what a test may have changed: quicker than making a new one. Not the clock.
select pg_terminate_backend(pid, 20000) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend';
-- Partitions that a service was dropping when its test ended, and those of days that only a clock of a test reached:
-- with each of them all that follows would take longer.
do $$ declare child record; begin
  for child in select c.oid::regclass as name, i.inhparent::regclass as parent, i.inhdetachpending as is_detached
    from pg_class c left join pg_inherits i on i.inhrelid = c.oid
    where c.relnamespace = 'weft'::regnamespace and c.relkind = 'r' and c.relname ~ '_[0-9]{8}$'
      and (i.inhrelid is null or i.inhdetachpending
        or to_date(right(c.relname, 8), 'YYYYMMDD') - (weft.now() at time zone 'UTC')::date not between -1 and 8)
  loop
    if child.is_detached then
      execute format('alter table %s detach partition %s finalize', child.parent, child.name);
    end if;
    execute format('drop table %s', child.name);
  end loop;
end $$;
-- Neither what refers to what matters now, nor what must never be changed.
set session_replication_role = replica;
do $$ declare name text; begin
  for name in select format('weft.%I', c.relname) from pg_class c
    where c.relnamespace = 'weft'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
      and c.relname not in ('schema_revision', 'machine', 'org', 'queue')
  loop execute 'delete from ' || name; end loop;
end $$;
reset session_replication_role;
insert into weft.tally_mark (name, id) values ('tasks_created', 0);
delete from weft.queue where id not in (1, 2);
delete from weft.org where id <> 1;
update weft.queue set max_running = null, max_running_per_key = null, paused_at = null;
update weft.machine set holder = null, until = '-infinity' where holder is not null or until <> '-infinity';
-- Tables of datasets, and the views of these.
do $$ declare place text; begin
  for place in select c.oid::regclass from pg_class c where c.relnamespace = to_regnamespace('weft_data') and c.relkind = 'r'
  loop execute format('drop table %s cascade', place); end loop;
end $$;
drop schema public cascade;
create schema public;
select weft.ensure_partitions();
