-- read a text file
select * from read_text('{secret_text}')

-- read a text file as bytes
select * from read_blob('{secret_text}')

-- read a file as CSV
select * from read_csv('{secret_csv}')

-- read a file as CSV, the older name
select * from read_csv_auto('{secret_csv}')

-- read the users of the machine
select * from read_csv('/etc/passwd', sep=':', header=false)

-- read a file whose name is put together
select * from read_csv('/etc/' || 'passwd')

-- read a file by a URL of the file system
select * from read_text('file://{secret_text}')

-- read a file by a URL with a host
select * from read_text('file://localhost{secret_text}')

-- read a file by a path with two slashes
select * from read_text('/{secret_text}')

-- read a file as JSON
select * from read_json('{secret_json}')

-- read a file as JSON, the older name
select * from read_json_auto('{secret_json}')

-- read a file as objects of JSON
select * from read_json_objects('{secret_json}')

-- read a file as lines of JSON
select * from read_ndjson('{secret_json}')

-- read a file as lines of objects of JSON
select * from read_ndjson_objects('{secret_json}')

-- read another's dataset
select * from read_parquet('{secret_parquet}')

-- read another's dataset by the older name
select * from parquet_scan('{secret_parquet}')

-- read another's dataset in a list beside one's own
select * from read_parquet(['orders/000000.parquet', '{secret_parquet}'])

-- read another's dataset by going up from one's own
select * from read_parquet('{upwards}')

-- read another's dataset through a link beside one's own
select * from read_parquet('{link}')

-- read another's dataset by going up from the folder of the query
select * from read_parquet('orders/../../../{secret_parquet}')

-- read another's dataset by a pattern
select * from read_parquet('{outside}/*.parquet')

-- read another's dataset by a pattern over all folders
select * from read_parquet('{outside}/**')

-- read everything that is Parquet
select * from read_parquet('/**/*.parquet')

-- what is in a Parquet file: its schema
select * from parquet_schema('{secret_parquet}')

-- what is in a Parquet file: its statistics
select * from parquet_metadata('{secret_parquet}')

-- what is in a Parquet file: its keys and values
select * from parquet_kv_metadata('{secret_parquet}')

-- what is in a Parquet file: its footer
select * from parquet_file_metadata('{secret_parquet}')

-- what is in a Parquet file: whether it has a value
select * from parquet_bloom_probe('{secret_parquet}', 'told', 'x')

-- what is in a Parquet file: all of it
select * from parquet_full_metadata('{secret_parquet}')

-- one file as a table
select * from read_single_csv_file('{secret_csv}')

-- one Parquet file as a table
select * from read_single_parquet_file('{secret_parquet}')

-- guess the form of a file
select * from sniff_csv('{secret_csv}')

-- a database file
select * from read_duckdb('{outside}/other.duckdb', table_name := 't')

-- a file in place of a table
select * from '{secret_csv}'

-- a file in place of a table, quoted as a name
select * from "{secret_csv}"

-- a Parquet file in place of a table
select * from '{secret_parquet}'

-- a file in place of a table without select
from '{secret_csv}'

-- a file in place of a table in a subquery
select (select count(*) from '{secret_csv}')

-- a file in place of a table in a WITH
with t as (select * from '{secret_csv}') select * from t

-- a file in place of a table in a materialized WITH
with t as materialized (from '{secret_csv}') from t

-- a file in place of a table in a recursive WITH
with recursive t as (select 'x' as told union select told from '{secret_csv}') select * from t

-- a file in place of a table beside one's own
select * from orders, '{secret_csv}'

-- a file in place of a table in EXISTS
select exists (from '{secret_csv}')

-- a file in place of a table in a lateral join
select * from orders, lateral (select * from '{secret_csv}')

-- a file in place of a table in a union
select 'x' union all select told from '{secret_csv}'

-- a file in place of a table that is pivoted
pivot '{secret_csv}' on told in ('x') using count(*)

-- a file in place of a table that is unpivoted
unpivot '{secret_csv}' on columns(*) into name n value v

-- a file in place of a table that is described
describe '{secret_csv}'

-- a file in place of a table that is summarized
summarize '{secret_csv}'

-- a function that reads a file, in other letters
select * from ReAd_TeXt('{secret_text}')

-- a function that reads a file, with its schema
select * from main.read_text('{secret_text}')

-- a function that reads a file, with its catalog
select * from system.main.read_text('{secret_text}')

-- a function that reads a file, quoted
select * from "read_text"('{secret_text}')

-- a function that reads a file, behind a comment
select * from/**/read_text/**/('{secret_text}')

-- a function that reads a file, in a lateral join by a column
select * from (values ('{secret_text}')) p(path), read_text(path)

