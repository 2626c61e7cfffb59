#pragma once

#include <cstdlib>
#include <iostream>
#include <string>

#include "../support/sample_options.h"
#include "base/printable.h"

/// Checks of the fuzz targets for configuration files on every input.
namespace mnemo::fuzz {

inline void demand(bool holds, const std::string& what) {
  if (holds) return;
  std::cerr << "violated: " << what << "\n";
  std::abort();
}

/// Messages must be short and printable whatever the input contains.
inline void check_message(const std::string& message) {
  demand(!message.empty() && message.size() < 2000, "length of the message: " + message);
  demand(!base::first_invalid_utf8(message), "the message is UTF-8: " + message);
  for (const char c : message) {
    demand(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F, "no control characters in the message: " + message);
  }
}

/// Reads options. For one input in eight, also writes them and reads them back, which must give the same; that costs as
/// much as five inputs.
inline void check_options(const base::Node& root, size_t input_size) {
  const auto options = base::read_options<test::SampleOptions>(root);
  if (input_size % 8 != 0) return;
  const base::Node written = base::write_options(options);
  const std::string json = base::to_json(written), toml = base::to_toml(written);
  demand(base::read_options<test::SampleOptions>(base::parse_json(json, "again")) == options, "JSON again: " + json);
  demand(base::read_options<test::SampleOptions>(base::parse_toml(toml, "again")) == options, "TOML again: " + toml);
}

/// `action` may only throw InputError.
template <class Action>
void only_input_errors(Action action) {
  try {
    action();
  } catch (const base::InputError& error) {
    check_message(error.what());
  }
}

}  // namespace mnemo::fuzz
