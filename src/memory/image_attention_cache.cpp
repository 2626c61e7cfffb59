#include "memory/image_attention_cache.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "core/require_state.h"

namespace mnemo::memory {

ImageAttentionCache::ImageAttentionCache(const Options& options, const core::AttentionBuild& build,
                                         const core::ImageLayout& image, std::unique_ptr<core::CoreAttention> inner)
    : mem_len_(options.mem_len.value_or(image.rows())), dim_(build.dim), image_(image), inner_(std::move(inner)) {
  base::require(!image.windows,
                "attention_cache: does not support windows; use it with backbone.type = "
                "\"vit\", \"pvt\" or \"pvt_v2\"");
  base::require(inner_->support().contexts, "attention_cache: this attention does not support context rows");
  if (image.reduces()) reduces_ = dynamic_cast<const core::ReducesRows*>(inner_.get());
  base::ensure(!image.reduces() || reduces_ != nullptr,
               "an attention that reduces its keys must implement ReducesRows");
  base::require(!image.reduces() || mem_len_ % image.grid.size() == 0,
                "attention_cache: keys are reduced image by image: expected a mem_len of whole images, a multiple of "
                "{}, found {}",
                image.grid.size(), mem_len_);
  (build.attn / "attention_cache").reserve_state("rows", {mem_len_, dim_});
  like_ = build.attn.share("o.weight", {build.dim, build.num_heads * build.head_dim}, layers::normal(build.init_std));
}

core::State ImageAttentionCache::initial_state(int64_t batch) const {
  const auto options = like_.options().requires_grad(false);
  const ImageAttentionCacheState state{at::zeros({1, mem_len_, dim_}, options),
                                       at::zeros({1}, options.dtype(at::kLong))};
  return core::State::list({{"attention_cache", state}, {"core", inner_->initial_state(batch)}});
}

core::AttentionSupport ImageAttentionCache::support() const {
  core::AttentionSupport support = inner_->support();
  support.keeps_state = true;
  support.contexts = false;
  return support;
}

at::Tensor ImageAttentionCache::context(const core::AttentionInput& input, const ImageAttentionCacheState& cache,
                                        core::AttendTable& table) const {
  core::require_state("attention_cache", cache.rows, {1, mem_len_, dim_});
  const core::Grid grid = input.grid();
  const bool same_grid = grid.height == image_.grid.height && grid.width == image_.grid.width;
  base::require(!image_.reduces() || same_grid,
                "[attention_cache] its images have {}x{} rows and are reduced like the current image: expected one of "
                "that size, found {}x{}",
                image_.grid.height, image_.grid.width, grid.height, grid.width);
  const int64_t filled = std::min(cache.filled.item<int64_t>(), mem_len_);
  if (filled == 0) return {};
  at::Tensor rows = cache.rows.detach().narrow(1, mem_len_ - filled, filled);
  if (reduces_ != nullptr)
    rows = reduces_->reduced(rows.view({-1, image_.grid.size(), dim_}), image_.grid).reshape({1, -1, dim_});
  table.append_context({core::SpanKind::cache, rows.size(1)}, core::Rule::all());
  return rows.expand({input.x.size(0), -1, -1});
}

core::AttentionResult ImageAttentionCache::forward(const core::AttentionInput& input, const core::State& state) const {
  const core::State own = state.child("attention_cache");
  const auto& cache = own.as<ImageAttentionCacheState>();
  core::AttendTable table = input.table;
  const at::Tensor earlier = context(input, cache, table);
  core::AttentionResult result = inner_->forward({input.x, earlier, table, input.mode, input.ends, {}, input.image},
                                                 state.child("core"));
  ImageAttentionCacheState next = cache;
  if (input.mode == core::Mode::train && mem_len_ > 0) {
    const at::NoGradGuard no_grad;
    const int64_t total = input.x.size(0) * input.x.size(1), fresh = std::min(total, mem_len_);
    const at::Tensor rows = input.x.detach().reshape({1, total, dim_}).narrow(1, total - fresh, fresh);
    next.rows = at::cat({cache.rows.narrow(1, fresh, mem_len_ - fresh), rows}, 1);
    next.filled = (cache.filled + fresh).clamp_max(mem_len_);
  }
  return {result.y, core::State::list({{"attention_cache", next}, {"core", std::move(result.state)}})};
}

core::AttentionView ImageAttentionCache::inspect(const core::AttentionInput& input, const core::State& state,
                                                 const core::State& history) const {
  const auto* inner = dynamic_cast<const core::Inspectable*>(inner_.get());
  if (inner == nullptr) return {};
  const core::State own = state.child("attention_cache");
  core::AttendTable table = input.table;
  const at::Tensor earlier = context(input, own.as<ImageAttentionCacheState>(), table);
  return inner->inspect({input.x, earlier, table, input.mode, input.ends, {}, input.image}, state.child("core"),
                        history);
}

}  // namespace mnemo::memory
