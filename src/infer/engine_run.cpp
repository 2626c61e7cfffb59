#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "infer/engine_workspace.h"
#include "ops/row_kernels.h"

namespace mnemo::infer {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 40;  // whose rows can still be counted

}  // namespace

void Engine::run(std::span<const Step> steps) const { run_pieces(steps, kRows, nullptr); }

void Engine::pass(std::span<const Step> steps) const {
  run_pieces(steps, std::numeric_limits<int64_t>::max(), nullptr);
}

void Engine::run(EngineSequence& sequence, std::span<const int64_t> tokens,
                 const std::function<void(const float*)>& each) const {
  const Step step{&sequence, tokens, nullptr};
  run_pieces({&step, 1}, kRows, &each);
}

void Engine::run_pieces(std::span<const Step> steps, int64_t rows,
                        const std::function<void(const float*)>* each) const {
  for (const Step& step : steps) require_places(*step.sequence, static_cast<int64_t>(step.tokens.size()));
  thread_local Workspace workspace;
  const int64_t dim = parts_->dim, vocab = parts_->vocab;
  workspace.next.assign(steps.size(), 0);
  while (cut(steps, rows, workspace)) {
    forward(workspace);
    int64_t wanted = 0;
    workspace.targets.clear();
    const auto want = [&](size_t piece, size_t token, float* target) {
      if (static_cast<int64_t>(workspace.gathered.size()) < (wanted + 1) * dim)
        workspace.gathered.resize(static_cast<size_t>(2 * (wanted + 1) * dim));
      const core::DecodePiece& shape = workspace.shapes[piece];
      const float* row = workspace.h.data() + (shape.first_row + shape.read + static_cast<int64_t>(token)) * dim;
      std::copy_n(row, dim, workspace.gathered.data() + wanted++ * dim);
      workspace.targets.push_back(target);
    };
    for (size_t i = 0; i < workspace.pieces.size(); ++i) {
      const Piece& piece = workspace.pieces[i];
      const Step& step = steps[piece.step];
      if (each != nullptr) {
        for (size_t token = 0; token < piece.tokens.size(); ++token) want(i, token, nullptr);
      } else if (step.logits != nullptr && workspace.next[piece.step] == step.tokens.size()) {
        want(i, piece.tokens.size() - 1, step.logits);
      }
    }
    if (wanted == 0) continue;
    float* logits = core::at_least(workspace.logits, wanted * vocab);
    parts_->head->logits(workspace.gathered.data(), wanted, logits);
    for (int64_t row = 0; row < wanted; ++row) {
      if (each != nullptr) {
        (*each)(logits + row * vocab);
      } else {
        std::copy_n(logits + row * vocab, vocab, workspace.targets[static_cast<size_t>(row)]);
      }
    }
  }
}

void Engine::require_places(const EngineSequence& sequence, int64_t tokens) const {
  const core::DecodeSequence::Rows& block = parts_->block;
  const int64_t segment = parts_->segment, used = sequence.used();
  int64_t all = 0;
  const auto add = [&](int64_t before, int64_t fresh, int64_t segments) {
    base::require(!parts_->positions.defined() || before + fresh <= parts_->positions.size(0),
                  "[decoder] segment and memory rows together are {} rows, more than position.max_len = {}",
                  before + fresh, parts_->positions.defined() ? parts_->positions.size(0) : 0);
    all += fresh * segments;
  };
  tokens = std::min(tokens, kMostTokens);
  if (tokens > 0) {
    const int64_t count = std::min(tokens, segment - used);
    const bool starts = !sequence.open_;
    add(starts ? 0 : sequence.length_, (starts ? block.read : 0) + count + (used + count == segment ? block.write : 0),
        1);
    tokens -= count;
  }
  if (tokens >= segment) add(0, block.read + segment + block.write, tokens / segment);
  if (tokens % segment > 0) add(0, block.read + tokens % segment, 1);
  for (size_t n = 0; n < parts_->layers.size(); ++n)
    parts_->layers[n].attention->require_places(*sequence.layers_[n], all);
}

