"""The rule engine's bindings, without the Python front end that its package imports with them.

The package's own start brings a code formatter, a command line and a tracer along, a second's worth
of modules of which nothing here is used; the extension module needs none of them.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any

_NAME = "egglog.bindings"


def load() -> Any:
    """The extension module, executed once in a process, whoever imports it first."""
    if _NAME in sys.modules:
        return sys.modules[_NAME]
    package = find_spec("egglog")  # finds a package without executing it
    places = None if package is None else package.submodule_search_locations
    spec = PathFinder.find_spec(_NAME, places) if places else None
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {_NAME!r}", name=_NAME)
    module = module_from_spec(spec)
    sys.modules[_NAME] = module
    try:
        spec.loader.exec_module(module)
    finally:  # a later import of the package finds the same module by itself, and enters it there
        del sys.modules[_NAME]
    return module


if TYPE_CHECKING:
    import egglog.bindings as egglog
else:
    egglog = load()

__all__ = ["egglog"]
