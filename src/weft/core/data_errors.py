"""Errors of datasets; a part of the tree in `weft.core.errors`."""

from __future__ import annotations

from weft.core.errors import CallerError, OperatorError, WeftError


class WriteConflict(WeftError):
    """Others have written into the same dataset meanwhile; nothing of the task was written, and it is tried again."""

    code = "write_conflict"
    http_status = 409

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}; the task is tried again")


class DataUnavailable(OperatorError):
    """Files of datasets are missing or out of reach; ``place`` is where they should be."""

    code = "data_unavailable"

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        super().__init__(f"files of datasets in {place} {problem}")


class DatasetBusy(CallerError):
    """Somebody writes or reads a dataset in a way that does not go with what was asked for."""

    code = "dataset_busy"
    http_status = 409
    exit_code = 5

    def __init__(self, name: str, verb: str, why: str) -> None:
        super().__init__(f"dataset {name} cannot be {verb} now, because {why}: try again later")


class DeployConflict(CallerError):
    """Another has deployed the same live DAG meanwhile; nothing of this deploy was done."""

    code = "deploy_conflict"
    http_status = 409
    exit_code = 5

    def __init__(self, dag: str, version: int) -> None:
        self.dag = dag
        self.version = version
        super().__init__(f"{dag} was deployed meanwhile, as version {version}: look at the plan again, then deploy")
