"""Every item of the five specs: the list against which the map in docs/reference/specs.md is checked."""

from __future__ import annotations

# Columns by spec and table.
COLUMNS: dict[int, dict[str, str]] = {
    1: {
        "orgs": "id name slug settings created_at",
        "users": "id org_id external_id email role created_at",
        "org_roles": "id org_id slug name created_at",
        "org_role_memberships": "role_id user_id created_at",
        "dag_versions": "id org_id dag_name yaml_hash created_at",
        "dag_current_versions": "org_id dag_name dag_version_id updated_at",
        "jobs": (
            "id org_id name dag_name dag_version_id activation runtime operator source bootstrap "
            "execution_strategy idle_timeout config config_hash input_datasets output_datasets "
            "update_strategy unique_key scaling timeout_seconds heartbeat_timeout_seconds max_attempts "
            "created_at updated_at"
        ),
        "datasets": (
            "id org_id name producer_dag_name producer_job_name producer_output_index storage read_roles "
            "created_at updated_at"
        ),
        "dataset_versions": (
            "id dataset_uuid created_at storage_location config_hash schema_hash range_start range_end"
        ),
        "dag_version_datasets": "dag_version_id dataset_uuid dataset_version",
        "tasks": (
            "id job_id dedupe_key status attempt partitions input_versions worker_id lease_token "
            "lease_expires_at last_heartbeat started_at completed_at next_retry_at error_message outputs "
            "created_at"
        ),
        "outbox": "id kind payload status available_at attempts last_error created_at processed_at",
        "task_inputs": "task_id input_dataset_uuid input_partition_key input_version",
        "column_lineage": "output_dataset_uuid output_column input_dataset_uuid input_column job_id",
        "operator_state": "org_id job_id state_key state updated_at",
    },
    2: {
        "tasks": (
            "id type payload status priority idempotency_key worker_id created_at claimed_at started_at "
            "completed_at updated_at attempts max_retries last_error next_retry_at"
        ),
        "workers": "id hostname started_at last_heartbeat pool_size version is_leader leader_until",
    },
    3: {
        "cas_blob": "cas_id media_type size_bytes content storage_url",
        "artifact": "artifact_id kind cas_id base_version depth version_hash plan_hash name meta",
        "tag": "tag_name target_kind target_id target_hash version moved_by moved_at",
        "tag_move": "id tag_name from_kind from_id to_kind to_id expected_hash moved_by moved_at",
        "patch_chain_member": "head_id seq member_id",
        "run": "run_id submitted_at base_kind base_ref run_patch_id tags_snapshot status submitted_by",
        "run_snapshot_index": "run_id run_submitted_at snapshot_id version_hash",
    },
    4: {
        "jobs": "id name status created_at started_at completed_at error",
        "groups": "id job_id parent_group_id name created_at",
        "dependencies": "previous_id previous_type next_id next_type",
        "tasks": (
            "id job_id group_id entrypoint kwargs status result log_path error worker_id created_at "
            "claimed_at started_at completed_at"
        ),
        "workers": "id hostname pid status last_heartbeat tasks_completed tasks_failed started_at",
    },
    5: {
        "GeospatialAsset": "asset_id platform_refs platform_id revision processing_status current_job_id",
        "dag_jobs": (
            "job_id workflow_id status input_params owner_id owner_heartbeat_at created_at updated_at completed_at"
        ),
        "dag_node_states": ("job_id node_id status task_id output error_message retry_count max_retries timeout"),
        "dag_task_results": "task_id job_id node_id status output error_message worker_id reported_at",
        "dag_job_events": ("event_id job_id node_id event_type event_status event_data checkpoint_name created_at"),
    },
}

