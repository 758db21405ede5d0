-- name: dataset
-- A named table of data, kept outside of the database or in it. One producer writes it: a node of a workflow, and which of its
-- outputs; nobody until the first write. Readers see the version that is current.
create table weft.dataset (
  id bigint primary key default weft.next_id(),
  org_id bigint not null references weft.org,
  name text not null,
  description text,
  producer_dag text,
  producer_node text,
  producer_output int,
  storage json not null,
  -- Who sees it beside admins.
  read_roles text[] not null default '{}',
  unique_key text[],
  last_version int not null default 0,
  current_id bigint,
  created_at timestamptz not null default weft.now(),
  updated_at timestamptz not null default weft.now(),
  -- One that was deleted has its id behind its name, which is free for others.
  deleted_at timestamptz,
  actor text not null,
  unique (org_id, name),
  unique (org_id, id),
  unique (org_id, producer_dag, producer_node, producer_output)
);

-- name: dataset_version
-- A generation of a dataset: all that was written by one configuration of its producer, under a prefix of its own. Its writes
-- are numbered; the state of a version after each of them can still be read.
create table weft.dataset_version (
  id bigint primary key default weft.next_id(),
  org_id bigint not null,
  dataset_id bigint not null,
  number int not null check (number > 0),
  config_hash text not null,
  schema_hash text,
  columns json,
  range_start bigint,
  range_end bigint,
  -- Under the root of the storage, and ends in '/'; of an outside version the whole address, read by its files' names.
  location text not null,
  is_outside boolean not null default false,
  last_write bigint not null default 0,
  -- By which two states are told apart: of the same files it is the same.
  content bigint not null default 0,
  -- The last writes that took a whole partition away, and that changed the columns.
  lost_by bigint not null default 0,
  columns_by bigint not null default 0,
  -- What it was before this write cannot be read any more; with `collected_at` the whole version cannot.
  oldest_write bigint not null default 0,
  collected_at timestamptz,
  rows bigint not null default 0,
  bytes bigint not null default 0,
  files bigint not null default 0,
  written_at timestamptz,
  created_at timestamptz not null default weft.now(),
  current_at timestamptz,
  retired_at timestamptz,
  actor text not null,
  foreign key (org_id, dataset_id) references weft.dataset (org_id, id) on delete cascade,
  unique (dataset_id, number),
  unique (org_id, id),
  unique nulls not distinct (dataset_id, config_hash, range_start, range_end)
) with (fillfactor = 70);

-- name: dataset_current
alter table weft.dataset add foreign key (org_id, current_id) references weft.dataset_version (org_id, id)
  on delete set null (current_id) deferrable initially deferred;

-- name: dataset_seen
-- Which version readers have seen from when on.
create table weft.dataset_seen (
  org_id bigint not null,
  dataset_id bigint not null,
  at timestamptz not null,
  version_id bigint not null,
  primary key (dataset_id, at),
  foreign key (org_id, dataset_id) references weft.dataset (org_id, id) on delete cascade
);

-- name: dataset_write
-- One change of a version, by the attempt that completed its task with it, or by whoever acts.
create table weft.dataset_write (
  version_id bigint not null,
  number bigint not null,
  org_id bigint not null,
  mode text not null check (mode in ('append', 'replace', 'rollback', 'register')),
  task_id bigint,
  attempt int,
  job_id bigint,
  node text,
  handler text,
  partitions int not null,
  -- Those that it has changed, taken away too; null when there are a great many.
  keys text[],
  -- Whether all that there was before went, and whether the same task adds the same rows once more when it runs again.
  is_whole boolean not null default false,
  adds_again boolean not null default false,
  rows bigint not null,
  bytes bigint not null,
  rows_removed bigint not null,
  -- What the columns are from here on, where the write changed them.
  columns json,
  written_at timestamptz not null,
  actor text not null,
  primary key (version_id, number),
  foreign key (org_id, version_id) references weft.dataset_version (org_id, id) on delete cascade
);

-- name: dataset_write_task
create index dataset_write_task on weft.dataset_write (org_id, task_id) where task_id is not null;

