// A pipeline as its user defined it: Funcs with handles, and definitions as records. No schedule is
// applied, nothing is lowered; halide_bridge/schedules/recognise reads it.

#include "inspect.h"

#include <algorithm>

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;
using Halide::Func;

namespace {

// Names of the Funcs that definitions call, in their order.
class Called : public IRGraphVisitor {
    using IRGraphVisitor::visit;
    void visit(const Call *op) override {
        IRGraphVisitor::visit(op);
        if (op->call_type == Call::Halide) {
            names.push_back(op->name);
        }
    }

public:
    std::vector<std::string> names;
};

// Images of so many dimensions that definitions read, by their names.
class ImagesOf : public IRGraphVisitor {
    int dimensions;
    using IRGraphVisitor::visit;
    void visit(const Call *op) override {
        IRGraphVisitor::visit(op);
        if (op->call_type == Call::Image && op->param.defined() &&
            op->param.dimensions() == dimensions) {
            found.emplace(op->param.name(), op->param);
        }
    }

public:
    std::map<std::string, Halide::Parameter> found;

    explicit ImagesOf(int dimensions) : dimensions(dimensions) {
    }
};

Expr size_of(const Halide::Parameter &p, const std::string &what) {
    return Variable::make(Halide::Int(32), p.name() + "." + what, p);
}

// Producers first, in the order in which definitions call them. Halide's own order goes by names
// with its counters, which two pipelines that are built alike do not share.
void add_producers_first(const Function &f, const Environment &env,
                         std::vector<std::string> &order, std::set<std::string> &seen) {
    if (!seen.insert(f.name()).second) {
        return;
    }
    Called called;
    f.accept(&called);
    for (const Halide::ExternFuncArgument &argument : f.extern_arguments()) {
        if (argument.is_func()) {
            called.names.push_back(Function(argument.func).name());
        }
    }
    for (const std::string &name : called.names) {
        add_producers_first(env.at(name), env, order, seen);
    }
    order.push_back(f.name());
}

py::tuple indices(const std::vector<Expr> &exprs, Records &records) {
    py::tuple result(exprs.size());
    for (size_t i = 0; i < exprs.size(); i++) {
        result[i] = py::int_(records.add(exprs[i]));
    }
    return result;
}

// Whether iterations along a reduction variable may run in any order, and at once.
bool is_free(const std::string &rvar, const Definition &d) {
    for (const ir::Dim &dim : d.schedule().dims()) {
        if (dim.var == rvar) {
            return dim.is_pure();
        }
    }
    return false;
}

// (indices of what it stores to, of its values, of its predicate or -1, ((rvar, min, extent,
// free?), ...), touched by a schedule?)
py::tuple describe_stage(const Definition &d, Records &records) {
    py::list rvars;
    for (const ReductionVariable &r : d.schedule().rvars()) {
        rvars.append(py::make_tuple(r.var, records.add(r.min), records.add(r.extent),
                                    is_free(r.var, d)));
    }
    Expr predicate = simplify(d.predicate());
    return py::make_tuple(indices(d.args(), records), indices(d.values(), records),
                          is_const_one(predicate) ? -1 : records.add(predicate),
                          py::tuple(rvars), d.schedule().touched());
}

// Whether someone but an output reads a Func by way of a wrapper.
bool has_wrapper(const Function &f, const Functions &outputs) {
    const auto &wrappers = f.schedule().wrappers();
    return std::any_of(wrappers.begin(), wrappers.end(), [&](const auto &wrapper) {
        return std::none_of(outputs.begin(), outputs.end(), [&](const Function &output) {
            return wrapper.first.empty() && output.get_contents().same_as(wrapper.second);
        });
    });
}

bool has_schedule(const Function &f, const Function &locked, const Functions &outputs) {
    const FuncSchedule &s = f.schedule();
    return !locked.schedule().compute_level().is_inlined() ||
           !locked.schedule().store_level().is_inlined() || has_wrapper(f, outputs) ||
           s.memory_type() != Halide::MemoryType::Auto;
}

// ((variable, minimum or None, extent or None), ...), as `bound` says.
py::list describe_bounds(const std::vector<Bound> &bounds) {
    py::list result;
    auto value = [](const Expr &e) -> py::object {
        auto known = e.defined() ? as_const_int(simplify(e)) : std::nullopt;
        return known ? py::object(py::int_(*known)) : py::none();
    };
    for (const Bound &b : bounds) {
        result.append(py::make_tuple(b.var, value(b.min), value(b.extent)));
    }
    return result;
}

// ((minimum, maximum), ...) of what the outputs need of a Func; -1 where nothing bounds it.
py::list describe_region(const ir::Box &region, Records &records) {
    py::list result;
    for (size_t d = 0; d < region.size(); d++) {
        int low = region[d].has_lower_bound() ? records.add(region[d].min) : -1;
        int high = region[d].has_upper_bound() ? records.add(region[d].max) : -1;
        result.append(py::make_tuple(low, high));
    }
    return result;
}

// The Func at one of whose loops another one is computed or stored, or "".
std::string level_of(const Function &locked) {
    const Halide::LoopLevel &level = locked.schedule().compute_level();
    return level.is_inlined() || level.is_root() ? "" : level.func();
}

py::dict describe(const Function &f, const Function &locked, const Functions &outputs,
                  Records &records) {
    py::list types, stages;
    for (const Halide::Type &t : f.output_types()) {
        types.append(type_record(t));
    }
    if (f.has_pure_definition()) {
        stages.append(describe_stage(f.definition(), records));
    }
    for (const Definition &d : f.updates()) {
        stages.append(describe_stage(d, records));
    }
    py::dict result;
    result["name"] = f.name();
    result["handle"] = Func(f);
    result["args"] = py::tuple(py::cast(f.args()));
    result["types"] = py::tuple(types);
    result["stages"] = py::tuple(stages);
    result["extern"] = f.has_extern_definition();
    result["scheduled"] = has_schedule(f, locked, outputs);
    result["at"] = level_of(locked);
    result["bounds"] = describe_bounds(f.schedule().bounds());
    result["estimates"] = describe_bounds(f.schedule().estimates());
    return result;
}

void constrain(Halide::Parameter to, const Halide::Parameter &from) {
    for (int d = 0; d < from.dimensions(); d++) {
        to.set_min_constraint(d, from.min_constraint(d));
        to.set_extent_constraint(d, from.extent_constraint(d));
        to.set_stride_constraint(d, from.stride_constraint(d));
    }
    to.set_host_alignment(from.host_alignment());
}

// What the user has bounded is the output, which is `to` once it stands for it: `from` is computed
// for a tile. An extent without a minimum is a tile's own.
void hand_bounds_over(Function from, Function to) {
    using Halide::Internal::Bound;
    std::vector<Bound> &bounds = from.schedule().bounds();
    auto tiles = std::stable_partition(bounds.begin(), bounds.end(),
                                       [](const Bound &b) { return !b.min.defined(); });
    for (auto b = tiles; b != bounds.end(); ++b) {
        const auto at = std::find(from.args().begin(), from.args().end(), b->var);
        b->var = to.args().at(at - from.args().begin());
        to.schedule().bounds().push_back(*b);
    }
    bounds.erase(tiles, bounds.end());
}

}  // namespace

