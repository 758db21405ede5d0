-- name: weft_data
-- The rows of datasets that are kept in the database: a table for each version, and a view for each dataset.
create schema weft_data;

-- name: data_table
-- The table of a version, of whose name nothing is anybody's to choose; of the org that the session is held to.
create function weft.data_table(version bigint) returns text language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare found record;
begin
  select v.dataset_id, v.number, v.org_id, d.storage ->> 'kind' as kind into found
  from weft.dataset_version v join weft.dataset d on d.id = v.dataset_id
  where v.id = version and v.org_id = coalesce(weft.current_org(), v.org_id);
  if found.kind is distinct from 'postgres' then
    raise exception 'version: % is none that is kept in the database', version using errcode = 'WF002';
  end if;
  return format('weft_data.d%s_%s', found.dataset_id, found.number);
end $$;

-- name: prepare_table
-- Makes the table of a version, or adds the columns that it lacks, which are null in the rows that are there. What an attempt
-- that came to nothing has added stays, and is nobody's column until a write brings it. While somebody reads for long, no column
-- comes: whoever waited for that would keep all others waiting who only want to read.
create function weft.prepare_table(version bigint, names text[], types text[]) returns void language plpgsql security definer
  set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
declare kept_in text := weft.data_table(version); name text; type text; known text;
begin
  if to_regclass(kept_in) is null then
    perform pg_advisory_xact_lock(hashtextextended('weft.prepare_table ' || version, 0));
    execute format('create table if not exists %s (_write bigint not null, _file int not null, _row bigint not null generated always as identity, '
      'primary key (_write, _file, _row))', kept_in);
  end if;
  for name, type in select * from unnest(names, types) loop
    if type is null or type !~ '^(boolean|smallint|integer|bigint|real|double precision|text|bytea|date|time|timestamp|timestamptz|numeric\(\d{1,3},\d{1,3}\))$' then
      raise exception 'columns: % cannot be kept as %', name, type using errcode = 'WF002';
    end if;
    select format_type(a.atttypid, a.atttypmod) into known from pg_attribute a
    where a.attrelid = to_regclass(kept_in) and a.attname = name and a.attnum > 0 and not a.attisdropped;
    if known is null then
      perform pg_advisory_xact_lock(hashtextextended('weft.prepare_table ' || version, 0));
      execute format('alter table %s add column if not exists %I %s', kept_in, name, type);
    end if;
    select format_type(a.atttypid, a.atttypmod) into known from pg_attribute a
    where a.attrelid = to_regclass(kept_in) and a.attname = name and a.attnum > 0 and not a.attisdropped;
    if replace(replace(known, ' without time zone', ''), 'timestamp with time zone', 'timestamptz') <> type then
      raise exception 'columns: % is kept as %, and this is %: give it another name', name, known, type using errcode = 'WF002';
    end if;
  end loop;
end $$;

-- name: add_rows
-- Rows of one file of a write, each as the texts of its values; nobody sees them before the catalog lists the file.
create function weft.add_rows(version bigint, write bigint, file int, names text[], rows json) returns bigint language plpgsql security definer
  set search_path = pg_catalog, pg_temp set datestyle = 'ISO, YMD' set timezone = 'UTC' as $$
declare kept_in text := weft.data_table(version); targets text; given text; added bigint;
begin
  select string_agg(format('%I', n.name), ', ' order by n.place),
    string_agg(case when a.atttypid = 'bytea'::regtype then format('decode(r.value ->> %s, ''hex'')', n.place - 1)
      else format('(r.value ->> %s)::%s', n.place - 1, format_type(a.atttypid, a.atttypmod)) end, ', ' order by n.place)
  into targets, given
  from unnest(names) with ordinality as n (name, place)
    join pg_attribute a on a.attrelid = to_regclass(kept_in) and a.attname = n.name and a.attnum > 0 and not a.attisdropped;
  execute format('insert into %s (_write, _file, %s) select $1, $2, %s from json_array_elements($3) with ordinality as r (value, place) order by r.place',
    kept_in, targets, given) using write, file, rows;
  get diagnostics added = row_count;
  return added;
end $$;

-- name: rows_of
-- Rows of files after one of them, in the order in which they came, each as the texts of its values.
create function weft.rows_of(version bigint, writes bigint[], files int[], names text[], after bigint, most int)
  returns table (number bigint, texts text[]) language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp set datestyle = 'ISO, YMD' set timezone = 'UTC' set extra_float_digits = 1 as $$
