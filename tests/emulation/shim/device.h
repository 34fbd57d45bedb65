// All that emitted text may use.
#pragma once
#include "cuda.h"
#include "numbers.h"
#include "warps.h"
#include "matrices.h"
#include "copies.h"
#include "mbarriers.h"
#include "engine.h"
#include "groups.h"
#include "tensor.h"
#include "clusters.h"
