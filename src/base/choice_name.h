#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/option_visit.h"

namespace mnemo::base {

/// The name of an enum's value as recipes write it: "bytes" for choice_name(options, &TextOptions::unit). `choice` is a
/// field that `O::visit` declares; the name is empty otherwise.
template <detail::OptionStruct O, class C, class E>
requires std::is_enum_v<E> std::string choice_name(const O& options, E C::*choice) {
  O copy = options;
  std::string name;
  copy.visit([&]<class T, class... Rules>(std::string_view key, T& field, std::string_view meaning, Rules&&... rules) {
    if constexpr (std::is_same_v<T, E>) {
      if (&field == &(copy.*choice)) {
        name = detail::name_of(detail::FieldInfo{key, meaning, {rules...}}, static_cast<size_t>(field));
      }
    }
  });
  return name;
}

}  // namespace mnemo::base
