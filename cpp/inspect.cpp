// A pipeline as its user defined it: Funcs with handles, and definitions as records. No schedule is
// applied, nothing is lowered; halide_bridge/schedules/recognise reads it.

#include "inspect.h"

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

bool has_schedule(const Function &f, const Function &locked) {
    const FuncSchedule &s = f.schedule();
    return !locked.schedule().compute_level().is_inlined() ||
           !locked.schedule().store_level().is_inlined() || !s.wrappers().empty() ||
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

py::dict describe(const Function &f, const Function &locked, Records &records) {
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
    result["scheduled"] = has_schedule(f, locked);
    result["at"] = level_of(locked);
    result["bounds"] = describe_bounds(f.schedule().bounds());
    result["estimates"] = describe_bounds(f.schedule().estimates());
    return result;
}

// What is left of a division, without the variables that have no say in it. Of a remainder at one
// value Halide does not know that it is one; of the difference it does, and where there are several
// values the clamp says which these are.
Expr remainder(Expr index, int step, const std::vector<std::string> &variables) {
    for (const std::string &v : variables) {
        Expr next = substitute(v, Variable::make(Halide::Int(32), v) + 1, index);
        auto apart = as_const_int(simplify(next - index));
        if (apart && *apart % step == 0) {
            index = substitute(v, Expr(0), index);
        }
    }
    Expr left = simplify(index % step);
    const Mod *mod = left.as<Mod>();
    return mod ? clamp(mod->a - mod->a / step * step, 0, step - 1) : left;
}

// Reads planes in place of a Func, at quotients, the plane by all remainders: see ``dealt``.
class ReadDealt : public IRMutator {
    const std::string from;
    const Function to;
    const std::vector<int> steps;
    const std::vector<std::string> variables;

    using IRMutator::visit;
    Expr visit(const Call *op) override {
        if (op->call_type != Call::Halide || op->name != from) {
            return IRMutator::visit(op);
        }
        std::vector<Expr> at;
        Expr plane = 0;
        int planes = 1;
        for (size_t d = 0; d < steps.size(); d++) {
            Expr index = mutate(op->args[d]);
            at.push_back(simplify(index / steps[d]));
            plane = plane + remainder(index, steps[d], variables) * planes;
            planes *= steps[d];
        }
        at.push_back(plane);
        return Call::make(to, at, op->value_index);
    }

public:
    ReadDealt(const std::string &from, const Function &to, const std::vector<int> &steps,
              const std::vector<std::string> &variables)
        : from(from), to(to), steps(steps), variables(variables) {
    }
};

// A definition in the coordinates of phases, its calls of itself those of the new Func. Elements within
// a phase have no say in remainders, and their own part of quotients.
class InPhases : public IRMutator {
    const std::map<std::string, Expr> at;
    const std::string self;
    const Function to;
    const std::vector<Expr> own;
    const std::vector<std::string> variables;

    using IRMutator::visit;
    Expr visit(const Variable *op) override {
        auto found = at.find(op->name);
        bool free = found != at.end() && !op->reduction_domain.defined() && !op->param.defined();
        return free ? found->second : Expr(op);
    }
    Expr visit(const Call *op) override {
        if (op->call_type == Call::Halide && op->name == self) {
            return Call::make(to, own, op->value_index);
        }
        return IRMutator::visit(op);
    }
    Expr visit(const Mod *op) override {
        auto step = as_const_int(op->b);
        bool known = step && *step > 0 && op->type == Halide::Int(32);
        return known ? remainder(mutate(op->a), *step, variables) : IRMutator::visit(op);
    }
    Expr visit(const Div *op) override {
        auto step = as_const_int(op->b);
        if (!step || *step <= 0 || op->type != Halide::Int(32)) {
            return IRMutator::visit(op);
        }
        Expr left = mutate(op->a), whole = 0;
        for (const std::string &v : variables) {
            Expr x = Variable::make(op->type, v);
            auto apart = as_const_int(simplify(substitute(v, x + 1, left) - left));
            if (apart && *apart % *step == 0) {
                left = substitute(v, Expr(0), left);
                whole = whole + x * Expr((int)(*apart / *step));
            }
        }
        return whole + left / op->b;
    }

public:
    InPhases(std::map<std::string, Expr> at, const std::string &self, const Function &to,
             std::vector<Expr> own, std::vector<std::string> variables)
        : at(std::move(at)), self(self), to(to), own(std::move(own)),
          variables(std::move(variables)) {
    }
};

// Where a Func is read: everywhere at the same elements, or nowhere.
class ReadBy : public IRGraphVisitor {
    const std::string from;
    using IRGraphVisitor::visit;
    void visit(const Call *op) override {
        IRGraphVisitor::visit(op);
        if (op->call_type == Call::Halide && op->name == from) {
            bool first = at.empty();
            at.resize(op->args.size());
            for (size_t d = 0; d < at.size(); d++) {
                at[d] = first || (at[d].defined() && equal(at[d], op->args[d])) ? op->args[d] : Expr();
            }
        }
    }

public:
    std::vector<Expr> at;

    explicit ReadBy(const std::string &from) : from(from) {
    }
};

// Whether these are variables, all of them others.
bool are_variables(const std::vector<Expr> &exprs) {
    std::set<std::string> names;
    for (const Expr &e : exprs) {
        const Variable *v = e.defined() ? e.as<Variable>() : nullptr;
        if (!v || v->reduction_domain.defined() || !names.insert(v->name).second) {
            return false;
        }
    }
    return !exprs.empty();
}

// Reads a Func at the phases that its loops go through, whatever was read before.
class ReadPhased : public IRMutator {
    const std::string from;
    const Function to;
    const std::vector<Expr> at;

    using IRMutator::visit;
    Expr visit(const Call *op) override {
        bool own = op->call_type == Call::Halide && op->name == from;
        return own ? Call::make(to, at, op->value_index) : IRMutator::visit(op);
    }

public:
    ReadPhased(const std::string &from, const Function &to, std::vector<Expr> at)
        : from(from), to(to), at(std::move(at)) {
    }
};

void constrain(Halide::Parameter to, const Halide::Parameter &from) {
    for (int d = 0; d < from.dimensions(); d++) {
        to.set_min_constraint(d, from.min_constraint(d));
        to.set_extent_constraint(d, from.extent_constraint(d));
        to.set_stride_constraint(d, from.stride_constraint(d));
    }
    to.set_host_alignment(from.host_alignment());
}

}  // namespace