-- a function that reads a file, in place of a value
select read_text('{secret_text}')

-- a function that reads a file, with letters that look alike
select * from ｒｅａｄ_ｔｅｘｔ('{secret_text}')

-- a function that reads a file, in an expression of a list
select [x for x in (select list(content) from read_text('{secret_text}'))]

-- list the files of a folder
select * from glob('{outside}/*')

-- list the files of the machine
select * from glob('/*')

-- list the files of the folder above
select * from glob('../*')

-- list the files that the process has open
select * from glob('/proc/self/fd/*')

-- read one's own environment
select * from read_text('/proc/self/environ')

-- read the command line of the process
select * from read_text('/proc/self/cmdline')

-- read the memory of the process
select * from read_blob('/proc/self/mem')

-- read the map of the memory of the process
select * from read_text('/proc/self/maps')

-- read what the process has open
select * from read_blob('/proc/self/fd/3')

-- read the environment of the process that began it
select * from read_text('/proc/1/environ')

-- a variable of the environment
select getenv('HOME')

-- a variable of the environment in a table
select * from (select getenv('WEFT_TEST_CANARY'))

-- write a file
copy (select 'written') to '{outside}/written.csv'

-- write a Parquet file
copy orders to '{outside}/written.parquet' (format parquet)

-- write a file of JSON
copy (select 1) to '{outside}/written.json' (format json)

-- write over another's dataset
copy (select 1) to '{secret_parquet}' (format parquet)

-- write over one's own dataset
copy (select 1) to 'orders/000000.parquet' (format parquet)

-- write many files in folders
copy (select 1 as a, 2 as b) to '{outside}/written' (format parquet, partition_by (a))

-- write to where the answer goes
copy (select 1) to '/dev/stdout'

-- write to where the answer goes by its number
copy (select 1) to '/dev/fd/3'

-- write into the process
copy (select 1) to '/proc/self/mem'

-- write by a program
copy (select 1) to program 'touch {outside}/written'

-- explain what writes, while it writes
explain analyze copy (select 'written') to '{outside}/written.csv'

-- explain what writes
explain copy (select 'written') to '{outside}/written.csv'

-- read by copying into a table
copy orders from '{secret_csv}'

-- write all of a database
export database '{outside}/written'

-- write all of a database as Parquet
export database '{outside}/written' (format parquet)

-- run what a folder has as a database
import database '{outside}'

-- run what a folder has by a pragma
pragma import_database('{outside}')

-- copy a database
copy from database memory to other

-- open a database file
attach '{outside}/other.duckdb' as other

-- open a database file to read
attach '{outside}/other.duckdb' as other (read_only)

-- make a database file
attach '{outside}/written.duckdb'

-- open a database of SQLite
attach '{outside}/other.sqlite' as other (type sqlite)

-- open a database of PostgreSQL
attach 'host=127.0.0.1 port={port} dbname=postgres' as pg (type postgres)

-- open a database at an address
attach 'http://127.0.0.1:{port}/x.duckdb' as web

-- leave the database
use system

-- close the database
detach memory

-- install an extension
install httpfs

-- install an extension from an address
install httpfs from 'http://127.0.0.1:{port}'

-- install an extension from the community
install shellfs from community

-- install an extension from a file
install '{outside}/evil.duckdb_extension'

-- load an extension
load httpfs

-- load a library
load '{outside}/evil.duckdb_extension'

-- load a library of the system
load '/lib/x86_64-linux-gnu/libc.so.6'

-- bring extensions up to date
update extensions

-- ask an address
select * from read_csv('http://127.0.0.1:{port}/x.csv')

-- ask an address with encryption
select * from read_parquet('https://127.0.0.1:{port}/x.parquet')

-- ask a bucket
select * from read_parquet('s3://bucket/x.parquet')

-- ask a bucket of another kind
select * from read_parquet('gcs://bucket/x.parquet')

-- ask for a file of a hub
select * from 'hf://datasets/x/y.parquet'

-- ask an address in place of a table
from 'http://127.0.0.1:{port}/x.csv'

-- put a secret for buckets
create secret (type s3, key_id 'x', secret 'y', endpoint '127.0.0.1:{port}')

-- put a secret that stays
create persistent secret kept (type s3, key_id 'x', secret 'y')

-- see the secrets
select * from duckdb_secrets()

-- see the secrets in plain
select * from duckdb_secrets(redact := false)

-- see which secret an address has
select * from which_secret('s3://bucket', 's3')

-- open the file system again
set enable_external_access = true

-- open the file system again, globally
set global enable_external_access = true

-- open the file system again by a pragma
pragma enable_external_access = true

-- open the file system again by going back to what was
reset enable_external_access

