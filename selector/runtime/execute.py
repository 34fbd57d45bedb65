"""Running a plan: checks once per combination of shapes, then launches with little Python in
between.

The first call with some shapes, strides and dtypes is prepared (``runtime.prepare``) and kept by
its signature. A repeated call looks it up, fills in the addresses and launches: in C++ where the
native module is there (``runtime.native``), else here.

A plan with intermediate buffers keeps one set per stream and size: calls on one stream follow
each other, and threads that share one launch in turns. Launches whose results follow from the
sizes alone run in the first call. A graph that a call is captured into has buffers of its own,
where these have run, as long as it lives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from selector.diagnostics import ArgumentError, InternalError, TargetError
from selector.runtime import arguments, host
from selector.runtime.arrays import HOST, ArrayView, Library
from selector.runtime.driver import Driver, Function
from selector.runtime.graph import LaunchGraph
from selector.runtime.launches import filled_scratch, kept_scratch, launch, remember
from selector.runtime.native import KnownCalls, known_calls
from selector.runtime.plan import Launch, Plan
from selector.runtime.prepare import Prepared, prepare, sizes_use_scalars
from selector.targets import find_target, runs_on

CALLS_AT_MOST = 128


class Executable:
    """A plan with its machine code on one kind of device. ``cubin`` is asked once per device.
    ``known``: calls of another plan with the same parameters, to be found in one table with those
    of this one.
    """

    def __init__(
        self,
        plan: Plan,
        cubin: Callable[[], bytes],
        driver: Driver,
        known: KnownCalls | None = None,
    ) -> None:
        self.plan = plan
        self._cubin = cubin
        self._driver = driver
        self._signature = arguments.signature_of(plan)
        self._functions: dict[tuple[int, str, int], Function] = {}
        self._modules: dict[int, Any] = {}
        self._prepared: dict[Hashable, Prepared] = {}
        self._sizes_use_scalars = sizes_use_scalars(plan)
        if known is None or not known.takes(plan):
            known = known_calls(plan, driver, CALLS_AT_MOST)
        self._known = known
        self._alone: AbstractContextManager[Any] = self._known or threading.RLock()

    def __call__(
        self,
        args: Sequence[Any],
        named: Mapping[str, Any],
        out: Any = None,
        stream: Any = None,
        sizes: Any = None,
    ) -> Any:
        """Run; the output, or a dict of outputs by name if there are several."""
        if self._known is not None:
            results = self._known.call(args, named, out, stream, sizes)
            if results is not NotImplemented:
                return results
        arrays, numbers, outs = self._matched(args, named, out)
        signatures = tuple(map(self._driver.signature, arrays if outs is None else arrays + outs))
        if None in signatures:
            results = self._run_from_host(arrays, numbers, outs, stream, sizes)
        else:
            results = self._run(arrays, numbers, outs, stream, sizes, signatures)
            if self._known is not None:
                prepared = self._prepared_for(arrays, numbers, outs, sizes, signatures)
                with self._driver.active(prepared.device, self._driver.stream(None, arrays)):
                    self._known.add(args, named, out, sizes, prepared)
        return self._named(results)

    def beside(self, plan: Plan, cubin: Callable[[], bytes]) -> Executable:
        """That of another program for the same calls: those that are known are known to both."""
        return Executable(plan, cubin, self._driver, self._known)

    def call_known(
        self,
        args: Sequence[Any],
        named: Mapping[str, Any],
        out: Any = None,
        stream: Any = None,
        sizes: Any = None,
    ) -> Any:
        """Run a call that is known; ``NotImplemented`` for any other."""
        if self._known is None:
            return NotImplemented
        return self._known.call(args, named, out, stream, sizes)

    def graph(
        self, args: Sequence[Any], named: Mapping[str, Any], out: Any = None, sizes: Any = None
    ) -> LaunchGraph:
        """The launches of a call on these arrays, to be replayed; ``ArgumentError`` for arrays that
        are not on the device.
        """
        driver = self._driver
        arrays, numbers, outs = self._matched(args, named, out)
        signatures = tuple(map(driver.signature, arrays if outs is None else arrays + outs))
        if None in signatures:
            names = [b.name for b in self._signature.arrays]
            raise ArgumentError(
                f"{names[signatures.index(None)]}: a graph works on arrays that are on the GPU",
                why="it is replayed on the addresses that it was made with",
                hint="make them with CuPy or torch: cupy.asarray(array)",
            )
        prepared = self._prepared_for(arrays, numbers, outs, sizes, signatures)
        with driver.active(prepared.device, driver.stream(None, arrays)):
            results, addresses = self._results(prepared, arrays, outs)
        scratch = filled_scratch(driver, prepared, addresses, numbers)
        addresses += scratch.addresses
        recorded = driver.capture(
            prepared.device,
            lambda on: launch(driver, prepared.repeated, addresses, numbers, on, early=True),
        )
        owners = (self, arrays, results, scratch)
        return LaunchGraph(driver, prepared.device, recorded, self._named(results), arrays, owners)

    def _matched(
        self, args: Sequence[Any], named: Mapping[str, Any], out: Any
    ) -> tuple[list[Any], list[Any], list[Any] | None]:
        """Input arrays, checked scalars and output arrays, each in the order of the plan."""
        arrays = self._in_order(args, named)
        numbers: list[Any] = []
        if self.plan.scalars:
            count = len(self._signature.inputs)
            given = zip(self.plan.scalars, arrays[count:], strict=True)
            numbers = [arguments.check_scalar(s, v) for s, v in given]
            arrays = arrays[:count]
        return arrays, numbers, None if out is None else self._outs(out)

    def _named(self, results: list[Any]) -> Any:
        """The output, or a dict of outputs by name if there are several."""
        if len(results) == 1:
            return results[0]
        return dict(zip((b.name for b in self._signature.outputs), results, strict=True))

    def _in_order(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        names = self._signature.names
        if not named and len(args) == len(names):
            return list(args)
        if not args and len(named) == len(names) and all(map(named.__contains__, names)):
            return [named[n] for n in names]
        matched = arguments.match_names(self.plan, args, named)
        return [matched[n] for n in names]

    def _outs(self, out: Any) -> list[Any]:
        if len(self._signature.outputs) == 1 and not isinstance(out, dict):
            return [out]
        matched = arguments.match_outputs(self.plan, out)
        return [matched[b.name] for b in self._signature.outputs]

    def _run(
        self,
        arrays: list[Any],
        numbers: list[Any],
        outs: list[Any] | None,
        stream: Any,
        sizes: Any,
        signatures: Hashable,
    ) -> list[Any]:
        """Run on device arrays."""
        driver = self._driver
        on = driver.stream(stream, arrays if outs is None else arrays + outs)
        if driver.capturing(on):
            with driver.relaxed():
                prepared = self._prepared_for(arrays, numbers, outs, sizes, signatures)
                return self._record(prepared, arrays, numbers, outs, stream)
        prepared = self._prepared_for(arrays, numbers, outs, sizes, signatures)
        with driver.active(prepared.device, on):
            results, addresses = self._results(prepared, arrays, outs)
            with self._alone if prepared.scratch_bytes else nullcontext():
                scratch = kept_scratch(driver, prepared, on)
                again = scratch.filled and bool(scratch.owners)
                launches = prepared.repeated if again else prepared.launches
                launch(driver, launches, addresses + scratch.addresses, numbers, on, early=again)
                scratch.filled = True
            if self.plan.patience is not None:
                self._check_waits(on)
        return results

    def _record(
        self,
        prepared: Prepared,
        arrays: list[Any],
        numbers: list[Any],
        outs: list[Any] | None,
        stream: Any,
    ) -> list[Any]:
        """Run on a stream that is being captured, on intermediate buffers of the graph's own that
        are ready now: calls that follow each other share them. Its code is held with the graph, and
        what is allocated, but for results on torch's current stream: torch keeps by itself for its
        graph what it allocates meanwhile.
        """
        driver = self._driver
        on = driver.stream(stream, arrays if outs is None else arrays + outs)
        with driver.active(prepared.device, on):
            results, addresses = self._results(prepared, arrays, outs)
        key = driver.capture_key(on)
        scratch = prepared.recorded.get(key)
        if scratch is None:
            scratch = filled_scratch(driver, prepared, addresses, numbers)
            prepared.recorded[key] = scratch
        kept = outs is not None or (prepared.library is Library.TORCH and stream is None)
        with driver.active(prepared.device, on):
            driver.hold(on, (prepared.repeated, scratch, None if kept else results))
            addresses += scratch.addresses
            launch(driver, prepared.repeated, addresses, numbers, on, early=bool(scratch.owners))
        return results

    def _results(
        self, prepared: Prepared, arrays: list[Any], outs: list[Any] | None
    ) -> tuple[list[Any], list[int]]:
        """The outputs of a call, made if none are given, and addresses of inputs and outputs."""
        pointer = self._driver.pointer
        results = self._allocate(prepared) if outs is None else outs
        addresses = [*map(pointer, arrays), *map(pointer, results)]
        if outs is not None:
            self._check_overlap(prepared.spans, addresses)
        return results, addresses

    def _check_waits(self, on: Any) -> None:
        """``InternalError`` if a launch of a plan whose waits are bounded did not end well."""
        failure = self._driver.failure(on)
        if failure:
            raise InternalError(
                f"{self.plan.name}: a launch ended in {failure!r}. Its waits at barriers end after "
                f"{self.plan.patience:g} s in a store to a misaligned address: with that error, a "
                f"thread waited for copies or for threads that never came."
            )

    def _prepared_for(
        self,
        arrays: list[Any],
        numbers: list[Any],
        outs: list[Any] | None,
        sizes: Any,
        signatures: Hashable,
    ) -> Prepared:
        """What a call launches: found by its signature, or prepared now."""
        key = (
            signatures,
            outs is None,
            None if sizes is None else repr(sizes),
            tuple(n.item() for n in numbers) if self._sizes_use_scalars else None,
            None if signatures else self._driver.current_device(),
        )
        prepared = self._prepared.get(key)
        if prepared is None:
            prepared = self._prepare(arrays, numbers, outs, sizes)
            remember(self._prepared, key, prepared, CALLS_AT_MOST)
        return prepared

    def _prepare(
        self, arrays: list[Any], numbers: list[Any], outs: list[Any] | None, sizes: Any
    ) -> Prepared:
        """Check a call of a new signature, and load what it launches."""
        buffers = self._signature.inputs if outs is None else self._signature.arrays
        views = host.views_of(buffers, arrays if outs is None else arrays + outs)
        device = arguments.check_devices(views)
        if device == HOST:  # nothing given
            device = self._driver.current_device()
        scalars = {s.name: n for s, n in zip(self.plan.scalars, numbers, strict=True)}
        return prepare(
            self.plan,
            views,
            scalars,
            sizes,
            device,
            self._driver.multiprocessors,
            lambda each, early: self._function(each, device, early),
        )

    def _run_from_host(
        self, arrays: list[Any], numbers: list[Any], outs: list[Any] | None, stream: Any, sizes: Any
    ) -> list[Any]:
        """Copy host arrays to the device, run there, and bring outputs back as the same kind."""
        driver = self._driver
        views = host.views_of(self._signature.inputs, arrays)
        for buffer in self._signature.inputs:
            arguments.check_array(buffer, views[buffer.name])
        if outs is not None:
            if sizes is not None:
                raise ArgumentError("out= and sizes= exclude each other", why="out= has a size")
            sizes = self._checked_outs(outs, views)
        device = arguments.check_devices(views)
        device = driver.current_device() if device == HOST else device
        on = driver.stream(stream, [a for a in arrays if driver.signature(a) is not None])
        if driver.capturing(on):
            raise ArgumentError(
                "a call with arrays that are not on the GPU cannot be captured",
                why="a graph replays what is done on the GPU, and these would be copied once",
                hint="make them with CuPy or torch: cupy.asarray(array)",
            )
        with driver.active(device, on):
            there = [
                driver.upload(host.to_upload(a)) if driver.signature(a) is None else a
                for a in arrays
            ]
            signatures = tuple(map(driver.signature, there))
            results = self._run(there, numbers, None, on, sizes, signatures)
            if outs is None and not host.all_on_host(views.values()):
                return results
            values = [driver.download(r) for r in results]
        if outs is None:
            pairs = zip(self._signature.outputs, values, strict=True)
            return [host.to_result(buffer, value, arrays) for buffer, value in pairs]
        for buffer, array, value in zip(self._signature.outputs, outs, values, strict=True):
            host.assign(buffer, array, value)
        return outs

    def _checked_outs(
        self, outs: list[Any], inputs: Mapping[str, ArrayView]
    ) -> dict[str, tuple[int, ...]]:
        """The shapes of host outputs, which are checked here and written after the run."""
        shapes: dict[str, tuple[int, ...]] = {}
        for buffer, array in zip(self._signature.outputs, outs, strict=True):
            seen = host.views_of((buffer,), (array,))[buffer.name]
            if seen.device != HOST:
                raise ArgumentError(
                    f"{buffer.name}: the out= array is on a GPU, and some inputs are not",
                    hint="keep all arrays on one side",
                )
            arguments.check_array(buffer, seen)
            arguments.check_output(buffer, seen)
            own = seen.byte_range(buffer.type.bytes)
            for other in self._signature.inputs:
                view = inputs[other.name]
                if view.device == HOST:
                    theirs = view.byte_range(other.type.bytes)
                    arguments.check_overlap(buffer.name, own, other.name, theirs)
            shapes[buffer.name] = seen.shape
        return shapes

    def _function(self, planned: Launch, device: int, early: bool) -> Function:
        """The entry point of a launch, loaded once per device."""
        if early:
            return self._driver.early(self._function(planned, device, False))
        key = (device, planned.entry, planned.shared_bytes)
        if key not in self._functions:
            driver = self._driver
            with driver.active(device, driver.stream(None, ())):
                if device not in self._modules:
                    self._check_runs_on(device)
                    self._modules[device] = driver.load(self._cubin())
                module = self._modules[device]
                self._functions[key] = driver.function(module, planned.entry, planned.shared_bytes)
        return self._functions[key]

    def _check_runs_on(self, device: int) -> None:
        """``TargetError`` unless the plan's target is one for this device."""
        if find_target(self.plan.target).family != "cuda":
            return  # machine code for the CPU was chosen for this one
        capability = self._driver.capability(device)
        target = find_target(self.plan.target)
        if not runs_on(target, capability):
            raise TargetError(
                f"{self.plan.name} is compiled for {target.name}; GPU {device} has compute "
                f"capability {capability // 10}.{capability % 10}",
                hint="compile it for target 'cuda'; kernel.interpret(...) runs on any machine",
            )

    def _allocate(self, prepared: Prepared) -> list[Any]:
        allocation, library, device = self._driver.allocation, prepared.library, prepared.device
        makings = (allocation(o.shape, o.dtype, library, device) for o in prepared.outputs)
        return [make(*args, **named) for make, args, named in makings]

    def _check_overlap(self, spans: tuple[int, ...], addresses: list[int]) -> None:
        """No output may share memory with an input or with another output."""
        for i in range(len(self._signature.inputs), len(addresses)):
            low = addresses[i]
            high = low + spans[i]
            for j in range(i):
                other = addresses[j]
                if low < other + spans[j] and other < high:
                    names = [b.name for b in self._signature.arrays]
                    theirs = (other, other + spans[j])
                    arguments.check_overlap(names[i], (low, high), names[j], theirs)
