-- name: time_of_id
-- The moment at which an id was made.
create function weft.time_of_id(id bigint) returns timestamptz language sql immutable strict parallel safe
return to_timestamp(((id >> 22) + 1704067200000) / 1000.0);

-- name: put_blob
-- Keeps a document, once, and keeps it from being collected from now on. Without content it is in the blob storage. What
-- is put again takes the place of what is there, which may be damaged.
create function weft.put_blob(digest text, bytes bigint, media_type text, content bytea) returns void language sql volatile as $$
  insert into weft.blob as b (digest, bytes, media_type, content) values (digest, bytes, media_type, content)
  on conflict on constraint blob_pkey do update
    set put_at = weft.now(), content = coalesce(excluded.content, b.content), media_type = coalesce(b.media_type, excluded.media_type);
$$;

-- name: plan_of
-- What a document is made of: the version, the patches on it, and one more if there is one.
create function weft.plan_of(head bigint, patch_digest text) returns bytea language sql stable as $$
  select sha256(convert_to(concat_ws(',', string_agg(m.digest, ',' order by p.seq), patch_digest), 'UTF8'))
  from weft.artifact a
  cross join lateral unnest(coalesce(a.base_id, a.id) || a.chain) with ordinality as p (id, seq)
  join weft.artifact m on m.id = p.id
  where a.id = head
$$;

-- name: put_artifact
-- Adds a version, or a patch of its parent, with its content. Here and below nobody waits for a lock for longer than a
-- client waits for an answer: what it was told of as failed could land afterwards.
create function weft.put_artifact(
  org bigint, kind weft.artifact_kind, workflow text, parent bigint, merged bigint, digest text, bytes bigint, content bytea,
  version_hash bytea, actor text, message text
) returns bigint language plpgsql set lock_timeout = '3s' as $$
#variable_conflict use_variable
declare new_id bigint := weft.next_id(); p weft.artifact; m weft.artifact;
begin
  perform weft.put_blob(digest, bytes, case when kind = 'patch' then 'application/json-patch+json' else 'application/json' end, content);
  select * into p from weft.artifact a where a.id = parent and a.org_id = org and a.kind <> 'snapshot';
  select * into m from weft.artifact a where a.id = merged and a.org_id = org and a.kind <> 'snapshot';
  if p.id is distinct from parent or m.id is distinct from merged then
    raise exception 'there is no version %', case when m.id is distinct from merged then merged else parent end using errcode = 'WF004';
  end if;
  insert into weft.artifact (id, org_id, kind, generation, workflow_id, parent_id, merged_id, base_id, chain, digest, version_hash,
                             actor, message)
  values (new_id, org, kind, 1 + greatest(coalesce(p.generation, 0), coalesce(m.generation, 0)), workflow, parent, merged,
          case when kind = 'patch' then coalesce(p.base_id, p.id) end, case when kind = 'patch' then p.chain || new_id end,
          digest, version_hash, actor, message);
  return new_id;
end $$;

-- name: put_snapshot
-- Keeps the document that an artifact gives, or the one that a patch on it gives, which is kept with it; once a plan.
create function weft.put_snapshot(
  org bigint, head bigint, workflow text, patch_digest text, patch_bytes bigint, patch_content bytea, digest text,
  bytes bigint, content bytea, version_hash bytea, actor text, message text
) returns bigint language plpgsql set lock_timeout = '3s' as $$
#variable_conflict use_variable
declare of_id bigint := head; plan bytea := weft.plan_of(head, patch_digest); new_id bigint;
begin
  if not exists (select 1 from weft.artifact a where a.id = head and a.org_id = org) then
    raise exception 'there is no version %', head using errcode = 'WF004';
  end if;
  if patch_digest is not null then
    of_id := weft.put_artifact(org, 'patch', workflow, head, null, patch_digest, patch_bytes, patch_content,
                               version_hash, actor, message);
  end if;
  perform weft.put_blob(digest, bytes, 'application/json', content);
  insert into weft.artifact (id, org_id, kind, generation, workflow_id, parent_id, digest, version_hash, plan_hash, actor)
  select weft.next_id(), org, 'snapshot', a.generation + 1, workflow, of_id, digest, version_hash, plan, actor
  from weft.artifact a where a.id = of_id
  on conflict do nothing returning id into new_id;
  if new_id is null then
    -- Somebody else was quicker: theirs stands, with their patch.
    delete from weft.artifact a where a.id = of_id and of_id <> head;
    select a.id into new_id from weft.artifact a where a.org_id = org and a.plan_hash = plan and a.kind = 'snapshot';
  end if;
  return new_id;
end $$;

