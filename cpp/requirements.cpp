// The region of every buffer that the algorithm needs, whatever the schedule rounds up.
//
// Regions flow from the outputs, consumer before producer, through the definitions themselves: an
// update adds what it reads over its whole reduction domain and what it writes. No schedule is
// looked at. An index that a Func computes is between the bounds of that Func's values, or, where
// those have none, what it computes there.

#include "reads.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;

namespace {

using Regions = std::map<std::string, Box>;

void merge(Regions &into, const Regions &from) {
    for (const auto &[name, box] : from) {
        auto found = into.find(name);
        if (found == into.end()) {
            into[name] = box;
        } else {
            merge_boxes(found->second, box);
        }
    }
}

Scope<Interval> variables(const Function &f, const Definition &definition, const Box &region) {
    Scope<Interval> scope;
    for (size_t d = 0; d < f.args().size() && d < region.size(); d++) {
        scope.push(f.args()[d], region[d]);
    }
    for (const ReductionVariable &r : definition.schedule().rvars()) {
        scope.push(r.var, Interval(r.min, simplify(r.min + r.extent - 1)));
    }
    for (const Split &split : definition.schedule().splits()) {  // of which one may be read
        if (split.split_type == Split::SplitVar) {
            scope.push(split.inner, Interval(0, simplify(split.factor - 1)));
        }
    }
    return scope;
}

// Expressions whose indices are in terms of the variables around them.
class Indices : public IRMutator {
    const Environment &env;
    const FuncValueBounds &values;
    bool within = false;

    // What an index computes, if its values have no bounds: Halide refuses to store that.
    const Function *computed(const Call *op) const {
        auto found = op->call_type == Call::Halide ? env.find(op->name) : env.end();
        if (found == env.end() || !found->second.is_pure()) {
            return nullptr;
        }
        auto known = values.find({op->name, op->value_index});
        bool bounded = known != values.end() && known->second.is_bounded();
        return bounded ? nullptr : &found->second;
    }

    using IRMutator::visit;
    Expr visit(const Call *op) override {
        if (op->call_type != Call::Halide && op->call_type != Call::Image) {
            return IRMutator::visit(op);
        }
        std::vector<Expr> place;
        for (const Expr &index : op->args) {
            place.push_back(index_of(index));
        }
        if (const Function *f = within ? computed(op) : nullptr) {
            return index_of(at(*f, f->values()[op->value_index], place));
        }
        return Call::make(op->type, op->name, place, op->call_type, op->func, op->value_index,
                          op->image, op->param);
    }

    // Halide has one for what occurs twice, as an index may.
    Expr visit(const Let *op) override {
        bool index = op->value.type() == Halide::Int(32);
        return Let::make(op->name, index ? index_of(op->value) : mutate(op->value),
                         mutate(op->body));
    }

public:
    Indices(const Environment &env, const FuncValueBounds &values) : env(env), values(values) {
    }

    Expr index_of(const Expr &e) {
        ScopedValue<bool> inside(within, true);
        return mutate(e);
    }
};

// What the definition writes, outside the pure region included.
Box written(const std::vector<Expr> &place, const Scope<Interval> &scope,
            const FuncValueBounds &values) {
    Box box;
    for (const Expr &index : place) {
        box.push_back(bounds_of_expr_in_scope(index, scope, values));
    }
    return box;
}

void propagate(const Function &f, const Environment &env, const FuncValueBounds &values,
               Regions &regions) {
    if (!regions.count(f.name()) || !f.has_pure_definition()) {
        return;
    }
    std::vector<Definition> definitions = {f.definition()};
    definitions.insert(definitions.end(), f.updates().begin(), f.updates().end());
    Indices indices(env, values);
    for (const Definition &definition : definitions) {
        std::vector<Expr> place, exprs;
        for (const Expr &arg : definition.args()) {
            place.push_back(indices.index_of(arg));
        }
        for (const Expr &value : definition.values()) {
            exprs.push_back(indices.mutate(value));
        }
        exprs.insert(exprs.end(), place.begin(), place.end());
        Box region = regions[f.name()];
        Scope<Interval> scope = variables(f, definition, region);
        if (!definition.is_init()) {
            merge_boxes(regions[f.name()], written(place, scope, values));
        }
        for (const Expr &e : exprs) {
            merge(regions, boxes_required(e, scope, values));
        }
    }
}

Box whole(const Buffer &b) {
    Box box;
    std::vector<Expr> ends = ends_of(b);
    for (size_t d = 0; d < ends.size(); d++) {
        Expr low = b.min[d].defined() && is_const(b.min[d]) ? b.min[d] : Expr(0);
        box.push_back(Interval(low, simplify(ends[d] - 1)));
    }
    return box;
}

}  // namespace

std::map<std::string, Box> required_regions(const Functions &outputs,
                                            const Parameters &parameters) {
    auto [copies, env] = deep_copy(outputs, build_environment(outputs));
    Environment unwrapped = env;
    auto [order, groups] = realization_order(copies, unwrapped);
    Regions regions;
    for (const Buffer &b : parameters.buffers) {
        if (b.output && !regions.count(b.func)) {  // buffers of one tuple have one region
            regions[b.func] = whole(b);
        }
    }
    const FuncValueBounds values = compute_function_value_bounds(order, env);
    for (auto name = order.rbegin(); name != order.rend(); ++name) {
        propagate(env.at(*name), env, values, regions);
    }
    std::map<std::string, Expr> known = known_values(parameters);
    for (auto &[name, box] : regions) {
        for (size_t d = 0; d < box.size(); d++) {
            for (Expr *bound : {&box[d].min, &box[d].max}) {
                if (bound->defined()) {
                    *bound = simplify(substitute(known, *bound));
                }
            }
        }
    }
    return regions;
}

}  // namespace bridge
