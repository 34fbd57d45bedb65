"""What accumulators begin with and what becomes of them, lane by lane."""