-- name: dataset_write_at
create index dataset_write_at on weft.dataset_write (version_id, written_at);

-- name: dataset_write_columns
create index dataset_write_columns on weft.dataset_write (version_id, number) where columns is not null;

-- name: dataset_write_input
-- What was read for a write: the state of each input, and the partitions of it, null for all.
create table weft.dataset_write_input (
  version_id bigint not null,
  number bigint not null,
  org_id bigint not null,
  place int not null,
  input_id bigint not null,
  input_version_id bigint not null,
  input_write bigint not null,
  partitions text[],
  primary key (version_id, number, place),
  foreign key (version_id, number) references weft.dataset_write on delete cascade
);

-- name: dataset_write_input_of
create index dataset_write_input_of on weft.dataset_write_input (input_version_id, input_write);

-- name: dataset_file
-- A file of a version, from the write that added it to the one that removed it.
create table weft.dataset_file (
  version_id bigint not null,
  id bigint not null default weft.next_id(),
  org_id bigint not null,
  partition_key text collate "C" not null,
  path text not null,
  rows bigint not null,
  bytes bigint not null,
  added_by bigint not null,
  removed_by bigint,
  primary key (version_id, id),
  foreign key (org_id, version_id) references weft.dataset_version (org_id, id) on delete cascade
);

-- name: dataset_file_standing
create index dataset_file_standing on weft.dataset_file (version_id, partition_key, id) where removed_by is null;

-- name: dataset_file_partition
create index dataset_file_partition on weft.dataset_file (version_id, partition_key, id) where removed_by is not null;

-- name: dataset_file_removed
create index dataset_file_removed on weft.dataset_file (version_id, removed_by) where removed_by is not null;

-- name: dataset_file_added
create index dataset_file_added on weft.dataset_file (version_id, added_by);

-- name: dataset_file_path
create index dataset_file_path on weft.dataset_file (version_id, path);

-- name: dataset_partition
-- What a version has now, by partition; the key is empty in a dataset without partitions.
create table weft.dataset_partition (
  version_id bigint not null,
  -- In one order on every server.
  partition_key text collate "C" not null,
  org_id bigint not null,
  last_write bigint not null,
  -- The last write that took something away.
  lost_by bigint not null default 0,
  content bigint not null default 0,
  rows bigint not null,
  bytes bigint not null,
  files int not null,
  written_at timestamptz not null,
  primary key (version_id, partition_key),
  foreign key (org_id, version_id) references weft.dataset_version (org_id, id) on delete cascade
);

-- name: dataset_partition_latest
create index dataset_partition_latest on weft.dataset_partition (version_id, last_write, partition_key);

-- name: dataset_edge
-- Which dataset was ever made of which.
create table weft.dataset_edge (
  org_id bigint not null,
  input_id bigint not null,
  output_id bigint not null,
  first_at timestamptz not null default weft.now(),
  primary key (org_id, output_id, input_id),
  foreign key (org_id, input_id) references weft.dataset (org_id, id) on delete cascade,
  foreign key (org_id, output_id) references weft.dataset (org_id, id) on delete cascade
);

-- name: dataset_edge_input
create index dataset_edge_input on weft.dataset_edge (org_id, input_id, output_id);

-- name: column_edge
-- Which column was ever made of which, as those who write say; the job and the time are of the last write that said so.
create table weft.column_edge (
  org_id bigint not null,
  output_id bigint not null,
  output_column text not null,
  input_id bigint not null,
  input_column text not null,
  job_id bigint,
  last_at timestamptz not null,
  primary key (org_id, output_id, output_column, input_id, input_column),
  foreign key (org_id, input_id) references weft.dataset (org_id, id) on delete cascade,
  foreign key (org_id, output_id) references weft.dataset (org_id, id) on delete cascade
) with (fillfactor = 70);

-- name: column_edge_input
create index column_edge_input on weft.column_edge (org_id, input_id, input_column, output_id, output_column);

