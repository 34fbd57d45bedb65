"""How good the costs are that schedules are chosen by: the command ``model``.

``sizes`` draws matrix products; ``build`` compiles candidates of each, those that the model likes
best and others all over its space; ``run`` times them where the GPU is, without Halide; ``verdict``
says how far the model's order is that of the times, and what its choice loses.
"""
