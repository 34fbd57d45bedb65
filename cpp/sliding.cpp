// Sliding windows: of a Func that is kept outside of the loops that compute it, an iteration
// computes what those before it have not.
//
// Halide begins such a loop earlier, so that each of its iterations has as much to do, and leaves
// out what a Func does not need of those before its first. What its own compiler then computes is
// wrong in two cases, and such Funcs are computed as a whole here, where they are kept all the same:
// what an iteration needs moves by no constant, or Funcs that are kept outside of different loops
// slide along the same one.

#include "passes.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;

namespace {

struct Window {
    std::set<std::string> loops;  // that are slid along
    std::string kept;             // the loop outside of which no values are kept
    bool even = true;             // whether what is needed moves by a constant
};

class FindWindows : public IRVisitor {
    const Environment &env;
    std::vector<std::string> loops;        // outermost first
    std::map<std::string, size_t> around;  // loops around what is kept, by Func
    std::map<std::string, Expr> values;    // of lets

    using IRVisitor::visit;

    void visit(const For *op) override {
        loops.push_back(op->name);
        IRVisitor::visit(op);
        loops.pop_back();
    }

    void visit(const LetStmt *op) override {
        Expr value = simplify(substitute(values, op->value));
        std::swap(values[op->name], value);
        op->body.accept(this);
        if (value.defined()) {
            values[op->name] = value;
        } else {
            values.erase(op->name);
        }
    }

    void visit(const Realize *op) override {
        around[op->name] = loops.size();
        IRVisitor::visit(op);
    }

    void visit(const ProducerConsumer *op) override {
        auto kept = around.find(op->name);
        if (op->is_producer && kept != around.end() && kept->second < loops.size()) {
            Window &window = found[op->name];
            window.loops = {loops.begin() + kept->second, loops.end()};
            window.kept = kept->second ? loops[kept->second - 1] : "";
            window.even = window.even && moves_evenly(env.at(op->name), window);
        }
        IRVisitor::visit(op);
    }

    bool moves_evenly(const Function &f, const Window &window) const {
        const std::string last = f.name() + ".s" + std::to_string(f.updates().size()) + ".";
        for (const std::string &arg : f.args()) {
            for (const char *end : {".min", ".max"}) {
                auto value = values.find(last + arg + end);
                for (const std::string &loop : window.loops) {
                    if (value != values.end() &&
                        !derivative_bounds(value->second, loop).is_single_point()) {
                        return false;
                    }
                }
            }
        }
        return true;
    }

public:
    std::map<std::string, Window> found;

    explicit FindWindows(const Environment &env) : env(env) {
    }
};

bool meet(const Window &a, const Window &b) {
    return std::any_of(a.loops.begin(), a.loops.end(),
                       [&](const std::string &loop) { return b.loops.count(loop) > 0; });
}

}  // namespace

Stmt slide(const Stmt &s, Environment &env) {
    bool any = std::any_of(env.begin(), env.end(), [](const auto &f) {
        const FuncSchedule &schedule = f.second.schedule();
        return schedule.compute_level() != schedule.store_level();
    });
    if (!any) {
        return sliding_window(s, env);  // nothing slides
    }
    FindWindows windows(env);
    s.accept(&windows);
    std::map<std::string, Halide::LoopLevel> kept;
    for (const auto &[name, window] : windows.found) {
        bool alike = std::all_of(
            windows.found.begin(), windows.found.end(), [&, &w = window](const auto &other) {
                return !meet(w, other.second) || other.second.kept == w.kept;
            });
        FuncSchedule &schedule = env.at(name).schedule();
        if (!window.even || !alike) {
            kept[name] = schedule.store_level();
            schedule.store_level() = schedule.compute_level();
        }
    }
    Stmt slid = sliding_window(s, env);
    for (const auto &[name, level] : kept) {
        env.at(name).schedule().store_level() = level;
    }
    return slid;
}

}  // namespace bridge
