// What the user has promised and Halide would assert at run time, as conditions on the parameters.
//
// An assert stands inside loops, lets and branches, and speaks of them. Its condition is taken out
// of all of them, so that the host can check it once, before anything runs: it then implies every
// assert of the run. Where it is more than they ask for, the host has what holds inside of the
// loops, and the loops. What is true without knowing a parameter is no promise.

#include "passes.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;

namespace {

std::string text(const Expr &e) {
    std::ostringstream out;
    if (const StringImm *s = e.as<StringImm>()) {
        return s->value;
    } else if (auto integer = as_const_int(e)) {
        out << *integer;
    } else if (auto number = as_const_float(e)) {
        out << *number;
    } else if (const Call *call = e.as<Call>(); call && call->is_intrinsic(Call::stringify)) {
        for (const Expr &part : call->args) {
            out << text(part);
        }
    } else {
        out << e;
    }
    return out.str();
}

struct Frame {
    enum { Let, Loop, Branch, Stored } kind;
    std::string name;  // of the let or the loop
    Expr first;        // the value, the minimum, or the condition
    Expr extent;       // of the loop
};

class Collect : public IRVisitor {
    const std::map<std::string, Expr> &known;
    std::vector<Promise> &found;
    const std::set<std::string> &outputs;
    bool before_allocation;
    bool only_broken;
    std::vector<Frame> frames;

    // The condition under which `e` holds wherever its statement is reached, stored or not.
    Expr everywhere(Expr e) const {
        for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
            if (frame->kind == Frame::Branch) {
                e = !frame->first || e;
            } else if (frame->kind == Frame::Stored || !expr_uses_var(e, frame->name)) {
                continue;
            } else if (frame->kind == Frame::Let) {
                e = substitute(frame->name, frame->first, e);
            } else {
                Scope<Interval> loop;
                Expr last = frame->first + frame->extent - 1;
                loop.push(frame->name, Interval(frame->first, last));
                e = frame->extent <= 0 || and_condition_over_domain(simplify(e), loop);
            }
        }
        return simplify(substitute(known, e));
    }

    // The same as what has to hold inside of the loops, and these.
    void keep_loops(Promise &promise, Expr e) const {
        std::vector<Promise::Loop> loops;
        for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
            if (frame->kind == Frame::Branch || frame->kind == Frame::Stored) {
                e = !frame->first || e;
            } else if (frame->kind == Frame::Loop) {
                loops.push_back({frame->name, frame->first, frame->extent});
            } else {
                e = substitute(frame->name, frame->first, e);
                for (Promise::Loop &loop : loops) {
                    loop.min = substitute(frame->name, frame->first, loop.min);
                    loop.extent = substitute(frame->name, frame->first, loop.extent);
                }
            }
        }
        promise.inside = simplify(substitute(known, e));
        for (auto loop = loops.rbegin(); loop != loops.rend(); ++loop) {
            promise.loops.push_back({loop->name, simplify(substitute(known, loop->min)),
                                     simplify(substitute(known, loop->extent))});
        }
    }

    // An argument of a message, in terms of the loops around it.
    Expr explained(Expr e) const {
        for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
            if (frame->kind == Frame::Let && expr_uses_var(e, frame->name)) {
                e = substitute(frame->name, frame->first, e);
            }
        }
        return simplify(substitute(known, e));
    }

    void inside(const Frame &frame, const Stmt &body) {
        frames.push_back(frame);
        body.accept(this);
        frames.pop_back();
    }