-- name: task_input
-- What an attempt has read of datasets, by which is known whether its output still serves.
create table weft.task_input (
  task_id bigint not null,
  attempt int not null,
  place int not null,
  org_id bigint not null,
  dataset_id bigint not null,
  version_id bigint not null,
  write bigint not null,
  partitions text[],
  -- What of the state was named, and not left to what is current, then the columns are those that there were after a later write;
  -- or that only what came since another write was read.
  pinned text check (pinned in ('version', 'write', 'since')),
  seen bigint,
  read_at timestamptz not null default weft.now(),
  primary key (task_id, attempt, place)
);

-- name: staged_write
-- What an attempt is about to change: noted before its first file is written, told its files when all are there, published by
-- the transaction that completes its task. What attempts have left that came to nothing is collected with their files.
create table weft.staged_write (
  id bigint primary key default weft.next_id(),
  org_id bigint not null,
  task_id bigint not null,
  attempt int not null,
  dataset_id bigint not null,
  version_id bigint not null,
  -- Whether it is void when the version is not current any more, and whether it makes it so.
  follows boolean not null,
  swaps boolean not null default false,
  mode text not null check (mode in ('append', 'replace')),
  -- Null until all files are there; with none of them all that the version has is replaced.
  partitions text[],
  is_whole boolean not null default false,
  files json,
  -- Rows that were added so far, where they are kept in a table: by these a repeat is known.
  added bigint not null default 0,
  -- The state that it goes by: void when another has been written since into one of its partitions, or changed the columns.
  seen bigint,
  seen_schema text,
  columns json,
  schema_hash text,
  -- What its columns are made of, as far as the attempt says it.
  columns_from json,
  created_at timestamptz not null default weft.now(),
  foreign key (org_id, version_id) references weft.dataset_version (org_id, id)
);

-- name: staged_write_task
create index staged_write_task on weft.staged_write (task_id);

-- name: inputs_of
-- What an attempt has read, and what those before it have read for a step or a checkpoint that is kept: it may have gone on with that.
create function weft.inputs_of(task bigint, try int) returns setof weft.task_input language sql stable as $$
  select i.* from weft.task_input i
  where i.task_id = task and (i.attempt = try or i.attempt < try and exists (
    select 1 from weft.step s
    where s.task_id = task and left(s.name, 1) <> '@' and s.attempt >= i.attempt and s.saved_at >= i.read_at))
$$;

-- name: mark_of
-- A number for a file of a partition; those of all files together tell what there is. A file that others write may be another
-- under the same path: the write that lists it tells them apart.
create function weft.mark_of(partition_key text, path text, write bigint default null) returns bigint language sql immutable parallel safe as
$$ select hashtextextended(partition_key || '/' || path || coalesce(' ' || write, ''), 0) $$;

-- name: make_current
-- Lets readers see another version of a dataset from here on; false when they do already. Of datasets that change together it is one time.
create function weft.make_current(dataset bigint, version bigint, at timestamptz default null) returns boolean language plpgsql as $$
declare before bigint;
begin
  select d.current_id into before from weft.dataset d where d.id = dataset for no key update;
  if before = version then
    return false;
  end if;
  at := coalesce(at, weft.now());
  insert into weft.dataset_seen (org_id, dataset_id, at, version_id)
  select d.org_id, d.id, at, version from weft.dataset d where d.id = dataset
  on conflict on constraint dataset_seen_pkey do update set version_id = excluded.version_id;
  update weft.dataset_version v set retired_at = at where v.id = before;
  update weft.dataset_version v set current_at = at, retired_at = null where v.id = version;
  update weft.dataset d set current_id = version, updated_at = weft.now() where d.id = dataset;
  perform weft.show_table(dataset);
  return true;
end $$;

-- name: tell_written
-- Tells those who react to a dataset that it was written; nobody, before there are any.
create function weft.tell_written(dataset bigint) returns void language sql as '';

