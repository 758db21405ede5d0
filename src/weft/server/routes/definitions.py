"""The routes of definitions beside the calls of the client: how one is drawn, and what is wrong with one."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import orjson
from fastapi import APIRouter, Body, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from weft.contract.operations import Access
from weft.core.errors import InvalidDefinition
from weft.flow.drawing import draw_mermaid, draw_svg, draw_tree, picture_of
from weft.flow.live.validation import check_dag
from weft.flow.structure import is_dag
from weft.flow.validation import check_document
from weft.sdk.workflows import document_of
from weft.server import paths
from weft.server.bodies import FILE, YAML, DefinitionRoute
from weft.server.credentials import Who, require
from weft.server.paths import PREFIX
from weft.server.problems import refusals

if TYPE_CHECKING:
    from weft.server.state import State

# Names in paths may have slashes.
assert paths is not None
router = APIRouter(prefix=PREFIX, tags=["workflows"], route_class=DefinitionRoute)
_JSON = "application/json"


class Form(StrEnum):
    """How a definition is drawn."""

    JSON = "json"
    SVG = "svg"
    TEXT = "text"
    MERMAID = "mermaid"


class ValidateRequest(BaseModel):
    """A definition that is looked at and not kept."""

    model_config = ConfigDict(extra="forbid", strict=True)

    definition: str | dict[str, Any] = Field(description="The definition: as an object, or as YAML or JSON text.")


class DefinitionProblem(BaseModel):
    """What is wrong with a definition, and where."""

    code: str
    severity: str
    message: str
    hint: str | None
    path: str
    file: str | None
    line: int | None
    column: int | None


class Validated(BaseModel):
    """Whether a definition can be used, and all that is wrong with it."""

    is_valid: bool
    problems: list[DefinitionProblem]


# Whatever is in it, the answer tells what is wrong with that.
_ANY_FILE = {**FILE, "schema": {"description": "The definition, or what is to become one."}}
_TYPES = {Form.JSON: _JSON, Form.SVG: "image/svg+xml", Form.TEXT: "text/plain", Form.MERMAID: "text/plain"}
_LIKE: dict[str, Any] = {
    _JSON: {
        "nodes": [{"name": "fetch", "type": "task", "caption": "etl:fetch", "group": None}],
        "edges": [{"from": "START", "to": "fetch", "label": None}],
    },
    "image/svg+xml": '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 480 200">…</svg>',
    "text/plain": "● START\n○ fetch  etl:fetch\n■ END\n",
}
_DRAWN = {
    "description": "The drawing.",
    "content": {kind: {"schema": {}, "example": _LIKE[kind]} for kind in dict.fromkeys(_TYPES.values())},
}


@router.get(
    "/workflows/{which:name}/graph", name="workflows.graph", operation_id="workflows_graph", response_class=Response,
    summary="Draw a definition.", description="Takes the role `reader`.", responses={200: _DRAWN, **refusals()},
)  # fmt: skip
async def draw(
    request: Request, who: Who, which: Annotated[str, Path(description="A tag, an id, a hash, or a point of a tag.")],
    form: Annotated[Form, Query(alias="format", description="As what it is drawn.")] = Form.JSON,
) -> Response:  # fmt: skip
    """Answer with a drawing."""
    require(who, Access.READER)
    state: State = request.app.state.weft
    shown = await state.client_of(who).workflows.show(which)
    # What is large takes a while, and others want their answers meanwhile.
    body = await asyncio.to_thread(_drawn, shown.data, form)
    return Response(body, media_type=_TYPES[form])


def _drawn(data: Any, form: Form) -> str | bytes:
    picture = picture_of(data)
    match form:
        case Form.JSON:
            return orjson.dumps(picture.to_json())
        case Form.SVG:
            return draw_svg(picture)
        case Form.MERMAID:
            return draw_mermaid(picture)
        case Form.TEXT:
            return "".join(f"{line}\n" for line in draw_tree(picture))


@router.post(
    "/workflows/validate", name="workflows.validate", operation_id="workflows_validate", response_class=Response,
    summary="Tell all that is wrong with a definition, of a workflow or a live DAG; nothing is kept.",
    description="Takes the role `reader`.",
    responses={200: {"model": Validated, "description": "What is wrong with it."}, **refusals()},
    openapi_extra={"requestBody": {"content": {YAML: _ANY_FILE}}},
)  # fmt: skip
async def validate(who: Who, body: Annotated[ValidateRequest, Body()]) -> Response:
    """Answer with what is wrong with a definition."""
    require(who, Access.READER)
    problems = await asyncio.to_thread(_problems, body.definition)
    told = {"is_valid": not any(each["severity"] == "error" for each in problems), "problems": problems}
    return Response(orjson.dumps(told), media_type=_JSON)


def _problems(definition: str | dict[str, Any]) -> list[dict[str, object]]:
    try:
        document = document_of(definition)
        checked = check_dag(document) if is_dag(document.data) else check_document(document)
        return [each.to_json() for each in checked.problems]
    except InvalidDefinition as problem:
        return [each.to_json() for each in problem.problems]
