-- name: drop_everything
-- Everything lives in the schema; the version table, kept there too, is written again by Alembic afterwards.
do $$
declare thing record;
begin
  for thing in select format('drop view weft.%I cascade', viewname) as statement from pg_views where schemaname = 'weft' loop
    execute thing.statement;
  end loop;
  for thing in select format('drop table weft.%I cascade', relname) as statement from pg_class
    where relnamespace = 'weft'::regnamespace and relkind in ('p', 'r') and not relispartition
      and relname <> 'schema_revision' order by relname loop
    execute thing.statement;
  end loop;
  for thing in select format('drop routine if exists %s cascade', oid::regprocedure) as statement from pg_proc
    where pronamespace = 'weft'::regnamespace loop
    execute thing.statement;
  end loop;
  for thing in select format('drop type weft.%I cascade', typname) as statement from pg_type
    where typnamespace = 'weft'::regnamespace and typtype in ('d', 'e') loop
    execute thing.statement;
  end loop;
  drop sequence if exists weft.id_sequence;
end $$;
