// The Python module `halide_bridge._native`: lower a pipeline, hand back its tree.

#include "inspect.h"

#include <sstream>

namespace bridge {

namespace {

using Halide::Expr;
using Halide::Func;

Functions functions(const std::vector<Func> &funcs) {
    Functions result;
    for (const Func &f : funcs) {
        result.push_back(f.function());
    }
    return result;
}

Options read_options(const py::dict &given) {
    Options o;
    o.target = given["target"].cast<std::string>();
    o.name = given["name"].cast<std::string>();
    o.tensor_funcs = given["tensor_funcs"].cast<std::set<std::string>>();
    o.accumulators = given["accumulators"].cast<bool>();
    o.tails = given["tails"].cast<bool>();
    o.rows = given["rows"].cast<bool>();
    o.strip = given["strip"].cast<bool>();
    if (!given["pipeline"].is_none()) {
        o.requirements = given["pipeline"].cast<Halide::Pipeline>().requirements();
    }
    return o;
}

py::object constant(const Expr &e) {
    if (e.defined()) {
        if (auto value = ir::as_const_int(ir::simplify(e))) {
            return py::int_(*value);
        }
    }
    return py::none();
}

// (name, type, output?, ((min, extent, stride), ...)), each a constant or None.
py::list describe_buffers(const Parameters &parameters) {
    py::list result;
    for (const Buffer &b : parameters.buffers) {
        py::list dims;
        for (size_t d = 0; d < b.min.size(); d++) {
            dims.append(
                py::make_tuple(constant(b.min[d]), constant(b.extent[d]), constant(b.stride[d])));
        }
        result.append(py::make_tuple(b.name, type_record(b.type), b.output, py::tuple(dims)));
    }
    return result;
}

// (buffer, dimension, index of the minimum's record, of the maximum's); -1 where there is no bound.
py::list describe_regions(const std::map<std::string, ir::Box> &regions,
                          const Parameters &parameters, Records &records) {
    py::list result;
    for (const Buffer &b : parameters.buffers) {
        auto found = regions.find(b.func);
        for (size_t d = 0; found != regions.end() && d < found->second.size(); d++) {
            const ir::Interval &i = found->second[d];
            int low = i.has_lower_bound() ? records.add(i.min) : -1;
            int high = i.has_upper_bound() ? records.add(i.max) : -1;
            result.append(py::make_tuple(b.name, d, low, high));
        }
    }
    return result;
}

// (kind, printed arguments, index of the condition's record, loops around it as (name, min, extent),
// index of what holds inside of them or -1).
py::list describe_promises(const std::vector<Promise> &promises, Records &records) {
    py::list result;
    for (const Promise &p : promises) {
        py::list loops;
        for (const Promise::Loop &loop : p.loops) {
            loops.append(
                py::make_tuple(loop.name, records.add(loop.min), records.add(loop.extent)));
        }
        int inside = p.inside.defined() ? records.add(p.inside) : -1;
        result.append(py::make_tuple(p.kind, py::tuple(py::cast(p.arguments)),
                                     records.add(p.condition), loops, inside));
    }
    return result;
}

void name_variables(const std::string &func, const ir::Definition &d, py::set &result) {
    for (const ir::Split &split : d.schedule().splits()) {
        for (const std::string &var : {split.old_var, split.outer, split.inner}) {
            result.add(func + "." + var);
        }
    }
    for (const ir::Dim &dim : d.schedule().dims()) {
        result.add(func + "." + dim.var);
    }
    for (const ir::Specialization &s : d.specializations()) {
        name_variables(func, s.definition, result);
    }
}

// FUNC.VARIABLE for all of Funcs and of their loops: what Halide has named is told from them.
py::set named_variables(const Environment &env) {
    py::set result;
    for (const auto &[name, f] : env) {
        if (f.has_pure_definition()) {
            name_variables(name, f.definition(), result);
        }
        for (const ir::Definition &update : f.updates()) {
            name_variables(name, update, result);
        }
    }
    return result;
}

py::dict lower_pipeline(const std::vector<Func> &outputs, const py::dict &given) {
    Options options = read_options(given);
    Functions funcs = functions(outputs);
    Lowered lowered;
    Parameters parameters;
    std::map<std::string, ir::Box> regions;
    {
        py::gil_scoped_release release;
        lowered = lower(funcs, options);
        parameters =
            find_parameters(lowered.environment, lowered.outputs, options.requirements);
        regions = required_regions(funcs, parameters);
    }
    Records records;
    py::dict result;
    result["body"] = records.add(lowered.body);
    result["regions"] = describe_regions(regions, parameters, records);
    result["promises"] = describe_promises(lowered.promises, records);
    result["records"] = records.take();
    result["buffers"] = describe_buffers(parameters);
    py::list scalars;
    for (const Scalar &s : parameters.scalars) {
        scalars.append(py::make_tuple(s.name, type_record(s.type)));
    }
    result["scalars"] = scalars;
    result["repeated"] = parameters.repeated;
    result["embedded"] = parameters.embedded;
    result["variables"] = named_variables(lowered.environment);
    return result;
}

std::string lower_text(const std::vector<Func> &outputs, const py::dict &given) {
    std::ostringstream text;
    text << lower(functions(outputs), read_options(given)).body;
    return text.str();
}

int64_t lanes_of(const std::string &var, const ir::StageSchedule &schedule) {
    for (const ir::Split &split : schedule.splits()) {
        auto factor = ir::as_const_int(split.factor);
        if (split.split_type == ir::Split::SplitVar && split.inner == var && factor) {
            return *factor;
        }
    }
    for (const ir::ReductionVariable &r : schedule.rvars()) {
        auto extent = ir::as_const_int(ir::simplify(r.extent));
        if (r.var == var && extent) {
            return *extent;
        }
    }
    return -1;
}

// (name, kind, inlined?) of every Func that the outputs need, kind: "pure", "update" or "extern".
py::list describe_funcs(const std::vector<Func> &outputs) {
    py::list result;
    Functions funcs = functions(outputs);
    Environment env = ir::deep_copy(funcs, ir::build_environment(funcs)).second;
    for (auto &[name, f] : env) {
        f.lock_loop_levels();
        const char *kind = f.has_extern_definition() ? "extern" :
                           f.has_update_definition() ? "update" :
                                                       "pure";
        bool inlined = f.schedule().compute_level().is_inlined();
        result.append(py::make_tuple(name, kind, inlined));
    }
    return result;
}

// (func, stage, ((var, lanes), ...)) of every stage with vectorized loops, innermost first; -1
// lanes: the whole extent.
py::list describe_vectors(const std::vector<Func> &outputs) {
    py::list result;
    for (const auto &[name, f] : ir::build_environment(functions(outputs))) {
        std::vector<ir::Definition> stages = {f.definition()};
        stages.insert(stages.end(), f.updates().begin(), f.updates().end());
        for (size_t i = 0; i < stages.size(); i++) {
            py::list vectors;
            const ir::StageSchedule &schedule = stages[i].schedule();
            for (const ir::Dim &dim : schedule.dims()) {
                if (dim.for_type == ir::ForType::Vectorized) {
                    vectors.append(py::make_tuple(dim.var, lanes_of(dim.var, schedule)));
                }
            }
            std::string stage = i == 0 ? "initial value" : "update " + std::to_string(i - 1);
            result.append(py::make_tuple(name, stage, py::tuple(vectors)));
        }
    }
    return result;
}

}  // namespace

}  // namespace bridge

