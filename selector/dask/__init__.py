"""Images beyond one machine's memory: kernels over Dask arrays (extra ``dask``).

``apply(kernel, image, ...)`` is the Dask array of a kernel's output. ``motion`` finds out of the
selected program whether windows of the output can be computed alone, and from what; ``layout`` says
which part of each input a block needs; ``work`` is what a worker does. ``command`` goes from file
to file (extra ``images``): ``files`` are read, ``planes`` computed, results ``written``.
"""

from selector.dask.call import apply

__all__ = ["apply"]
