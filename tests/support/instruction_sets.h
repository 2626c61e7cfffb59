#pragma once

#include <gtest/gtest.h>

#include <hwy/targets.h>

namespace mnemo::test {

/// Runs `body` once for each instruction set that the kernels support on this processor, including the portable form.
template <class Body>
void for_each_instruction_set(Body&& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace mnemo::test
