-- name: content_of
-- What some partitions of a version have now, as one number; of those that are not there nothing.
create function weft.content_of(version bigint, keys text[]) returns bigint language sql stable as $$
  select coalesce(bit_xor(p.content), 0) from weft.dataset_partition p where p.version_id = version and p.partition_key = any (keys)
$$;

-- name: trace_of
-- What an attempt that has completed has read and written of datasets; null when nothing. Its output does not serve others when what it has read or written has changed
-- since, when it would add its rows once more, or when tasks that it has made have to do with datasets.
create or replace function weft.trace_of(task bigint, try int, out trace jsonb, out producer text, out unkept text) language plpgsql as $$
declare each record; items jsonb := '[]';
begin
  if exists (
    with recursive made as (
      select k.id from weft.task_done k where k.parent_id = task and k.id > task
      union all
      select k.id from made m join weft.task_done k on k.parent_id = m.id and k.id > m.id
    )
    select 1 from made m where exists (select 1 from weft.task_input i where i.task_id = m.id)
      or exists (
        select 1 from weft.task_done t join weft.dataset_write w on w.org_id = t.org_id and w.task_id = t.id where t.id = m.id)
  ) then
    unkept := 'made';
    return;
  end if;
  for each in
    select i.dataset_id, i.version_id, i.write, i.partitions, i.pinned, coalesce(i.seen, i.write) as seen,
      d.current_id, v.id, v.number, v.last_write, v.lost_by, v.columns_by, v.schema_hash, v.content
    from weft.inputs_of(task, try) i left join weft.dataset_version v on v.id = i.version_id left join weft.dataset d on d.id = v.dataset_id
    order by i.attempt, i.place
  loop
    if each.id is null or each.columns_by > each.seen or coalesce(each.pinned, 'since') = 'since' and each.current_id is distinct from each.id
      or each.pinned is distinct from 'write' and ((each.partitions is null or each.pinned = 'since') and each.last_write > each.write
        or each.partitions is not null and (each.lost_by > each.write or exists (
          select 1 from weft.dataset_partition p
          where p.version_id = each.id and p.partition_key = any (each.partitions) and p.last_write > each.write)))
    then
      unkept := 'moved';
      return;
    end if;
    items := items || jsonb_build_object(
      'role', 'read', 'dataset', each.dataset_id, 'version', each.id, 'number', each.number, 'write', each.write,
      'partitions', each.partitions, 'pinned', each.pinned, 'schema', each.schema_hash,
      'content', case when each.partitions is null then each.content else weft.content_of(each.id, each.partitions) end);
  end loop;
  for each in
    select w.number as write, w.mode, w.keys, w.is_whole, w.adds_again, v.id, v.dataset_id, v.number, v.last_write, v.content,
      d.current_id, d.producer_dag, d.producer_node
    from weft.task_done t join weft.dataset_write w on w.org_id = t.org_id and w.task_id = t.id and w.attempt = t.attempt
      join weft.dataset_version v on v.id = w.version_id join weft.dataset d on d.id = v.dataset_id
    where t.id = task and t.attempt = try order by v.id
  loop
    if each.adds_again then
      unkept := 'adds';
      return;
    end if;
    if each.current_id is distinct from each.id or each.is_whole and each.last_write > each.write or not each.is_whole and (each.keys is null
      or each.mode = 'replace' and (
        select count(*) from weft.dataset_partition p
        where p.version_id = each.id and p.partition_key = any (each.keys) and p.last_write = each.write) < cardinality(each.keys))
    then
      unkept := 'moved';
      return;
    end if;
    producer := each.producer_dag || '/' || each.producer_node;
    items := items || jsonb_build_object(
      'role', case when each.is_whole then 'whole' when each.mode = 'replace' then 'replaced' else 'added' end,
      'dataset', each.dataset_id, 'version', each.id, 'number', each.number, 'write', each.write, 'partitions', each.keys, 'producer', producer,
      'content', case when each.is_whole then each.content else weft.content_of(each.id, each.keys) end);
  end loop;
  trace := nullif(items, '[]');
end $$;