-- name: tell_write
-- The event of a write, for whoever waits for data.
create function weft.tell_write(v weft.dataset_version, named text, n bigint, how text, touched text[], rows bigint, by text) returns void language plpgsql as $$
declare event bigint;
begin
  insert into weft.event (org_id, name, payload, actor) values (v.org_id, 'dataset.written', jsonb_build_object(
    'dataset', named, 'version', v.number, 'write', n, 'mode', how,
    'partitions', case when cardinality(touched) <= 1000 then to_jsonb(touched) end, 'rows', rows), by)
  returning id into event;
  insert into weft.outbox (org_id, kind, payload, actor) values (v.org_id, 'route_event', json_build_object('event_id', event::text), by);
  perform weft.tell_written(v.dataset_id);
end $$;

-- name: publish_write
-- All that one attempt has staged for one version, as its next write; the version is locked. Void, with everything else that the
-- transaction does, when what it goes by has changed: then the task is tried again.
create function weft.publish_write(done weft.task_done, version bigint) returns void language plpgsql as $$
declare
  v weft.dataset_version; staged weft.staged_write; n bigint; touched text[] := '{}'; changed text[] := '{}'; is_replacing boolean := false; swapping boolean := false;
  replaced text[] := '{}'; is_whole boolean := false; adds_again boolean := false;
  rows_in bigint := 0; bytes_in bigint := 0; files_in bigint := 0; rows_out bigint := 0; bytes_out bigint := 0; files_out bigint := 0;
  counted record; named text; before text;
  -- Taken while nobody else writes: the later a write is, the higher its number.
  at timestamptz := weft.now();
