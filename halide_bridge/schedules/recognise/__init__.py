"""What a plain pipeline is: its definitions (``program``), and what they say about where to compute
what (``facts``).
"""
