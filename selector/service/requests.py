"""The shapes of requests and answers, with examples: what is checked, and what OpenAPI shows."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

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
_RULES_LIMIT = _PROGRAM_LIMIT = 1 << 18
TargetName = Literal[
    "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_120", "amx"
]
assert set(TARGETS) == set(get_args(TargetName))


class _Request(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"oneOf": [{"required": ["ir"]}, {"required": ["kind", "program"]}]},
    )

    kind: Annotated[
        Literal["ir", "python", "hlpipe"],
        Field(
            description="What is given: `ir`; or as `program`, where these are taken, Python or a "
            "pipeline that Halide has serialized."
        ),
    ] = "ir"
    ir: Annotated[
        str | dict[str, Any] | None,
        Field(
            description="A program: the text form, or the JSON form as text or data.",
            examples=[EXAMPLE_IR],
        ),
    ] = None
    program: Annotated[
        str | None,
        Field(
            description="Python that makes a Func and calls it `output`; `target` is a variable "
            "of it. Or what Halide has serialized, in base64.",
            max_length=_PROGRAM_LIMIT,
        ),
    ] = None
    schedule: Annotated[
        Literal["auto"] | None,
        Field(description="`auto`: the compiler schedules what the program leaves open."),
    ] = None
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
        bool, Field(description="With machine code, its disassembly and what it takes of a GPU.")
    ] = False
    kernels: Annotated[
        bool, Field(description="With the IR of the kernels that the source is printed from.")
    ] = False


class LinkRequest(CompileRequest):
    """A request to keep under a short name."""

    view: Annotated[
        dict[str, Any],
        Field(description="What the explorer page shows of it; nothing here looks into it."),
    ] = {}


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


_LOWERED = Field(description="The loops of a program in Python, in the text form.")


class OccupancyEntry(BaseModel):
    """Blocks on one multiprocessor, the share of its warps that they are, and what limits them."""

    blocks: int
    share: float
    limit: str


class ResourcesEntry(BaseModel):
    """What a kernel takes: registers and bytes of stack of a thread, bytes of shared memory of a
    block; its instructions by opcode, most frequent first.
    """

    entry: str
    threads: int
    registers: int
    shared_bytes: int
    stack_bytes: int
    occupancy: OccupancyEntry
    instructions: dict[str, int]


class CompileAnswer(BaseModel):
    """A selected program as source; the saved kernel is at ``/v1/artifacts/{artifact}``. ``ir`` is
    what a program in Python was lowered to.
    """

    artifact: Annotated[str, Field(pattern="^[0-9a-f]{64}$", examples=["6eec" + 60 * "0"])]
    source: Annotated[str, Field(description="CUDA, or C for amx.")]
    report: Annotated[dict[str, Any], Field(description="What went to which instruction.")]
    stages: Annotated[dict[str, float], Field(description="Seconds of each stage, when it ran.")]
    sass: Annotated[
        dict[str, str] | None, Field(description="By entry point; only if it was asked for.")
    ] = None
    resources: Annotated[
        list[ResourcesEntry] | None, Field(description="Of each kernel; with `sass`.")
    ] = None
    kernels: Annotated[
        str | None, Field(description="The IR of all kernels; only if it was asked for.")
    ] = None
    ir: Annotated[str | None, _LOWERED] = None
    cached: bool


class LinkAnswer(BaseModel):
    """What ``/links/{id}`` and ``/p/{id}`` call a request."""

    id: Annotated[str, Field(pattern="^[A-Za-z0-9_-]{10}$", examples=["3pnxQ-aB_0"])]


class ExplainAnswer(BaseModel):
    """The report as data (with chains of rules and their laws) and as text."""

    report: dict[str, Any]
    text: str
    selected: Annotated[str, Field(description="The selected program, in the text form.")]
    misses: Annotated[int, Field(description="Statements that were not selected.", ge=0)]
    ir: Annotated[str | None, _LOWERED] = None


class TargetEntry(BaseModel):
    """A target; bytes of shared memory are per block. ``compile_only``: nobody has run its code on
    a GPU.
    """

    name: TargetName
    family: Literal["cuda", "amx"]
    capability: int
    shared_memory: int
    compile_only: bool
    features: list[str]
    instructions: list[str]


class TargetsAnswer(BaseModel):
    targets: list[TargetEntry]
    python_input: Annotated[bool, Field(description="Whether programs in Python are taken.")]


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
    fields = _validated(REQUESTS[kind], body).model_dump()
    if "strict" not in fields:
        fields |= {"strict": False}
    return fields


def read_link(body: bytes) -> bytes:
    """A request to ``/v1/compile`` in one form: the fields that are given, in one order."""
    return _validated(LinkRequest, body).model_dump_json(exclude_unset=True).encode()


def _validated(shape: type[_Request], body: bytes) -> _Request:
    try:
        found = shape.model_validate_json(body)
        wanted, other = ("ir", "program") if found.kind == "ir" else ("program", "ir")
        if getattr(found, wanted) is None:
            raise _wrong(wanted, f"Field required where `kind` is `{found.kind}`")
        if getattr(found, other) is not None:
            raise _wrong(other, f"No such field where `kind` is `{found.kind}`")
        if found.kind == "ir" and found.schedule is not None:
            raise _wrong("schedule", "Loops have theirs: no such field where `kind` is `ir`")
        return found
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise _wrong(".".join(str(part) for part in first["loc"]), str(first["msg"])) from None


def _wrong(place: str, why: str) -> ParseError:
    what, hint = "the request is not what this service reads", "/openapi.json says what it reads"
    return ParseError(what, f"{place}: {why}" if place else why, hint, place)
