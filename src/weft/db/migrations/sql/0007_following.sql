-- name: note_rows
-- What was inserted into a table becomes units of the source that follows it, in the transaction of whoever inserts: rows of one
-- lane in their order, up to a hundred in a unit, and no more than about a megabyte unless one row has it. With the rights of the schema's owner, for whoever inserts has none here. Nothing
-- of what may be wrong with a source is a reason to keep a row from its table; and nothing that the owner of the table has defined
-- is called with these rights: values of types that are not PostgreSQL's own are told as text, by their output and no cast.
create function weft.note_rows() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare s weft.live_source; has_more boolean; told text; lane text;
begin
  -- Whoever would remove the source waits until this is over.
  perform 1 from weft.live_job j where j.id = tg_argv[0]::bigint for key share;
  select * into s from weft.live_source o where o.live_job_id = tg_argv[0]::bigint and o.is_listening and o.followed = tg_relid;
  if not found then
    return null;
  end if;
  select string_agg(case when a.atttypid < 16384 then format('a.%I', a.attname)
      else format('case when a.%1$I is not null then format(''%%s'', a.%1$I) end as %1$I', a.attname) end, ', ' order by a.attnum),
    max(case when a.attname = s.lane[1] then format('case when a.%1$I is not null then format(''%%s'', a.%1$I) end', a.attname) end)
  into told, lane
  from pg_attribute a where a.attrelid = tg_relid and a.attnum > 0 and not a.attisdropped
    and (s.columns is null or a.attname = any (s.columns) or a.attname = s.lane[1]);
  has_more := exists (select 1 from weft.live_unit u where u.live_job_id = s.live_job_id and u.state = 'new');
  execute format(
    'insert into weft.live_unit (id, org_id, live_job_id, lane, kind, dedupe_key, said)
     select g.id, $1, $2, coalesce(weft.lane_of(g.lane), g.id::text),
       ''row'', ''row:'' || g.id, json_build_object(''rows'', g.rows)
     from (
       select weft.next_id() as id, n.lane, min(n.place) as first, json_agg(n.said order by n.place) as rows
       from (
         select c.*, (row_number() over (partition by c.lane order by c.place) - 1) / 100 as part,
           sum(octet_length(c.said::text)) over (partition by c.lane order by c.place) / 1000000 as size
         from (select row_number() over () as place, %s as lane, (select to_json(r) from (select %s) r) as said from added a) c) n
       group by n.lane, n.part, n.size order by min(n.place)) g
     order by g.first', coalesce(lane, 'null::text'), coalesce(told, ''))
  using s.org_id, s.live_job_id;
  -- A transaction that was told of by NOTIFY cannot be prepared; and while there is more an orchestrator is on its way.
  if not has_more and current_setting('max_prepared_transactions') = '0' then
    perform weft.hint_live();
  end if;
  return null;
end $$;

-- name: follow_table
-- Puts the trigger on the table of a source. The role that asks must be allowed to read it and to put triggers on it, and the org
-- be the one of those who operate the installation.
create function weft.follow_table(job bigint) returns void language plpgsql security definer
  set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare s weft.live_source; table_id oid; problem text; wrong text;
begin
  select * into strict s from weft.live_source o where o.live_job_id = job for no key update;
  table_id := to_regclass(s.table_name);
  select case
    when s.org_id <> 1 then 'only DAGs of the org default, which operates the installation, follow tables'
    when c.oid is null then 'is no table of this installation''s database: write it with its schema, such as public.orders'
    when n.nspname in ('weft', 'information_schema') or n.nspname like 'pg\_%' then 'is of PostgreSQL or of Weft itself, and cannot be followed'
    when c.relkind not in ('r', 'p') then 'is no table'
    when not (has_table_privilege(session_user, c.oid, 'select') and has_table_privilege(session_user, c.oid, 'trigger'))
      then format('grant select, trigger on it to %I, as which this is deployed', session_user)
    when not pg_has_role(current_user, c.relowner, 'usage') then format('its owner must be %I, or a role that this is a member of', current_user)
    end into problem
  from (select table_id as oid) t left join pg_class c on c.oid = t.oid left join pg_namespace n on n.oid = c.relnamespace;
  if problem is not null then
    raise exception 'source.table: % %', s.table_name, problem using errcode = 'WF002';
  end if;
  select x.name into wrong from unnest(s.columns || s.lane) as x (name)
  where not exists (select 1 from pg_attribute a where a.attrelid = table_id and a.attname = x.name and a.attnum > 0 and not a.attisdropped) limit 1;
  if wrong is not null then
    raise exception 'source.table: % has no column %', s.table_name, wrong using errcode = 'WF002';
  end if;
  begin
    execute format('create or replace trigger %I after insert on %s referencing new table as added for each statement execute function weft.note_rows(%L)',
      'weft_live_' || job, table_id::regclass, job);
  exception when lock_not_available then
    raise exception 'source.table: % is in use by a transaction that goes on for long: try again when that is over', s.table_name using errcode = 'WF002';
  end;
  update weft.live_source o set followed = table_id where o.live_job_id = job;
end $$;

-- name: leave_table
-- Takes the trigger away. Where the table is in use for long it stays, and does nothing.
create function weft.leave_table(job bigint, table_id oid) returns void language plpgsql security definer
  set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
begin
  if exists (select 1 from pg_trigger t where t.tgrelid = table_id and t.tgname = 'weft_live_' || job) then
    execute format('drop trigger if exists %I on %s', 'weft_live_' || job, table_id::regclass);
  end if;
exception when lock_not_available or insufficient_privilege then
  null;
end $$;

-- name: follow_or_leave
-- A source follows its table while it listens.
create function weft.follow_or_leave() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if tg_op = 'DELETE' then
    perform weft.leave_table(old.live_job_id, old.followed);
  elsif new.is_listening then
    perform weft.follow_table(new.live_job_id);
  elsif new.followed is not null then
    perform weft.leave_table(new.live_job_id, new.followed);
  end if;
  return null;
end $$;

-- name: source_follows
create trigger source_follows after insert or update of is_listening on weft.live_source
  for each row when (new.kind = 'table') execute function weft.follow_or_leave();

-- name: source_is_gone
create trigger source_is_gone after delete on weft.live_source
  for each row when (old.kind = 'table' and old.followed is not null) execute function weft.follow_or_leave();

-- name: only_sources_follow
revoke execute on function weft.note_rows, weft.follow_table, weft.leave_table, weft.follow_or_leave from public;