declare kept_in text := weft.data_table(version); taken text; known int;
begin
  select string_agg(case a.atttypid when 'bytea'::regtype then format('encode(t.%I, ''hex'')', n.name)
    when 'timestamptz'::regtype then format('(t.%I at time zone ''UTC'')::text', n.name) else format('t.%I::text', n.name) end,
    ', ' order by n.place), count(*) into taken, known
  from unnest(names) with ordinality as n (name, place)
    join pg_attribute a on a.attrelid = to_regclass(kept_in) and a.attname = n.name and a.attnum > 0 and not a.attisdropped;
  if to_regclass(kept_in) is null then
    return;
  elsif known <> cardinality(names) then
    raise exception 'columns: the table has only % of %', known, names using errcode = 'WF002';
  end if;
  return query execute format(
    'select t._row, array[%s]::text[] from unnest($1, $2) as f (write, number) join %s t on t._write = f.write and t._file = f.number '
    'where t._row > $3 order by t._row limit $4', taken, kept_in) using writes, files, after, most;
end $$;

-- name: drop_rows
-- Rows of one file of a write, or of all of them, that nobody sees any more.
create function weft.drop_rows(version bigint, write bigint, file int) returns bigint language plpgsql security definer
  set search_path = pg_catalog, pg_temp as $$
declare kept_in text := weft.data_table(version); gone bigint := 0;
begin
  if to_regclass(kept_in) is not null then
    execute format('delete from %s t where t._write = $1 and (t._file = $2 or $2 is null)', kept_in) using write, file;
    get diagnostics gone = row_count;
  end if;
  return gone;
end $$;

-- name: drop_table
-- The table of a version that has been collected.
create function weft.drop_table(version bigint) returns void language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if exists (select 1 from weft.dataset_version v where v.id = version and v.collected_at is not null) then
    execute format('drop table if exists %s', weft.data_table(version));
  end if;
end $$;

-- name: show_table
-- Lets the view of a dataset show the version that readers see, with the columns of that; drops it when there is nothing to
-- show. Whoever may read it may do so on. Whoever reads through it for long keeps nobody waiting: then what would change it is void.
create function weft.show_table(dataset bigint, is_shown boolean default true) returns void language plpgsql security definer
  set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
declare found record; named text; taken text; shown text; readers text[]; reader text;
begin
  select d.name, d.storage ->> 'kind' as kind, d.deleted_at, o.slug, v.id as version, v.columns into found
  from weft.dataset d join weft.org o on o.id = d.org_id left join weft.dataset_version v on v.id = d.current_id
  where d.id = dataset and d.org_id = coalesce(weft.current_org(), d.org_id);
  if found.kind is distinct from 'postgres' then
    return;
  end if;
  named := format('%s.%s', found.slug, found.name);
  if octet_length(named) > 63 then
    named := 'd' || dataset;
  end if;
  if found.columns is null or found.deleted_at is not null or not is_shown then
    execute format('drop view if exists weft_data.%I', named);
    return;
  end if;
  select string_agg(format('t.%I', c.value ->> 'name'), ', ' order by c.place) into taken
  from json_array_elements(found.columns -> 'columns') with ordinality as c (value, place);
  shown := format('view weft_data.%I as select %s from %s t join weft.dataset_file f on f.version_id = %s and f.removed_by is null '
    'and f.path = t._write || ''-'' || t._file || ''.rows''', named, taken, weft.data_table(found.version), found.version);
  begin
    execute 'create or replace ' || shown;
  exception when invalid_table_definition then
    select array_agg(case a.grantee when 0 then 'public' else a.grantee::regrole::text end) into readers
    from pg_class c cross join lateral aclexplode(c.relacl) a
    where c.oid = format('weft_data.%I', named)::regclass and a.privilege_type = 'SELECT' and a.grantee <> c.relowner;
    execute format('drop view weft_data.%I', named);
    execute 'create ' || shown;
    foreach reader in array coalesce(readers, '{}') loop
      execute format('grant select on weft_data.%I to %s', named, reader);
    end loop;
  end;
exception
  -- A worker of others may tell of columns that it never has prepared: there is nothing to show then.
  when undefined_table or undefined_column then
    execute format('drop view if exists weft_data.%I', named);
  when lock_not_available then
    raise exception 'dataset %: somebody reads through its view', found.name using errcode = 'WF007';
  when dependent_objects_still_exist then
    raise exception 'dataset %: other views are made of its view, and need the columns that it has', found.name using errcode = 'WF007';
end $$;

-- name: tables_are_granted
revoke execute on function weft.data_table, weft.prepare_table, weft.add_rows, weft.rows_of, weft.drop_rows, weft.drop_table, weft.show_table from public;
