// All definitions of a Func: the pure one, its updates, and what they are specialized to.

#pragma once

#include "passes.h"

namespace bridge {

template<typename F>
void for_each_definition(ir::Definition &definition, const F &f) {
    f(definition);
    for (ir::Specialization &s : definition.specializations()) {
        for_each_definition(s.definition, f);
    }
}

template<typename F>
void for_each_definition(ir::Function &function, const F &f) {
    if (!function.has_pure_definition() && !function.has_update_definition()) {
        return;
    }
    for_each_definition(function.definition(), f);
    for (size_t i = 0; i < function.updates().size(); i++) {
        for_each_definition(function.update((int)i), f);
    }
}

}  // namespace bridge
