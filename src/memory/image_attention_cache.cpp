#include "memory/image_attention_cache.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "core/require_state.h"
#include "memory/resample_cells.h"

namespace mnemo::memory {

ImageAttentionCache::ImageAttentionCache(const Options& options, const core::AttentionBuild& build,
                                         const core::ImageLayout& image, std::unique_ptr<core::CoreAttention> inner)
    : WrappedAttention(std::move(inner), "attention_cache"),
      lanes_(options.lanes == Options::Lanes::batch),
      moves_in_evaluation_(lanes_ && options.eval_lanes != Options::EvalLanes::empty),
      mem_len_(options.mem_len.value_or(image.rows())),
      dim_(build.dim),
      image_(image) {
  base::require(!image.windows,
                "attention_cache: does not support windows; use it with backbone.type = "
                "\"vit\", \"pvt\" or \"pvt_v2\"");
  base::require(this->inner().support().contexts, "attention_cache: this attention does not support context rows");
  base::require(!image.reduces() || mem_len_ % image.grid.size() == 0,
                "attention_cache: keys are reduced image by image: expected a mem_len of whole images, a multiple of "
                "{}, found {}",
                image.grid.size(), mem_len_);
  if (!lanes_) (build.attn / "attention_cache").reserve_state("rows", {mem_len_, dim_});
  like_ = build.attn.share("o.weight", {build.dim, build.num_heads * build.head_dim}, layers::normal(build.init_std));
}

core::State ImageAttentionCache::initial_state(int64_t batch) const {
  const auto options = like_.options().requires_grad(false);
  ImageAttentionCacheState state;
  state.lanes = lanes_;
  state.rows = lanes_ ? at::empty({batch, 0, dim_}, options) : at::zeros({1, mem_len_, dim_}, options);
  if (lanes_) {
    state.valid = at::empty({batch, 0}, options.dtype(at::kBool));
  } else {
    state.filled = at::zeros({1}, options.dtype(at::kLong));
  }
  return joined(state, inner().initial_state(batch));
}

core::AttentionSupport ImageAttentionCache::support() const {
  core::AttentionSupport support = WrappedAttention::support();
  support.keeps_state = true;
  support.contexts = false;
  return support;
}

int64_t ImageAttentionCache::own_max_rows(std::string_view, core::Mode mode) const {
  return moves(mode) ? mem_len_ : 0;
}

bool ImageAttentionCache::moves(core::Mode mode) const {
  return mem_len_ > 0 && (mode == core::Mode::train || moves_in_evaluation_);
}

at::Tensor ImageAttentionCache::context(const core::AttentionInput& input, const ImageAttentionCacheState& cache,
                                        core::AttendTable& table) const {
  const int64_t batch = input.x.size(0), kept = lanes_ && cache.rows.defined() ? cache.rows.size(1) : mem_len_;
  core::require_state("attention_cache", cache.rows, {lanes_ ? batch : 1, kept, dim_});
  if (lanes_) core::require_state("attention_cache", cache.valid, {batch, kept});
  const int64_t filled = lanes_ ? kept : std::min(cache.filled.item<int64_t>(), mem_len_);
  if (filled == 0) return {};
  at::Tensor rows = cache.rows.detach().narrow(1, kept - filled, filled), valid = cache.valid;
  if (image_.reduces()) {
    const int64_t lanes = rows.size(0), image = image_.grid.size();
    rows = reduced(rows.reshape({-1, image, dim_}), image_.grid).reshape({lanes, -1, dim_});
    // Images are real or padding as a whole.
    if (valid.defined())
      valid = valid.view({lanes, -1, image}).select(2, 0).repeat_interleave(rows.size(1) * image / filled, 1);
  }
  const at::Tensor own = table.valid();
  table.append_context({core::SpanKind::cache, rows.size(1)}, core::Rule::all());
  const auto ones = [&](int64_t count) { return at::ones({batch, count}, rows.options().dtype(at::kBool)); };
  if (own.defined() || (valid.defined() && !valid.all().item<bool>())) {
    table.set_valid(
        at::cat({valid.defined() ? valid : ones(rows.size(1)), own.defined() ? own : ones(input.x.size(1))}, 1));
  }
  return rows.expand({batch, -1, -1});
}

std::pair<at::Tensor, at::Tensor> ImageAttentionCache::entering(const core::AttentionInput& input) const {
  const at::Tensor x = input.x.detach();
  at::Tensor valid = input.table.valid();
  if (valid.defined()) valid = valid.narrow(1, input.table.num_context(), x.size(1));
  if (!image_.reduces()) return {x, valid};
  return {resample_cells(x, core::RealCells::from_mask(valid, input.grid()), image_.grid), {}};
}

core::AttentionResult ImageAttentionCache::forward(const core::AttentionInput& input, const core::State& state) const {
  const core::State own = own_state(state);
  const auto& cache = own.as<ImageAttentionCacheState>();
  core::AttentionResult result;
  for_inner(input, state, [&](const core::AttentionInput& seen, const core::State& of_inner) {
    result = inner().forward(seen, of_inner);
  });
  ImageAttentionCacheState next = cache;
  if (moves(input.mode)) {
    const at::NoGradGuard no_grad;
    const auto [rows, valid] = entering(input);
    if (lanes_) {
      const at::Tensor real = valid.defined() ? valid : cache.valid.new_ones({rows.size(0), rows.size(1)});
      next.rows = at::cat({cache.rows, rows}, 1);
      next.valid = at::cat({cache.valid, real}, 1);
      if (valid.defined()) {
        // Padding to the left: a stable order by "is real".
        const at::Tensor order = at::argsort(next.valid.to(at::kByte), /*stable=*/true, 1);
        next.rows = next.rows.gather(1, order.unsqueeze(-1).expand({-1, -1, dim_}));
        next.valid = next.valid.gather(1, order);
      }
      const int64_t all = next.rows.size(1), kept = std::min(all, mem_len_);
      next.rows = next.rows.narrow(1, all - kept, kept).contiguous();
      next.valid = next.valid.narrow(1, all - kept, kept).contiguous();
    } else {
      // All images of the batch in order.
      at::Tensor all = rows.reshape({-1, dim_});
      if (valid.defined()) all = all.index_select(0, at::nonzero(valid.flatten()).squeeze(1));
      const int64_t fresh = std::min(all.size(0), mem_len_), old = std::min(cache.rows.size(1), mem_len_ - fresh);
      next.rows = at::cat(
          {cache.rows.narrow(1, cache.rows.size(1) - old, old), all.narrow(0, all.size(0) - fresh, fresh).unsqueeze(0)},
          1);
      next.filled = (cache.filled + fresh).clamp_max(mem_len_);
    }
  }
  return {result.y, joined(next, std::move(result.state))};
}

void ImageAttentionCache::for_inner(const core::AttentionInput& input, const core::State& state,
                                    const Call& call) const {
  const core::State own = own_state(state);
  core::AttendTable table = input.table;
  const at::Tensor earlier = context(input, own.as<ImageAttentionCacheState>(), table);
  call({input.x, earlier, table, input.mode, input.ends, {}, input.image}, inner_state(state));
}

}  // namespace mnemo::memory
