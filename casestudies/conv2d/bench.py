"""What the 2-D convolution is measured against: cuDNN through torch, in both layouts."""

from __future__ import annotations

from casestudies.common.cudnn import filter_peers

PEERS = filter_peers()
