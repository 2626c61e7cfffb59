#pragma once

#include <vector>

#include "backbones/vit.h"
#include "core/task_tokens.h"

namespace mnemo::backbones {

/// A ViT with the tasks of learnable memory (Sandler et al. 2022, section 2). X = [class, patches; c_1 .. c_K], u =
/// norm1(X):
///   q of u;  k, v of [u; E], E the layer's memory, normalised or not;  X <- X + attn;  X <- X + ffn(norm2(X));
///   memory has no output
/// Masked tasks, grouped: the old rows equal those of the plain forward pass bit for bit, and a task's row depends only
/// on them and on what the task sees, bit for bit. Attention must keep its keys and values in its state (softmax).
/// Calls input.hidden with "embed", and with "layers.N" for all rows [old; class rows; propagated memory].
core::TasksResult forward_tasks(const Vit& vit, const core::TaskMemory& tasks, const core::BackboneInput& input,
                                core::TaskForm form);

/// The rows that enter the first layer: old rows [B,T,D], with the tasks' replacement of the class token if there is
/// one.
at::Tensor old_rows(const Vit& vit, const core::TaskMemory& tasks, const at::Tensor& pixels);
/// The class row of each task as it enters the first layer, [1,1,D]; undefined for tasks without one.
std::vector<at::Tensor> class_rows(const Vit& vit, const core::TaskMemory& tasks, const core::Grid& grid);

}  // namespace mnemo::backbones
