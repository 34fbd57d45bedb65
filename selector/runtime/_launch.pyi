"""The native module of ``cpp/launch``; ``runtime.native`` says what it is given."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

Scratch = tuple[int, int, Sequence[int], object]
Argument = (
    tuple[Literal["v"], bytes]
    | tuple[Literal["a", "s"], int]
    | tuple[Literal["m"], int, tuple[Any, ...]]
    | tuple[Literal["r"], Sequence[int]]
)
Launch = tuple[int, tuple[int, int, int], tuple[int, int, int], int, bool, Sequence[Argument]]
Allocation = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]

class Libraries:
    def __new__(
        cls,
        driver: str,
        ndarray: type[Any],
        current_stream: Callable[[int], Any],
        floating: type[Any],
        integer: type[Any],
    ) -> Libraries: ...
    def torch(self, tensor: type[Any], current_stream: Callable[[int], int]) -> None: ...

class Program:
    def __new__(
        cls,
        libraries: Libraries,
        device: int,
        launches: Sequence[Launch],
        spans: Sequence[int],
        allocations: Sequence[Allocation],
        needs_scratch: bool,
    ) -> Program: ...
    def set_scratch(self, sets: Sequence[Scratch]) -> None: ...

class Launcher:
    def __new__(
        cls,
        libraries: Libraries,
        parameters: Sequence[str],
        inputs: int,
        scalars: Sequence[tuple[str, int]],
        outputs: Sequence[str],
        sizes_use_scalars: bool,
        at_most: int,
        failed: Callable[[int], Exception],
    ) -> Launcher: ...
    def call(
        self, args: Sequence[Any], named: Mapping[str, Any], out: Any, stream: Any, sizes: Any
    ) -> Any: ...
    def add(
        self,
        args: Sequence[Any],
        named: Mapping[str, Any],
        out: Any,
        sizes: Any,
        program: Program,
    ) -> bool: ...
    def __len__(self) -> int: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...
