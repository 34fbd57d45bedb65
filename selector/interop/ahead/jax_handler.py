"""An exported function as XLA's foreign function interface calls it: on the CPU, and on GPUs with
the stream of the computation. Compiled with the headers that jaxlib brings.
"""

from __future__ import annotations

from selector.interop.ahead.tables import array_code, number_type
from selector.runtime import arguments
from selector.runtime.plan import Plan

HOST, GPU = "jax_cpu", "jax_cuda"

_TEXT = """#include "NAME.h"

#include "xla/ffi/api/ffi.h"

#include <vector>

namespace ffi = xla::ffi;

namespace {

constexpr DLDataType types[] = {TYPES};

ffi::Error call(DLDevice device, void *stream, ffi::RemainingArgs args, ffi::RemainingRets results,
                ffi::Dictionary numbers) {
  (void)numbers;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<DLTensor> tensors;
  shapes.reserve(ARRAYS);
  const auto add = [&](const ffi::AnyBuffer &b) {
    const DLDataType type = types[shapes.size()];
    shapes.emplace_back(b.dimensions().begin(), b.dimensions().end());
    tensors.push_back({b.untyped_data(), device, int32_t(shapes.back().size()), type,
                       shapes.back().data(), nullptr, 0});
  };
  for (size_t i = 0; i < INPUTS; ++i) {
    const auto buffer = args.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return buffer.error();
    add(*buffer);
  }
  for (size_t i = 0; i < ARRAYS - INPUTS; ++i) {
    auto buffer = results.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return buffer.error();
    add(**buffer);
  }
READ  const int code = NAME(GIVEN, stream);
  if (!code) return ffi::Error::Success();
  return code == TENSOR_SELECTOR_ARGUMENT ? ffi::Error::InvalidArgument(NAME_message())
                                          : ffi::Error::Internal(NAME_message());
}

ffi::Error on_cpu(ffi::RemainingArgs args, ffi::RemainingRets results, ffi::Dictionary numbers) {
  return call({kDLCPU, 0}, nullptr, args, results, numbers);
}

ffi::Error on_gpu(void *stream, int32_t device, ffi::RemainingArgs args, ffi::RemainingRets results,
                  ffi::Dictionary numbers) {
  return call({kDLCUDA, device}, stream, args, results, numbers);
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(jax_cpu, on_cpu,
                              ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());
XLA_FFI_DEFINE_HANDLER_SYMBOL(jax_cuda, on_gpu,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<void *>>()
                                  .Ctx<ffi::DeviceOrdinal>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attrs());
"""


def handler_text(name: str, plan: Plan) -> str:
    """The source of both handlers of a function that was exported under that name."""
    arrays = arguments.inputs_then_outputs(plan)
    inputs = len(arguments.inputs_of(plan))
    types = ", ".join(f"{{{array_code(b.type)}, {8 * b.type.bytes}, 1}}" for b in arrays)
    read, given = "", [f"&tensors[{i}]" for i in range(inputs)]
    for i, scalar in enumerate(plan.scalars):
        own = f"number_{i}"
        kind = number_type(scalar.type)
        read += f'  const auto {own} = numbers.get<{kind}>("{own}");\n'
        read += f"  if (!{own}.has_value()) return {own}.error();\n"
        given.append(f"*{own}")
    given += [f"&tensors[{i}]" for i in range(inputs, len(arrays))]
    text = _TEXT.replace("READ", read).replace("GIVEN", ", ".join(given)).replace("TYPES", types)
    text = text.replace("ARRAYS", str(len(arrays))).replace("INPUTS", str(inputs))
    return text.replace("NAME", name)
