// The passes of our own that run between Halide's, and the order in which all of them run.
//
// Nothing here decides anything: which Funcs live in a tensor unit and which passes run are options
// that come from Python (halide_bridge/lowering.py). With every switch off the result is stock
// Halide's.

#pragma once

#include <Halide.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace bridge {

namespace ir = Halide::Internal;
using Environment = std::map<std::string, ir::Function>;
using Functions = std::vector<ir::Function>;
using Dimensions = std::set<std::pair<std::string, std::string>>;  // of Funcs

struct Options {
    std::string target;
    std::string name;
    std::set<std::string> tensor_funcs;  // Funcs whose storage is a tensor unit's
    bool accumulators = true;            // one dense ramp per accumulator tile
    bool tails = true;                   // predicated stores and loads at the end of a loop
    bool rows = true;                    // rows of shared memory: an odd multiple of 16 bytes
    bool strip = true;                   // no asserts, no prologue; minima are zero
    std::vector<ir::Stmt> requirements;  // of the pipeline as a whole, as asserts
};

// What Halide would assert at run time: the function of its runtime that would report it (or
// "require"), the arguments of that, printed, and a condition on the parameters that is enough. It
// is kept if and only if `inside` holds in each iteration of the `loops` around it, outermost first.
struct Promise {
    struct Loop {
        std::string name;
        Halide::Expr min, extent;
    };
    std::string kind;
    std::vector<std::string> arguments;
    Halide::Expr condition;
    std::vector<Loop> loops;
    Halide::Expr inside;
};

// Arguments: dimension, Func, promised minimum and maximum, needed ones; we add both extents.
constexpr const char *EXPLICIT_BOUNDS = "halide_error_explicit_bounds_too_small";

struct Lowered {
    ir::Stmt body;
    Environment environment;    // deep-copied and wrapped, as scheduled
    Functions outputs;          // of the deep copy
    std::vector<Promise> promises;
};

// Halide's own lowering up to and including vectorization. Throws Halide::Error for a user's
// mistake.
Lowered lower(const Functions &outputs, const Options &options);

// parameters.cpp: what is known of the parameters at compile time.
struct Buffer {
    std::string name;
    Halide::Type type;
    std::vector<Halide::Expr> min, extent, stride;  // per dimension; undefined if not known
    bool output = false;
    std::string func;  // of an output: the Func that it holds a value of
    std::vector<std::pair<std::string, Halide::Expr>> constraints;  // of its shape, not constant
};

struct Scalar {
    std::string name;
    Halide::Type type;
};

struct Parameters {
    std::vector<Buffer> buffers;       // inputs in order of discovery, then outputs in order
    std::vector<Scalar> scalars;
    std::set<std::string> repeated;     // names of parameters that are no one argument
    std::vector<std::string> embedded;  // names of constant images inside the pipeline
};

Parameters find_parameters(const Environment &env, const Functions &outputs,
                           const std::vector<ir::Stmt> &requirements);
std::map<std::string, Halide::Expr> known_values(const Parameters &parameters);
std::vector<Halide::Expr> ends_of(const Buffer &b);  // per dimension, one past the last index

// guarded_sums.cpp: reductions stay vectors where they end between splits; those of tensor Funcs
// under any predicate.
void guard_reductions(Environment &env, const std::set<std::string> &tensor_funcs);

// tails.cpp: every size works without shifting a tile inwards or a scalar remainder.
Dimensions round_up_tails(Environment &env);  // those of which only what is needed is stored
ir::Stmt predicate_needed(const ir::Stmt &s, const Environment &env, const Dimensions &guarded);
ir::Stmt predicate_stores(const ir::Stmt &s, const Functions &outputs,
                          const Parameters &parameters);

// races.cpp: loops over reduction domains that are parallel as any other is, under other names.
ir::Stmt name_proved_loops(const ir::Stmt &s, const Environment &env);

// sliding.cpp: Halide's sliding windows, where they are right.
ir::Stmt slide(const ir::Stmt &s, Environment &env);

// bounds.cpp: what the symbolic loops around a bound say about it.
ir::Stmt tighten_bounds(const ir::Stmt &s);

// A definition that reads at a loop of its own Func (inspect.cpp: `phased`) calls it as its other loops
// do. In the loops that it has been given, and where bounds are inferred, it is called by its full name.
// `turns`: all that are read so. What is inferred outside of such a loop is for all its turns.
void name_loops(Environment &env, std::map<std::string, ir::Interval> &turns);
ir::Stmt infer_all_turns(const ir::Stmt &s, const std::map<std::string, ir::Interval> &turns);

// accumulators.cpp: splits the storage of tensor Funcs into inner tile and outer tiles. `env`
// receives a stand-in for each such Func, with as many dimensions as its new storage; only storage
// flattening sees it.
ir::Stmt split_accumulators(const ir::Stmt &s, Environment &env,
                            const std::set<std::string> &funcs);

// accumulators.cpp: conditions under which tensor Funcs are read are hidden while bounds are inferred: a
// tile is computed as a whole and where its loops are, whatever of it a mask lets through.
void hide_masks(Environment &env, const std::set<std::string> &funcs);
ir::Stmt show_masks(const ir::Stmt &s, Environment &env);

// memory.cpp: what is allocated per block lives in shared memory, with padded rows.
ir::Stmt place_block_allocations(const ir::Stmt &s, const Environment &env);

// memory.cpp: the extents of what is allocated, in the order in which it is stored.
ir::Stmt order_extents(const ir::Stmt &s, const Environment &env);

// promises.cpp: what would be asserted at run time, as conditions on the parameters.
// Given the outputs, bounds of other Funcs are left out: they are asserted again where memory is
// allocated, when more is known of the loops. With `only_broken`, those that always fail.
std::vector<Promise> promises(const ir::Stmt &s, const std::map<std::string, Halide::Expr> &known,
                              const std::set<std::string> &outputs = {},
                              bool only_broken = false);
std::vector<Promise> constraints(const Parameters &parameters,
                                 const std::map<std::string, Halide::Expr> &known);
Promise of_algorithm(const Promise &promise, const Environment &env,
                     const std::map<std::string, ir::Box> &regions);

// requirements.cpp: the region of every buffer that the algorithm, not the schedule, needs.
std::map<std::string, ir::Box> required_regions(const Functions &outputs,
                                                const Parameters &parameters);

}  // namespace bridge