protected:
    using IRVisitor::visit;

    void visit(const LetStmt *op) override {
        op->value.accept(this);
        inside({Frame::Let, op->name, op->value, Expr()}, op->body);
    }

    void visit(const Let *op) override {
        op->value.accept(this);
        frames.push_back({Frame::Let, op->name, op->value, Expr()});
        op->body.accept(this);
        frames.pop_back();
    }

    void visit(const For *op) override {
        inside({Frame::Loop, op->name, op->min, op->extent}, op->body);
    }

    void visit(const IfThenElse *op) override {
        inside({Frame::Branch, "", op->condition, Expr()}, op->then_case);
        if (op->else_case.defined()) {
            inside({Frame::Branch, "", !op->condition, Expr()}, op->else_case);
        }
    }

    void visit(const Provide *) override {}  // what it requires is still there when it is a Store

    void visit(const Store *op) override {  // what is not stored does not count
        if (is_const_one(op->predicate) || op->predicate.type().is_vector()) {
            IRVisitor::visit(op);
            return;
        }
        frames.push_back({Frame::Stored, "", op->predicate, Expr()});
        op->value.accept(this);
        op->index.accept(this);
        frames.pop_back();
    }

    void visit(const AssertStmt *op) override {
        const Call *message = op->message.as<Call>();
        if (before_allocation && message && message->name == EXPLICIT_BOUNDS &&
            !outputs.count(text(message->args[1]))) {
            return;
        }
        add(op->condition, message ? message->name : "",
            message ? message->args : std::vector<Expr>());
    }

    void visit(const Call *op) override {
        if (op->is_intrinsic(Call::require)) {
            const Call *message = op->args[2].as<Call>();
            add(op->args[0], "require", message ? message->args : std::vector<Expr>());
            op->args[1].accept(this);
            return;
        }
        IRVisitor::visit(op);
    }

    void add(const Expr &wanted, const std::string &kind, const std::vector<Expr> &arguments) {
        // In every iteration by itself, if that is enough: two sides that move together are equal.
        const Expr here = simplify(substitute_in_all_lets(explained(wanted)));
        if (is_const_one(here) || (only_broken && !is_const_zero(here))) {
            return;
        }
        Expr condition = everywhere(substitute_in_all_lets(wanted));
        if (is_const_one(condition)) {
            return;
        }
        Promise promise{kind, {}, condition, {}, {}};
        keep_loops(promise, substitute_in_all_lets(wanted));
        for (const Expr &argument : arguments) {
            promise.arguments.push_back(text(explained(argument)));
        }
        if (kind == EXPLICIT_BOUNDS) {  // ... and how many elements that is, of both
            for (size_t low : {2, 4}) {
                promise.arguments.push_back(
                    text(explained(arguments[low + 1] - arguments[low] + 1)));
            }
        }
        found.push_back(promise);
    }

public:
    Collect(const std::map<std::string, Expr> &known, std::vector<Promise> &found,
            const std::set<std::string> &outputs, bool only_broken)
        : known(known), found(found), outputs(outputs), before_allocation(!outputs.empty()),
          only_broken(only_broken) {
    }
};

// Finds out cheaply whether there is anything to collect.
class AnyPromise : public IRGraphVisitor {
protected:
    using IRGraphVisitor::visit;

    void visit(const AssertStmt *) override { found = true; }
    void visit(const Provide *) override {}

    void visit(const Call *op) override {
        found |= op->is_intrinsic(Call::require);
        IRGraphVisitor::visit(op);
    }

public:
    bool found = false;
};

const Bound *bound_of(const Function &f, const std::string &var) {
    for (const Bound &b : f.schedule().bounds()) {
        if (b.var == var) {
            return &b;
        }
    }
    return nullptr;
}

}  // namespace

std::vector<Promise> promises(const Stmt &s, const std::map<std::string, Expr> &known,
                              const std::set<std::string> &outputs, bool only_broken) {
    std::vector<Promise> found;
    AnyPromise any;
    s.accept(&any);
    if (any.found) {
        Collect collect(known, found, outputs, only_broken);
        s.accept(&collect);
    }
    return found;
}

std::vector<Promise> constraints(const Parameters &parameters,
                                 const std::map<std::string, Expr> &known) {
    std::vector<Promise> found;
    for (const Buffer &b : parameters.buffers) {
        for (const auto &[property, value] : b.constraints) {
            Expr var = Variable::make(Halide::Int(32), property);
            Expr condition = simplify(substitute(known, var == value));
            if (!is_const_one(condition)) {
                found.push_back({"halide_error_constraint_violated",
                                 {property, text(simplify(substitute(known, value)))},
                                 condition, {}, {}});
            }
        }
    }
    return found;
}

// What a bound on a Func says of all that the algorithm needs of it: false if that is not known.
Promise of_algorithm(const Promise &promise, const Environment &env,
                     const std::map<std::string, Box> &regions) {
    const std::string &var = promise.arguments[0], &func = promise.arguments[1];
    Promise result{EXPLICIT_BOUNDS, {}, const_false(), {}, {}};
    auto f = env.find(func);
    auto region = regions.find(func);
    if (f == env.end() || region == regions.end()) {
        return result;
    }
    const std::vector<std::string> args = f->second.args();
    size_t d = std::find(args.begin(), args.end(), var) - args.begin();
    const Bound *bound = bound_of(f->second, var);
    if (!bound || !bound->extent.defined() || d >= region->second.size() ||
        !region->second[d].is_bounded()) {
        return result;
    }
    const Interval &need = region->second[d];
    Expr low = bound->min.defined() ? bound->min : need.min;
    Expr high = simplify(low + bound->extent - 1);
    result.condition = simplify(low <= need.min && need.max <= high);
    result.arguments = {var, func};
    Expr needed = simplify(need.max - need.min + 1);
    for (const Expr &e : {low, high, need.min, need.max, bound->extent, needed}) {
        result.arguments.push_back(text(e));
    }
    return result;
}

}  // namespace bridge
