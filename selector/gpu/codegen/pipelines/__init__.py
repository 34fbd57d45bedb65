"""Pipelined loops: memory in stages that copies fill ahead of their use."""