begin
  select * into strict v from weft.dataset_version o where o.id = version;
  before := v.schema_hash;
  select d.name into strict named from weft.dataset d where d.id = v.dataset_id;
  n := v.last_write + 1;
  for staged in
    select * from weft.staged_write s
    where s.task_id = done.id and s.attempt = done.attempt and s.version_id = version and s.partitions is not null order by s.id
  loop
    if staged.follows and not exists (select 1 from weft.dataset d where d.id = v.dataset_id and d.current_id = version) then
      raise exception 'dataset %: it has another version by now', named using errcode = 'WF007';
    end if;
    -- A partition that is not there may have been taken away.
    if staged.seen is not null and exists (
      select 1 from unnest(staged.partitions) as k (key)
        left join weft.dataset_partition p on p.version_id = version and p.partition_key = k.key
      where coalesce(p.last_write, v.lost_by) > staged.seen and coalesce(p.last_write, v.lost_by) < n
    ) then
      raise exception 'dataset %: another task has written into the same partition meanwhile', named using errcode = 'WF007';
    end if;
    if staged.schema_hash is distinct from v.schema_hash and staged.seen_schema is distinct from v.schema_hash then
      raise exception 'dataset %: another task has changed its columns meanwhile', named using errcode = 'WF007';
    end if;
    if staged.schema_hash is distinct from v.schema_hash then
      v.columns_by := n;
    end if;
    if staged.mode = 'append' and staged.seen is null and not (is_whole or staged.partitions <@ replaced) then
      adds_again := true;
    end if;
    if staged.mode = 'replace' then
      is_replacing := true;
      replaced := replaced || staged.partitions;
      if staged.is_whole then
        is_whole := true;
        v.lost_by := n;
      end if;
      -- Of several writes of one attempt into the same partition the last counts: the others leave files that nobody ever sees.
      with removed as (
        update weft.dataset_file f set removed_by = n
        where f.version_id = version and f.removed_by is null and (staged.is_whole or f.partition_key = any (staged.partitions))
        returning f.rows, f.bytes, weft.mark_of(f.partition_key, f.path) as mark
      )
      select count(*) as files, coalesce(sum(r.rows), 0) as rows, coalesce(sum(r.bytes), 0) as bytes, coalesce(bit_xor(r.mark), 0) as marks
      into counted from removed r;
      v.content := v.content # counted.marks;
      files_out := files_out + counted.files;
      rows_out := rows_out + counted.rows;
      bytes_out := bytes_out + counted.bytes;
      with removed as (
        delete from weft.dataset_partition p
        where p.version_id = version and (staged.is_whole or p.partition_key = any (staged.partitions)) returning p.partition_key
      )
      select changed || array_agg(r.partition_key) into changed from removed r;
    end if;
    with added as (
      insert into weft.dataset_file (version_id, org_id, partition_key, path, rows, bytes, added_by)
      select version, v.org_id, f.partition, f.path, f.rows, f.bytes, n
      from json_to_recordset(staged.files) as f (partition text, path text, rows bigint, bytes bigint)
      returning rows, bytes, weft.mark_of(partition_key, path) as mark
    )
    select count(*) as files, coalesce(sum(a.rows), 0) as rows, coalesce(sum(a.bytes), 0) as bytes, coalesce(bit_xor(a.mark), 0) as marks
    into counted from added a;
    v.content := v.content # counted.marks;
    files_in := files_in + counted.files;
    rows_in := rows_in + counted.rows;
    bytes_in := bytes_in + counted.bytes;
    insert into weft.dataset_partition as p (version_id, partition_key, org_id, last_write, lost_by, content, rows, bytes, files, written_at)
    select version, k.key, v.org_id, n, case when staged.mode = 'replace' then n else v.lost_by end,
      coalesce(bit_xor(weft.mark_of(k.key, f.path)), 0), coalesce(sum(f.rows), 0), coalesce(sum(f.bytes), 0), count(f.path), at
    from unnest(staged.partitions) as k (key)
      left join json_to_recordset(staged.files) as f (partition text, path text, rows bigint, bytes bigint) on f.partition = k.key
    group by k.key order by k.key
    on conflict (version_id, partition_key) do update set last_write = n, content = p.content # excluded.content, rows = p.rows + excluded.rows,
      bytes = p.bytes + excluded.bytes, files = p.files + excluded.files, written_at = excluded.written_at;
    touched := touched || staged.partitions;
    swapping := swapping or staged.swaps;
    v.columns := staged.columns;
    v.schema_hash := staged.schema_hash;
    insert into weft.column_edge as e (org_id, output_id, output_column, input_id, input_column, job_id, last_at)
    select distinct v.org_id, v.dataset_id, f.output, f.input_id, f.input, done.job_id, done.ended_at
    from json_to_recordset(staged.columns_from) as f (output text, input_id bigint, input text) order by 3, 4, 5
    on conflict (org_id, output_id, output_column, input_id, input_column)
    do update set job_id = excluded.job_id, last_at = excluded.last_at;
  end loop;
  touched := array(select distinct k.key from unnest(touched) as k (key) order by k.key);
  changed := array(select distinct k.key from unnest(touched || changed) as k (key) order by k.key);
  insert into weft.dataset_write (
    version_id, number, org_id, mode, task_id, attempt, job_id, node, handler, partitions, keys, is_whole, adds_again, rows, bytes,
    rows_removed, columns, written_at, actor)
  values (
    version, n, v.org_id, case when is_replacing then 'replace' else 'append' end, done.id, done.attempt, done.job_id, done.node,
    done.handler, cardinality(touched), case when cardinality(changed) <= 100000 then changed end, is_whole, adds_again, rows_in, bytes_in, rows_out,
    case when v.schema_hash is distinct from before then v.columns end, at, coalesce(done.actor, ''));
  insert into weft.dataset_write_input (version_id, number, org_id, place, input_id, input_version_id, input_write, partitions)
  select version, n, v.org_id, row_number() over (order by min(i.attempt), min(i.place)), i.dataset_id, i.version_id, i.write, i.partitions
  from weft.inputs_of(done.id, done.attempt) i group by i.dataset_id, i.version_id, i.write, i.partitions;
  insert into weft.dataset_edge (org_id, input_id, output_id)
  select distinct v.org_id, i.dataset_id, v.dataset_id from weft.inputs_of(done.id, done.attempt) i order by i.dataset_id on conflict do nothing;
  update weft.dataset_version o set last_write = n, rows = o.rows + rows_in - rows_out, bytes = o.bytes + bytes_in - bytes_out,
    files = o.files + files_in - files_out, columns = v.columns, schema_hash = v.schema_hash, content = v.content,
    lost_by = v.lost_by, columns_by = v.columns_by, written_at = at
  where o.id = version;
  if not (swapping and weft.make_current(v.dataset_id, version)) and v.schema_hash is distinct from before then
    perform weft.show_table(v.dataset_id);
  end if;
  perform weft.tell_write(v, named, n, case when is_replacing then 'replace' else 'append' end, touched, rows_in, done.actor);
  delete from weft.staged_write s
  where s.task_id = done.id and s.attempt = done.attempt and s.version_id = version and s.partitions is not null;
