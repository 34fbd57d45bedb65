"""An oracle for emitted CUDA that needs no GPU: the text itself, compiled for the CPU and run.

``run(kernel, **inputs)`` translates the text of a kernel to C++ (``translate``, ``assembly``),
compiles it with g++ (``build``) and runs the launches of its plan (``launch``) on arrays that end
where a page does (``memory``). In ``shim/`` is what stands in for the GPU: threads are fibers, the
instructions of a warp are done when its last lane arrives, asynchronous ones end as late as what
waits for them allows, and memory that nobody wrote holds poison. Nothing here knows the emitter:
what it reads is CUDA C++ and PTX.
"""

from emulation.launch import check, run
from emulation.problems import Fault, Unsupported

__all__ = ["Fault", "Unsupported", "check", "run"]
