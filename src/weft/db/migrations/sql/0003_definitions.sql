-- name: is_forced
-- Whether a move of a tag to a workflow is forced, the tag held: one that is of another workflow is moved only by whoever names
-- that, and one that is protected only by force.
create function weft.is_forced(org bigint, tag_name text, workflow text, force boolean, replaces text) returns boolean
language plpgsql set lock_timeout = '3s' as $$
declare t weft.tag;
begin
  select * into t from weft.tag g where g.org_id = org and g.name = tag_name for update;
  if t.name is null or t.deleted_at is not null or workflow is null or t.workflow_id = workflow then
    return force;
  elsif replaces is distinct from t.workflow_id then
    perform weft.refuse_move('of another workflow', t);
  end if;
  return force or not t.is_protected;
end $$;

-- name: undo_tag
-- Takes back moves of a tag, one row a step, as an editor does: back through the moves that set it. What is not there any more is
-- passed over.
create or replace function weft.undo_tag(
  org bigint, tag_name text, steps int, expected_version bigint, expected_hash bytea, force boolean, actor text, message text
) returns weft.tag language plpgsql set lock_timeout = '3s' as $$
declare t weft.tag := weft.lock_tag(org, tag_name, expected_version, expected_hash, force); back bigint; target bigint;
begin
  if t.name is null or t.deleted_at is not null then
    raise exception 'there is no tag %', tag_name using errcode = 'WF005';
  end if;
  for step in 1 .. steps loop
    back := t.position;
    loop
      select m.back_to into back from weft.tag_move m where m.org_id = org and m.tag = tag_name and m.version = back;
      exit when back is null;
      select m.to_id into target from weft.tag_move m where m.org_id = org and m.tag = tag_name and m.version = back;
      exit when exists (select 1 from weft.artifact a where a.id = target and a.org_id = org);
    end loop;
    if back is null then
      if step = 1 then
        raise exception 'tag %: nothing to undo', tag_name using errcode = 'WF006';
      end if;
      exit;
    end if;
    t := weft.add_move(t, 'undo', target, back, actor, message, null);
  end loop;
  return t;
end $$;

-- name: parted_places
-- The last artifacts from which two others came: several when each was merged into the other's line; none when they have none
-- in common. Both lines are walked back side by side, the youngest first: what has been reached from both sides when its turn
-- comes is one, and what such a one came from is none.
create function weft.parted_places(one bigint, other bigint) returns setof bigint language plpgsql stable as $$
declare ids bigint[] := array[one, other]; sides int[] := array[1, 2]; side int; a weft.artifact; parent bigint;
begin
  if one = other then
    return next one;
    return;
  end if;
  while exists (select 1 from unnest(sides) as u (side) where u.side < 4) loop
    select x.* into a from weft.artifact x where x.id = any (ids) order by x.generation desc, x.id desc limit 1;
    exit when a.id is null;
    side := sides[array_position(ids, a.id)];
    if side = 3 then
      return next a.id;
      side := 7;
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
end $$;

-- name: delete_tag
-- Takes a tag away; its moves stay, and it can be brought back. The one without a hash is for the release before.
create function weft.delete_tag(
  org bigint, tag_name text, expected_version bigint, expected_hash bytea, force boolean, actor text, message text
) returns weft.tag language plpgsql set lock_timeout = '3s' as $$
declare t weft.tag := weft.lock_tag(org, tag_name, expected_version, expected_hash, force);
begin
  if t.name is null or t.deleted_at is not null then
    return null;
  end if;
  return weft.add_move(t, 'delete', t.target_id, t.position, actor, message, null);
end $$;
