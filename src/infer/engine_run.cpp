#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "infer/engine.h"
#include "infer/engine_workspace.h"
#include "ops/row_kernels.h"

namespace mnemo::infer {
namespace {

/// Products that are worth a second thread.
constexpr int64_t kWorthAThread = 1 << 16;

float* at_least(std::vector<float>& memory, int64_t size) {
  if (static_cast<int64_t>(memory.size()) < size) memory.resize(static_cast<size_t>(size + size / 2));
  return memory.data();
}

}  // namespace

void Engine::run(std::span<const Step> steps) const { run_pieces(steps, nullptr); }

void Engine::run(EngineSequence& sequence, std::span<const int64_t> tokens,
                 const std::function<void(const float*)>& each) const {
  const Step step{&sequence, tokens, nullptr};
  run_pieces({&step, 1}, &each);
}

void Engine::run_pieces(std::span<const Step> steps, const std::function<void(const float*)>* each) const {
  for (const Step& step : steps) require_positions(*step.sequence, static_cast<int64_t>(step.tokens.size()));
  thread_local Workspace workspace;  // of whatever engines this thread runs
  workspace.next.assign(steps.size(), 0);
  while (cut(steps, workspace)) {
    forward(workspace);
    int64_t wanted = 0;
    workspace.targets.clear();
    const auto want = [&](const Piece& piece, size_t token, float* target) {
      if (static_cast<int64_t>(workspace.gathered.size()) < (wanted + 1) * plan_.dim) {
        workspace.gathered.resize(static_cast<size_t>(2 * (wanted + 1) * plan_.dim));
      }
      const float* row = workspace.h.data() + (piece.first_row + piece.read + static_cast<int64_t>(token)) * plan_.dim;
      std::copy_n(row, plan_.dim, workspace.gathered.data() + wanted++ * plan_.dim);
      workspace.targets.push_back(target);
    };
    for (const Piece& piece : workspace.pieces) {
      const Step& step = steps[piece.step];
      if (each != nullptr) {
        for (size_t token = 0; token < piece.tokens.size(); ++token) want(piece, token, nullptr);
      } else if (step.logits != nullptr && workspace.next[piece.step] == step.tokens.size()) {
        want(piece, piece.tokens.size() - 1, step.logits);
      }
    }
    if (wanted == 0) continue;
    at_least(workspace.logits, wanted * plan_.vocab);
    head_(workspace.gathered.data(), wanted, plan_.dim, workspace.logits.data(), plan_.vocab);
    for (int64_t row = 0; row < wanted; ++row) {
      const float* logits = workspace.logits.data() + row * plan_.vocab;
      if (each != nullptr) {
        (*each)(logits);
      } else {
        std::copy_n(logits, plan_.vocab, workspace.targets[static_cast<size_t>(row)]);
      }
    }
  }
}

/// Throws InputError if a segment would have more rows than there are learned positions, before anything has run.
void Engine::require_positions(const EngineSequence& sequence, int64_t tokens) const {
  if (plan_.position != EnginePlan::Position::learned) return;
  const bool writes = plan_.sequence == EnginePlan::Sequence::recurrent;
  int64_t used = sequence.used(), length = sequence.length;
  bool starts = !sequence.open();
  for (int segment = 0; segment < 2 && tokens > 0; ++segment) {  // later segments are as long as the second at most
    const int64_t count = std::min(tokens, plan_.segment - used);
    const int64_t rows = (starts ? plan_.memory_rows : length) + count +
                         (writes && used + count == plan_.segment ? plan_.memory_rows : 0);
    base::require(rows <= plan_.position_rows,
                  "[decoder] a segment with its memory rows has {} rows, but position.max_len is {}", rows,
                  plan_.position_rows);
    tokens -= count;
    used = length = 0;
    starts = true;
  }
}

/// The next piece of every step that has tokens left; false when there is none.
bool Engine::cut(std::span<const Step> steps, Workspace& workspace) const {
  int64_t active = 0;
  for (size_t i = 0; i < steps.size(); ++i) active += workspace.next[i] < steps[i].tokens.size();
  workspace.pieces.clear();
  if (active == 0) return false;
  const int64_t quota = std::max<int64_t>(1, kRows / active), memory_rows = plan_.memory_rows;
  const bool writes = plan_.sequence == EnginePlan::Sequence::recurrent;
  int64_t first_row = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    EngineSequence& sequence = *steps[i].sequence;
    const auto left = static_cast<int64_t>(steps[i].tokens.size() - workspace.next[i]);
    if (left == 0) continue;
    const int64_t used = sequence.used(), count = std::min({left, quota, plan_.segment - used});
    Piece piece{&sequence,
                steps[i].tokens.subspan(workspace.next[i], static_cast<size_t>(count)),
                i,
                !sequence.open(),
                used + count == plan_.segment,
                0,
                0};
    if (piece.starts) piece.read = memory_rows;
    if (writes && piece.ends) piece.write = memory_rows;
    piece.first_row = first_row;
    piece.first_kept = plan_.caches_all_rows() ? 0 : piece.read;
    piece.kept = !plan_.cache ? 0 : plan_.caches_all_rows() ? piece.rows() : count;
    workspace.next[i] += static_cast<size_t>(count);
    first_row += piece.rows();
    workspace.pieces.push_back(piece);
  }
  return true;
}