PYBIND11_MODULE(_native, m) {
    pybind11::module_::import("halide");
    // Local: what stock Halide raises elsewhere stays halide.HalideError.
    pybind11::register_local_exception<Halide::Error>(m, "HalideError");
    m.def("lower", &bridge::lower_pipeline);
    m.def("lower_text", &bridge::lower_text);
    m.def("describe_funcs", &bridge::describe_funcs);
    m.def("describe_vectors", &bridge::describe_vectors);
    m.def("inspect", [](const std::vector<Halide::Func> &outputs) {
        return bridge::inspect(bridge::functions(outputs));
    });
    m.def("in_any_order",
          [](const Halide::Func &f) { return bridge::in_any_order(f.function()); });
    m.def("copy", [](const std::vector<Halide::Func> &outputs) {
        return bridge::copy(bridge::functions(outputs));
    });
    m.def("search", [](const std::vector<Halide::Func> &outputs,
                       const std::map<std::string, int> &sizes,
                       const std::vector<std::vector<int>> &extents, const std::string &target,
                       const std::string &name, const std::map<std::string, std::string> &options) {
        return bridge::search(bridge::functions(outputs), sizes, extents, target, name, options);
    });
    m.def("clone_for", [](const Halide::Func &f, const Halide::Func &consumer,
                          const std::string &variable, const std::string &name) {
        return bridge::clone_for(f.function(), consumer.function(), variable, name);
    });
    m.def("from_zero", [](const Halide::Func &sum, const Halide::Func &reader) {
        return bridge::from_zero(sum.function(), reader.function());
    });
    m.def("divided_last", [](const Halide::Func &weight, const Halide::Func &total,
                             const Halide::Func &sum, const Halide::Func &reader,
                             const std::vector<Halide::Func> &between) {
        return bridge::divided_last(weight.function(), total.function(), sum.function(),
                                    reader.function(), bridge::functions(between));
    });
    m.def("multiplied_last",
          [](const Halide::Func &sum, const std::vector<Halide::Func> &readers) {
              return bridge::multiplied_last(sum.function(), bridge::functions(readers));
          });
    m.def("subtracted_last",
          [](const Halide::Func &sum, const std::vector<Halide::Func> &readers,
             const std::string &name) {
              return bridge::subtracted_last(sum.function(), bridge::functions(readers), name);
          });
    m.def("as_product",
          [](const Halide::Func &sum) { return bridge::as_product(sum.function()); });
    m.def("expanded", [](const Halide::Func &sum) { return bridge::expanded(sum.function()); });
    m.def("counted_down", [](const Halide::Func &sum, const std::string &variable) {
        return bridge::counted_down(sum.function(), variable);
    });
    m.def("around", [](const Halide::Func &sum, int factor, const std::string &name) {
        return bridge::around(sum.function(), factor, name);
    });
    m.def("narrow_factors",
          [](const Halide::Func &sum) { return bridge::narrow_factors(sum.function()); });
    m.def("counted_from_zero",
          [](const Halide::Func &sum) { return bridge::counted_from_zero(sum.function()); });
    m.def("separated", [](const Halide::Func &f, const std::string &along, const std::string &name) {
        return bridge::separated(f.function(), along, name);
    });
    m.def("together",
          [](const Halide::Func &sum, const std::vector<Halide::Func> &readers,
             const std::string &name) {
              return bridge::together(sum.function(), bridge::functions(readers), name);
          });
    m.def("sums_apart",
          [](const Halide::Func &f, const std::vector<Halide::Func> &readers,
             const std::string &name, bool stored, bool each) {
              return bridge::sums_apart(f.function(), bridge::functions(readers), name, stored, each);
          });
    m.def("operand", [](const Halide::Func &sum, int factor, const std::vector<std::string> &order,
                        const std::string &name) {
        return bridge::operand(sum.function(), factor, order, name);
    });
    m.def("narrowed", [](const Halide::Func &f, const std::vector<Halide::Func> &readers,
                         const std::string &name) {
        return bridge::narrowed(f.function(), bridge::functions(readers), name);
    });
    m.def("grouped", [](const std::vector<Halide::Func> &outputs, const Halide::Func &f,
                        const Halide::Func &consumer, int along, const std::string &source,
                        const std::string &weights, int group, int run, const std::string &name) {
        return bridge::grouped(bridge::functions(outputs), f.function(), consumer.function(),
                               {along, source, weights, group, run}, name);
    });
    m.def("phased", [](const Halide::Func &f, const Halide::Func &reader,
                       const std::vector<std::tuple<std::string, std::string, int>> &phases,
                       const std::string &name) {
        std::vector<bridge::Phases> all;
        for (const auto &[variable, loop, count] : phases) {
            all.push_back({variable, loop, count});
        }
        return bridge::phased(f.function(), reader.function(), all, name);
    });
    m.def("joined", [](const Halide::Func &f, const Halide::Func &reader, const std::string &inner,
                       const std::string &outer, const std::string &name) {
        return bridge::joined(f.function(), reader.function(), inner, outer, name);
    });
    m.def("in_parts", [](const Halide::Func &output, const std::vector<Halide::Func> &sums,
                         const Halide::Func &weight, const Halide::Func &scores,
                         const Halide::Func &query, const std::array<std::vector<int>, 3> &along,
                         int keys, int at_once, const std::array<int, 3> &sharing) {
        return bridge::in_parts(output.function(),
                                {sums[0].function(), sums[1].function(), sums[2].function()},
                                weight.function(), scores.function(), query.function(), along,
                                keys, at_once, sharing);
    });
    m.def("interleaved", [](const Halide::Func &stored, int channels, bool output) {
        bridge::interleaved(stored, channels, output);
    });
    m.def("wrapped", [](const std::vector<Halide::Func> &outputs) {
        return bridge::wrapped(bridge::functions(outputs));
    });
}
