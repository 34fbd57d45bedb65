// Funcs of which every so many elements are a phase that loops go through (inspect.h).

#include "inspect.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;
using Halide::Func;

namespace {

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

}  // namespace

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

}  // namespace bridge
