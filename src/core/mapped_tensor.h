#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace mnemo::base {
class MappedFile;
}

/// Tensors that lie in a mapped file (base::MappedFile): read-only, they cost neither a copy nor memory of the
/// process's own. They are for weights that are read once, to be packed; owned() keeps what is read later.
namespace mnemo::core {

/// The numbers at byte `offset` of the file, which stays mapped as long as the tensor or a view of it exists. They must
/// lie within the file, at a multiple of the type's size.
at::Tensor mapped_tensor(std::shared_ptr<const base::MappedFile> file, uint64_t offset, at::IntArrayRef sizes,
                         at::ScalarType type);

/// Whether a tensor lies in a mapped file.
bool is_mapped(const at::Tensor& tensor);

/// Gives `target` the values of `source`, which has its shape. If that is mapped and has the target's type, the target
/// is a tensor of the file from then on, with the strides of `source`; else the values are copied into it.
void take_values(const at::Tensor& target, const at::Tensor& source);

/// The tensor itself if it is contiguous and lies in no mapped file, else a contiguous copy.
at::Tensor owned(const at::Tensor& tensor);

/// Takes the pages of a mapped tensor out of the process's memory; they are read from the file again when they are
/// next used. Does nothing for other tensors.
void forget_pages(const at::Tensor& tensor);

}  // namespace mnemo::core
