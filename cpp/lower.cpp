// Halide 21's lowering up to vectorization, pass by pass, with ours in between.
//
// The order is that of Halide's own driver; tests/bridge/test_stock_text.py compares the result
// with what stock Halide prints after vectorizing.

#include "reads.h"

#include <optional>

namespace bridge {

using namespace Halide::Internal;
using Halide::Func;

namespace {

struct Pipeline {
    Functions outputs;
    Environment env;
    std::vector<std::string> order;
    std::vector<std::vector<std::string>> groups;
    Halide::Target target;
    bool gpu;
    Parameters parameters;
    std::map<std::string, Halide::Expr> known;
    std::vector<Promise> promises;
    Dimensions guarded;  // of Funcs of which only what is needed is stored
};

// What only an unread value of an inlined tuple reads is not computed: Halide's inference of bounds
// has no loops for it and crashes.
void leave_out_unread(Pipeline &p) {
    std::set<std::pair<std::string, int>> seen, waiting;
    std::set<std::string> needed;
    for (const Function &f : p.outputs) {
        waiting.emplace(f.name(), 0);
    }
    while (!waiting.empty()) {
        auto [name, value] = *waiting.begin();
        waiting.erase(waiting.begin());
        auto found = p.env.find(name);
        if (found == p.env.end() || !seen.emplace(name, value).second) {
            continue;
        }
        const Function &f = found->second;
        if (f.has_extern_definition()) {
            return;
        }
        needed.insert(name);
        ValuesRead reads;
        if (f.is_pure() && f.schedule().compute_level().is_inlined()) {
            f.values()[value].accept(&reads);
        } else {
            f.accept(&reads);
        }
        waiting.insert(reads.found.begin(), reads.found.end());
    }
    auto unread = [&](const std::string &name) { return needed.count(name) == 0; };
    std::vector<std::vector<std::string>> groups;
    for (std::vector<std::string> group : p.groups) {
        group.erase(std::remove_if(group.begin(), group.end(), unread), group.end());
        if (!group.empty()) {
            groups.push_back(group);
        }
    }
    p.groups = groups;
    p.order.erase(std::remove_if(p.order.begin(), p.order.end(), unread), p.order.end());
}

Stmt create_loops(Pipeline &p, const Options &options) {
    bool memoized = false;
    Stmt s = schedule_functions(p.outputs, p.groups, p.env, p.target, memoized);
    s = inject_tracing(s, options.name, false, p.env, p.outputs, p.target);
    return add_parameter_checks(options.requirements, s, p.target);
}

Stmt infer_bounds(const Stmt &loops, Pipeline &p, const Options &options) {
    std::map<std::string, Interval> turns;
    name_loops(p.env, turns);
    FuncValueBounds bounds = compute_function_value_bounds(p.order, p.env);
    Stmt s = clamp_unsafe_accesses(loops, p.env, bounds);
    s = bounds_inference(s, p.outputs, p.order, p.groups, p.env, bounds, p.target);
    s = predicate_needed(s, p.env, p.guarded);
    s = infer_all_turns(s, turns);
    s = add_split_factor_checks(s, p.env);
    if (options.strip) {
        std::set<std::string> outputs;
        for (const Function &f : p.outputs) {
            outputs.insert(f.name());
        }
        p.promises = promises(s, p.known, outputs);
        s = substitute(p.known, strip_asserts(s));
    }
    s = remove_extern_loops(s);
    s = options.strip ? slide(s, p.env) : sliding_window(s, p.env);
    s = uniquify_variable_names(s);
    s = simplify(s, false);
    if (options.tails) {
        s = simplify(tighten_bounds(s), false);
    }
    s = simplify_correlated_differences(s);
    s = allocation_bounds_inference(s, p.env, bounds);
    if (!options.strip) {
        s = add_image_checks(s, p.outputs, p.target, p.order, p.env, bounds, p.gpu);
    }
    return s;
}

Stmt flatten_storage(const Stmt &bounded, Pipeline &p, const Options &options) {
    Stmt s = remove_undef(bounded);
    if (options.tails) {
        s = predicate_stores(s, p.outputs, p.parameters);
    }
    s = storage_folding(s, p.env);
    s = debug_to_file(s, p.outputs, p.env);
    s = inject_prefetch(s, p.env);
    s = lower_safe_promises(s);
    s = skip_stages(s, p.outputs, p.groups, p.env);
    s = fork_async_producers(s, p.env);
    s = split_tuples(s, p.env);
    if (p.gpu) {
        s = canonicalize_gpu_vars(s);
    }
    s = simplify_correlated_differences(s);
    s = bound_small_allocations(s);
    if (options.rows && p.gpu) {
        s = place_block_allocations(s, p.env);
    }
    Environment storage = p.env;
    if (options.accumulators) {
        s = split_accumulators(s, storage, options.tensor_funcs);
    }
    s = storage_flattening(s, p.outputs, storage, p.target);
    if (options.rows && p.gpu) {
        s = order_extents(s, storage);
    }
    s = add_atomic_mutex(s, p.outputs);
    return options.strip ? substitute(p.known, s) : unpack_buffers(s);
}

Stmt vectorize(const Stmt &flat, const Pipeline &p, const Options &options) {
    Stmt s = flat;
    if (p.gpu) {
        s = select_gpu_api(s, p.target);
        if (!options.strip) {
            s = inject_host_dev_buffer_copies(s, p.target);
        }
    }
    s = simplify(s);
    s = unify_duplicate_lets(s);
    s = reduce_prefetch_dimension(s, p.target);
    s = simplify_correlated_differences(s);
    s = bound_constant_extent_loops(s);
    s = unroll_loops(s);
    return vectorize_loops(s, p.env);
}

void forget_bounds(Environment &env, const Dimensions &forgotten) {
    for (auto &[name, f] : env) {
        std::vector<Bound> &bounds = f.schedule().bounds();
        auto unwanted = [&, n = name](const Bound &b) { return forgotten.count({n, b.var}) > 0; };
        bounds.erase(std::remove_if(bounds.begin(), bounds.end(), unwanted), bounds.end());
    }
}

Pipeline copy_pipeline(const Functions &funcs, const Options &options,
                       const Dimensions &forgotten) {
    Pipeline p;
    std::tie(p.outputs, p.env) = deep_copy(funcs, build_environment(funcs));
    forget_bounds(p.env, forgotten);
    p.target = Halide::Target(options.target);
    p.gpu = p.target.has_gpu_feature();
    p.parameters = find_parameters(p.env, p.outputs, options.requirements);
    if (options.strip) {
        p.known = known_values(p.parameters);
    }
    lower_target_query_ops(p.env, p.target);
    strictify_float(p.env, p.target);
    for (const Function &f : p.outputs) {
        Func(f).compute_root().store_root();
    }
    for (auto &[name, function] : p.env) {
        function.lock_loop_levels();
    }
    p.env = wrap_func_calls(p.env);
    std::tie(p.order, p.groups) = realization_order(p.outputs, p.env);
    leave_out_unread(p);
    simplify_specializations(p.env);
    return p;
}

Lowered lower_once(const Functions &funcs, const Options &options, const Dimensions &forgotten) {
    Pipeline p = copy_pipeline(funcs, options, forgotten);
    if (options.accumulators) {
        for (const std::string &name : options.tensor_funcs) {
            if (auto found = p.env.find(name); found != p.env.end()) {
                found->second.schedule().memory_type() = Halide::MemoryType::Register;
            }
        }
        hide_masks(p.env, options.tensor_funcs);
    }
    if (options.tails) {
        guard_reductions(p.env, options.tensor_funcs);
        p.guarded = round_up_tails(p.env);
    }
    Stmt s = create_loops(p, options);
    s = show_masks(infer_bounds(s, p, options), p.env);
    s = flatten_storage(s, p, options);
    const Stmt flat = s;
    const Stmt vectors = vectorize(s, p, options);
    s = simplify(vectors);
    if (options.tails) {
        s = name_proved_loops(s, p.env);
    }
    if (options.strip) {
        // What follows an assert that always fails is left out by `simplify`, and so may be the
        // assert itself: those are looked for before it.
        for (const std::vector<Promise> &more :
             {promises(s, p.known), promises(flat, p.known, {}, true),
              promises(vectors, p.known, {}, true), constraints(p.parameters, p.known)}) {
            p.promises.insert(p.promises.end(), more.begin(), more.end());
        }
    }
    return {s, p.env, p.outputs, p.promises};
}

// Bounds of Funcs inside the pipeline that Halide's own tails break, for every argument.
Dimensions broken_without_rounding(const Functions &funcs, Options options) {
    options.tails = false;
    Dimensions broken;
    for (const Promise &promise : lower_once(funcs, options, {}).promises) {
        if (promise.kind == EXPLICIT_BOUNDS && is_const_zero(promise.condition)) {
            broken.insert({promise.arguments[1], promise.arguments[0]});
        }
    }
    return broken;
}

// Bounds of Funcs inside the pipeline that are broken by the rounding up of tiles alone, which is
// ours, and what is left of them as promises. Of a Func that is computed once, all that is needed
// is what is promised; of others, Halide's own tails say whether a tile keeps it.
std::map<std::pair<std::string, std::string>, Promise> broken_by_rounding(
    const Lowered &lowered, const Functions &funcs, const Options &options) {
    std::map<std::pair<std::string, std::string>, Promise> found;
    std::map<std::string, Box> regions;
    std::optional<Dimensions> broken;
    for (const Promise &promise : lowered.promises) {
        if (promise.kind != EXPLICIT_BOUNDS) {
            continue;
        }
        if (regions.empty()) {
            regions = required_regions(
                funcs,
                find_parameters(lowered.environment, lowered.outputs, options.requirements));
        }
        const std::string &func = promise.arguments[1];
        const auto dimension = std::make_pair(func, promise.arguments[0]);
        bool output = std::any_of(funcs.begin(), funcs.end(),
                                  [&](const Function &f) { return f.name() == func; });
        if (output || !is_const_zero(promise.condition)) {
            continue;
        }
        Promise whole = of_algorithm(promise, lowered.environment, regions);
        bool once = lowered.environment.at(func).schedule().compute_level().is_root();
        if (is_const_one(whole.condition) || (once && !whole.arguments.empty())) {
            found.emplace(dimension, whole);
            continue;
        }
        if (!broken) {
            broken = broken_without_rounding(funcs, options);
        }
        if (!once && !broken->count(dimension)) {
            whole.condition = const_true();  // what is emitted relies on that bound no more
            found.emplace(dimension, whole);
        }
    }
    return found;
}

}  // namespace

Lowered lower(const Functions &funcs, const Options &options) {
    Lowered lowered = lower_once(funcs, options, {});
    auto rounded = broken_by_rounding(lowered, funcs, options);
    if (rounded.empty()) {
        return lowered;
    }
    Dimensions forgotten;
    for (const auto &[dimension, promise] : rounded) {
        forgotten.insert(dimension);
    }
    lowered = lower_once(funcs, options, forgotten);
    for (const auto &[dimension, promise] : rounded) {
        if (!is_const_one(promise.condition)) {
            lowered.promises.push_back(promise);
        }
    }
    return lowered;
}

}  // namespace bridge