# Everything else by spec and kind, one item a line.
OTHERS: dict[int, dict[str, str]] = {
    1: {
        "table": """
            orgs
            users
            org_roles
            org_role_memberships
            dag_versions
            dag_current_versions
            jobs
            datasets
            dataset_versions
            dag_version_datasets
            tasks
            outbox
            task_inputs
            column_lineage
            operator_state
        """,
        "role": """
            reader
            writer
            admin
        """,
        "constraint": """
            org_roles (org_id, slug) unique
            org_role_memberships (role_id, user_id) primary key
            dag_versions (org_id, dag_name, yaml_hash) unique
            dag_current_versions (org_id, dag_name) primary key
            jobs (dag_version_id, name) unique
            datasets (org_id, name) unique
            datasets (org_id, producer_dag_name, producer_job_name, producer_output_index) unique
            dataset_versions (dataset_uuid, config_hash, range_start, range_end) unique
            dag_version_datasets (dag_version_id, dataset_uuid) primary key
            task_inputs (task_id, input_dataset_uuid, input_partition_key) primary key
            column_lineage (output_dataset_uuid, output_column, input_dataset_uuid, input_column) primary key
            operator_state (org_id, job_id, state_key) primary key
        """,
        "index": """
            idx_org_role_memberships_user
            idx_jobs_dag_version
            idx_tasks_job_dedupe
            idx_tasks_status
            idx_tasks_next_retry
            idx_tasks_lease_expiry
            idx_outbox_pending
        """,
        "value": """
            activation source
            activation reactive
            runtime lambda
            runtime ecs_platform
            runtime ecs_udf
            runtime dispatcher
            operator block_follower
            operator alert_evaluate
            operator range_aggregator
            execution_strategy PerUpdate
            execution_strategy PerPartition
            execution_strategy Bulk
            update_strategy append
            update_strategy replace
            source kind cron
            bootstrap reset_outputs
            scaling max_concurrency
            dedupe_key partition:{dataset_uuid}:{dataset_version}:{partition_key}
            dedupe_key cursor:{dataset_uuid}:{dataset_version}:{cursor_value}
            outbox kind enqueue_task
            outbox kind route_event
        """,
        "state": """
            task Queued
            task Running
            task Completed
            task Failed
            task Canceled
            outbox Pending
            outbox Processing
            outbox Done
            outbox Failed
            source job Pending
            source job Running
            source job Dead
            source job Draining
            reactive job Idle
            reactive job Running
        """,
        "transition": """
            task created → Queued
            task Queued → Running
            task Running → Completed
            task Running → Failed on error
            task Running → Failed on lease expiry or timeout
            task Failed → Queued
            task Failed → end
            source job deployed → Pending
            source job Pending → Running
            source job Running → Running on heartbeat
            source job Running → Dead
            source job Dead → Pending
            source job Running → Draining
            source job Draining → end
            reactive job → Idle
            reactive job Idle → Running
            reactive job Running → Running on more events
            reactive job Running → Idle
            reactive job Idle → end
        """,
        "rule": """
            retries reuse the task's id and raise its attempt
            retry with backoff up to max_attempts
            one task per job and dedupe_key
            only the holder of the lease may complete
            a side effect is an outbox row of the same transaction
            a background worker drains the outbox
        """,
        "endpoint": """
            POST /v1/task/claim
            POST /v1/task/heartbeat
            POST /v1/task/complete
            POST /v1/task/fail
            /internal/task-fetch
        """,
        "service": """
            Dispatcher
            Query Service
            SQS task queue of ids
            reaper of expired leases
        """,
    },
    2: {
        "table": """
            tasks
            workers
        """,
        "enum": """
            task_status
        """,
        "state": """
            pending
            claimed
            running
            completed
            failed
            dead_letter
        """,
        "transition": """
            enqueue → pending
            pending → claimed → running
            running → completed
            running → pending with next_retry_at
            running → failed
            running → dead_letter
            tasks of a dead worker → pending
        """,
        "constraint": """
            tasks_pkey
            unique_idempotency_key (type, idempotency_key)
            workers_pkey
        """,
        "rule": """
            a duplicate enqueue answers with the first id
            the same key for another type creates a task
            higher priority first, then oldest
            no handler: failed immediately
            leader lease of 30 seconds by conditional update
            the leader removes dead workers and recovers their tasks
            the schema is applied at start-up, idempotently
        """,
        "index": """
            tasks_pkey
            idx_tasks_claimable
            idx_tasks_status
            idx_tasks_type_status
            idx_tasks_worker_id
            workers_pkey
            idx_workers_heartbeat
            idx_workers_leader
        """,
        "trigger": """
            update_tasks_updated_at
        """,
        "function": """
            update_updated_at_column()
        """,
        "setting": """
            WORKER_TIMEOUT
            DATABASE_URL
        """,
        "command": """
            psql $DATABASE_URL -f migrations/001_initial_schema.sql
        """,
    },
    3: {
        "table": """
            cas_blob
            artifact
            tag
            tag_move
            patch_chain_member
            run
            run_snapshot_index
        """,
        "value": """
            media_type application/json;type=dag
            media_type application/json;type=patch_ops
            kind dag_version
            kind patch_set
            kind run_snapshot
            base_kind tag
            base_kind dag_version
            base_kind patch_set
        """,
        "field": """
            nodes of a workflow document
            edges of a workflow document
        """,
        "index": """
            tag_move (tag_name, moved_at)
        """,
        "state": """
            run QUEUED
            run RUNNING
            run COMPLETED
            run FAILED
        """,
        "operation": """
            create base version
            create patch
            move tag, with expected version
            undo
            redo
            materialize
            apply_patch
            tag history, where was a tag at a time
            list workflows
            resolve the chain in one query
            compaction below depth 10
            deduplication of content
            find and mend orphaned tags
            rebuild a chain
        """,
        "rule": """
            tag and tag_move change in one transaction
            tag_move is append-only
        """,
        "endpoint": """
            GET /api/v1/workflows/{tag}?materialize=true
            POST /api/v1/workflows
            POST /api/v1/tags/{tag}/undo
            POST /api/v1/tags/{tag}/redo
        """,
    },
    4: {
        "class": """
            DataContext
            OrchContext
            Context(job_id)
            Object
            View
        """,
        "method": """
            OrchContext.apply
            Task.depends_on
            Task >> and <<
            Task __rrshift__ and __rlshift__
            Group.depends_on
            Group >> and <<
            Group __rrshift__ and __rlshift__
            Object.count
            Object.data
        """,
        "function": """
            create_task
            create_job
            run_job_test
            get_job
            list_jobs
            cancel_job
            add_task_to_job
            get_task
            retry_failed_tasks
            register_worker
            worker_heartbeat
            deregister_worker
            list_workers
            get_current_context
            map
            create_result_collector
            create_object_from_value
            get_logs_dir
            health_check
            check_database_connection
            check_active_workers
            check_stale_tasks
            worker_main_loop
            claim_next_task
            update_task_status
            update_task_log_path
            capture_task_output
            import_function
            deserialize_task_params
            update_task_result
            handle_task_failure
            _get_engine
            get_orch_context_session
        """,
        "setting": """
            chunk_size of map
            POSTGRES_HOST
            POSTGRES_PORT
            POSTGRES_USER
            POSTGRES_PASSWORD
            POSTGRES_DB
            AAICLICK_LOG_DIR
            WORKER_HEARTBEAT_INTERVAL
            WORKER_TASK_TIMEOUT
            WORKER_MAX_RETRIES
            JOB_DEFAULT_TIMEOUT
        """,
        "module": """
            aaiclick.orchestration
            aaiclick.orchestration.migrate
            aaiclick.snowflake
            aaiclick.operators
            aaiclick.data_context
            aaiclick.orchestration.context
            aaiclick.orchestration.factories
            aaiclick.orchestration.models
            aaiclick.orchestration.execution
            aaiclick.orchestration.debug_execution
            aaiclick.orchestration.logging
            aaiclick.orchestration.database
            aaiclick.__main__
        """,
        "rule": """
            ids are 64-bit snowflakes, made before the insert
            41 bits of milliseconds since the epoch
            10 bits of machine id
            12 bits of sequence
            task → task
            task → group
            group → task
            group → group
            circular dependencies are refused
            claimable when all that comes before is completed
            oldest running job first
            the first claim sets the job running
            FOR UPDATE SKIP LOCKED
            params are Objects or Views only
            a return value becomes an Object
            logs in ~/.aaiclick/logs or /var/log/aaiclick
            a shared mount for logs of several machines
            transient errors are retried up to max_retries
            permanent errors fail the task
            permanent errors fail the job
            a timeout kills the worker and retries elsewhere
            a worker without heartbeat is marked
            orphaned tasks are reclaimed
            cancelling a job cancels its pending tasks
            temporary resources are removed
            migrations are bundled with the package
        """,
        "enum": """
            JobStatus
            TaskStatus
            WorkerStatus
        """,
        "value": """
            JobStatus PENDING
            JobStatus RUNNING
            JobStatus COMPLETED
            JobStatus FAILED
            JobStatus CANCELLED
            TaskStatus PENDING
            TaskStatus CLAIMED
            TaskStatus RUNNING
            TaskStatus COMPLETED
            TaskStatus FAILED
            TaskStatus CANCELLED
            WorkerStatus ACTIVE
            WorkerStatus IDLE
            WorkerStatus STOPPED
        """,
        "table": """
            jobs
            groups
            dependencies
            tasks
            workers
        """,
        "transition": """
            job PENDING → RUNNING
            job RUNNING → COMPLETED
            job RUNNING → FAILED
            job RUNNING → CANCELLED
            task PENDING → CLAIMED → RUNNING
            task RUNNING → COMPLETED
            task RUNNING → FAILED → PENDING
            task RUNNING → FAILED
            task → CANCELLED
        """,
        "field": """
            object_type
            table_id
            offset
            limit
            where
            aai_id
        """,
        "metric": """
            jobs_created_total
            jobs_completed_total
            jobs_failed_total
            job_duration_seconds
            tasks_created_total
            tasks_completed_total
            tasks_failed_total
            task_duration_seconds
            task_queue_depth
            workers_active
            worker_task_execution_time
            worker_heartbeat_age
        """,
        "command": """
            python -m aaiclick migrate
            python -m aaiclick migrate current
            python -m aaiclick migrate history
            python -m aaiclick migrate upgrade <revision>
            python -m aaiclick migrate downgrade <revision>
        """,
    },
    5: {
        "table": """
            GeospatialAsset
            dag_jobs
            dag_node_states
            dag_task_results
            dag_job_events
        """,
        "field": """
            platform_refs dataset_id
            platform_refs resource_id
            platform_refs version_id
            platform_refs item_id
            platform_refs layer_idx
            job message workflow_id
            job message inputs
            job message priority
            job message callback_url
            task message task_id
            task message job_id
            task message node_id
            task message handler
            task message params
            task message timeout_seconds
            task message retry_count
            workflow_id
            name
            version
            inputs
            inputs type
            inputs required
            inputs default
            nodes
            node type
            node handler
            node queue
            node params
            node next
            node timeout_seconds
            node condition_field
            node branches
            branch condition
            branch default
            branch next
            node retry
            retry max_attempts
            retry backoff
            retry initial_delay_seconds
            retry max_delay_seconds
            expression {{ inputs.… }}
            expression {{ nodes.….output.… }}
            HandlerContext.task_id
            HandlerContext.job_id
            HandlerContext.node_id
            HandlerContext.params
            HandlerContext.logger
            HandlerContext.pool
            HandlerContext.blob_repository
            HandlerResult.success
            HandlerResult.output
            HandlerResult.error_message
            HandlerResult.metrics
            TaskExecutor.shutdown_requested
            callback job_id
            callback status
            callback result_url
        """,
        "column": """
            GeospatialAsset.approval state
            GeospatialAsset.content hash
            GeospatialAsset soft deletion
            request_id
            owner_id
            owner_heartbeat_at
            dag_node_states.dispatched_at and other times
        """,
        "rule": """
            asset_id is a hash of platform and references
            ids of platforms are never primary keys
            revision is ours, version is theirs
            platform_refs never change for an asset
            requests and jobs are separate
            who owns which field
            a job has one owner at a time
            orphaned jobs are reclaimed
            orchestrators compete, no leader
            workers of a queue share its tasks
            a node names its queue
            exactly one start, at least one end
            the example branches to process_fa, which does not exist
            fan_in waits for several upstream nodes
            data from outside is validated before it is stored
            SIGTERM gives about 30 seconds
            a timeout is noticed by polling every 5 seconds
        """,
        "setting": """
            heartbeat interval 30 seconds
            orphan threshold 2 minutes
            orphan scan interval 60 seconds
            loop every 5 seconds
        """,
        "service": """
            Job Creator
            DAG Evaluator
            Task Dispatcher
            Platform Function App
            rmhdagmaster
            rmhdagworker
            dag-worker-light
            dag-worker-heavy
        """,
        "queue": """
            orchestrator-jobs
            dag-jobs
            functionapp-tasks
            container-tasks
        """,
        "state": """
            job PENDING
            job RUNNING
            job COMPLETED
            job FAILED
            job CANCELLED
            node PENDING
            node READY
            node DISPATCHED
            node RUNNING
            node COMPLETED
            node FAILED
            node SKIPPED
        """,
        "transition": """
            job PENDING → RUNNING
            job PENDING → CANCELLED
            job RUNNING → COMPLETED
            job RUNNING → FAILED
            job RUNNING → CANCELLED
            node PENDING → READY
            node PENDING → SKIPPED
            node READY → DISPATCHED
            node READY → SKIPPED
            node DISPATCHED → RUNNING
            node DISPATCHED → FAILED
            node RUNNING → COMPLETED
            node RUNNING → FAILED
            node FAILED → READY
        """,
        "schema": """
            dagapp
            app
            geo
        """,
        "node type": """
            start
            end
            task
            conditional
            fan_out
            fan_in
        """,
        "class": """
            HandlerContext
            HandlerResult
            AsyncBaseRepository
            AsyncPostgreSQLRepository
            JobRepository
            NodeStateRepository
            TaskResultRepository
            JobEventRepository
            TaskExecutor
        """,
        "function": """
            register_handler
            _handle_sigterm
            mark_failed
            schedule_retry
            fail_job
            nodes_with_status
        """,
        "handler": """
            raster.validate
            raster.create_cog
            raster.blob_to_mount
            raster.generate_tiling_scheme
            raster.process_tile_batch
            raster.stac_ensure_collection
            raster.stac_register_item
            raster.stac_register_items
            raster_validate
            raster_cog_docker
            echo
            hello_world
            sleep
            fail
            multi_phase
            size_check
            chunk_processor
        """,
        "method": """
            AsyncBaseRepository.create
            AsyncBaseRepository.get_by_id
            AsyncBaseRepository.update
            AsyncBaseRepository.list
        """,
        "operation": """
            load and save checkpoints
            validate an artifact before its checkpoint is saved
            callback to callback_url
        """,
        "endpoint": """
            POST /platform/submit
            POST /api/platform/submit
            POST /platform/submit_dag
            GET /platform/dag_status/{id}
        """,
    },
}


def items(spec: int) -> set[tuple[str, str]]:
    """Return the items of a spec, each with its kind."""
    columns = {("column", f"{table}.{name}") for table, names in COLUMNS[spec].items() for name in names.split()}
    lines = {(kind, line.strip()) for kind, text in OTHERS[spec].items() for line in text.strip().splitlines()}
    return columns | lines
