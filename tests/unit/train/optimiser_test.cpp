#include "train/optimiser.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "base/node.h"
#include "tests/support/expect_error.h"
#include "weights/load_into.h"

namespace mnemo::train {
namespace {

using layers::ParameterKind;

layers::ParameterSet make_parameters(uint64_t seed = 3) {
  layers::ParameterSet set(seed, at::kDouble);
  const layers::Scope root = set.root();
  root.add("weight", {4, 3}, layers::normal(1.0));
  root.add("bias", {4}, layers::normal(1.0), ParameterKind::bias);
  root.add("norm", {3}, layers::normal(1.0), ParameterKind::norm);
  root.add("memory", {2, 3}, layers::normal(1.0), ParameterKind::memory);
  return set;
}

/// Gradients that depend only on the step number.
void set_gradients(const layers::ParameterSet& set, int64_t step, const std::string& skip = "") {
  for (const layers::Parameter& parameter : set.all()) {
    const at::Tensor places = at::arange(parameter.tensor.numel(), at::kDouble).view(parameter.tensor.sizes());
    parameter.tensor.mutable_grad() = parameter.name == skip ? at::Tensor()
                                                             : at::sin(places * 1.7 + static_cast<double>(step));
  }
}

/// The formulas in optimiser.h, one scalar at a time.
struct Plain {
  std::string type;
  double lr, decay, momentum = 0;
  bool nesterov = false;
  double m = 0, v = 0, buffer = 0;
  int64_t n = 0;
  double step(double p, double g) {
    ++n;
    if (type == "sgd") {
      g += decay * p;
      buffer = momentum * buffer + g;
      return p - lr * (nesterov ? g + momentum * buffer : buffer);
    }
    if (type == "adam") g += decay * p;
    if (type == "adamw") p *= 1 - lr * decay;
    m = 0.9 * m + 0.1 * g;
    v = 0.99 * v + 0.01 * g * g;
    const auto count = static_cast<double>(n);
    return p - lr * (m / (1 - std::pow(0.9, count))) / (std::sqrt(v / (1 - std::pow(0.99, count))) + 1e-6);
  }
};

base::Node options_of(const std::string& type, double momentum = 0, bool nesterov = false) {
  base::Node options = base::Node::table({{"type", type}, {"lr", 0.05}, {"weight_decay", 0.1}});
  if (type == "sgd") {
    options.set("momentum", momentum);
    options.set("nesterov", nesterov);
  } else {
    options.set("betas", base::Node::array({0.9, 0.99}));
    options.set("eps", 1e-6);
  }
  return options;
}

TEST(Optimiser, TenStepsFollowTheFormulas) {
  struct Kind {
    std::string type;
    double momentum = 0;
    bool nesterov = false;
  };
  for (const Kind& kind : {Kind{"adam"}, Kind{"adamw"}, Kind{"sgd"}, Kind{"sgd", 0.9}, Kind{"sgd", 0.9, true}}) {
    const layers::ParameterSet set = make_parameters();
    const auto optimiser = make_optimiser(options_of(kind.type, kind.momentum, kind.nesterov), set.all());
    std::map<std::string, std::vector<std::pair<double, Plain>>> expected;
    for (const layers::Parameter& parameter : set.all()) {
      const double decay = parameter.kind == ParameterKind::weight ? 0.1 : 0.0;
      for (int64_t i = 0; i < parameter.tensor.numel(); ++i) {
        expected[parameter.name].push_back({parameter.tensor.flatten()[i].item<double>(),
                                            Plain{kind.type, 0.05, decay, kind.momentum, kind.nesterov}});
      }
    }
    for (int64_t step = 0; step < 10; ++step) {
      // Half-way, the memory has no gradient once: it must neither move nor count the step.
      set_gradients(set, step, step == 4 ? "memory" : "");
      optimiser->step();
      for (const layers::Parameter& parameter : set.all()) {
        if (!parameter.tensor.grad().defined()) continue;
        auto& scalars = expected[parameter.name];
        for (size_t i = 0; i < scalars.size(); ++i) {
          const double gradient = parameter.tensor.grad().flatten()[static_cast<int64_t>(i)].item<double>();
          scalars[i].first = scalars[i].second.step(scalars[i].first, gradient);
        }
      }
    }
    for (const layers::Parameter& parameter : set.all()) {
      const auto& scalars = expected[parameter.name];
      for (size_t i = 0; i < scalars.size(); ++i) {
        EXPECT_NEAR(parameter.tensor.flatten()[static_cast<int64_t>(i)].item<double>(), scalars[i].first, 1e-12)
            << kind.type << " " << kind.momentum << " " << parameter.name;
      }
    }
  }
}

TEST(Optimiser, HeadsHaveTheirOwnLearningRate) {
  for (const std::string type : {"adam", "adamw", "sgd"}) {
    const auto parameters = [] {
      layers::ParameterSet set(3, at::kDouble);
      const layers::Scope root = set.root();
      for (const char* name : {"backbone", "head", "task.birds.head", "task.birds", "headless"})
        (root / name).add("weight", {3}, layers::normal(1.0));
      return set;
    };
    // Each group as a training whose only rate is its own; the schedule's factor multiplies both.
    const layers::ParameterSet both = parameters(), slow = parameters(), fast = parameters();
    base::Node options = options_of(type, 0.9), rate = options;
    options.set("head_lr", 0.4);
    rate.set("lr", 0.4);
    const auto one = make_optimiser(options, both.all()), low = make_optimiser(options_of(type, 0.9), slow.all()),
               high = make_optimiser(rate, fast.all());
    for (int64_t step = 0; step < 3; ++step) {
      for (const auto& [set, optimiser] :
           {std::pair(&both, one.get()), std::pair(&slow, low.get()), std::pair(&fast, high.get())}) {
        set_gradients(*set, step);
        optimiser->step(0.5);
      }
    }
    for (const layers::Parameter& parameter : both.all()) {
      const bool head = parameter.name == "head.weight" || parameter.name == "task.birds.head.weight";
      EXPECT_TRUE(at::equal(parameter.tensor, (head ? fast : slow).find(parameter.name)))
          << type << " " << parameter.name;
    }
    EXPECT_FALSE(at::equal(slow.find("head.weight"), fast.find("head.weight")));
    test::expect_error<base::InputError>([&] { make_optimiser(options, make_parameters().all()); },
                                         {"head_lr", "none"});
  }
}

TEST(Optimiser, GroupsOfParametersHaveTheirOwnLearningRate) {
  const auto parse = [](const std::string& groups) {
    return base::parse_json(R"({"type": "sgd", "lr": 0.1, "param_groups": )" + groups + "}", "test");
  };
  const auto trained = [](const base::Node& options) {
    layers::ParameterSet set = make_parameters();
    const auto optimiser = make_optimiser(options, set.all());
    set_gradients(set, 0);
    optimiser->step(0.5);
    return set;
  };
  const layers::ParameterSet one = trained(parse("[]")), two = trained(parse(R"([{"params": ["w?ight"], "lr": 1.0}])")),
                             initial = make_parameters();
  for (const layers::Parameter& parameter : two.all()) {
    const double factor = parameter.name == "weight" ? 10.0 : 1.0;
    const at::Tensor start = initial.find(parameter.name), moved = one.find(parameter.name) - start;
    EXPECT_TRUE(at::allclose(parameter.tensor - start, factor * moved, 1e-12, 1e-12)) << parameter.name;
  }
  test::expect_error<base::InputError>([&] { trained(parse(R"([{"params": ["nothing.*"], "lr": 1.0}])")); },
                                       {"param_groups", "nothing.*"});
  test::expect_error<base::InputError>(
      [&] { trained(parse(R"([{"params": ["weight"], "lr": 1.0}, {"params": ["w*"], "lr": 0.5}])")); },
      {"param_groups", "'weight'", "two"});
  test::expect_error<base::InputError>([&] { trained(parse(R"([{"params": ["weight"]}])")); }, {"lr", "none"});
  test::expect_error<base::InputError>([&] { trained(parse(R"([{"lr": 0.1}])")); }, {"params", "none"});
}

TEST(Optimiser, RestoredStateGoesOnBitwise) {
  for (const std::string type : {"adam", "adamw", "sgd"}) {
    const base::Node options = options_of(type, 0.9);
    const layers::ParameterSet whole = make_parameters(), resumed = make_parameters();
    const auto one = make_optimiser(options, whole.all());
    for (int64_t step = 0; step < 3; ++step) {
      set_gradients(whole, step, step == 1 ? "bias" : "");
      one->step(2.0);
    }
    const auto two = make_optimiser(options, resumed.all());
    weights::TensorFile file;
    for (const auto& [name, tensor] : one->state()) file.tensors.emplace_back(name, tensor.clone());
    weights::load_into(file, two->state(), "test");
    {
      const at::NoGradGuard no_grad;
      for (const layers::Parameter& parameter : whole.all()) resumed.find(parameter.name).copy_(parameter.tensor);
    }
    for (int64_t step = 3; step < 6; ++step) {
      for (const auto& [set, optimiser] : {std::pair(&whole, one.get()), std::pair(&resumed, two.get())}) {
        set_gradients(*set, step);
        optimiser->step(2.0);
      }
    }
    for (const layers::Parameter& parameter : whole.all()) {
      EXPECT_TRUE(at::equal(resumed.find(parameter.name), parameter.tensor)) << type << " " << parameter.name;
    }
  }
}

TEST(Optimiser, GradientsAreClippedByTheirCommonNorm) {
  const layers::ParameterSet set = make_parameters();
  EXPECT_EQ(gradient_norm(set.all()), 0.0);
  set_gradients(set, 1);
  double squares = 0;
  for (const layers::Parameter& parameter : set.all()) squares += parameter.tensor.grad().square().sum().item<double>();
  const double norm = gradient_norm(set.all());
  EXPECT_NEAR(norm, std::sqrt(squares), 1e-12);
  const at::Tensor before = set.find("weight").grad().clone();
  clip_gradients(set.all(), norm, norm * 2);
  EXPECT_TRUE(at::equal(set.find("weight").grad(), before));
  clip_gradients(set.all(), norm, 0.5);
  EXPECT_TRUE(at::allclose(set.find("weight").grad(), before * (0.5 / (norm + 1e-6)), 1e-15, 0));
  EXPECT_NEAR(gradient_norm(set.all()), 0.5, 1e-6);
}

TEST(Optimiser, OptionsAreChecked) {
  const layers::ParameterSet set = make_parameters();
  const auto make = [&](base::Node options) { make_optimiser(options, set.all()); };
  test::expect_error<base::InputError>([&] { make("adamx"); }, {"adamx", "adam"});
  test::expect_error<base::InputError>([&] { make(base::Node::table({{"type", "sgd"}, {"betas", 1}})); }, {"betas"});
  test::expect_error<base::InputError>(
      [&] {
        make(base::Node::table({{"type", "sgd"}, {"nesterov", true}}));
      },
      {"momentum"});
  EXPECT_EQ(make_optimiser("adamw", set.all())->base_lr(), 1e-3);
}

}  // namespace
}  // namespace mnemo::train
