from __future__ import annotations
from selector.diagnostics import SelectionError
def describe(module, scope, solution, misses): return []
def raise_miss(module, scope, misses): raise SelectionError(str(misses), where=str(scope.stores[misses[0].index]))
