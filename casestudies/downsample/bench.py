"""What downsampling is measured against: cuDNN's strided convolution through torch, in both
layouts.
"""

from __future__ import annotations

from casestudies.common.cudnn import filter_peers

PEERS = filter_peers(lambda problem: problem.factor, " with stride")
