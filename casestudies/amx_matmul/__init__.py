"""Matrix product on AMX tiles: bf16 and bytes, B in VNNI and in standard layout (paper table I)."""
