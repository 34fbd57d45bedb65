"""The shapes of requests and answers, with examples: what is checked, and what OpenAPI shows."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from selector.diagnostics import ParseError
from selector.targets import TARGETS

EXAMPLE_IR = """module product
input A: float16 [(0, 16, 1), (0, 16, A.stride.1)]
input B: float16 [(0, 16, 1), (0, 16, B.stride.1)]
output out: float32 [(0, 16, 1), (0, 16, out.stride.1)]
body {
 gpu_block<CUDA> (block, 0, 1) {
  gpu_thread<CUDA> (warp, 0, 1) {
   allocate acc[float32 * 256] in WMMAAccumulator
   acc[ramp(0, 1, 256)] = x256(0.0f)
   acc[ramp(0, 1, 256)] = (float32x256)vector_reduce_add(
       float32x4096(A[ramp(x16(ramp(0, 1, 16)), x256(A.stride.1), 16)])
       *x16(float32x256(B[ramp(ramp(0, B.stride.1, 16), x16(1), 16)]))) + acc[ramp(0, 1, 256)]
   out[ramp(ramp(0, 1, 16), x16(out.stride.1), 16)] = acc[ramp(0, 1, 256)]
  }
 }
}
"""
_RULES_LIMIT = 1 << 18
TargetName = Literal["sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "amx"]
assert set(TARGETS) == {"sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "amx"}


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    ir: Annotated[
        str | dict[str, Any],
        Field(
            description="A program: the text form, or the JSON form as text or data.",
            examples=[EXAMPLE_IR],
        ),
    ]
    target: Annotated[
        str, Field(description=f"One of {', '.join(TARGETS)}.", examples=["sm_80"], max_length=64)
    ]
    rules: Annotated[
        str,
        Field(description="Rules in addition to ours, as egglog text.", max_length=_RULES_LIMIT),
    ] = ""
    instructions: Annotated[
        list[Annotated[str, Field(max_length=64)]] | None,
        Field(description="Only these families (wmma, mma) or names.", max_length=64),
    ] = None


class CompileRequest(_Request):
    """A program to select instructions in, and to emit code for."""

    strict: Annotated[
        bool,
        Field(
            description="Refuse a statement that cannot go to the tensor unit it was asked onto."
        ),
    ] = True
    cubin: Annotated[bool, Field(description="With machine code, on targets that are GPUs.")] = (
        False
    )
    sass: Annotated[
        bool, Field(description="With machine code, and its disassembly in the answer.")
    ] = False


class ExplainRequest(_Request):
    """A program to explain: what went where by which rules, and what did not, and why."""


class GraphRequest(_Request):
    """A program whose e-graph is drawn."""

    statement: Annotated[
        Annotated[int, Field(ge=1, le=1_000_000)]
        | Annotated[str, Field(max_length=1 << 16)]
        | None,
        Field(description="Which statement, from 1, or its text in a report; the first update."),
    ] = None
    nodes: Annotated[int, Field(description="Most nodes of a class.", ge=1, le=100)] = 5
    everything: Annotated[bool, Field(description="Every class, not only what was used.")] = False
    format: Annotated[
        Literal["svg", "json"], Field(description="A picture, or the same as data.")
    ] = "svg"


class Place(BaseModel):
    """A place in the program or in the rules; empty where one is not known."""

    func: str
    stage: str
    location: str
    statement: str


class Mistake(BaseModel):
    """What went wrong, why, and the way out."""

    kind: Annotated[str, Field(examples=["SelectionError"])]
    what: Annotated[str, Field(examples=["`conv` (update) cannot go to the tensor unit"])]
    why: str
    hint: str
    where: Place


class ErrorAnswer(BaseModel):
    """Every answer that is not 200."""

    error: Mistake


class CompileAnswer(BaseModel):
    """A selected program as source; the saved kernel is at ``/v1/artifacts/{artifact}``."""

    artifact: Annotated[str, Field(pattern="^[0-9a-f]{64}$", examples=["6eec" + 60 * "0"])]
    source: Annotated[str, Field(description="CUDA, or C for amx.")]
    report: Annotated[dict[str, Any], Field(description="What went to which instruction.")]
    stages: Annotated[dict[str, float], Field(description="Seconds of each stage, when it ran.")]
    sass: Annotated[
        dict[str, str] | None, Field(description="By entry point; only if it was asked for.")
    ] = None
    cached: bool


class ExplainAnswer(BaseModel):
    """The report as data (with chains of rules and their laws) and as text."""

    report: dict[str, Any]
    text: str
    selected: Annotated[str, Field(description="The selected program, in the text form.")]
    misses: Annotated[int, Field(description="Statements that were not selected.", ge=0)]


class TargetEntry(BaseModel):
    """A target; bytes of shared memory are per block."""

    name: TargetName
    family: Literal["cuda", "amx"]
    capability: int
    shared_memory: int
    features: list[str]
    instructions: list[str]


class TargetsAnswer(BaseModel):
    targets: list[TargetEntry]


class RuleEntry(BaseModel):
    """A rule, where it stands, and the law above it."""

    name: str
    ruleset: str
    file: str
    line: int
    law: str
    text: str


class RulesAnswer(BaseModel):
    rules: list[RuleEntry]
    files: list[str]


class AliveAnswer(BaseModel):
    status: Literal["ok"]


class HealthAnswer(BaseModel):
    """``confined``: whether Landlock confines all workers; null while there are none."""

    status: Literal["ok", "starting"]
    version: str
    api: str
    workers: int
    of: int
    queue: int
    confined: bool | None


REQUESTS: dict[str, type[_Request]] = {
    "compile": CompileRequest,
    "explain": ExplainRequest,
    "graph": GraphRequest,
}


def read_request(kind: str, body: bytes) -> dict[str, Any]:
    """The fields of a request, defaults filled in; ``ParseError`` for anything else."""
    try:
        found = REQUESTS[kind].model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ParseError(
            "the request is not what this service reads",
            f"{place}: {first['msg']}" if place else str(first["msg"]),
            "/openapi.json says what it reads",
            place,
        ) from None
    fields = found.model_dump()
    if "strict" not in fields:
        fields |= {"strict": False}
    return fields
