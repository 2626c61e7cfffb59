#include "ops/linear/products.h"

#include <torch/types.h>

#include <optional>
#include <string_view>

#include "base/error.h"

namespace mnemo::ops {
namespace {

thread_local ProductCounter* counter = nullptr;

/// Work for the end of an event.
struct Event : at::ObserverContext {
  bool is_scope = false;
  bool is_whole = false;                ///< everything that runs inside belongs to it
  int64_t multiply_adds_an_output = 0;  ///< of a convolution
};

/// Multiply-adds of one of LibTorch's products; nothing for other operations.
std::optional<int64_t> libtorch_product(std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  if (name.ends_with('_')) name.remove_suffix(1);  // in place
  const auto tensor = [&](size_t index) -> const at::Tensor& { return inputs[index].toTensor(); };
  if (name == "aten::mm") return tensor(0).numel() * tensor(1).size(1);
  if (name == "aten::addmm") return tensor(1).numel() * tensor(2).size(1);
  if (name == "aten::bmm") return tensor(0).numel() * tensor(1).size(2);
  if (name == "aten::baddbmm") return tensor(1).numel() * tensor(2).size(2);
  if (name == "aten::addmv") return tensor(1).numel();  // called by mv
  if (name == "aten::dot") return tensor(0).numel();
  return std::nullopt;
}

}  // namespace

struct ProductCallbacks {
  static std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& function) {
    auto event = std::make_unique<Event>();
    if (function.scope() == at::RecordScope::USER_SCOPE) {
      event->is_scope = true;
      counter->scopes_.emplace_back(function.name());
      return event;
    }
    const std::string_view name = function.name();
    if (name.starts_with("mnemo::")) {
      event->is_whole = true;
      if (counter->inside_ == 0) counter->add(function.inputs()[0].toInt());
    } else if (name == "aten::convolution") {
      event->is_whole = true;
      const at::Tensor& weight = function.inputs()[1].toTensor();
      if (counter->inside_ == 0) event->multiply_adds_an_output = weight.numel() / weight.size(0);
    } else if (counter->inside_ == 0) {
      if (const auto product = libtorch_product(name, function.inputs())) counter->add(*product);
    }
    if (event->is_whole) ++counter->inside_;
    return event;
  }

  static void end(const at::RecordFunction& function, at::ObserverContext* context) {
    const auto& event = static_cast<const Event&>(*context);
    if (event.is_scope) counter->scopes_.pop_back();
    if (event.is_whole) --counter->inside_;
    if (event.multiply_adds_an_output > 0)
      counter->add(event.multiply_adds_an_output * function.outputs()[0].toTensor().numel());
  }
};

void DeclaredProducts::require_within_limit() {
  if (counter == nullptr || counter->total() <= counter->limit_) return;
  base::input_error("more than {} multiply-adds take too long to count; give a smaller batch or size", counter->limit_);
}

ProductCounter::ProductCounter(int64_t limit) : limit_(limit) {
  base::ensure(counter == nullptr, "a thread counts its products once at a time");
  counter = this;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&ProductCallbacks::start, &ProductCallbacks::end)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE}));
}

ProductCounter::~ProductCounter() {
  at::removeCallback(handle_);
  counter = nullptr;
}

void ProductCounter::add(int64_t multiply_adds) {
  by_scope_[scopes_.empty() ? std::string() : scopes_.back()] += multiply_adds;
}

int64_t ProductCounter::total() const {
  int64_t sum = 0;
  for (const auto& [scope, multiply_adds] : by_scope_) sum += multiply_adds;
  return sum;
}

}  // namespace mnemo::ops
