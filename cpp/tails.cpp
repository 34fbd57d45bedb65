// Tails: sizes that no tile divides.
//
// Stores to an output beyond its extent are predicated off, lane by lane. Funcs inside the pipeline
// are computed over rounded-up tiles; what they load beyond a buffer is zero and never reaches an
// output. Of one that is computed once, and whose own variable is split with GuardWithIf, only what
// somebody needs is stored. Reductions run rounded up as well (guarded_sums.cpp). An update whose
// place is what a stored Func holds, or follows from its own variables, runs to the end alone: beyond it
// that may be anywhere.

#include "definitions.h"
#include "reads.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;
using Halide::TailStrategy;

namespace {

// Dimensions of an output whose loops may run beyond the extent.
std::set<size_t> rounded_dimensions(Function function) {
    std::set<std::string> rounded;
    for_each_definition(function, [&](Definition &definition) {
        const std::vector<Split> &splits = definition.schedule().splits();
        for (auto split = splits.rbegin(); split != splits.rend(); ++split) {
            switch (split->split_type) {
            case Split::SplitVar:
                rounded.insert(split->old_var);
                break;
            case Split::RenameVar:
                if (rounded.count(split->outer)) {
                    rounded.insert(split->old_var);
                }
                break;
            case Split::FuseVars:
                rounded.insert(split->outer);
                rounded.insert(split->inner);
                break;
            }
        }
    });
    std::set<size_t> dimensions;
    for (size_t d = 0; d < function.args().size(); d++) {
        if (rounded.count(function.args()[d])) {
            dimensions.insert(d);
        }
    }
    return dimensions;
}

// Whether an expression reads a Func that is stored, itself or by way of others.
bool reads_stored(const Expr &e, const Environment &env) {
    ValuesRead reads;
    e.accept(&reads);
    return std::any_of(reads.found.begin(), reads.found.end(), [&](const auto &read) {
        const auto &[name, value] = read;
        auto found = env.find(name);
        if (found == env.end()) {
            return false;
        }
        const Function &f = found->second;
        bool here = f.is_pure() && f.schedule().compute_level().is_inlined();
        return !here || reads_stored(f.values()[value], env);
    });
}

// Whether what lies beyond the end of a loop may be stored where nobody has counted on it: at a place
// that a stored Func holds, or that follows from the Func's own variables.
bool is_scattered(const Function &f, const Definition &definition, const Environment &env) {
    const std::vector<Expr> &place = definition.args();
    return std::any_of(place.begin(), place.end(), [&](const Expr &e) {
        return reads_stored(e, env) || (!e.as<Variable>() && !own_of(f, e).empty());
    });
}

class PredicateStores : public IRMutator {
    const std::map<std::string, std::map<size_t, Expr>> ends;  // by Func and dimension

protected:
    using IRMutator::visit;

    Stmt visit(const Provide *op) override {
        auto found = ends.find(op->name);
        if (found == ends.end()) {
            return IRMutator::visit(op);
        }
        Expr predicate = op->predicate;
        for (const auto &[d, end] : found->second) {
            predicate = predicate && op->args[d] < end;
        }
        return Provide::make(op->name, op->values, op->args, simplify(predicate));
    }

public:
    explicit PredicateStores(const std::map<std::string, std::map<size_t, Expr>> &ends)
        : ends(ends) {
    }
};

}  // namespace

Dimensions round_up_tails(Environment &env) {
    Dimensions guarded;
    for (auto &[name, function] : env) {
        const bool alone = function.schedule().compute_level().is_root() &&
                           function.updates().empty();
        for_each_definition(function, [&, &f = function](Definition &definition) {
            const std::vector<std::string> &args = f.args();
            const bool scattered = is_scattered(f, definition, env);
            for (Split &split : definition.schedule().splits()) {
                if (split.split_type == Split::SplitVar && !split.exact) {
                    bool own = std::find(args.begin(), args.end(), split.old_var) != args.end();
                    if (alone && own && split.tail == TailStrategy::GuardWithIf) {
                        guarded.insert({f.name(), split.old_var});
                    }
                    split.tail = scattered ? TailStrategy::GuardWithIf : TailStrategy::RoundUp;
                }
            }
        });
    }
    return guarded;
}

Stmt predicate_needed(const Stmt &s, const Environment &env, const Dimensions &guarded) {
    std::map<std::string, std::map<size_t, Expr>> ends;
    for (const auto &[name, arg] : guarded) {
        const std::vector<std::string> &args = env.at(name).args();
        size_t d = std::find(args.begin(), args.end(), arg) - args.begin();
        ends[name][d] = Variable::make(Halide::Int(32), name + ".s0." + arg + ".loop_max") + 1;
    }
    return PredicateStores(ends).mutate(s);
}

Stmt predicate_stores(const Stmt &s, const Functions &outputs, const Parameters &parameters) {
    std::map<std::string, std::map<size_t, Expr>> ends;
    for (const Function &f : outputs) {
        std::string buffer = f.outputs() > 1 ? f.name() + ".0" : f.name();
        for (const Buffer &b : parameters.buffers) {
            if (b.output && b.name == buffer) {
                const std::vector<Expr> all = ends_of(b);
                for (size_t d : rounded_dimensions(f)) {
                    ends[f.name()][d] = all[d];
                }
            }
        }
    }
    return PredicateStores(ends).mutate(s);
}

}  // namespace bridge
