// A schedule that one of Halide's own autoschedulers finds, for sizes that are numbers.

#include "inspect.h"
#include "passes.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;
using Halide::Func;

namespace {

// Whatever is not known of parameters stands for a number: those searches take no symbols.
class Numbers : public IRMutator {
    const std::map<std::string, int> &sizes;

    using IRMutator::visit;

    Expr visit(const Variable *op) override {
        if (!op->param.defined()) {
            return op;
        }
        if (auto found = sizes.find(op->name); found != sizes.end()) {
            return make_const(op->type, found->second);
        }
        bool minimum = op->param.is_buffer() && op->name.find(".min.") != std::string::npos;
        return minimum ? make_zero(op->type) : make_one(op->type);
    }

public:
    explicit Numbers(const std::map<std::string, int> &sizes) : sizes(sizes) {
    }
};

py::list loops_of(const Func &func) {
    const Function f = func.function();
    py::list result;
    for (size_t i = 0; f.has_pure_definition() && i <= f.updates().size(); i++) {
        const Definition &definition = i == 0 ? f.definition() : f.update((int)i - 1);
        py::list loops;
        for (const Dim &dim : definition.schedule().dims()) {
            loops.append(dim.var);
        }
        result.append(loops);
    }
    return result;
}

}  // namespace

py::tuple search(const Functions &outputs, const std::map<std::string, int> &sizes,
                 const std::vector<std::vector<int>> &extents, const std::string &target,
                 const std::string &name, const std::map<std::string, std::string> &options) {
    auto [copies, env] = deep_copy(outputs, build_environment(outputs));
    Numbers numbers(sizes);
    for (auto &[_, f] : env) {
        f.mutate(&numbers);
    }
    std::vector<Func> funcs;
    for (size_t i = 0; i < copies.size(); i++) {
        auto &estimates = copies[i].schedule().estimates();
        estimates.clear();
        for (size_t d = 0; d < extents[i].size(); d++) {
            estimates.push_back({copies[i].args()[d], 0, extents[i][d], Expr(), Expr()});
        }
        funcs.emplace_back(copies[i]);
    }
    Halide::Pipeline pipeline(funcs);
    py::list loops;  // as they are before they are scheduled
    for (size_t i = 0; i < env.size(); i++) {
        Func func = pipeline.get_func(i);
        loops.append(py::make_tuple(func.name(), loops_of(func)));
    }
    auto found = pipeline.apply_autoscheduler(Halide::Target(target), {name, options});
    return py::make_tuple(found.schedule_source, loops);
}

}  // namespace bridge
