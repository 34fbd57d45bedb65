"""Device functions by concern. ``selector/gpu/cuda/preamble.py`` puts together what is used."""