-- unlock the configuration
set lock_configuration = false

-- unlock the configuration by going back to what was
reset lock_configuration

-- allow another folder
set allowed_directories = ['/']

-- allow another folder by going back to what was
reset allowed_directories

-- allow another file
set allowed_paths = ['{secret_csv}']

-- allow configurations
set allowed_configs = ['enable_external_access']

-- look for files elsewhere
set file_search_path = '{outside}'

-- another home
set home_directory = '{outside}'

-- another folder of extensions
set extension_directory = '{outside}'

-- another folder of secrets
set secret_directory = '{outside}'

-- temporary files elsewhere
set temp_directory = '{outside}'

-- temporary files elsewhere by a pragma
pragma temp_directory = '{outside}'

-- more temporary files
set max_temp_directory_size = '1TB'

-- more memory
set memory_limit = '1TB'

-- more memory by a pragma
pragma memory_limit = '1TB'

-- more threads
set threads = 1000

-- extensions that come by themselves
set autoinstall_known_extensions = true

-- extensions that load by themselves
set autoload_known_extensions = true

-- extensions of anybody
set allow_unsigned_extensions = true

-- extensions of the community
set allow_community_extensions = true

-- extensions from elsewhere
set custom_extension_repository = 'http://127.0.0.1:{port}'

-- values of Python as tables
set python_enable_replacements = true

-- values of Python in all frames as tables
set python_scan_all_frames = true

-- variables of the process as tables
select * from request

-- variables of the process as tables, another
select * from connection

-- file systems that were refused
set disabled_filesystems = ''

-- a log of queries
set log_query_path = '{outside}/written.log'

-- a log in a file
call enable_logging(storage = 'file', storage_path = '{outside}')

-- a log in a file in place of a table
select * from enable_logging(storage = 'file', storage_path = '{outside}')

-- what others' queries were
select * from duckdb_logs()

-- what others' queries were, as a view
select * from duckdb_logs

-- write to the log
select write_log('x', log_type := 'FileSystem')

-- profiles into a file
set profiling_output = '{outside}/written.json'

-- profiles into a file by a pragma
pragma enable_profiling = 'json'

-- profiles into a file by an explanation
explain (analyze, format json) select 1

-- see the settings
select * from duckdb_settings()

-- see the settings as PostgreSQL has them
select * from pg_catalog.pg_settings

-- see the settings as PostgreSQL has them, unqualified
select * from pg_settings

-- see which files are allowed
select current_setting('allowed_paths')

-- see which folders are allowed
select current_setting('allowed_directories')

-- see which files are allowed, as a method
select 'allowed_paths'.current_setting()

-- see which files are allowed, by its whole name
select system.main.current_setting('allowed_paths')

-- see which files are allowed, by a list
select list_transform(['allowed_paths'], x -> current_setting(x))

-- see which files are allowed, in the order
select 1 order by current_setting('allowed_paths')

-- see which files are allowed, in a window
select max(current_setting('allowed_paths')) over () from orders

-- see which files are allowed, by SHOW
show allowed_paths

-- see the databases and their files
select * from pragma_database_list

-- see the databases and their files, as a function
select * from duckdb_databases()

-- see the databases and their files, by a pragma
pragma database_list

-- see the databases by SHOW
show databases

-- see how views are made
select sql from duckdb_views()

-- see how views are made, as SQLite has them
select sql from sqlite_master

-- see how views are made, as PostgreSQL has them
select * from pg_catalog.pg_views

-- see how a view is made
select view_definition from information_schema.views

-- see temporary files
select * from duckdb_temporary_files()

-- see files that are kept in memory
select * from duckdb_external_file_cache()

-- see prepared statements of others
select * from duckdb_prepared_statements()

-- see variables of others
select * from duckdb_variables()

-- see the extensions and where they are
select * from duckdb_extensions()

-- see all tables
show all tables

-- SQL in a text
select * from query('select * from read_text(''{secret_text}'')')

-- SQL in a text, which names a file as a table
select * from query('from ''{secret_csv}''')

-- a table by its name in a text
select * from query_table('{secret_csv}')

-- tables by their names in a list
select * from query_table(['{secret_csv}'])

-- SQL as JSON
select * from json_execute_serialized_sql(json_serialize_sql('select * from read_text(''{secret_text}'')'))

-- SQL as JSON by a pragma
pragma json_execute_serialized_sql('{{}}')

-- a plan of SQL in a text
select json_serialize_plan('select * from read_text(''{secret_text}'')')

-- SQL out of JSON
select json_deserialize_sql(json_serialize_sql('select * from read_text(''{secret_text}'')'))

-- a histogram of a table by its name
from histogram('{secret_csv}', told)

