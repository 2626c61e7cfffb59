#pragma once

#include <gtest/gtest.h>

#include <hwy/targets.h>

namespace mnemo::test {

/// Runs `body` once for each instruction set that the kernels support on this processor, including the portable form;
/// kernels without a form for it use the next simpler one.
template <class Body>
void for_each_instruction_set(Body&& body) {
  const int64_t supported = hwy::SupportedTargets() & (HWY_TARGETS | HWY_AVX3_DL);
  for (int64_t targets = supported; targets != 0; targets &= targets - 1) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, hwy::TargetName(targets & -targets));
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace mnemo::test