end $$;

-- name: publish_writes
-- What the tasks that end here have staged becomes visible with their outcomes. All who lock both lock datasets before versions,
-- and each in one order, at once as strongly as they need it: those too that were read, for edges refer to them.
create or replace function weft.publish_writes(ended bigint[]) returns void language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
declare each record; done weft.task_done; versions bigint[]; datasets bigint[];
begin
  select array_agg(distinct s.version_id order by s.version_id) into versions from weft.staged_write s where s.task_id = any (ended);
  if versions is null then
    return;
  end if;
  datasets := array(
    select s.dataset_id from weft.staged_write s where s.task_id = any (ended) and s.partitions is not null
    union select i.dataset_id from weft.task_input i where i.task_id = any (ended));
  if exists (select 1 from weft.staged_write s where s.task_id = any (ended) and s.swaps) then
    perform 1 from weft.dataset d where d.id = any (datasets) order by d.id for no key update;
  else
    perform 1 from weft.dataset d where d.id = any (datasets) order by d.id for key share;
  end if;
  perform 1 from weft.dataset_version v where v.id = any (versions) order by v.id for no key update;
  for each in
    select distinct s.task_id, s.attempt, s.version_id from weft.staged_write s
    where s.task_id = any (ended) and s.partitions is not null order by s.task_id, s.version_id
  loop
    select * into done from weft.task_done d where d.id = each.task_id and d.attempt = each.attempt;
    -- What an attempt before the last has left came to nothing.
    if found then
      perform weft.publish_write(done, each.version_id);
    end if;
  end loop;
end $$;

