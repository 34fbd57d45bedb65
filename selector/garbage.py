"""No search for garbage during a compilation.

Programs are trees, which reference counts free; what goes round in circles is little, and is found
afterwards. Python's collector would look through the whole heap again and again meanwhile, a tenth
of the time.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Generator[None]:
    """Pause the collector, unless somebody else did. It counts for the whole process: another
    thread that compiles goes on with it where the first one ends, which changes no result.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
