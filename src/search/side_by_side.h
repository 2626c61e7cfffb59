#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/state.h"

namespace mnemo::core {
class Model;
}

namespace mnemo::search {

/// Runs a model through documents, each a list of pairs in order, with its memory carried from pair to pair; up to
/// `rows` documents of similar length stand side by side. `visit` gets the numbers of their next pairs and the states
/// before these, and returns the states after. first: the state [1 row] in which documents[0] begins; empty: the
/// initial one. Returns the state after the last document.
using VisitPairs = std::function<core::State(const std::vector<int64_t>& pairs, const core::State& before)>;
core::State side_by_side(const core::Model& model, const std::vector<std::vector<int64_t>>& documents, int64_t rows,
                         const VisitPairs& visit, const core::State& first = {});

}  // namespace mnemo::search