-- name: line_of
-- An artifact and those that it was made from, each before its parents; from below another on, if there is one. As far as
-- is asked for, and no further: a line may be long.
create function weft.line_of(head bigint, below bigint, count int) returns setof bigint language plpgsql stable as $$
declare open bigint[] := array[head]; last weft.artifact; a weft.artifact;
begin
  select * into last from weft.artifact x where x.id = below;
  while cardinality(open) > 0 and count > 0 loop
    select * into a from weft.artifact x where x.id = any (open) order by x.generation desc, x.id desc limit 1;
    exit when a.id is null;
    -- Only to what is older: damage may have led a line back into itself.
    open := array(select unnest(open) union select x.id from weft.artifact x
                  where x.id in (a.parent_id, a.merged_id) and x.generation < a.generation except values (a.id));
    if below is null or (a.generation, a.id) < (last.generation, last.id) then
      return next a.id;
      count := count - 1;
    end if;
  end loop;
end $$;

-- name: parted_at
-- The last artifact from which two others came; null when they have none in common. Both lines are walked back side by
-- side, the youngest first: what has been reached from both sides when its turn comes is it.
create function weft.parted_at(one bigint, other bigint) returns bigint language plpgsql stable as $$
declare ids bigint[] := array[one, other]; sides int[] := array[1, 2]; side int; a weft.artifact; parent bigint;
begin
  if one = other then
    return one;
  end if;
  while cardinality(ids) > 0 loop
    select x.* into a from weft.artifact x where x.id = any (ids) order by x.generation desc, x.id desc limit 1;
    exit when a.id is null;
    side := sides[array_position(ids, a.id)];
    if side = 3 then
      return a.id;
    end if;
    select coalesce(array_agg(u.id), '{}'), coalesce(array_agg(u.side), '{}') into ids, sides
    from unnest(ids, sides) as u (id, side) where u.id <> a.id;
    for parent in select x.id from weft.artifact x where x.id in (a.parent_id, a.merged_id) and x.generation < a.generation loop
      if parent = any (ids) then
        sides[array_position(ids, parent)] := sides[array_position(ids, parent)] | side;
      else
        ids := ids || parent;
        sides := sides || side;
      end if;
    end loop;
  end loop;
  return null;
end $$;

-- name: tag_named
-- The tag that a name means: itself, or that of a workflow's main line; the name itself when there is none.
create function weft.tag_named(org bigint, name text, with_deleted boolean default false) returns text language plpgsql stable as $$
begin
  return coalesce((
    select t.name from weft.tag t
    where t.org_id = org and t.name in (tag_named.name, tag_named.name || '/main') and (t.deleted_at is null or with_deleted)
    order by t.deleted_at is not null, length(t.name) limit 1), name);
end $$;

-- name: move_at
-- The last move of a tag up to a moment. Moves are numbered from 1, and none is earlier than the one before it: so it is
-- found by halving, and needs no index of its own.
create function weft.move_at(org bigint, tag_name text, moment timestamptz) returns weft.tag_move language plpgsql stable as $$
declare low bigint := 0; high bigint; middle bigint; m weft.tag_move; found_move weft.tag_move;
begin
  select t.version into high from weft.tag t where t.org_id = org and t.name = tag_name and moment is not null;
  while low < high loop
    middle := (low + high + 1) / 2;
    select * into m from weft.tag_move v where v.org_id = org and v.tag = tag_name and v.version = middle;
    if m.moved_at <= moment then
      low := middle;
      found_move := m;
    else
      high := middle - 1;
    end if;
  end loop;
  return found_move;
end $$;

-- name: refuse_move
-- Ends a move that came too late, or may not be made; the detail is what the tag is now.
create function weft.refuse_move(why text, t weft.tag) returns void language plpgsql as $$
begin
  raise exception 'tag %: %', t.name, why using errcode = 'WF003', detail = (
    select json_build_object('why', why, 'version', t.version, 'moved_by', t.moved_by, 'moved_at', t.moved_at,
      'target', t.target_id::text, 'hash', encode(a.version_hash, 'hex'), 'workflow_id', t.workflow_id,
      'message', m.message, 'verb', m.verb)::text
    from (select t.target_id as id) x left join weft.artifact a on a.id = x.id
    left join weft.tag_move m on m.org_id = t.org_id and m.tag = t.name and m.version = t.version);
end $$;

-- name: refuse_lost
-- Ends a change of a tag whose row is lost while its moves are there: a new one would begin their numbers again.
create function weft.refuse_lost(org bigint, tag_name text) returns void language plpgsql as $$
declare lost text := (
  select m.tag from weft.tag_move m where m.org_id = org and m.tag in (tag_name, tag_name || '/main')
    and not exists (select 1 from weft.tag t where t.org_id = org and t.name = m.tag) limit 1);
