"""Measuring: implementations of a case side by side on a GPU, checked and timed in turn.

``measure`` checks and times contenders for one problem (``memory``, ``poison``, ``limits``); they
are compiled on the spot (``live``) or saved kernels (``artifacts``, ``tasks``), in processes of
their own (``worker``). ``record`` keeps what was found, ``benching`` is the command. Of the
case studies only AMX's, which measures on the CPU by itself, needs some of it.
"""