void Engine::forward(Workspace& workspace) const {
  const int64_t dim = plan_.dim;
  int64_t count = 0, longest = 0;
  workspace.rows.clear();
  for (const Piece& piece : workspace.pieces) {
    EngineSequence& sequence = *piece.sequence;
    if (piece.starts) {
      sequence.open_segment();
      sequence.cached = sequence.keys;
    }
    sequence.reserve(piece.rows(), piece.kept);
    const int64_t past = sequence.cached, before = sequence.keys,
                  tokens = piece.read + static_cast<int64_t>(piece.tokens.size());
    for (int64_t i = 0; i < piece.rows(); ++i) {
      Row row{&sequence, before + i, 0, before + i + 1};
      if (i < piece.read || i >= tokens) {
        row.lo = plan_.memory_sees_cache ? 0 : past;
        if (!plan_.memory_causal) row.hi = i < piece.read ? before + piece.read : before + piece.rows();
      } else if (plan_.band > 0) {
        row.lo = std::max<int64_t>(0, row.key + 1 - plan_.band);
      }
      longest = std::max(longest, row.key - row.lo);
      workspace.rows.push_back(row);
    }
    count += piece.rows();
  }
  workspace.resize(*this, count);
  embed(workspace);
  const std::shared_ptr<const Distances> distances = plan_.relative ? this->distances(longest) : nullptr;
  float *h = workspace.h.data(), *y = workspace.y.data();
  const auto add_branch = [&](const Norm& norm) {
    // Pre-norm adds the branch, post-norm norms the sum.
    for (int64_t row = 0; row < count; ++row) {
      ops::accumulate(h + row * dim, y + row * dim, dim);
      if (!plan_.pre_norm)
        ops::normalise_row(h + row * dim, norm.weight.data(), norm.bias.data(), plan_.norm_eps, dim, h + row * dim);
    }
  };
  const auto entering = [&](const Norm& norm) {
    return plan_.pre_norm ? workspace.normalised(h, count, dim, norm.weight, norm.bias, plan_.norm_eps) : h;
  };
  for (int64_t n = 0; n < plan_.layers; ++n) {
    const Layer& layer = layers_[static_cast<size_t>(n)];
    for (const Piece& piece : workspace.pieces) {
      if (piece.kept == 0) continue;
      std::copy_n(h + (piece.first_row + piece.first_kept) * dim, piece.kept * dim,
                  piece.sequence->cached_rows(n) + piece.sequence->kept * dim);
    }
    const float* x = entering(layer.norm1);
    layer.maps(x, count, dim, workspace.maps.data(), layer.maps.out());
    attend(n, distances.get(), workspace);
    if (plan_.grc) read_caches(n, x, workspace);
    layer.o(workspace.heads.data(), count, plan_.heads * plan_.head_dim, y, dim);
    add_branch(layer.norm1);
    layer.in(entering(layer.norm2), count, dim, workspace.ffn.data(), plan_.ffn);
    at::parallel_for(0, count, std::max<int64_t>(1, kWorthAThread / (8 * plan_.ffn)), [&](int64_t begin, int64_t end) {
      ops::activate_row(plan_.activation, workspace.ffn.data() + begin * plan_.ffn, (end - begin) * plan_.ffn);
    });
    layer.out(workspace.ffn.data(), count, plan_.ffn, y, dim);
    add_branch(layer.norm2);
  }
  if (has_final_norm_) {
    for (int64_t row = 0; row < count; ++row) {
      ops::normalise_row(h + row * dim, final_norm_.weight.data(), final_norm_.bias.data(), plan_.norm_eps, dim,
                         h + row * dim);
    }
  }
  for (const Piece& piece : workspace.pieces) {
    EngineSequence& sequence = *piece.sequence;
    if (!plan_.abc) sequence.keys += piece.rows();
    sequence.length += piece.rows();
    sequence.kept += piece.kept;
    const bool recurrent = plan_.sequence == EnginePlan::Sequence::recurrent;
    if (recurrent ? piece.ends : piece.starts && plan_.sequence == EnginePlan::Sequence::carried_tokens) {
      const int64_t from = piece.first_row + (recurrent ? piece.rows() - piece.write : 0);
      std::copy_n(h + from * dim, plan_.memory_rows * dim, sequence.memory.data());
    }
    if (piece.ends) sequence.close_segment();
  }
}

