#pragma once

#include <ATen/core/Tensor.h>

#include <array>

namespace mnemo::ops {

// A box is a row [x1, y1, x2, y2] in pixels, of width x2 - x1 and height y2 - y1. All functions here have gradients.

/// (x2 - x1)(y2 - y1): [..,4] -> [..].
at::Tensor box_area(const at::Tensor& boxes);

/// IoU of every pair, I / U with 0/0 = 0: a [N,4], b [M,4] -> [N,M].
at::Tensor box_iou(const at::Tensor& a, const at::Tensor& b);

/// GIoU of every pair, I/U - (C - U)/C, where C is the area of the smallest box around both; 0/0 = 0.
///   a [N,4], b [M,4] -> [N,M]. Source: Rezatofighi et al. 2019.
at::Tensor box_giou(const at::Tensor& a, const at::Tensor& b);

/// 1 - (I/(U+eps) - (C-U)/(C+eps)) of each row: a, b [N,4] -> [N].
at::Tensor giou_loss(const at::Tensor& a, const at::Tensor& b, double eps);

using BoxWeights = std::array<double, 4>;

/// Boxes relative to anchors, by centre (cx, cy) and size (w, h) (Ren et al. 2015, eq. 2):
///   dx = w1 (cx - cxa)/wa, dy = w2 (cy - cya)/ha, dw = w3 ln(w/wa), dh = w4 ln(h/ha)
/// anchors, boxes [N,4] of positive size -> [N,4].
at::Tensor box_encode(const at::Tensor& anchors, const at::Tensor& boxes, const BoxWeights& weights);

/// The inverse: deltas [N,4K] of K classes -> boxes [N,K,4]. dw and dh, after division by the weights, are at most
/// `clip`; their gradient is 0 above it.
at::Tensor box_decode(const at::Tensor& anchors, const at::Tensor& deltas, const BoxWeights& weights, double clip);

/// x limited to [0, width] and y to [0, height]: [..,4] -> [..,4].
at::Tensor clip_boxes(const at::Tensor& boxes, double height, double width);

}  // namespace mnemo::ops
