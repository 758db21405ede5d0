-- name: list_newest_acts
-- At most `n` acts of an org between two ids, both left out, on a task, a job or a queue, by somebody, of a verb, or all: the
-- newest of them, in order. Compared and put in order as a whole, so that only one index fits: by that of ids alone an
-- org of few acts would be looked for among all. Of a task the index of subjects is read, first and whole: the order would
-- lead through all acts.
create function weft.list_newest_acts(org bigint, what text, task bigint, job bigint, queue text, who text, low bigint, high bigint, n int)
returns setof weft.audit language plpgsql stable set plan_cache_mode = force_generic_plan as $$
begin
  if task is not null then
    return query select a.* from weft.audit a
      where a.org_id = org and a.id = any (weft.acts_on_task(org, task)) and a.id < high and a.id > low and (what is null or a.verb = what)
        and (who is null or a.actor = who)
      order by a.id desc limit n;
  elsif job is not null then
    return query select a.* from weft.audit a
      where a.org_id = org and a.subject_kind = 'job' and (a.subject_ids[1], a.id) < (job, high) and (a.subject_ids[1], a.id) > (job, low)
        and (what is null or a.verb = what) and (who is null or a.actor = who)
      order by a.subject_ids[1] desc, a.id desc limit n;
  elsif queue is not null then
    return query select a.* from weft.audit a
      where a.org_id = org and a.id < high and a.id > low and (what is null or a.verb = what)
        and a.subject_name = queue and a.subject_kind = 'queue' and (who is null or a.actor = who)
      order by a.id desc limit n;
  elsif who is not null then
    return query select a.* from weft.audit a
      where a.org_id = org and (a.actor, a.id) < (who, high) and (a.actor, a.id) > (who, low) and (what is null or a.verb = what)
      order by a.actor desc, a.id desc limit n;
  elsif what is not null then
    return query select a.* from weft.audit a
      where a.org_id = org and (a.verb, a.id) < (what, high) and (a.verb, a.id) > (what, low)
      order by a.verb desc, a.id desc limit n;
  else
    return query select a.* from weft.audit a
      where (a.org_id, a.id) < (org, high) and (a.org_id, a.id) > (org, low)
      order by a.org_id desc, a.id desc limit n;
  end if;
end $$;

-- name: list_oldest_acts
-- The same from the other end.
do $$
begin
  execute replace(replace(pg_get_functiondef('weft.list_newest_acts'::regproc), 'newest', 'oldest'), ' desc', '');
end $$;
