-- docs: begin call
select id, created from weft.enqueue('order:confirm', '{"order": 1}');

select id, created from weft.enqueue(
  'order:confirm', '{"order": 1}',
  queue => 'default', priority => 5, idempotency_key => 'order-1', delay => interval '10 seconds',
  max_attempts => 5, retry => '{"backoff": "fixed", "initial_delay": 30}', timeout => interval '1 minute'
);
-- docs: end call

-- docs: begin trigger
create table purchase (id bigint generated always as identity primary key, item text not null);

create function confirm_purchase() returns trigger language plpgsql as $$
begin
  perform weft.enqueue('order:confirm', json_build_object('order', new.id), idempotency_key => 'purchase-' || new.id);
  return new;
end $$;

create trigger purchase_confirm after insert on purchase for each row execute function confirm_purchase();

insert into purchase (item) values ('tea'), ('milk');
-- docs: end trigger

-- docs: begin read
select id, state, handler, params, due_at from weft.tasks where queue = 'default' order by id;

select t.id, t.handler, a.attempt, a.outcome, a.error ->> 'message' as message
from weft.tasks t join weft.attempts a on a.task_id = t.id
where t.state in ('failed', 'dead') order by t.id desc, a.attempt;
-- docs: end read
