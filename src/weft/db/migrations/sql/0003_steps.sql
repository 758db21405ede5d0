-- name: step
-- What attempts of a task have saved on their way, so that a later one does not do it again: a row a step or checkpoint,
-- and one for what an attempt has measured, under a name that begins with @. In daily partitions by the task's id.
create table weft.step (
  task_id bigint not null,
  name text not null check (name <> '' and length(name) <= 220),
  org_id bigint not null,
  job_id bigint,
  attempt int not null,
  saved_at timestamptz not null default weft.now(),
  took interval,
  bytes bigint not null,
  data json not null,
  primary key (task_id, name)
) partition by range (task_id);

-- name: view_steps
create or replace view weft.steps as
  select s.task_id, s.org_id, s.name, s.attempt, s.saved_at, s.took, s.bytes, s.data from weft.step s;

-- name: steps_are_read_only
do $$
declare verb text;
begin
  foreach verb in array array['insert', 'update', 'delete'] loop
    execute format('create rule refuse_%s as on %s to weft.steps do instead select weft.refuse_write(''steps'')', verb, verb);
  end loop;
end $$;

-- name: comment_steps
comment on view weft.steps is 'Every step and checkpoint that tasks have saved, and what their attempts have measured.';
