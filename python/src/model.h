#pragma once

#include <memory>

#include "bundle/bundle.h"
#include "mnemo.h"
#include "models/model.h"

namespace mnemo::python {

/// The C++ half of mnemo.Model and mnemo.nn.LayerStack: a model with what a folder holds beside it.
struct ModelHandle {
  Bundle bundle;

  const bundle::Bundle& parts() const { return bundle.parts(); }
  models::Model& model() const { return *bundle.parts().model; }
};

}  // namespace mnemo::python
