"""The public sweep: sizes at which a user would meet this compiler, each beside the best library.

``rows`` reads the list (``rows.toml``) and draws further rows; ``problems`` says which problem of a
case study a row is, or why none takes it; ``build`` compiles a kernel for each, ``run`` checks and
times them where the GPU is, without Halide; ``folder`` is what goes from one to the other.
``casestudies.results.sweep`` makes the page of a run.
"""
