"""How much of one statement a thread has written out: lane by lane, or twice. Who makes statements
longer asks here: schedules of how many neighbours a thread computes, and the emitter.
"""

MOST = 2400
"""Nodes of expressions. Of more, NVRTC takes long."""
