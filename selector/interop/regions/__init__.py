"""Regions of PyTorch models, as data (``graph``), and their kernels, in this process and in folders
(``store``). Nothing here knows of torch: they are compiled on machines, and in processes, that do
without.
"""