-- name: roll_back_version
-- A write that makes a version what it was after an earlier one: files that came since go, those that went come back.
create function weft.roll_back_version(version bigint, back_to bigint, by text) returns bigint language plpgsql as $$
declare v weft.dataset_version; n bigint; touched text[]; rows_in bigint; bytes_in bigint; files_in bigint; rows_out bigint; bytes_out bigint; files_out bigint; marks bigint; left_over bigint;
begin
  select * into strict v from weft.dataset_version o where o.id = version for no key update;
  if back_to < v.oldest_write or v.collected_at is not null then
    raise exception 'what it was then has been collected' using errcode = 'WF002';
  end if;
  n := v.last_write + 1;
  with gone as (
    update weft.dataset_file f set removed_by = n where f.version_id = version and f.removed_by is null and f.added_by > back_to
    returning f.partition_key, f.rows, f.bytes, weft.mark_of(f.partition_key, f.path, case when v.is_outside then f.added_by end) as mark
  ), back as (
    insert into weft.dataset_file (version_id, org_id, partition_key, path, rows, bytes, added_by)
    select f.version_id, f.org_id, f.partition_key, f.path, f.rows, f.bytes, n from weft.dataset_file f
    where f.version_id = version and f.added_by <= back_to and f.removed_by > back_to
    returning partition_key, rows, bytes, weft.mark_of(partition_key, path, case when v.is_outside then n end) as mark
  )
  select array(select g.partition_key from gone g union select b.partition_key from back b),
    coalesce((select sum(b.rows) from back b), 0), coalesce((select sum(b.bytes) from back b), 0), (select count(*) from back),
    coalesce((select sum(g.rows) from gone g), 0), coalesce((select sum(g.bytes) from gone g), 0), (select count(*) from gone),
    coalesce((select bit_xor(g.mark) from gone g), 0) # coalesce((select bit_xor(b.mark) from back b), 0)
  into touched, rows_in, bytes_in, files_in, rows_out, bytes_out, files_out, marks;
  -- Partitions that were empty have no files by which they could be told: what is in them now is what was.
  delete from weft.dataset_partition p where p.version_id = version and p.partition_key = any (touched);
  insert into weft.dataset_partition (version_id, partition_key, org_id, last_write, lost_by, content, rows, bytes, files, written_at)
  select version, f.partition_key, v.org_id, n, n,
    bit_xor(weft.mark_of(f.partition_key, f.path, case when v.is_outside then f.added_by end)), sum(f.rows), sum(f.bytes), count(*), weft.now()
  from weft.dataset_file f
  where f.version_id = version and f.removed_by is null and f.partition_key = any (touched) group by f.partition_key;
  get diagnostics left_over = row_count;
  insert into weft.dataset_write (version_id, number, org_id, mode, partitions, keys, rows, bytes, rows_removed, written_at, actor)
  values (version, n, v.org_id, 'rollback', cardinality(touched), case when cardinality(touched) <= 100000 then touched end, rows_in, bytes_in, rows_out, weft.now(), by);
  -- What comes back is made of what it was made of when it was written.
  insert into weft.dataset_write_input (version_id, number, org_id, place, input_id, input_version_id, input_write, partitions)
  select version, n, v.org_id, row_number() over (), i.input_id, i.input_version_id, i.input_write, i.partitions
  from (
    select distinct i.input_id, i.input_version_id, i.input_write, i.partitions from weft.dataset_write_input i
    where i.version_id = version and i.number in (
      select f.added_by from weft.dataset_file f where f.version_id = version and f.added_by <= back_to and f.removed_by > back_to)
  ) i;
  update weft.dataset_version o set last_write = n, rows = o.rows + rows_in - rows_out, bytes = o.bytes + bytes_in - bytes_out,
    files = o.files + files_in - files_out, content = o.content # marks, written_at = weft.now(),
    lost_by = case when left_over < cardinality(touched) then n else o.lost_by end where o.id = version;
  perform weft.tell_written(v.dataset_id);
  return n;
end $$;

-- name: close_states
-- From here on nobody may read or go back to what versions were before: then files that were removed by then may go. Of one org, or of
-- all. In the order in which all lock datasets and their versions.
create function weft.close_states(retention interval, of_org bigint) returns setof bigint language plpgsql as $$
declare past bigint[]; numbers bigint[];
begin
  select array_agg(o.id), array_agg(o.number) into past, numbers from (
    select v.id, max(w.number) as number
    from (select distinct f.version_id from weft.dataset_file f where f.removed_by is not null and (of_org is null or f.org_id = of_org)) f
      join weft.dataset_version v on v.id = f.version_id
      join weft.dataset_write w on w.version_id = v.id and w.written_at < weft.now() - retention
    group by v.id having max(w.number) > v.oldest_write) o;
  perform 1 from weft.dataset d where d.id in (select v.dataset_id from weft.dataset_version v where v.id = any (past)) order by d.id for key share;
  perform 1 from weft.dataset_version v where v.id = any (past) order by v.id for no key update;
  return query update weft.dataset_version v set oldest_write = u.number from unnest(past, numbers) as u (id, number)
    where v.id = u.id and u.number > v.oldest_write returning v.id;
end $$;

