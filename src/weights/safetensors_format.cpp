#include "weights/safetensors_format.h"

#include <array>

namespace mnemo::weights {
namespace {

constexpr std::array<Dtype, 20> kDtypes = {{
    {"BOOL", 8, at::kBool},
    {"U8", 8, at::kByte},
    {"I8", 8, at::kChar},
    {"U16", 16, at::kUInt16},
    {"I16", 16, at::kShort},
    {"U32", 32, at::kUInt32},
    {"I32", 32, at::kInt},
    {"U64", 64, at::kUInt64},
    {"I64", 64, at::kLong},
    {"F16", 16, at::kHalf},
    {"BF16", 16, at::kBFloat16},
    {"F32", 32, at::kFloat},
    {"F64", 64, at::kDouble},
    {"C64", 64, at::kComplexFloat},
    {"F8_E4M3", 8, at::kFloat8_e4m3fn},
    {"F8_E5M2", 8, at::kFloat8_e5m2},
    {"F8_E8M0", 8, at::kFloat8_e8m0fnu},
    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
    {"F4", 4, std::nullopt},
}};

constexpr std::array<std::string_view, 16> kRules = {
    "a file has at least 8 bytes",
    "the header is at most 100000000 bytes long",
    "the header lies inside the file",
    "the header is UTF-8",
    "the header starts with '{' and only spaces follow its end",
    "a JSON object without duplicate keys, at most 3 deep",
    "an entry has exactly dtype, shape and data_offsets, of non-negative integers",
    "a known dtype",
    "the shape's product fits and makes whole bytes",
    "data_offsets span exactly the shape's bytes",
    "data is contiguous from 0 without hole or overlap",
    "data ends where the file ends",
    "__metadata__ maps strings to strings",
    "rank 0 and empty tensors are fine",
    "values are finite, as was asked for",
    "no alignment is assumed",
};

}  // namespace

const Dtype* find_dtype(std::string_view name) {
  for (const Dtype& dtype : kDtypes) {
    if (dtype.name == name) return &dtype;
  }
  return nullptr;
}

const Dtype* find_dtype(at::ScalarType type) {
  for (const Dtype& dtype : kDtypes) {
    if (dtype.type == type) return &dtype;
  }
  return nullptr;
}

std::string_view rule_words(int rule) {
  base::ensure(rule >= 1 && rule <= 16, "safetensors has rules 1 to 16, found {}", rule);
  return kRules[static_cast<size_t>(rule - 1)];
}

}  // namespace mnemo::weights
