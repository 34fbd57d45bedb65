// A pipeline as its user defined it.

#pragma once

#include "records.h"

#include <array>
#include <pybind11/stl.h>

namespace bridge {

// "funcs": of each Func that the outputs need, producers first, a dictionary (inspect.cpp);
// "records": those that its indices name.
py::dict inspect(const Functions &outputs);

// A pipeline of its own with the same names, whose schedule is another's no more. Parameters, and
// what is declared of them, are shared.
std::vector<Halide::Func> copy(const Functions &outputs);

// A Func of its own, of that name, that a consumer reads in place of `f`: everywhere, or where the
// place depends on a `variable` of the consumer. Undefined if it does nowhere.
Halide::Func clone_for(const Halide::Internal::Function &f, Halide::Internal::Function consumer,
                       const std::string &variable, const std::string &name);

// Has all variables that the only update of a `sum` goes along begin at 0, and adds where they began to
// them; whether one began elsewhere, else nothing changes.
bool counted_from_zero(Halide::Internal::Function sum);

// A Func of that name of sums, or extrema, along all variables of the only update of `f` but one, `along`:
// of those that the terms of `f` have in common along an axis, as those of windows do. `f` then goes along
// that variable only, and factors of all terms of a row are multiplied there. Undefined where terms share
// nothing so, and then nothing changes.
Halide::Func separated(Halide::Internal::Function f, const std::string &along, const std::string &name);

// Whether Halide proves that the only update of a Func combines its values in any order, which it asks
// for where loops over them change places, or are shared.
bool in_any_order(const Halide::Internal::Function &f);

// Has the definition of a `sum` be 0, and `reader` add what it was where it reads that; whether it
// does read it, else nothing changes.
bool from_zero(Halide::Internal::Function sum, Halide::Internal::Function reader);

// Has the terms of a `sum`, whose `weight`s are divided by what `total` is for all of an element's, be
// without that, and `reader` divide what it reads of the sum; the Funcs `between` a weight and the
// total are written out. Whether it is divided so, once, else nothing changes.
bool divided_last(Halide::Internal::Function weight, const Halide::Internal::Function &total,
                  Halide::Internal::Function sum, Halide::Internal::Function reader,
                  const Functions &between);

// Has `readers` multiply what they read of a sum, which begins with 0, by what all terms of an element
// in its only update are multiplied by; whether there is such, else nothing changes.
bool multiplied_last(Halide::Internal::Function sum, const Functions &readers);

// Has `readers` subtract what the factors of a sum's products are less by, where that is the same for
// all terms of an element: the sums of the other factors, times that (differences.cpp). These sums are
// Funcs whose names begin with `name`, the first factor's before the second's; none where nothing is
// subtracted, and then nothing changes.
std::vector<Halide::Func> subtracted_last(Halide::Internal::Function sum, const Functions &readers,
                                          const std::string &name);

// A Func of its own, of that name, for a factor (0 or 1) of the products that the only update of
// `sum` adds to its element, which reads it. It is of the type that the factor is cast from, and of
// dimensions that stand for variables of the sum, which `order` names; one of the reduction that has
// one value may be left out. Without an order these are of the place at which the factor reads
// elements. Undefined where it has no such factor, or one that depends on others.
Halide::Func operand(Halide::Internal::Function sum, int factor,
                     const std::vector<std::string> &order, const std::string &name);

// Has the only update of `sum` add products of two factors to its element, where it adds such as count
// under a condition or are taken in fewer bits; whether these are the same, else nothing changes.
bool as_product(Halide::Internal::Function sum);

// Has the only update of `sum` add products, each once, where it adds products of sums (expanded.cpp);
// whether it did not, else nothing changes.
bool expanded(Halide::Internal::Function sum);

// The products that a term of a sum along some variables is the sum of, each with its sign.
std::vector<std::pair<Halide::Expr, int>>
products_in(const Halide::Expr &term, const std::vector<Halide::Internal::ReductionVariable> &along);

// Has a variable that the only update of `sum` goes along count down; whether it has that.
bool counted_down(Halide::Internal::Function sum, const std::string &variable);

// A Func of its own, of that name, for a factor (0 or 1) of the products that the only update of `sum`
// adds, which reads it where it has read an array: what is read instead beyond the edges of that is
// the Func's. Undefined where a factor reads at several places, or has other values inside than at
// the edges.
Halide::Func around(Halide::Internal::Function sum, int factor, const std::string &name);

// Has the factors of the products of float32 that the only update of `sum` adds to its element be
// values of 16 bits that are cast to it; whether these are the same, else nothing changes.
bool narrow_factors(Halide::Internal::Function sum);

// A Func of its own, of that name, that readers read in place of `f`: of the type that all of them
// cast what they read of it to. Undefined where one reads it as it is, or they have several types.
Halide::Func narrowed(const Halide::Internal::Function &f, const Functions &readers,
                      const std::string &name);

// How a loop of a reader is split: the variable, the loop over its phases, of which there are so many.
struct Phases {
    std::string variable, loop;
    int count;
};

// A Func that has what `f` has where a pure `reader` of it reads its own element, with a dimension
// more for each of the phases: f[x, y] is phased[x / 2, y, x % 2]. The reader, whose loops are split
// so, reads the elements of the phase that its loop is at, and is right with these loops only. An
// undefined Func if `f` is read otherwise, or is updated at others than its own elements.
Halide::Func phased(const Halide::Internal::Function &f, Halide::Internal::Function reader,
                    const std::vector<Phases> &phases, const std::string &name);

// A Func of that name that `reader` reads in place of `f`, the sum of the same products over its
// variables `inner` and `outer` as one; and both factors of these, Funcs whose first dimension numbers
// the terms. None where `f` has another update, factors that are no elements, or any number of terms.
std::vector<Halide::Func> joined(const Halide::Internal::Function &f,
                                 Halide::Internal::Function reader, const std::string &inner,
                                 const std::string &outer, const std::string &name);

// Attention over parts of the keys, `keys` of them each: of `sums`, a peak (first) and two sums of
// powers that go down from it, all along the elements of `scores`, and the `weight` of the last. Of
// each part there are such sums, and `output`, which reads the three, reads what joins them: `along`
// says which dimensions of it those of each of the three go along. The Func of all parts, their three sums,
// the scores of each and the weight, and what joins: what is read of parts (so many `at_once`), their
// largest peak and their sums; last the queries. `sharing`: so many heads that have the same keys are
// rows of one, with the dimensions of `output` along the queries and along the heads. None for other
// sums.
std::vector<Halide::Func> in_parts(Halide::Internal::Function output,
                                   const std::array<Halide::Internal::Function, 3> &sums,
                                   const Halide::Internal::Function &weight,
                                   const Halide::Internal::Function &scores,
                                   const Halide::Internal::Function &query,
                                   const std::array<std::vector<int>, 3> &along, int keys,
                                   int at_once, const std::array<int, 3> &sharing);

// A Func of that name that `readers` read in place of a `sum` of several products, of one of longer
// rows, and both of its factors: Funcs whose first dimension numbers the terms, those of all products
// one after the other (together.cpp); of windows whose pixels lie one after the other, their taps
// alone. None where these are no products of casts that share their rows and columns, or there is one.
std::vector<Halide::Func> together(Halide::Internal::Function sum, const Functions &readers,
                                   const std::string &name);

// Has `readers`, and the global wrapper of a Func where that is `stored`, read what it is after its
// updates, by Funcs whose names begin with `name`: each sum among these updates, or among its values,
// from zero on, what else its updates combine, and then of each value what is made of them
// (sums_apart.cpp); of `each` product that a sum adds, if so asked. Updates of other elements than one's
// own, and those behind, are the last one's. None without sums, or where a value is none by itself, and
// then nothing changes.
std::vector<Halide::Func> sums_apart(const Halide::Internal::Function &f, const Functions &readers,
                                     const std::string &name, bool stored, bool each);

// A sum over taps: which dimension of its results has starts and weights of their own, what it reads
// from the starts on, and its weights; and how many neighbours are to begin together, in runs of so
// many pixels.
struct Taps {
    int along;
    std::string source, weights;
    int group, run;
};

// Such a sum, of that name, that a pure consumer reads in place of `f`: what the consumer makes of
// it, which that then has from there, the sum, the pixels and the band that it multiplies, where
// taps begin, and their weights (grouped.cpp).
std::vector<Halide::Func> grouped(const Functions &outputs, const Halide::Internal::Function &f,
                                  Halide::Internal::Function consumer, const Taps &by,
                                  const std::string &name);

// Loops of their own where the pixels of what is stored lie next to each other, of so many channels,
// if it is an output, and those of the images that have its number of dimensions, too.
void interleaved(Halide::Func stored, int channels, bool output);

// The outputs; for one with a global wrapper that wrapper, which has what is known of its buffer.
std::vector<Halide::Func> wrapped(const Functions &outputs);

// What one of Halide's own autoschedulers, which has been loaded, does to a pipeline without a
// schedule, as C++, and of each Func that text may name, by its number there: its name, and of each of
// its stages the loops. `sizes`: of parameters by the names of their variables; `extents` of outputs.
// The pipeline stays as it is (search.cpp).
py::tuple search(const Functions &outputs, const std::map<std::string, int> &sizes,
                 const std::vector<std::vector<int>> &extents, const std::string &target,
                 const std::string &name, const std::map<std::string, std::string> &options);

}  // namespace bridge