begin
  if lost is not null then
    raise exception 'tag %: lost', lost using errcode = 'WF003', detail = json_build_object('why', 'lost');
  end if;
end $$;

-- name: lock_tag
-- Holds a tag for a move, when it is as the caller expects it; 0 is one that is not there, or not any more.
create function weft.lock_tag(
  org bigint, tag_name text, expected_version bigint, expected_hash bytea, force boolean, deploying boolean default false
) returns weft.tag language plpgsql set lock_timeout = '3s' as $$
declare t weft.tag;
begin
  select * into t from weft.tag g where g.org_id = org and g.name = tag_name for update;
  if t.name is null then
    return null;
  elsif t.is_deployed and not deploying then
    perform weft.refuse_move('deployed', t);
  elsif t.version <> expected_version and not (expected_version = 0 and t.deleted_at is not null) then
    perform weft.refuse_move('moved', t);
  elsif expected_hash is not null
    and not exists (select 1 from weft.artifact a where a.id = t.target_id and a.version_hash = expected_hash) then
    perform weft.refuse_move('moved', t);
  elsif t.is_protected and not force then
    perform weft.refuse_move('protected', t);
  end if;
  return t;
end $$;

-- name: add_move
-- Notes a move of a tag that is held, and makes it. `new_position` is null for a move that is an undo step itself.
create function weft.add_move(
  t weft.tag, verb weft.tag_verb, target bigint, new_position bigint, actor text, message text, expected_hash bytea
) returns weft.tag language plpgsql as $$
declare at timestamptz := greatest(weft.now(), t.moved_at); came_from bigint := case when t.deleted_at is null then t.target_id end;
  workflow text := (select a.workflow_id from weft.artifact a where a.id = target and a.org_id = t.org_id);
begin
  if workflow is null and verb <> 'delete' then
    raise exception 'there is no version %', target using errcode = 'WF004';
  end if;
  insert into weft.tag_move (org_id, tag, version, verb, from_id, to_id, position, back_to, moved_at, moved_by, message, expected_hash)
  values (t.org_id, t.name, t.version + 1, verb, came_from, case when verb <> 'delete' then target end,
    coalesce(new_position, t.version + 1),
    case when new_position is null and t.deleted_at is null then t.position end, at, actor, message, expected_hash);
  update weft.tag g set target_id = target, workflow_id = coalesce(workflow, t.workflow_id),
    version = t.version + 1, position = coalesce(new_position, t.version + 1),
    moved_at = at, moved_by = actor, deleted_at = case when verb = 'delete' then at end
  where g.org_id = t.org_id and g.name = t.name
  returning * into t;
  return t;
end $$;

-- name: move_tag
-- Moves a tag to an artifact, and makes it when it is not there. A tag stays with its workflow unless forced.
create function weft.move_tag(
  org bigint, tag_name text, verb weft.tag_verb, target bigint, expected_version bigint, expected_hash bytea, force boolean,
  actor text, message text
) returns weft.tag language plpgsql set lock_timeout = '3s' as $$
declare t weft.tag; workflow text; at timestamptz := weft.now();
begin
  select a.workflow_id into workflow from weft.artifact a where a.id = target and a.org_id = org and a.kind <> 'snapshot';
  if workflow is null then
    raise exception 'there is no version %', target using errcode = 'WF004';
  end if;
  t := weft.lock_tag(org, tag_name, expected_version, expected_hash, force);
  if t.name is null then
    if expected_version > 0 or expected_hash is not null then
      raise exception 'there is no tag %', tag_name using errcode = 'WF005';
    end if;
    perform weft.refuse_lost(org, tag_name);
    insert into weft.tag as g (org_id, name, workflow_id, target_id, version, position, moved_at, moved_by)
    values (org, tag_name, workflow, target, 1, 1, at, actor) on conflict do nothing returning * into t;
    if t.name is not null then
      insert into weft.tag_move (org_id, tag, version, verb, to_id, position, moved_at, moved_by, message)
      values (org, tag_name, 1, verb, target, 1, at, actor, message);
      return t;
    end if;
    -- Somebody else made it meanwhile.
    t := weft.lock_tag(org, tag_name, expected_version, expected_hash, force);
  end if;
  if t.workflow_id <> workflow and not force and t.deleted_at is null then
    perform weft.refuse_move('of another workflow', t);
  end if;
  return weft.add_move(t, verb, target, null, actor, message, expected_hash);
end $$;