void Engine::embed(Workspace& workspace) const {
  const int64_t dim = plan_.dim;
  const float* table = embedding_.const_data_ptr<float>();
  for (const Piece& piece : workspace.pieces) {
    const EngineSequence& sequence = *piece.sequence;
    const int64_t tokens = static_cast<int64_t>(piece.tokens.size());
    for (int64_t i = 0; i < piece.rows(); ++i) {
      float* row = workspace.h.data() + (piece.first_row + i) * dim;
      if (i >= piece.read && i < piece.read + tokens) {
        const float* from = table + piece.tokens[static_cast<size_t>(i - piece.read)] * dim;
        for (int64_t c = 0; c < dim; ++c) row[c] = from[c] * plan_.embedding_factor;
      } else {
        std::copy_n(sequence.memory.data() + (i < piece.read ? i : i - piece.read - tokens) * dim, dim, row);
      }
      const int64_t number = sequence.length + i;
      if (plan_.position == EnginePlan::Position::learned) {
        ops::accumulate(row, positions_.const_data_ptr<float>() + number * dim, dim);
      } else if (plan_.position == EnginePlan::Position::sinusoidal) {
        const int64_t half = dim / 2;
        for (int64_t c = 0; c < half; ++c) {
          const double angle = static_cast<double>(number) * frequencies_[static_cast<size_t>(c)];
          row[c] += static_cast<float>(std::sin(angle));
          row[half + c] += static_cast<float>(std::cos(angle));
        }
      }
    }
  }
}

void Engine::attend(int64_t layer, const Distances* distances, Workspace& workspace) const {
  const Layer& of = layers_[static_cast<size_t>(layer)];
  const int64_t all = plan_.heads * plan_.head_dim, stride = of.maps.out();
  for (size_t i = 0; i < workspace.rows.size(); ++i) {
    const Row& row = workspace.rows[i];
    const float* maps = workspace.maps.data() + static_cast<int64_t>(i) * stride;
    for (int64_t head = 0; head < plan_.heads; ++head) {
      const int64_t at = (static_cast<int64_t>(i) * plan_.heads + head) * plan_.width;
      for (int64_t c = 0; c < plan_.head_dim; ++c) {
        const float q = maps[head * plan_.head_dim + c] * plan_.scale;
        workspace.q[static_cast<size_t>(at + c)] = plan_.relative
                                                       ? q + of.u[static_cast<size_t>(head * plan_.width + c)]
                                                       : q;
        if (plan_.relative)
          workspace.qr[static_cast<size_t>(at + c)] = q + of.v[static_cast<size_t>(head * plan_.width + c)];
      }
      for (int64_t c = plan_.head_dim; c < plan_.width; ++c)
        workspace.q[static_cast<size_t>(at + c)] = workspace.qr[static_cast<size_t>(at + c)] = 0.0f;
    }
    if (!plan_.abc) Workspace::store_keys(*this, *row.sequence, layer, row.key, maps);
  }
  base::ensure(static_cast<int64_t>(workspace.heads.size()) >= static_cast<int64_t>(workspace.rows.size()) * all,
               "workspace");
  if (plan_.abc) {
    attend_slots(layer, workspace);
  } else if (wide_keys()) {
    attend_keys<float>(layer, distances, workspace);
  } else {
    attend_keys<ops::Bf16Bits>(layer, distances, workspace);
  }
}

