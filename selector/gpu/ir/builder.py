"""Makes the body of a kernel, node by node: what the emitter writes into."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace

from selector.gpu.ir.memory import Store
from selector.gpu.ir.nodes import Body, For, If, Local, Node
from selector.ir.nodes import Expr


class Builder:
    """Collects nodes; ``block`` and ``around`` put those made inside into one of their own."""

    def __init__(self) -> None:
        self._parts: list[Node] = []

    def add(self, node: Node) -> None:
        self._parts.append(node)

    def store(self, to: Expr, value: Expr) -> None:
        self.add(Store(to, value))

    @contextmanager
    def block(self) -> Generator[None]:
        with self.around(Local):
            yield

    @contextmanager
    def around(self, make: Callable[[Body], Node]) -> Generator[None]:
        """The node that is made of what is added inside."""
        outer, self._parts = self._parts, []
        yield
        body, self._parts = self.body(), outer
        outer.append(make(body))

    @contextmanager
    def loop(
        self,
        var: str,
        start: Expr | None,
        stop: Expr,
        how: str = "plain",
        step: Expr | None = None,
        also: Expr | None = None,
    ) -> Generator[None]:
        with self.around(lambda body: For(how, var, start, stop, step, body, also)):
            yield

    @contextmanager
    def when(self, condition: Expr) -> Generator[None]:
        with self.around(lambda body: If(condition, body)):
            yield

    @contextmanager
    def otherwise(self) -> Generator[None]:
        """The other way of the condition that was added last."""
        last = self._parts.pop()
        assert isinstance(last, If)
        with self.around(lambda body: replace(last, otherwise=body)):
            yield

    def body(self) -> Body:
        """What has been added."""
        return tuple(self._parts)