int64_t Engine::places(const EngineSequence& sequence, int64_t read, int64_t wanted) const {
  const auto fits = [&](int64_t tokens) {
    try {
      require_places(sequence, read + std::min(tokens, kMostTokens));
    } catch (const base::InputError&) {
      return false;
    }
    return true;
  };
  if (fits(wanted)) return wanted;
  int64_t most = 0;
  for (int64_t step = kMostTokens; step > 0; step /= 2) {
    if (most + step < wanted && fits(most + step)) most += step;
  }
  return most;
}

/// Takes the next piece of every step that has tokens left; false if there is none.
bool Engine::cut(std::span<const Step> steps, int64_t rows, Workspace& workspace) const {
  int64_t active = 0;
  for (size_t i = 0; i < steps.size(); ++i) active += workspace.next[i] < steps[i].tokens.size();
  workspace.pieces.clear();
  workspace.shapes.clear();
  if (active == 0) return false;
  const int64_t quota = std::max<int64_t>(1, rows / active);
  int64_t first_row = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    EngineSequence& sequence = *steps[i].sequence;
    const auto left = static_cast<int64_t>(steps[i].tokens.size() - workspace.next[i]);
    if (left == 0) continue;
    const int64_t used = sequence.used(), count = std::min({left, quota, parts_->segment - used});
    core::DecodePiece shape{first_row, 0, count, 0, !sequence.open_, used + count == parts_->segment};
    if (shape.starts) shape.read = parts_->block.read;
    if (shape.ends) shape.write = parts_->block.write;
    workspace.pieces.push_back({&sequence, steps[i].tokens.subspan(workspace.next[i], static_cast<size_t>(count)), i});
    workspace.shapes.push_back(shape);
    workspace.next[i] += static_cast<size_t>(count);
    first_row += shape.rows();
  }
  return true;
}

void Engine::list_rows(const Workspace& workspace, int context, std::vector<core::DecodeRow>& rows) const {
  const core::DecodeSequence::Rows& block = parts_->block;
  const int64_t band = context < 0 ? 0 : parts_->contexts[static_cast<size_t>(context)].decoder->band();
  rows.clear();
  for (size_t number = 0; number < workspace.pieces.size(); ++number) {
    const core::DecodePiece& piece = workspace.shapes[number];
    const EngineSequence& sequence = *workspace.pieces[number].sequence;
    const int64_t past = context < 0 ? 0 : sequence.context_[static_cast<size_t>(context)];
    const int64_t before = past + sequence.length_, count = piece.rows();
    for (int64_t i = 0; i < count; ++i) {
      core::DecodeRow row{static_cast<int64_t>(number), before + i, 0, before + i + 1};
      if (i < piece.read || i >= piece.read + piece.tokens) {
        row.lo = block.sees_context ? 0 : past;
        if (!block.causal) row.hi = before + (i < piece.read ? piece.read : count);
      } else if (band > 0) {
        row.lo = std::max<int64_t>(0, row.key + 1 - band);
      }
      rows.push_back(row);
    }
  }
}

namespace {

/// The activation of ffn [count, layer.in.out()], times the gated half, into its first layer.out.in() columns.
template <class Layer>
void activate(const Layer& layer, float* ffn, int64_t count) {
  const int64_t wide = layer.in.out(), hidden = layer.out.in();
  at::parallel_for(0, count, core::thread_grain(8 * wide), [&](int64_t begin, int64_t end) {
    if (!layer.gated) return ops::activate_row(layer.activation, ffn + begin * wide, (end - begin) * wide);
    for (int64_t row = begin; row < end; ++row) {
      float* gate = ffn + row * wide;
      ops::activate_row(layer.activation, gate, hidden);
      for (int64_t c = 0; c < hidden; ++c) gate[c] *= gate[hidden + c];
    }
  });
}

}  // namespace

