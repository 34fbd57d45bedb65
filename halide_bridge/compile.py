"""One call from a Func to a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from halide_bridge.lowering import lower

if TYPE_CHECKING:
    from selector.api import Kernel


def compile(  # noqa: A001 - the public name
    output: Any,
    *,
    target: str = "cuda",
    name: str | None = None,
    inputs: Sequence[object] | None = None,
    strict: bool = True,
    **options: Any,
) -> Kernel:
    """Lower a pipeline and compile it for ``target``; see ``lower`` and ``selector.compile``.

    ``service="http://..."`` lowers here and has the rest done by a compile service.
    """
    import selector

    module = lower(output, target=target, name=name, inputs=inputs)
    return selector.compile(module, target=target, strict=strict, **options)
