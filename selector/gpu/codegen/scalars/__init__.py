"""A program's scalar values as legal expressions, its buffers and names in a kernel."""