void Engine::start_pieces(Workspace& workspace) const {
  const Parts& parts = *parts_;
  for (size_t i = 0; i < workspace.pieces.size(); ++i) {
    EngineSequence& sequence = *workspace.pieces[i].sequence;
    const core::DecodePiece& piece = workspace.shapes[i];
    if (piece.starts) {
      sequence.open_ = true;
      sequence.read_ = piece.read;
      for (size_t c = 0; c < parts.contexts.size(); ++c)
        sequence.context_[c] = parts.contexts[c].decoder->count(*sequence.contexts_[c]);
    }
    for (size_t c = 0; c < parts.contexts.size(); ++c)
      parts.contexts[c].decoder->reserve(*sequence.contexts_[c], piece);
  }
  workspace.rows.resize(std::max(workspace.rows.size(), parts.contexts.size() + 1));
  for (const int context : parts.views) list_rows(workspace, context, workspace.rows[static_cast<size_t>(context + 1)]);
}

void Engine::forward(Workspace& workspace) const {
  start_pieces(workspace);
  const Parts& parts = *parts_;
  const int64_t dim = parts.dim;
  const int64_t count = workspace.shapes.back().first_row + workspace.shapes.back().rows();
  float *h = core::at_least(workspace.h, count * dim), *y = core::at_least(workspace.y, count * dim),
        *normed = core::at_least(workspace.x, count * dim);
  embed(workspace);
  const auto add_branch = [&](const Parts::Norm& norm) {
    // Pre-norm adds the branch; post-norm also normalises the sum.
    for (int64_t row = 0; row < count; ++row) {
      ops::accumulate(h + row * dim, y + row * dim, dim);
      if (!parts.pre_norm) norm(h + row * dim, dim, h + row * dim);
    }
  };
  const auto entering = [&](const Parts::Norm& norm) -> const float* {
    if (!parts.pre_norm) return h;
    for (int64_t row = 0; row < count; ++row) norm(h + row * dim, dim, normed + row * dim);
    return normed;
  };
  for (size_t n = 0; n < parts.layers.size(); ++n) {
    const Parts::Layer& layer = parts.layers[n];
    workspace.states.clear();
    for (size_t i = 0; i < workspace.pieces.size(); ++i) {
      EngineSequence& sequence = *workspace.pieces[i].sequence;
      workspace.states.push_back(&*sequence.layers_[n]);
      if (layer.context < 0) continue;
      const auto c = static_cast<size_t>(layer.context);
      const core::DecodePiece& piece = workspace.shapes[i];
      parts.contexts[c].decoder->enter(*sequence.contexts_[c], static_cast<int64_t>(n), piece,
                                       h + piece.first_row * dim);
    }
    const ops::PackedLinear& output = layer.attention->output();
    float* heads = core::at_least(workspace.heads, count * output.in());
    layer.attention->heads({workspace.shapes, workspace.rows[static_cast<size_t>(layer.context + 1)], workspace.states},
                           entering(layer.norm1), heads);
    // The feed-forward of a parallel residual reads the rows as they are before the attention's are added.
    const float* into_ffn = parts.parallel_residual ? entering(layer.norm2) : nullptr;
    output(heads, count, output.in(), y, dim);
    add_branch(layer.norm1);
    if (layer.cross) {
      workspace.encoded.clear();
      for (const core::DecodeRow& row : workspace.rows[0])
        workspace.encoded.push_back(workspace.pieces[static_cast<size_t>(row.piece)].sequence->encoded_[n].get());
      const ops::PackedLinear& read = layer.cross->output();
      heads = core::at_least(workspace.heads, count * read.in());
      layer.cross->heads(workspace.encoded, entering(layer.cross_norm), heads);
      read(heads, count, read.in(), y, dim);
      add_branch(layer.cross_norm);
    }
    const int64_t wide = layer.in.out();
    float* ffn = core::at_least(workspace.ffn, count * wide);
    layer.in(into_ffn != nullptr ? into_ffn : entering(layer.norm2), count, dim, ffn, wide);
    activate(layer, ffn, count);
    layer.out(ffn, count, wide, y, dim);
    add_branch(layer.norm2);
  }
  if (!parts.final_norm.weight.empty()) {
    for (int64_t row = 0; row < count; ++row) parts.final_norm(h + row * dim, dim, h + row * dim);
  }
  for (size_t i = 0; i < workspace.pieces.size(); ++i) {
    EngineSequence& sequence = *workspace.pieces[i].sequence;
    const core::DecodePiece& piece = workspace.shapes[i];
    sequence.length_ += piece.rows();
    for (size_t c = 0; c < parts.contexts.size(); ++c) parts.contexts[c].decoder->leave(*sequence.contexts_[c], piece);
    for (size_t m = 0; m < parts.memories.size(); ++m)
      parts.memories[m].decoder->leave(*sequence.memories_[m], piece, h + piece.first_row * dim);
    if (piece.ends) end_segment(sequence, piece.write);
  }
}

