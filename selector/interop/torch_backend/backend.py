"""What torch calls for ``torch.compile(model, backend="tensor_selector")``."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch as installed  # pyright: ignore

from selector.diagnostics import ArgumentError, TargetError
from selector.interop.regions import store
from selector.interop.torch_backend.attention import keep_attention
from selector.interop.torch_backend.carve import Carve, Options
from selector.interop.torch_backend.quantised import while_zero, with_zeros
from selector.interop.torch_backend.report import GraphReport, noted
from selector.interop.torch_backend.whole import decompositions
from selector.targets import find_target, target_for

torch: Any = installed
_CHOICES = {
    "take": ("tensor", "all"),
    "cpu": ("leave", "interpret", "reference"),
    "rest": ("inductor", "eager"),
    "choose": ("timed", "always"),
}
_NAMES = ("target", "folder", *_CHOICES, "inductor")


def tensor_selector(
    graph: Any, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: Any = None
) -> Any:
    """The backend: a graph of Dynamo's and examples of its inputs, to a function.

    ``options``: ``target`` (default: the GPU at hand, else ``sm_90a``); ``folder`` of regions
    (default: in the kernel cache; None: none); ``take``: ``"tensor"``, regions whose product goes
    to tensor units, or ``"all"``; ``cpu``: regions on the CPU are left to torch (``"leave"``), run
    in the interpreter (``"interpret"``), or compiled and run by torch (``"reference"``); ``rest``:
    what runs all else, ``"inductor"`` or ``"eager"``; ``choose``: on a GPU, regions that are faster
    than what torch would run, by timing both once (``"timed"``), or ``"always"``; ``inductor``: a
    dict of its options.
    ``mode``: Inductor's, for the rest.

    ``ArgumentError`` for other options, and for a folder that cannot be one; ``TargetError`` for a
    target that is no GPU.
    """
    given = dict(options or {})
    _check(given)
    folder = _folder(given["folder"]) if "folder" in given else store.default_folder()
    store.use(folder)
    carve = Carve(
        Options(
            given.get("target") or _target(),
            folder,
            given.get("take", "tensor"),
            given.get("cpu", "leave"),
            given.get("choose", "timed"),
        )
    )
    if not torch.is_grad_enabled() or not any(_trains(t) for t in inputs):
        keep_attention(graph)
    settled, zeros = with_zeros(graph, inputs)
    run = _compiled(settled, inputs, carve, given, mode)
    return while_zero(run, zeros, _as_it_is(graph))


def _as_it_is(graph: Any) -> Any:
    """The graph by torch, operator by operator; the report says so."""

    def run(*inputs: Any) -> Any:
        noted(GraphReport(note="left to torch: zero points that were 0 when it was compiled"))
        return graph(*inputs)

    return run


def _compiled(
    graph: Any, inputs: Sequence[Any], carve: Carve, given: Mapping[str, Any], mode: Any
) -> Any:
    if given.get("rest", "inductor") == "eager":
        return _eager(graph, inputs, carve)
    from torch._inductor import list_mode_options  # pyright: ignore
    from torch._inductor.compile_fx import compile_fx  # pyright: ignore

    chosen = list_mode_options(mode) if mode and mode != "default" else {}
    chosen |= given.get("inductor", {})
    # Padded operands would be other regions, and are not needed.
    patches = {"shape_padding": False, **chosen, "post_grad_custom_pre_pass": carve}
    return compile_fx(graph, inputs, config_patches=patches, decompositions=decompositions())


def _check(given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if name not in _NAMES:
            raise ArgumentError(
                f"the backend tensor_selector has no option {name!r}", hint=", ".join(_NAMES)
            )
        if name in _CHOICES and value not in _CHOICES[name]:
            raise ArgumentError(f"{name}={value!r}", hint=f"one of {', '.join(_CHOICES[name])}")
    if not isinstance(given.get("inductor", {}), Mapping):
        raise ArgumentError(f"inductor={given['inductor']!r}", hint="a dict of Inductor's options")
    if given.get("target") and find_target(given["target"]).family != "cuda":
        raise TargetError(
            f"the backend tensor_selector has no regions for {given['target']}",
            hint="target: a GPU's, such as sm_90a",
        )


def _folder(name: Any) -> Path | None:
    """The folder of regions, which is there from now on."""
    if name is None:
        return None
    try:
        folder = Path(name).absolute()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, TypeError) as error:
        raise ArgumentError(
            f"folder={str(name)!r} cannot be a folder of regions", why=str(error),
            hint="another one, or None: nothing is kept",
        ) from error  # fmt: skip
    return folder


def _target() -> str:
    from selector.runtime.cuda import driver

    try:
        gpu = driver()
        return target_for(gpu.capability(gpu.current_device())).name
    except TargetError:
        return "sm_90a"


def _trains(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _eager(graph: Any, inputs: Sequence[Any], carve: Carve) -> Any:
    """Everything else operator by operator, with Inductor's decompositions: no compiler runs."""
    importlib.import_module("torch._inductor.lowering")  # decompositions of pooling ask it
    from functorch.compile import make_boxed_func  # pyright: ignore
    from torch._dynamo.backends.common import aot_autograd  # pyright: ignore

    def compiled(traced: Any, examples: Sequence[Any]) -> Any:
        del examples
        carve(traced.graph)
        traced.recompile()
        return make_boxed_func(traced.forward)

    return aot_autograd(fw_compiler=compiled, decompositions=decompositions())(graph, inputs)


def register() -> None:
    """Make the name known to torch; an installed package is known by its entry point."""
    from torch._dynamo.backends import registry  # pyright: ignore

    known: Any = registry
    if known._BACKENDS.get("tensor_selector") is None:
        known.register_backend(name="tensor_selector", compiler_fn=tensor_selector)
