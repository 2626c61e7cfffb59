#pragma once

#include <rapidcheck.h>

namespace mnemo::test {

/// Uniform in low .. high-1: RapidCheck's own ranges stay near `low` in the first cases.
template <class T>
T between(T low, T high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(low, high));
}

}  // namespace mnemo::test