py::dict inspect(const Functions &outputs) {
    Environment env = build_environment(outputs);
    // A loop level shares its lock with all who hold it: only a copy's may be locked.
    Environment locked = deep_copy(outputs, env).second;
    for (auto &[name, f] : locked) {
        f.lock_loop_levels();
    }
    Records records;
    py::list funcs;
    auto regions = required_regions(outputs, find_parameters(env, outputs, {}));
    std::vector<std::string> order;
    std::set<std::string> seen;
    for (const Function &f : outputs) {
        add_producers_first(f, env, order, seen);
    }
    for (const std::string &name : order) {
        py::dict told = describe(env.at(name), locked.at(name), records);
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

Func clone_for(const Function &f, Function consumer, const std::string &name) {
    Function copied(Halide::Internal::unique_name(name));
    std::map<FunctionPtr, FunctionPtr> known;
    f.deep_copy(copied.name(), copied.get_contents(), known);
    FunctionPtr self = copied.get_contents();
    self.weaken();
    copied.substitute_calls({{f.get_contents(), self}});  // those of its own updates
    consumer.substitute_calls(f, copied);
    return Func(copied);
}

Func dealt(const Function &f, Function consumer, const std::vector<int> &steps,
           const std::string &name) {
    Func planes(name);  // which makes it unique
    std::vector<std::string> args = f.args();
    std::string last = "plane";  // no number in it: Halide orders terms by names
    while (std::find(args.begin(), args.end(), last) != args.end()) {
        last += "_";
    }
    args.push_back(last);
    Expr plane = Variable::make(Halide::Int(32), args.back());
    std::vector<Expr> at, values;
    for (size_t d = 0; d < steps.size(); d++) {
        Expr x = Variable::make(Halide::Int(32), args[d]);
        at.push_back(steps[d] == 1 ? x : x * steps[d] + plane % steps[d]);
        plane = plane / steps[d];
    }
    for (int value = 0; value < f.outputs(); value++) {
        values.push_back(simplify(Call::make(f, at, value)));
    }
    planes.function().define(args, values);
    ReadDealt read(f.name(), planes.function(), steps, consumer.args());
    for (size_t stage = 0; stage <= consumer.updates().size(); stage++) {
        Definition &definition = stage ? consumer.update(stage - 1) : consumer.definition();
        for (Expr &value : definition.values()) {
            value = read.mutate(value);
        }
    }
    return planes;
}

Func phased(const Function &f, Function reader, const std::vector<Phases> &phases,
            const std::string &name) {
    const Halide::Type index = Halide::Int(32);
    ReadBy reads(f.name());
    reader.accept(&reads);
    bool pure = are_variables(reads.at) && reader.updates().empty() && f.outputs() == 1;
    for (const Definition &update : f.updates()) {
        pure = pure && are_variables(update.args());
    }
    if (!pure) {
        return Func();
    }
    Func result(name);  // which makes it unique
    std::vector<Halide::Var> args(f.args().begin(), f.args().end());
    std::vector<Expr> own(args.begin(), args.end()), read = reads.at, planes, loops;
    std::map<std::string, Expr> at;
    for (const Phases &p : phases) {
        for (size_t d = 0; d < f.args().size(); d++) {
            const Variable *v = reads.at[d].as<Variable>();
            if (v && v->name == p.variable) {
                Halide::Var phase(args[d].name() + "_phase");
                args.push_back(phase);
                planes.emplace_back(phase);
                at[f.args()[d]] = own[d] * p.count + phase;
                read[d] = reads.at[d] / p.count;
                // What the loop is called by the other loops of the reader: at one turn of it Halide
                // knows that there is one phase.
                loops.push_back(Variable::make(index, p.variable + "." + p.loop));
            }
        }
    }
    own.insert(own.end(), planes.begin(), planes.end());
    read.insert(read.end(), loops.begin(), loops.end());
    auto told = [&](const Definition &definition) {
        InPhases phases(at, f.name(), result.function(), own, f.args());
        return phases.mutate(definition.values()[0]);
    };
    result(args) = told(f.definition());
    for (const Definition &update : f.updates()) {
        result(args) = told(update);
    }
    ReadPhased reading(f.name(), result.function(), read);
    for (Expr &value : reader.definition().values()) {
        value = reading.mutate(value);
    }
    return result;
}

void interleaved(Func output, int channels) {
    ImagesOf images(output.dimensions());
    for (const auto &[name, f] : build_environment({output.function()})) {
        f.accept(&images);
    }
    Expr together = output.output_buffer().dim(1).stride() == channels;
    for (const auto &[name, p] : images.found) {
        together = together && size_of(p, "stride.1") == channels && size_of(p, "extent.0") == channels;
    }
    output.specialize(together);
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
        result.emplace_back(wrapper);
    }
    return result;
}

}  // namespace bridge
