// Loops over reduction domains of which Halide has proved that no iteration reads what another one
// stores. They are parallel as those over a Func's own variables are, and are called so: what has a
// `$` in its name is taken for a recurrence where it looks at other elements.

#include "definitions.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;

namespace {

// Of stages that may race, such as recurrences, Halide has proved nothing.
std::set<std::string> proved_stages(const Environment &env) {
    std::set<std::string> proved;
    for (const auto &[name, function] : env) {
        for (size_t i = 0; i < function.updates().size(); i++) {
            const StageSchedule &schedule = function.update((int)i).schedule();
            if (!schedule.allow_race_conditions() && !schedule.atomic()) {
                proved.insert(name + ".s" + std::to_string(i + 1) + ".");
            }
        }
    }
    return proved;
}

class ProvedLoops : public IRMutator {
    const std::set<std::string> stages;

    // As a loop over a variable of the Func is called.
    std::string called(const std::string &loop) const {
        std::string name = loop;
        for (const std::string &stage : stages) {
            if (starts_with(name, stage)) {
                std::replace(name.begin() + stage.size(), name.end(), '$', '.');
            }
        }
        return name;
    }

protected:
    using IRMutator::visit;
    Stmt visit(const For *op) override {
        Stmt body = mutate(op->body);
        std::string name = is_parallel(op->for_type) ? called(op->name) : op->name;
        if (name == op->name && body.same_as(op->body)) {
            return op;
        }
        if (name != op->name) {
            body = substitute(op->name, Variable::make(Halide::Int(32), name), body);
        }
        return For::make(name, op->min, op->extent, op->for_type, op->partition_policy,
                         op->device_api, body);
    }

public:
    explicit ProvedLoops(std::set<std::string> stages) : stages(std::move(stages)) {
    }
};

}  // namespace

Stmt name_proved_loops(const Stmt &s, const Environment &env) {
    return ProvedLoops(proved_stages(env)).mutate(s);
}

}  // namespace bridge
