-- name: create
-- Null when there is one of that name.
insert into weft.org (id, slug, name) values (weft.next_id(), $1, $2) on conflict (slug) do nothing returning id;

-- name: show
select o.id, o.slug, o.name, o.settings, o.created_at from weft.org o where o.slug = $1;

-- name: list
select o.id, o.slug, o.name, o.settings, o.created_at from weft.org o where o.slug > $1 order by o.slug limit $2;

-- name: default_queue
-- Every org has the queue that tasks go to which name none.
insert into weft.queue (org_id, name, actor) values ($1, 'default', $2);

-- name: rename
update weft.org o set name = $2 where o.slug = $1 returning o.id;