-- name: compact_tag
-- Moves a tag to a version that means the same: no step that undo would take back.
create function weft.compact_tag(org bigint, tag_name text, target bigint, expected_version bigint, actor text) returns weft.tag
language plpgsql set lock_timeout = '3s' as $$
declare t weft.tag := weft.lock_tag(org, tag_name, expected_version, null, true);
begin
  if not exists (select 1 from weft.artifact a join weft.artifact b on b.version_hash = a.version_hash
                 where a.id = t.target_id and b.id = target) then
    raise exception 'tag % means something else than version %', tag_name, target using errcode = 'WF004';
  end if;
  return weft.add_move(t, 'compact', target, t.position, actor, null, null);
end $$;

-- name: undo_tag
-- Takes back moves of a tag, one row a step, as an editor does: back through the moves that set it.
create or replace function weft.undo_tag(
  org bigint, tag_name text, steps int, expected_version bigint, expected_hash bytea, force boolean, actor text, message text
) returns weft.tag language plpgsql set lock_timeout = '3s' as $$
declare t weft.tag := weft.lock_tag(org, tag_name, expected_version, expected_hash, force); back bigint; target bigint;
begin
  if t.name is null or t.deleted_at is not null then
    raise exception 'there is no tag %', tag_name using errcode = 'WF005';
  end if;
  for step in 1 .. steps loop
    select m.back_to into back from weft.tag_move m where m.org_id = org and m.tag = tag_name and m.version = t.position;
    if back is null then
      if step = 1 then
        raise exception 'tag %: nothing to undo', tag_name using errcode = 'WF006';
      end if;
      exit;
    end if;
    select m.to_id into target from weft.tag_move m where m.org_id = org and m.tag = tag_name and m.version = back;
    t := weft.add_move(t, 'undo', target, back, actor, message, null);
  end loop;
  return t;
end $$;

-- name: redo_tag
-- Makes moves again that were taken back, one row a step: forward by the newest move that went on from here.
create function weft.redo_tag(
  org bigint, tag_name text, steps int, expected_version bigint, expected_hash bytea, force boolean, actor text, message text
) returns weft.tag language plpgsql set lock_timeout = '3s' as $$
declare t weft.tag := weft.lock_tag(org, tag_name, expected_version, expected_hash, force); forth record;
begin
  if t.name is null or t.deleted_at is not null then
    raise exception 'there is no tag %', tag_name using errcode = 'WF005';
  end if;
  for step in 1 .. steps loop
    select m.version, m.to_id into forth from weft.tag_move m
    where hashtextextended(m.tag, m.back_to) = hashtextextended(tag_name, t.position)
      and m.org_id = org and m.tag = tag_name and m.back_to = t.position
    order by m.version desc limit 1;
    if forth.version is null then
      if step = 1 then
        raise exception 'tag %: nothing to redo', tag_name using errcode = 'WF006';
      end if;
      exit;
    end if;
    t := weft.add_move(t, 'redo', forth.to_id, forth.version, actor, message, null);
  end loop;
  return t;
end $$;

-- name: delete_tag
-- Takes a tag away; its moves stay, and it can be brought back.
create function weft.delete_tag(org bigint, tag_name text, expected_version bigint, force boolean, actor text, message text)
returns weft.tag language plpgsql set lock_timeout = '3s' as $$
declare t weft.tag := weft.lock_tag(org, tag_name, expected_version, null, force);
begin
  if t.name is null or t.deleted_at is not null then
    return null;
  end if;
  return weft.add_move(t, 'delete', t.target_id, t.position, actor, message, null);
end $$;

-- name: undelete_tag
-- Brings a tag back to where it was when it was deleted.
create function weft.undelete_tag(org bigint, tag_name text, actor text, message text) returns weft.tag
language plpgsql set lock_timeout = '3s' as $$
declare t weft.tag := weft.lock_tag(org, tag_name, null, null, true);
begin
  if t.name is null then
    perform weft.refuse_lost(org, tag_name);
  end if;
  if t.name is null or t.deleted_at is null then
    return null;
  end if;
  return weft.add_move(t, 'undelete', t.target_id, t.position, actor, message, null);
end $$;

-- name: protect_tag
-- Lets a tag be moved only by force, or freely again.
create function weft.protect_tag(org bigint, tag_name text, protected boolean) returns text
language plpgsql set lock_timeout = '3s' as $$
declare t weft.tag := weft.lock_tag(org, tag_name, null, null, true);
begin
  update weft.tag g set is_protected = protected where g.org_id = org and g.name = t.name and g.deleted_at is null
  returning g.name into tag_name;
  return case when found then tag_name end;
end $$;