void Engine::end_segment(EngineSequence& sequence, int64_t write) const {
  const Parts& parts = *parts_;
  thread_local std::vector<core::KeptKeys> kept;
  thread_local std::vector<float> normed;
  for (size_t c = 0; c < parts.contexts.size(); ++c) {
    parts.contexts[c].decoder->end_segment(*sequence.contexts_[c],
                                           {{sequence.context_[c], sequence.length_, true}, sequence.read_, write});
  }
  for (size_t n = 0; n < parts.layers.size(); ++n) {
    const Parts::Layer& layer = parts.layers[n];
    kept.clear();
    if (layer.context >= 0) {
      const auto c = static_cast<size_t>(layer.context);
      parts.contexts[c].decoder->kept(*sequence.contexts_[c], static_cast<int64_t>(n),
                                      {{sequence.context_[c], sequence.length_, true}, sequence.read_, write}, kept);
    }
    for (core::KeptKeys& run : kept) {
      if (run.rows == nullptr || !parts.pre_norm) continue;
      float* rows = core::at_least(normed, run.count * parts.dim);
      for (int64_t row = 0; row < run.count; ++row)
        layer.norm1(run.rows + row * parts.dim, parts.dim, rows + row * parts.dim);
      run.rows = rows;
    }
    if (!layer.attention->end_segment(*sequence.layers_[n], kept)) make_keys(sequence, n);
  }
  sequence.open_ = false;
  sequence.length_ = sequence.read_ = 0;
}

void Engine::embed(Workspace& workspace) const {
  const Parts& parts = *parts_;
  const int64_t dim = parts.dim;
  for (size_t number = 0; number < workspace.pieces.size(); ++number) {
    const core::DecodePiece& piece = workspace.shapes[number];
    const EngineSequence& sequence = *workspace.pieces[number].sequence;
    float* rows = workspace.h.data() + piece.first_row * dim;
    if (piece.read + piece.write > 0) {
      const float* memory = parts.block_of->entering(*sequence.memories_[parts.block_number]);
      std::copy_n(memory, piece.read * dim, rows);
      std::copy_n(memory, piece.write * dim, rows + (piece.read + piece.tokens) * dim);
    }
    parts.embedding(workspace.pieces[number].tokens, rows + piece.read * dim);
    for (int64_t i = 0; i < piece.rows(); ++i) {
      float* row = rows + i * dim;
      const int64_t place = sequence.length_ + i;
      if (parts.positions.defined()) {
        ops::accumulate(row, parts.positions.const_data_ptr<float>() + place * dim, dim);
      } else if (!parts.frequencies.empty()) {
        const int64_t half = dim / 2;
        for (int64_t c = 0; c < half; ++c) {
          const double angle = static_cast<double>(parts.first_position + place) *
                               parts.frequencies[static_cast<size_t>(c)];
          row[c] += static_cast<float>(std::sin(angle));
          row[half + c] += static_cast<float>(std::cos(angle));
        }
      }
    }
  }
}

}  // namespace mnemo::infer