py::dict inspect(const Functions &outputs) {
    Environment env = build_environment(outputs);
    // A loop level shares its lock with all who hold it: only a copy's may be locked.
    Environment locked = deep_copy(outputs, env).second;
    for (auto &[name, f] : locked) {
        f.lock_loop_levels();
    }
    Records records(true);
    py::list funcs;
    auto regions = required_regions(outputs, find_parameters(env, outputs, {}));
    std::vector<std::string> order;
    std::set<std::string> seen;
    for (const Function &f : outputs) {
        add_producers_first(f, env, order, seen);
    }
    for (const std::string &name : order) {
        py::dict told = describe(env.at(name), locked.at(name), outputs, records);
        told["region"] = describe_region(regions[name], records);
        funcs.append(told);
    }
    py::dict result;
    result["funcs"] = funcs;
    result["records"] = records.take();
    return result;
}

std::vector<Func> copy(const Functions &outputs) {
    std::vector<Func> result;
    for (const Function &f : deep_copy(outputs, build_environment(outputs)).first) {
        result.emplace_back(f);
    }
    return result;
}

void interleaved(Func stored, int channels, bool output) {
    ImagesOf images(stored.dimensions());
    for (const auto &[name, f] : build_environment({stored.function()})) {
        f.accept(&images);
    }
    Expr together = output ? stored.output_buffer().dim(1).stride() == channels : const_true();
    for (const auto &[name, p] : images.found) {
        together = together && size_of(p, "stride.1") == channels && size_of(p, "extent.0") == channels;
    }
    stored.specialize(together);
}

bool in_any_order(const Function &f) {
    const Definition &update = f.update(0);
    auto found = ir::prove_associativity(f.name(), update.args(), update.values());
    return found.associative() && found.commutative();
}

std::vector<Func> wrapped(const Functions &outputs) {
    std::vector<Func> result;
    for (const Function &f : outputs) {
        auto found = f.wrappers().find("");
        if (found == f.wrappers().end()) {
            result.emplace_back(f);
            continue;
        }
        Function wrapper(found->second);
        for (size_t i = 0; i < f.output_buffers().size(); i++) {
            constrain(wrapper.output_buffers()[i], f.output_buffers()[i]);
        }
        hand_bounds_over(f, wrapper);
        result.emplace_back(wrapper);
    }
    return result;
}

}  // namespace bridge
