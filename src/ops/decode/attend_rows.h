#pragma once

#include <cstdint>

#include "ops/decode/decode_rows.h"

namespace mnemo::ops {

// As in decode_rows.h, for the rows of a prompt: many queries at a time over the same keys and values. Every query gets
// the bits that it gets alone.

/// key_scores_of_queries(). s [queries,s_stride], where s_stride is `count` rounded up to kHeadStep or more: what lies
/// between is overwritten.
template <class T>
void key_scores_of_rows(const float* q, int64_t queries, const T* k, int64_t count, int64_t width, float* s,
                        int64_t s_stride);

/// weigh_values_of_queries(), of counts[i] > 0 values for query i.
template <class T>
void weigh_values_of_rows(const float* p, int64_t queries, int64_t p_stride, const T* v, const int64_t* counts,
                          int64_t width, float* o);

}  // namespace mnemo::ops
