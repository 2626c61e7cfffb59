#pragma once

#include "attention/registry.h"
#include "base/option_poly.h"
#include "heads/registry.h"
#include "memory/registry.h"

namespace mnemo::models {

/// Every attention, memory and head that a model can use, by name. Used by the command line, the conformance suite and
/// the documentation.
struct Mechanisms {
  base::OptionTypes attention_types{"attention"};
  base::Registry<core::AttentionEntry> attentions{"attention"};
  base::OptionTypes image_attention_types{"attention"};  ///< those that only vision backbones can use
  base::Registry<core::AttentionEntry> image_attentions{"attention"};
  base::OptionTypes head_types{"head"};
  base::Registry<heads::Entry> heads{"head"};
  base::OptionTypes memory_types{"memory"};
  base::Registry<memory::Entry> memories{"memory"};

  /// Filled on first use; constant afterwards.
  static const Mechanisms& all();
};

}  // namespace mnemo::models
