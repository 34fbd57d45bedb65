"""Device functions by concern. ``selector/emit/preamble.py`` puts those together that are used."""