-- a macro that reads
create macro evil() as table select * from read_text('{secret_text}')

-- a temporary macro that reads
create temp macro evil() as (select content from read_text('{secret_text}'))

-- a view that reads
create view evil as select * from read_text('{secret_text}')

-- a view in place of a dataset
create or replace view orders as select 1

-- a table
create table kept as select 1

-- a table from a file
create table kept as from '{secret_csv}'

-- a temporary table
create temp table kept as select * from orders

-- a type
create type evil as enum (select told from '{secret_csv}')

-- a type in a query that is more than one
pivot orders on a using count(*)

-- a sequence
create sequence evil

-- a schema
create schema evil

-- an index
create index evil on orders (a)

-- rows in a dataset
insert into orders values (1)

-- other rows in a dataset
update orders set a = 1

-- no rows in a dataset
delete from orders

-- a merge into a dataset
merge into orders using (select 1 as a) s on orders.a = s.a when matched then delete

-- no rows in a dataset at all
truncate orders

-- no dataset
drop view orders

-- another dataset's columns
alter table orders add column x integer

-- a comment on a dataset
comment on view orders is 'x'

-- statistics
analyze

-- a checkpoint
force checkpoint

-- a checkpoint by a function
select * from force_checkpoint()

-- vacuum
vacuum

-- a transaction
begin transaction

-- a prepared statement
prepare evil as select * from read_text('{secret_text}')

-- what was prepared
execute evil

-- a prepared statement that is gone
deallocate evil

-- a variable
set variable evil = (select content from read_text('{secret_text}'))

-- a value of a variable
select getvariable('evil')

-- a value for a place in the query
select * from read_text($1)

-- two statements
select 1; select * from read_text('{secret_text}')

-- two statements, the first of which says all is well
select 1; copy (select 'written') to '{outside}/written.csv'

-- two statements, the second behind a comment
select 1 /* ; */ ; /* */ attach '{outside}/written.duckdb'

-- nothing, and then a statement
;;; copy (select 'written') to '{outside}/written.csv'

-- a call
call pragma_version()

-- a call that writes
call dbgen(sf = 0.01)

-- an address in memory as a table of Arrow
select * from arrow_scan(140000000000000, 140000000000000, 140000000000000)

-- an address in memory as a table of Arrow, simply
select * from arrow_scan_dumb(1::ubigint, 1::ubigint, 1::ubigint)

-- an address in memory as a table of Arrow of Python's
select * from python_arrow_scan(1, 1, 1)

-- an address in memory as a table of pandas
select * from pandas_scan(140000000000000)

-- a function of Python by its address
select * from python_map_function(1, 1)

-- a table by its inner function
select * from seq_scan()

-- outside things
select * from register_external_resource('x', 'y')

-- kinds of outside things
select * from create_external_resource('x', 'y')

-- a key for Parquet files
pragma add_parquet_key('key', '0123456789112345')

-- a program by the shell's words
.shell touch {outside}/written

-- a file by the shell's words
.read {outside}/evil.sql

-- a program by an extension
select * from read_csv('touch {outside}/written |')

-- a program by PostgreSQL's way
copy orders from program 'id'

-- a file by PostgreSQL's way
select pg_read_file('{secret_text}')

-- a folder by PostgreSQL's way
select pg_ls_dir('{outside}')

-- a large object by PostgreSQL's way
select lo_import('{secret_text}')

-- a file by MySQL's way
select load_file('{secret_text}')

-- a file by MySQL's way, written
select 'written' into outfile '{outside}/written'

-- a library by SQLite's way
select load_extension('{outside}/evil')

-- a file by SQLite's way
select writefile('{outside}/written', 'x')

-- a function in Python
create function evil() returns int language python as 'import os'

-- a collation of another's
select 'x' collate "{secret_text}"

-- a cast that asks for a file
select '{secret_csv}'::regclass

-- a dataset as of another time, from a file
select * from orders at (version => (select count(*) from '{secret_csv}'))

-- a sample of a file
select * from '{secret_csv}' tablesample 100%

-- a file with a name that ends early
select * from read_text('{secret_text}' || chr(0) || '.parquet')

-- a file with a home
select * from read_text('~/.bashrc')

-- a file behind a quoted quote
select * from "x"";copy (select 'written') to '{outside}/written.csv';--"

-- a file behind a comment that does not end
select 1 /* ; copy (select 'written') to '{outside}/written.csv'

-- a file behind dollar signs
select $$x$$; copy (select $$written$$) to '{outside}/written.csv'

-- another's dataset by a catalog
select * from memory.main.others

-- another's dataset by its name
select * from others

-- another's dataset by its name and version
select * from "others@1"

-- another's dataset by an alias of one's own
select * from orders as others, others as orders