template <class T>
void Engine::attend_keys(int64_t layer, const Distances* distances, Workspace& workspace) const {
  const int64_t width = plan_.width, count = static_cast<int64_t>(workspace.rows.size());
  int64_t keys = 1;
  for (const Row& row : workspace.rows) keys = std::max(keys, row.hi - row.lo);
  // Head by head, so that its keys stay near while all rows pass.
  at::parallel_for(
      0, count * plan_.heads, std::max<int64_t>(1, kWorthAThread / (keys * width)), [&](int64_t begin, int64_t end) {
        thread_local std::vector<float> memory;
        float* scores = at_least(memory, keys + width);
        float* o = scores + keys;
        for (int64_t item = begin; item < end; ++item) {
          const int64_t head = item / count, i = item % count;
          const Row& row = workspace.rows[static_cast<size_t>(i)];
          const int64_t at = (i * plan_.heads + head) * width, seen = row.hi - row.lo;
          const T* r = nullptr;
          if (distances != nullptr) {
            r = distances->layers[static_cast<size_t>(layer)].template as<T>() +
                (head * distances->count + row.key - row.lo + distances->right) * width;
          }
          ops::key_scores<T>(workspace.q.data() + at, workspace.qr.data() + at,
                             row.sequence->template keys_of<T>(layer, head) + row.lo * width, r, seen, width, scores);
          const float most = ops::add_then_max<float>(scores, nullptr, seen);
          const float sum = ops::exp_then_sum<float>(scores, seen, most);
          ops::weigh_values<T>(scores, row.sequence->template values_of<T>(layer, head) + row.lo * width, seen, width,
                               o);
          float* to = workspace.heads.data() + (i * plan_.heads + head) * plan_.head_dim;
          for (int64_t c = 0; c < plan_.head_dim; ++c) to[c] = o[c] / sum;
        }
      });
}

void Engine::read_caches(int64_t layer, const float* x, Workspace& workspace) const {
  const EngineGrc& grc = *layers_[static_cast<size_t>(layer)].grc;
  const int64_t count = static_cast<int64_t>(workspace.rows.size()), channels = plan_.grc_channels,
                all = plan_.heads * plan_.head_dim;
  grc.queries(x, count, plan_.dim, workspace.cache_q.data());
  at::parallel_for(0, count, std::max<int64_t>(1, kWorthAThread / (2 * plan_.grc_len * channels)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       grc.mix(workspace.rows[static_cast<size_t>(i)].sequence->grc[static_cast<size_t>(layer)],
                               workspace.cache_q.data() + i * channels, workspace.heads.data() + i * all);
                     }
                   });
  if (!plan_.grc_moves) return;
  for (const Piece& piece : workspace.pieces) {
    GrcMemory& memory = piece.sequence->grc[static_cast<size_t>(layer)];
    for (int64_t i = piece.first_row; i < piece.first_row + piece.rows(); ++i) {
      memory.rows.insert(memory.rows.end(), x + i * plan_.dim, x + i * plan_.dim + channels);
    }
    if (piece.ends) grc.update(memory);
  }
}

void Engine::attend_slots(int64_t layer, Workspace& workspace) const {
  const int64_t width = plan_.width, d = plan_.head_dim, all = plan_.heads * d, slots = plan_.slots;
  const int64_t stride = layers_[static_cast<size_t>(layer)].maps.out(),
                pieces = static_cast<int64_t>(workspace.pieces.size());
  at::parallel_for(0, pieces * plan_.heads, std::max<int64_t>(1, kWorthAThread / (4 * slots * width)),
                   [&](int64_t begin, int64_t end) {
                     thread_local std::vector<float> memory;
                     float* k = at_least(memory, 3 * width + 3 * slots);
                     float *v = k + width, *o = v + width, *scratch = o + width;
                     std::fill_n(k, 2 * width, 0.0f);
                     for (int64_t item = begin; item < end; ++item) {
                       const Piece& piece = workspace.pieces[static_cast<size_t>(item / plan_.heads)];
                       const int64_t head = item % plan_.heads;
                       const ops::AbcSlots memory_of = piece.sequence->slots_of(layer, head);
                       for (int64_t row = piece.first_row; row < piece.first_row + piece.rows(); ++row) {
                         const float* maps = workspace.maps.data() + row * stride;
                         std::copy_n(maps + all + head * d, d, k);
                         std::copy_n(maps + 2 * all + head * d, d, v);
                         const float* control = maps + 3 * all + (plan_.abc_shared_control ? 0 : head * slots);
                         ops::abc_step(memory_of, workspace.q.data() + (row * plan_.heads + head) * width, k, v,
                                       control, plan_.abc_activation, plan_.abc_eps, scratch, o);
                         std::copy_n(o, d, workspace.heads.data() + (row * plan_.heads + head) * d);
                       }
                     }
                   });
}

}  // namespace mnemo::infer