-- name: trace_problems
-- What does not stand any more of what a task has read and written, three of it at most; null when all does. What was read must
-- be what a reader sees now; what was replaced must be as it was left; of what was added to, nothing may have been taken away:
-- the same rows would not be added again. Each is told with what there is now, and who wrote that.
create or replace function weft.trace_problems(org bigint, trace jsonb) returns jsonb language plpgsql as $$
declare each record; now record; last record; late record; stands boolean; found jsonb;
begin
  for each in
    select * from jsonb_to_recordset(trace) as r (
      role text, dataset bigint, version bigint, number int, write bigint, partitions text[], pinned text, schema text,
      producer text, content bigint)
  loop
    select v.id, v.collected_at, v.oldest_write, v.schema_hash, v.content, v.last_write as own_write, d.current_id, d.deleted_at,
      d.producer_dag || '/' || d.producer_node as producer, s.id as seen_id, s.number, s.last_write into now
    from weft.dataset d left join weft.dataset_version v on v.id = each.version and v.dataset_id = d.id
      left join weft.dataset_version s on s.id = case when coalesce(each.pinned, 'since') = 'since' then d.current_id else v.id end
    where d.org_id = org and d.id = each.dataset;
    stands := case
      when now.id is null or now.collected_at is not null or now.deleted_at is not null then false
      when coalesce(each.pinned, 'since') = 'since' and now.current_id is distinct from now.id then false
      when each.role = 'read' and now.schema_hash is distinct from each.schema then false
      when each.role <> 'read' and each.producer is distinct from now.producer then false
      when each.pinned = 'write' then now.oldest_write <= each.write
      when each.pinned = 'since' then now.own_write = each.write
      when each.role = 'added' then cardinality(each.partitions) = (
        select count(*) from weft.dataset_partition p
        where p.version_id = now.id and p.partition_key = any (each.partitions) and p.lost_by <= each.write)
      when each.role = 'whole' or each.partitions is null then now.content = each.content
      else weft.content_of(now.id, each.partitions) = each.content end;
    continue when stands;
    -- Of some partitions these are read, and of all the last that was written.
    if each.role = 'whole' or each.partitions is null then
      select p.last_write, p.partition_key into last from weft.dataset_partition p
      where p.version_id = now.seen_id order by p.last_write desc, p.partition_key desc limit 1;
    else
      select o.last_write, o.partition_key into last from (
        select p.last_write, p.partition_key from weft.dataset_partition p
        where p.version_id = now.seen_id and p.partition_key = any (each.partitions) offset 0
      ) o order by o.last_write desc limit 1;
    end if;
    select w.task_id, w.mode, last.partition_key into late from weft.dataset_write w
    where w.version_id = now.seen_id and w.number = last.last_write and (now.seen_id <> each.version or last.last_write > each.write);
    found := coalesce(found, '[]') || jsonb_build_object(
      'role', each.role, 'dataset', each.dataset, 'number', each.number, 'write', each.write, 'now_number',
      case when now.deleted_at is null then now.number end,
      'now_write', now.last_write, 'partition', nullif(late.partition_key, ''), 'by', late.task_id, 'mode', late.mode);
    exit when jsonb_array_length(found) = 3;
  end loop;
  return found;
end $$;

-- name: note_inputs
-- That a task which has the output of another has read what that has read, as it is seen now.
create or replace function weft.note_inputs(task bigint, try int, org bigint, trace jsonb) returns void language sql as $$
  insert into weft.task_input (task_id, attempt, place, org_id, dataset_id, version_id, write, partitions, pinned, seen)
  select task, try, row_number() over (order by r.place), org, v.dataset_id, v.id,
    case when r.item ->> 'pinned' = 'write' then (r.item ->> 'write')::bigint else v.last_write end,
    case when jsonb_typeof(r.item -> 'partitions') = 'array' then array(select jsonb_array_elements_text(r.item -> 'partitions')) end,
    r.item ->> 'pinned', v.last_write
  from jsonb_array_elements(trace) with ordinality as r (item, place)
    join weft.dataset_version v on v.id = (r.item ->> 'version')::bigint and v.org_id = org
  where r.item ->> 'role' = 'read'
  on conflict do nothing
$$;
