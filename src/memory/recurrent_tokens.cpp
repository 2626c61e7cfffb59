#include "memory/recurrent_tokens.h"

#include <torch/types.h>

#include <tuple>

#include "core/require_state.h"
#include "memory/rows.h"

namespace mnemo::memory {

using core::Rule;
using core::SpanKind;

void RecurrentTokensOptions::validate(const base::Where& where) const {
  const bool encoder = layout == RecurrentTokensOptions::Layout::encoder;
  const bool front = memory_position == RecurrentTokensOptions::MemoryPosition::front;
  where.require(!encoder || !front || eos_token.has_value() == pad_token.has_value(), "eos_token", "{}",
                "eos_token and pad_token belong together: expected both or neither");
  const std::tuple<const char*, const std::optional<int64_t>&, bool> special[] = {
      {"cls_token", cls_token, !front},
      {"sep_token", sep_token, !front},
      {"pad_token", pad_token, !front || pad_token.has_value()},
      {"eos_token", eos_token, front && eos_token.has_value()}};
  for (const auto& [key, token, used] : special) {
    where.require(!encoder || !used || token.has_value(), key, "layout = \"encoder\" needs this token");
    where.require(encoder || !token.has_value(), key, "requires layout = \"encoder\"");
    where.require(used || !token.has_value(), key, "is {} in the block of memory_position = \"front\"",
                  front ? "not" : "only");
  }
  where.require(encoder || memory_position == RecurrentTokensOptions::MemoryPosition::same, "memory_position",
                "requires layout = \"encoder\"");
  where.require(!encoder || block_mask == RecurrentTokensOptions::BlockMask::open, "block_mask",
                "the block of layout = \"encoder\" is open: expected \"open\"");
  where.require(!encoder || !read_mem_from_cache, "read_mem_from_cache",
                "memory rows of layout = \"encoder\" always see the segment cache: expected false");
  where.require(!encoder || !aux_loss.has_value(), "aux_loss", "layout = \"encoder\" has no write rows");
}

void RecurrentTokensOptions::check(const core::ModelOutline& model, const base::Where& where) const {
  const bool block = layout == RecurrentTokensOptions::Layout::encoder;
  where.require(!model.causal || !block, "memory",
                "recurrent_tokens with layout = \"encoder\" needs backbone.type = \"encoder\"; expected layout = "
                "\"read_write\"");
  where.require(model.causal || block, "memory",
                "recurrent_tokens with layout = \"read_write\" needs causal layers; an encoder takes layout = "
                "\"encoder\"");
  require_room(model, num_mem_tokens, rows_beside(), where);
  if (!model.whole) return;
  for (const auto& [key, token] : {std::pair("cls_token", cls_token),
                                   {"sep_token", sep_token},
                                   {"pad_token", pad_token},
                                   {"eos_token", eos_token},
                                   {"aux_loss.token", aux_loss ? std::optional(aux_loss->token) : std::nullopt}}) {
    base::require(!token || model.vocab_size == 0 || *token < model.vocab_size,
                  "model: recurrent_tokens.{} expected to be below vocab_size = {}, found {}", key, model.vocab_size,
                  token.value_or(0));
  }
}

RecurrentTokens::RecurrentTokens(const Options& options, const core::MemoryBuild& build)
    : options_(options), tokens_(build, options.num_mem_tokens, options.init, options.init_std) {}

core::State RecurrentTokens::initial_state(int64_t batch) const {
  return RecurrentTokensState{tokens_.for_batch(batch)};
}

void RecurrentTokens::enter(core::SegmentRows& rows, const core::State& state, core::Part part) const {
  const at::Tensor& tokens = state.as<RecurrentTokensState>().tokens;
  core::require_state("recurrent_tokens", tokens, {rows.rows.size(0), options_.num_mem_tokens, rows.rows.size(2)});
  if (options_.num_mem_tokens == 0) return;
  const bool causal = options_.block_mask == RecurrentTokensOptions::BlockMask::causal;
  const Rule inside = causal ? Rule::causal() : Rule::all();
  const Rule cache = options_.read_mem_from_cache ? Rule::all() : Rule::none();
  if (part.starts) {
    add_rows(rows, tokens, true);
    for (core::AttendTable& table : rows.tables) {
      table.prepend_rows({SpanKind::read, options_.num_mem_tokens})
          .set_rule(SpanKind::read, SpanKind::read, inside)
          .set_rule(SpanKind::read, SpanKind::cache, cache)
          .set_rule(SpanKind::tokens, SpanKind::read, causal ? Rule::causal() : Rule::all());
    }
  }
  if (part.ends) {
    add_rows(rows, tokens, false);
    for (core::AttendTable& table : rows.tables) {
      table.append_rows({SpanKind::write, options_.num_mem_tokens})
          .set_rule(SpanKind::write, SpanKind::cache, cache)
          .set_rule(SpanKind::write, SpanKind::read, Rule::all())
          .set_rule(SpanKind::write, SpanKind::tokens, Rule::all())
          .set_rule(SpanKind::write, SpanKind::write, inside);
    }
  }
}

std::vector<core::AuxiliaryLoss> RecurrentTokens::losses(const at::Tensor& hidden, const core::LossOfRows& nll) const {
  if (!options_.aux_loss || options_.aux_loss->weight == 0.0) return {};
  const at::Tensor targets = at::full({hidden.size(0), hidden.size(1)}, options_.aux_loss->token,
                                      hidden.options().dtype(at::kLong).requires_grad(false));
  return {{"aux_nll", nll(hidden, targets), options_.aux_loss->weight}};
}

core::State RecurrentTokens::leave(const at::Tensor& hidden, const core::AttendTable& table, const core::State& state,
                                   core::Part part) const {
  if (!part.ends || options_.num_mem_tokens == 0) return state;
  return RecurrentTokensState{hidden.narrow(1, table.row_offset(SpanKind::write), options_.num_mem_tokens)};
}

}  // namespace mnemo::memory