-- name: register_files
-- A write that makes a version what others have written: the files that were found take the place of those before.
create function weft.register_files(version bigint, listed json, kept json, hash text, by text) returns bigint language plpgsql as $$
declare v weft.dataset_version; n bigint; touched text[]; before text[]; marks bigint; rows_in bigint; bytes_in bigint; files_in bigint; rows_out bigint; named text;
begin
  select * into strict v from weft.dataset_version o where o.id = version for no key update;
  select d.name into strict named from weft.dataset d where d.id = v.dataset_id;
  n := v.last_write + 1;
  rows_out := v.rows;
  update weft.dataset_file f set removed_by = n where f.version_id = version and f.removed_by is null;
  with removed as (delete from weft.dataset_partition p where p.version_id = version returning p.partition_key)
  select array_agg(r.partition_key) into before from removed r;
  insert into weft.dataset_file (version_id, org_id, partition_key, path, rows, bytes, added_by)
  select version, v.org_id, f.partition, f.path, f.rows, f.bytes, n
  from json_to_recordset(listed) as f (partition text, path text, rows bigint, bytes bigint);
  insert into weft.dataset_partition (version_id, partition_key, org_id, last_write, lost_by, content, rows, bytes, files, written_at)
  select version, f.partition_key, v.org_id, n, n, bit_xor(weft.mark_of(f.partition_key, f.path, n)), sum(f.rows), sum(f.bytes), count(*), weft.now()
  from weft.dataset_file f
  where f.version_id = version and f.removed_by is null group by f.partition_key;
  select array_agg(p.partition_key order by p.partition_key), sum(p.rows), sum(p.bytes), sum(p.files), coalesce(bit_xor(p.content), 0) into touched, rows_in, bytes_in, files_in, marks
  from weft.dataset_partition p where p.version_id = version;
  before := array(select distinct k.key from unnest(touched || before) as k (key) order by k.key);
  insert into weft.dataset_write (
    version_id, number, org_id, mode, partitions, keys, is_whole, rows, bytes, rows_removed, columns, written_at, actor)
  values (version, n, v.org_id, 'register', cardinality(touched), case when cardinality(before) <= 100000 then before end, true, rows_in, bytes_in, rows_out,
    case when hash is distinct from v.schema_hash then kept end, weft.now(), by);
  update weft.dataset_version o set last_write = n, rows = rows_in, bytes = bytes_in, files = files_in, columns = kept, schema_hash = hash, content = marks,
    lost_by = n, columns_by = case when hash is distinct from v.schema_hash then n else v.columns_by end, written_at = weft.now() where o.id = version;
  perform weft.tell_write(v, named, n, 'register', touched, rows_in, by);
  return n;
end $$;

-- name: view_datasets
create view weft.datasets as
select d.id, d.org_id, d.name, d.description, d.producer_dag, d.producer_node, d.producer_output, d.storage, d.read_roles, d.unique_key,
  v.number as version, v.last_write as write, v.columns, v.rows, v.bytes, v.files, v.written_at, d.created_at, d.updated_at, d.actor
from weft.dataset d left join weft.dataset_version v on v.id = d.current_id
where d.org_id = coalesce((select weft.current_org()), d.org_id) and d.deleted_at is null;

-- name: comment_datasets
comment on view weft.datasets is 'Named tables of data, each with the version that readers see.';

-- name: datasets_are_read
do $$
declare verb text;
begin
  foreach verb in array array['insert', 'update', 'delete'] loop
    execute format('create rule refuse_%s as on %s to weft.datasets do instead select weft.refuse_write(''datasets'')', verb, verb);
  end loop;
end $$;

-- name: grant_datasets_to_server
-- Called by `weft.admit_server`.
create function weft.grant_datasets_to_server(role regrole) returns void language plpgsql as $$
begin
  execute format('grant select on weft.datasets to %s', role);
  execute format('grant execute on function weft.data_table, weft.prepare_table, weft.add_rows, weft.rows_of, weft.drop_rows, '
    'weft.drop_table, weft.show_table to %s', role);
  execute format('grant select, insert on weft.dataset_write, weft.dataset_write_input, weft.dataset_edge to %s', role);
  execute format('grant select, insert, delete on weft.task_input to %s', role);
  execute format('grant select, insert, update on weft.dataset_seen to %s', role);
  execute format('grant select, insert, update on weft.column_edge to %s', role);
  execute format('grant select, insert, update, delete on weft.dataset, weft.dataset_version, weft.dataset_file, '
    'weft.dataset_partition, weft.staged_write to %s', role);
end $$;

-- name: only_the_owner_grants
revoke execute on function weft.grant_datasets_to_server from public;
